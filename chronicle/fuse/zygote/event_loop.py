"""What the zygote waits for: descriptors, and whom to call when one is readable."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Loop"]


class Loop:
    """The descriptors that are waited for, in one poll."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, callback: Callable[[], None]) -> None:
        """Call back each time a descriptor is readable or hung up."""
        self._callbacks[fd] = callback
        self._poll.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        """Forget a descriptor, if it is watched; to be called before it is closed."""
        if self._callbacks.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def wait(self, until_s: float | None) -> None:
        """Wait until a descriptor is ready and call back; return then, or when the time has come.

        Args:
            until_s: monotonic seconds; None to wait for as long as it takes.
        """
        timeout_ms = None if until_s is None else max(0, round((until_s - time.monotonic()) * 1000) + 1)
        for fd, callback in [(fd, self._callbacks[fd]) for fd, _ in self._poll.poll(timeout_ms)]:
            # An earlier callback of this round may have closed the descriptor, and its number be another's now.
            if self._callbacks.get(fd) is callback:
                callback()
