"""Waiting for a mount's next request while other descriptors are served too.

Both transports wait here. Callbacks run between requests, in the thread that serves them, so neither needs a lock
against the other. A long callback may interleave requests (`chronicle.fuse.transport.interleave`); those that it defers
are executed after the callbacks of the round.
"""

from __future__ import annotations

import os
import select
import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from chronicle.fuse.poll_loop import PollLoop
from chronicle.fuse.transport.interleave import Interleaver
from chronicle.fuse.watchdog import COMMAND, IDLE, REQUEST, Heartbeat, unwatched_heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["RequestPoll"]


class RequestPoll:
    """The descriptors that a mount's thread waits for.

    Args:
        heartbeat: records the server's activity for the watchdog.
    """

    def __init__(self, heartbeat: Heartbeat | None = None) -> None:
        self._heartbeat = (unwatched_heartbeat() if heartbeat is None else heartbeat).cells
        self._loop = PollLoop()
        self._device = -1
        self._stopped = False
        self._replay_deferred: Callable[[], None] | None = None
        """Executes the requests that were deferred in this round."""
        self._timer: Callable[[], None] | None = None
        self._timer_interval_s = self._timer_due_s = 0.0

    def add(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back, between requests, each time a descriptor is readable or hung up.

        The callback must not raise: an exception ends the session.
        """
        self._loop.watch(fd, callback)

    def remove(self, fd: int) -> None:
        """Stop watching a descriptor. Call this before closing it."""
        self._loop.unwatch(fd)

    def call_every(self, seconds: float, callback: Callable[[], None] | None) -> None:
        """Call back at an interval, between requests; None stops that."""
        self._timer, self._timer_interval_s = callback, seconds
        self._timer_due_s = monotonic() + seconds

    def run_in_thread(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run work in a thread of its own while requests are served, then call ``done`` between two requests.

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

    def interleave(
        self,
        serve_one: Callable[[], bool],
        check: Callable[[], None],
        replay_deferred: Callable[[], None],
        extra: tuple[int, Callable[[], None]] | None = None,
    ) -> Interleaver:
        """Return the interleaving of requests with a callback. For callbacks.

        Args:
            serve_one: see `Interleaver`.
            check: see `Interleaver`.
            replay_deferred: executes the deferred requests after the callbacks of this round, unless the session ends.
            extra: see `Interleaver`.
        """
        self._replay_deferred = replay_deferred
        return Interleaver(self._device, self._heartbeat, serve_one, check, extra)

    @contextmanager
    def resuming(self) -> Iterator[None]:
        """Restore the recorded activity after parked requests were resumed."""
        before = self._heartbeat[1]
        try:
            yield
        finally:
            self._heartbeat[1] = before

    def begin_request(self) -> None:
        """Record the start of another request while deferred or parked ones are executed."""
        self._heartbeat[0] += 1
        self._heartbeat[1] = REQUEST

    def stop(self) -> None:
        """Make `wait` return False from now on. For callbacks."""
        self._stopped = True

    def wait(self, device: int) -> bool:
        """Wait until a request can be read from the device; serve the other descriptors while there is none.

        Returns:
            False when the session is to end.
        """
        if device != self._device:
            # A request can be withdrawn (its caller was killed) between poll and read; a blocking read would then
            # keep the control sockets waiting for the next request.
            os.set_blocking(device, False)
            self._loop.poller.register(device, select.POLLIN)
            self._device = device
        poll, heartbeat = self._loop.poller.poll, self._heartbeat
        while not self._stopped:
            heartbeat[1] = IDLE
            ready = poll() if self._timer is None else poll(self._timer_interval_s * 1_000)
            heartbeat[0] += 1
            if len(ready) == 1 and ready[0][0] == device and self._timer is None:
                heartbeat[1] = REQUEST
                return True
            if self._timer is not None:
                self._run_timer(self._timer)
            for callback in self._loop.ready_callbacks(ready):
                heartbeat[1] = COMMAND
                callback()
            if self._replay_deferred is not None:
                self._finish_round()
                ready = poll(0)  # the callbacks may have served the request that was ready
            if any(fd == device for fd, _ in ready):
                break  # a descriptor that stays readable must not keep requests waiting
        if self._stopped:
            return False
        heartbeat[1] = REQUEST
        return True

    def _run_timer(self, callback: Callable[[], None]) -> None:
        now_s = monotonic()
        if now_s >= self._timer_due_s:
            self._timer_due_s = now_s + self._timer_interval_s
            callback()

    def _finish_round(self) -> None:
        replay_deferred, self._replay_deferred = self._replay_deferred, None
        if replay_deferred is not None and not self._stopped:
            self._heartbeat[1] = REQUEST
            replay_deferred()
