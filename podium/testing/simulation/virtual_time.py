"""An event loop with virtual time: waiting costs nothing, and runs are deterministic.

Nothing outside of the loop can wake it: no sockets, no threads. If all tasks wait and no timer is set, it raises
    `Stuck`
instead of hanging.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LoopClock", "Stuck", "VirtualLoop"]

_START_MS: Final = 1_700_000_000_000


class Stuck(Exception):
    """A deadlock: every task waits, and no timer is set."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs tasks in a fixed order; when all wait for time, time jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._selector = self

    def time(self) -> float:
        """Return the virtual time in seconds since the loop was created."""
        return self._now_s

    def select(self, timeout: float | None) -> Sequence[object]:
        """Advance the time, in place of a selector.

        Raises:
            Stuck: no timer is set.
        """
        if timeout is None:
            raise Stuck("every task waits for another one, and no timer is set")
        self._now_s += timeout
        return ()

    def _process_events(self, event_list: Sequence[object]) -> None:
        """Do nothing: there are no files or sockets."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread wakes this loop."""


class LoopClock:
    """A `chronicle.clock.Clock` that shows a loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Return the virtual time in epoch milliseconds."""
        return _START_MS + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        """Return the virtual time in seconds."""
        return self._loop.time()

    def boottime_s(self) -> float:
        """Return the virtual time in seconds."""
        return self._loop.time()
