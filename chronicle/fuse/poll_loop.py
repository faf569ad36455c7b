"""One poll(2) over many descriptors, with a callback for each.

The zygote runs on it, and so does a mount server between two requests (`chronicle.fuse.transport.request_poll`).
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["PollLoop"]


class PollLoop:
    """Watched descriptors and their callbacks."""

    def __init__(self) -> None:
        self.poller = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back each time a descriptor is readable or hung up."""
        self._callbacks[fd] = callback
        self.poller.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor, if it is watched. Call this before closing it."""
        if self._callbacks.pop(fd, None) is not None:
            self.poller.unregister(fd)

    def wait(self, until_s: float | None) -> None:
        """Wait until a descriptor is ready, and run the callbacks.

        Args:
            until_s: return at this time at the latest, monotonic seconds; None for no limit.
        """
        timeout_ms = None if until_s is None else max(0, round((until_s - time.monotonic()) * 1000) + 1)
        for callback in self.ready_callbacks(self.poller.poll(timeout_ms)):
            callback()

    def ready_callbacks(self, ready: Iterable[tuple[int, int]]) -> Iterable[Callable[[], None]]:
        """Yield the callbacks of ready descriptors, each to be called before the next is asked for.

        An earlier callback of the round may close a descriptor and its number be reused: then its callback is skipped.
        """
        callbacks = self._callbacks
        for fd, callback in [(fd, callbacks[fd]) for fd, _ in ready if fd in callbacks]:
            if callbacks.get(fd) is callback:
                yield callback
