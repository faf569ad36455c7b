"""Injected clocks: the real one, and one that tests advance."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "ManualClock", "SystemClock"]


class Clock(Protocol):
    """The source of all time in Chronicle and in the packages above it."""

    def now_ms(self) -> int:
        """Return the wall-clock time in epoch milliseconds."""

    def monotonic_s(self) -> float:
        """Return seconds from an arbitrary point, never going back."""

    def boottime_s(self) -> float:
        """Return seconds from an arbitrary point, never going back; the time of a suspended machine counts, too."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return the wall-clock time in epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return ``time.monotonic()``."""
        return time.monotonic()

    def boottime_s(self) -> float:
        """Return the time of ``CLOCK_BOOTTIME``."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class ManualClock:
    """A clock that stands still until it is advanced; its times move together, unless the machine is suspended."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._start_ms = now_ms
        self._suspended_ms = 0

    def now_ms(self) -> int:
        """Return the clock's time, in epoch milliseconds."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """Return the seconds by which the clock was advanced."""
        return (self._now_ms - self._start_ms - self._suspended_ms) / 1000

    def boottime_s(self) -> float:
        """Return the seconds by which the clock was advanced, or the machine suspended."""
        return (self._now_ms - self._start_ms) / 1000

    def suspend(self, seconds: float) -> None:
        """Suspend the machine for some time."""
        self.advance(seconds)
        self._suspended_ms += round(seconds * 1000)

    def advance(self, seconds: float) -> None:
        """Move the clock forward.

        Raises:
            ValueError: for a negative number of seconds.
        """
        if seconds < 0:
            raise ValueError("a clock is not moved back")
        self._now_ms += round(seconds * 1000)
