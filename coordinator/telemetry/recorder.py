"""`Recorder`: the measurements of a process, as sums for each series.

It is the `Meter` of hosts, and what the coordinator adds their reports to. The number of series bounds its memory.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, TypeAlias

from coordinator.telemetry.instruments import SERIES_DROPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from podium.turn.telemetry import Instrument

__all__ = ["Recorder", "Series", "Value"]

Series: TypeAlias = tuple[str, tuple[str, ...]]
"""The name of an instrument, and the values of its labels."""
Value: TypeAlias = "float | list[float]"
"""Of a counter or a gauge its value; of a histogram the sum of the values and, for each bucket and the infinite one,
the number of values in it, those of lower buckets excluded."""

MAX_SERIES: Final = 2_000
"""Series that a process may have: labels are agent types, tenants and outcomes, and tenants may be many."""
_DROPPED: Final[Series] = (SERIES_DROPPED.name, ())


class Recorder:
    """Sums of measurements.

    Args:
        on_first: called, on the thread that measures, with the first measurement after each `take`.
        most_series: limit of the series; measurements of further ones are dropped and counted.
    """

    def __init__(self, on_first: Callable[[], None] = lambda: None, most_series: int = MAX_SERIES) -> None:
        self._on_first = on_first
        self._most_series = most_series
        self._sums: dict[Series, Value] = {}
        self._guard = threading.Lock()

    def add(self, counter: Instrument, labels: tuple[str, ...], amount: float = 1) -> None:
        """Add to a counter."""
        self._add((counter.name, labels), amount)

    def observe(self, histogram: Instrument, labels: tuple[str, ...], value: float) -> None:
        """Add a value to a histogram."""
        series = histogram.name, labels
        bucket = bisect_left(histogram.bounds, value)
        with self._guard:
            sums = self._sums.get(series)
            if isinstance(sums, list) and len(sums) == len(histogram.bounds) + 2:
                sums[0] += value
                sums[bucket + 1] += 1
                return
        counts = [0.0] * (len(histogram.bounds) + 1)
        counts[bucket] = 1
        self._add(series, [value, *counts])

    def merge(self, sums: Mapping[Series, Value]) -> None:
        """Add the sums of another recorder."""
        for series, value in sums.items():
            self._add(series, value)

    def take(self) -> dict[Series, Value]:
        """Return the sums since the last call, and begin anew."""
        with self._guard:
            sums, self._sums = self._sums, {}
        return sums

    def sums(self) -> dict[Series, Value]:
        """Return the sums so far."""
        with self._guard:
            return {series: list(value) if isinstance(value, list) else value for series, value in self._sums.items()}

    def _add(self, series: Series, value: Value) -> None:
        with self._guard:
            first = not self._sums
            if series not in self._sums and len(self._sums) >= self._most_series:
                series, value = _DROPPED, 1
            self._sums[series] = _sum(self._sums.get(series), value)
        if first:
            self._on_first()


def _sum(before: Value | None, value: Value) -> Value:
    """Return the sum of two values of a series; the new one alone if their buckets differ, as after an upgrade."""
    if isinstance(before, list) and isinstance(value, list) and len(before) == len(value):
        return [one + other for one, other in zip(before, value, strict=True)]
    if isinstance(before, list) or isinstance(value, list) or before is None:
        return list(value) if isinstance(value, list) else value
    return before + value
