"""Serving a mount while a command of its server takes long.

Commands and requests have one thread, so a seal of minutes would keep everyone waiting who looks at a file. It need
not: whoever changes nothing cannot get in its way. So the seal lets requests in, between two blobs and while another
thread puts them. What changes nothing is answered then. All else is kept, and carried out when the command has ended,
in the order in which it came: nobody has an answer yet, so for everyone it happens after the command.

    seal ──► breathe ──► requests that are there now, for some milliseconds at most ──► the seal goes on
        └──► aside ───► a thread puts blobs; requests, as they come, until it has ───► the seal goes on
    the command ends ──► what was kept ──► the next command or request

How a request is taken and kept is a transport's business. The kernel holds locks for some of those who wait: nobody can
list a directory in which a name is being made.
"""

from __future__ import annotations

import os
import select
import threading
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from chronicle.errors import Unavailable
from chronicle.fuse.watchdog import COMMAND, REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LONGEST_S", "ServedMeanwhile"]

T = TypeVar("T")

LONGEST_S: Final = 1_000.0
"""How long a command may keep requests waiting: longer than a client waits for a seal."""
_EVERY_S: Final = 0.005
"""How long a command goes on at least between two breaths, and how long one lasts at most: neither starves."""
_LINGER_MS: Final = 1
"""Whoever got an answer asks again at once, as a rule: a listing is hundreds of requests, one after the other."""
_LOOK_MS: Final = 1_000


class ServedMeanwhile:
    """A `chronicle.blobs.buffer.Meanwhile` for one command: takes requests from a mount's device.

    Args:
        device: the connection's descriptor, non-blocking.
        pulse: the server's numbers; a request that hangs is told from the command by them.
        take: reads a request, if there is one, and answers or keeps it. False if none is to be taken from now on. It
            must not raise.
        look: called now and then, with nothing to do but what is on time.
        also: a further descriptor, and what is called when it is readable.
        longest_s: after so many seconds the command is to be given up.
    """

    def __init__(
        self,
        device: int,
        pulse: memoryview,
        take: Callable[[], bool],
        look: Callable[[], None],
        also: tuple[int, Callable[[], None]] | None = None,
        longest_s: float = LONGEST_S,
    ) -> None:
        self._device = device
        self._pulse = pulse
        self._take = take
        self._look = look
        self._poll = select.poll()
        self._poll.register(device, select.POLLIN)
        self._also = also
        if also is not None:
            self._poll.register(also[0], select.POLLIN)
        self._takes = True
        now_s = monotonic()
        self._next_s = now_s + _EVERY_S
        self._look_s = now_s
        self._longest_s = longest_s
        self._until_s = now_s + longest_s

    def breathe(self) -> None:
        """Take the requests that are there, if it is time to."""
        now_s = monotonic()
        if now_s < self._next_s:
            return
        self._go_on(now_s)
        patience_ms = 0
        while self._takes and (ready := [fd for fd, _ in self._poll.poll(patience_ms)]):
            self._serve(ready)
            patience_ms = _LINGER_MS
            if monotonic() >= now_s + _EVERY_S:
                break
        self._next_s = monotonic() + _EVERY_S

    def aside(self, work: Callable[[], T]) -> T:
        """Do work in another thread, and take requests until it is done."""
        try:
            ended, ends = os.pipe2(os.O_CLOEXEC)
        except OSError:  # no descriptors are left: the work is what matters
            return work()
        done: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                done.append(work())
            except BaseException as error:  # noqa: BLE001 - raised in the command
                failed.append(error)
            finally:
                os.close(ends)

        try:
            threading.Thread(target=run, name="aside", daemon=True).start()
        except RuntimeError:  # nor can another thread be had
            os.close(ended)
            os.close(ends)
            return work()
        self._poll.register(ended, select.POLLIN)
        try:
            while True:
                ready = [fd for fd, _ in self._poll.poll(_LOOK_MS)]
                if ended in ready:
                    break
                self._go_on(monotonic())
                self._serve(ready)
        finally:
            self._poll.unregister(ended)
            os.close(ended)
        self._next_s = monotonic() + _EVERY_S
        if failed:
            raise failed[0]
        return done[0]

    def _go_on(self, now_s: float) -> None:
        self._pulse[0] += 1
        if now_s >= self._look_s:
            self._look_s = now_s + _LOOK_MS / 1_000
            self._look()
        if now_s > self._until_s:
            raise Unavailable(
                f"it took longer than {self._longest_s:g} s and was given up, so that whoever changes files need not "
                "wait; what is stored by now need not be stored again, so try once more"
            )

    def _serve(self, ready: list[int]) -> None:
        if self._also is not None and self._also[0] in ready:
            self._pulse[1] = REQUEST
            self._also[1]()
            self._pulse[1] = COMMAND
        if self._device in ready:
            self._take_one()

    def _take_one(self) -> None:
        self._pulse[1] = REQUEST
        self._takes = self._take()
        self._pulse[0] += 1
        self._pulse[1] = COMMAND
        if not self._takes:
            self._poll.unregister(self._device)
