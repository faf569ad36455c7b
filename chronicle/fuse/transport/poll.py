"""Waiting for a mount's next request, and serving other descriptors meanwhile.

Both transports wait here. Callbacks run between requests, in the thread that serves them, so neither needs a lock
against the other. One that takes long may let requests in (`chronicle.fuse.transport.interleave`); those that it keeps
are carried out when the callbacks of the round have ended.
"""

from __future__ import annotations

import os
import select
import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from chronicle.fuse.transport.interleave import ServedMeanwhile
from chronicle.fuse.watchdog import COMMAND, IDLE, REQUEST, Pulse, unwatched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Watch"]


class Watch:
    """The descriptors that a mount's thread waits for.

    Args:
        pulse: where it says what it is doing, for whoever looks whether it hangs.
    """

    def __init__(self, pulse: Pulse | None = None) -> None:
        self._pulse = (unwatched() if pulse is None else pulse).cells
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._device = -1
        self._stopped = False
        self._catch_up: Callable[[], None] | None = None
        """Carries out what was kept in this round."""
        self._look: Callable[[], None] | None = None
        self._look_every_s = self._look_s = 0.0

    def add(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back, between requests, each time a descriptor is readable or hung up.

        The callback must not raise: an exception ends the session.
        """
        self._callbacks[fd] = callback
        self._poll.register(fd, select.POLLIN)

    def remove(self, fd: int) -> None:
        """Forget a descriptor; to be called before it is closed."""
        del self._callbacks[fd]
        self._poll.unregister(fd)

    def look_every(self, seconds: float, look: Callable[[], None] | None) -> None:
        """Call something every so many seconds, between requests; or nothing any more."""
        self._look, self._look_every_s = look, seconds
        self._look_s = monotonic() + seconds

    def beside(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Do work in a thread of its own while requests are served, and call back between them when it is done.

        A session that ends does not wait for it.
        """
        ended, ends = os.pipe2(os.O_CLOEXEC)

        def run() -> None:
            try:
                work()
            finally:
                os.close(ends)

        def finish() -> None:
            self.remove(ended)
            os.close(ended)
            done()

        self.add(ended, finish)
        threading.Thread(target=run, name="beside", daemon=True).start()

    def meanwhile(
        self,
        take: Callable[[], bool],
        look: Callable[[], None],
        catch_up: Callable[[], None],
        also: tuple[int, Callable[[], None]] | None = None,
    ) -> ServedMeanwhile:
        """Return what lets requests in while a callback runs. For callbacks.

        Args:
            take: see `ServedMeanwhile`.
            look: see `ServedMeanwhile`.
            catch_up: carries out what was kept; called after the callbacks of this round, unless the session is to end.
            also: see `ServedMeanwhile`.
        """
        self._catch_up = catch_up
        return ServedMeanwhile(self._device, self._pulse, take, look, also)

    @contextmanager
    def between(self) -> Iterator[None]:
        """Let requests be carried out that were put aside; what was being done before is being done again after."""
        before = self._pulse[1]
        try:
            yield
        finally:
            self._pulse[1] = before

    def get_on(self) -> None:
        """Say that another request begins. For what catches up, and within `between`."""
        self._pulse[0] += 1
        self._pulse[1] = REQUEST

    def stop(self) -> None:
        """Let `wait` return False from now on. For callbacks."""
        self._stopped = True

    def wait(self, device: int) -> bool:
        """Wait until a request can be read from the device; serve the other descriptors while there is none.

        Returns:
            False when the session is to end.
        """
        if device != self._device:
            # A request can be taken back (its caller was killed) between poll and read; a blocking read would then
            # keep the control sockets waiting for the next request.
            os.set_blocking(device, False)
            self._poll.register(device, select.POLLIN)
            self._device = device
        poll, callbacks, pulse = self._poll.poll, self._callbacks, self._pulse
        while not self._stopped:
            pulse[1] = IDLE
            ready = poll() if self._look is None else poll(self._look_every_s * 1_000)
            pulse[0] += 1
            if len(ready) == 1 and ready[0][0] == device and self._look is None:
                pulse[1] = REQUEST
                return True  # else the commands first
            if self._look is not None:
                self._look_if_due(self._look)
            for fd, callback in [(fd, callbacks[fd]) for fd, _ in ready if fd != device]:
                # An earlier callback of this round may have closed the descriptor, and its number be another's now.
                if callbacks.get(fd) is callback:
                    pulse[1] = COMMAND
                    callback()
            if self._catch_up is not None:
                self._finish_round()
                ready = poll(0)  # what it said of the device may not be so any more
            if any(fd == device for fd, _ in ready):
                break  # a descriptor that stays readable must not keep requests waiting
        if self._stopped:
            return False
        pulse[1] = REQUEST
        return True

    def _look_if_due(self, look: Callable[[], None]) -> None:
        now_s = monotonic()
        if now_s >= self._look_s:
            self._look_s = now_s + self._look_every_s
            look()

    def _finish_round(self) -> None:
        catch_up, self._catch_up = self._catch_up, None
        if catch_up is not None and not self._stopped:
            self._pulse[1] = REQUEST
            catch_up()
