"""Interleaving of requests with a long command of the mount server.

Commands and requests share one thread, so a seal of minutes would hold up every reader. Requests that change nothing
cannot disturb it. So a seal serves them between two blobs and while another thread stores blobs. All other requests are
deferred until the command has ended, and then executed in the order of their arrival: no caller has an answer yet, so
for every observer they happen after the command.

    seal ──► breathe ──► the pending requests, for some milliseconds at most ──► the seal goes on
        └──► aside ───► a thread stores blobs; requests are served as they arrive ──► the seal goes on
    the command ends ──► the deferred requests ──► the next command or request

How a request is read and deferred is the transport's business. The kernel holds locks for some callers of deferred
requests: a directory cannot be listed while a name is being made in it.
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

__all__ = ["LONGEST_S", "Interleaver"]

T = TypeVar("T")

LONGEST_S: Final = 1_000.0
"""How long a command may defer requests: longer than a client waits for a seal."""
_SLICE_S: Final = 0.005
"""Minimum time slice of a command between two request slices, and maximum length of a request slice: neither
starves."""
_LINGER_MS: Final = 1
"""Wait for the next request within a slice. A caller that got an answer sends the next request at once, as a rule: a
listing is hundreds of requests in sequence."""
_CHECK_INTERVAL_MS: Final = 1_000


class Interleaver:
    """A `chronicle.blobs.buffer.Interleaving` for one command: serves requests from a mount's device.

    Args:
        device: the connection's descriptor, non-blocking.
        heartbeat: the server's cells; they tell the watchdog a request that hangs from the command.
        serve_one: reads a request, if there is one, and answers or defers it. False stops the interleaving. It must not
            raise.
        check: called at an interval, for deadlines and killed callers.
        extra: a further descriptor, and its callback.
        longest_s: the command fails after this many seconds.
    """

    def __init__(
        self,
        device: int,
        heartbeat: memoryview,
        serve_one: Callable[[], bool],
        check: Callable[[], None],
        extra: tuple[int, Callable[[], None]] | None = None,
        longest_s: float = LONGEST_S,
    ) -> None:
        self._device = device
        self._heartbeat = heartbeat
        self._serve_one = serve_one
        self._check = check
        self._poll = select.poll()
        self._poll.register(device, select.POLLIN)
        self._extra = extra
        if extra is not None:
            self._poll.register(extra[0], select.POLLIN)
        self._is_serving = True
        now_s = monotonic()
        self._next_slice_s = now_s + _SLICE_S
        self._next_check_s = now_s
        self._longest_s = longest_s
        self._until_s = now_s + longest_s

    def yield_now(self) -> None:
        """Serve the pending requests, if a request slice is due."""
        now_s = monotonic()
        if now_s < self._next_slice_s:
            return
        self._beat(now_s)
        patience_ms = 0
        while self._is_serving and (ready := [fd for fd, _ in self._poll.poll(patience_ms)]):
            self._serve(ready)
            patience_ms = _LINGER_MS
            if monotonic() >= now_s + _SLICE_S:
                break
        self._next_slice_s = monotonic() + _SLICE_S

    def run_in_thread(self, work: Callable[[], T]) -> T:
        """Run work in another thread, and serve requests until it has ended."""
        try:
            ended, ends = os.pipe2(os.O_CLOEXEC)
        except OSError:  # out of descriptors: the work comes first
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
        except RuntimeError:  # no thread can be started
            os.close(ended)
            os.close(ends)
            return work()
        self._poll.register(ended, select.POLLIN)
        try:
            while True:
                ready = [fd for fd, _ in self._poll.poll(_CHECK_INTERVAL_MS)]
                if ended in ready:
                    break
                self._beat(monotonic())
                self._serve(ready)
        finally:
            self._poll.unregister(ended)
            os.close(ended)
        self._next_slice_s = monotonic() + _SLICE_S
        if failed:
            raise failed[0]
        return done[0]

    def _beat(self, now_s: float) -> None:
        """Record progress of the command, and check its limit.

        Raises:
            Unavailable: the command took too long.
        """
        self._heartbeat[0] += 1
        if now_s >= self._next_check_s:
            self._next_check_s = now_s + _CHECK_INTERVAL_MS / 1_000
            self._check()
        if now_s > self._until_s:
            raise Unavailable(
                f"it was given up after {self._longest_s:g} s, since changes of files wait for it; blobs that are "
                "stored by now are not stored again, so try once more"
            )

    def _serve(self, ready: list[int]) -> None:
        if self._extra is not None and self._extra[0] in ready:
            self._heartbeat[1] = REQUEST
            self._extra[1]()
            self._heartbeat[1] = COMMAND
        if self._device in ready:
            self._heartbeat[1] = REQUEST
            self._is_serving = self._serve_one()
            self._heartbeat[0] += 1
            self._heartbeat[1] = COMMAND
            if not self._is_serving:
                self._poll.unregister(self._device)
