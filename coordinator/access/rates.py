"""Limits of requests: a token bucket for each name, such as a key's id or a client's address."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

if TYPE_CHECKING:
    from chronicle.clock import Clock

__all__ = ["Rates"]

_MAX_NAMES: Final = 10_000
"""Names that are kept; the one that was used longest ago is forgotten first, and then begins with a full bucket."""


class Rates:
    """Token buckets of one size.

    Args:
        per_s: requests per second that are allowed in the long run.
        burst: requests that are allowed at once.
        clock: the time.
    """

    def __init__(self, per_s: float, burst: int, clock: Clock) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._clock = clock
        self._buckets: LRUCache[str, tuple[float, float]] = LRUCache(_MAX_NAMES)
        """By name: tokens, and the time at which there were that many."""

    def take(self, name: str) -> int:
        """Take a token; return 0, or, if there is none, the seconds until there is one, rounded up."""
        now_s = self._clock.monotonic_s()
        tokens, then_s = self._buckets.get(name, (self._burst, now_s))
        tokens = min(self._burst, tokens + (now_s - then_s) * self._per_s)
        wait_s = 0
        if tokens >= 1.0:
            tokens -= 1.0
        else:
            wait_s = max(1, math.ceil((1.0 - tokens) / self._per_s))
        self._buckets[name] = (tokens, now_s)
        return wait_s
