"""Sets of offsets in a file."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Ranges"]


class Ranges:
    """A set of offsets, as ranges ``(start, end)`` in order, none of which touch.

    Args:
        ranges: the initial ranges, in order and not touching.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self._starts.append(start)
            self._ends.append(end)

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    def add(self, start: int, end: int) -> None:
        """Add a range; ``start < end``."""
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def run(self, offset: int) -> tuple[int, bool]:
        """Return the end of the run that an offset is in, and whether the run is in the set."""
        index = bisect_right(self._starts, offset)
        if index and offset < self._ends[index - 1]:
            return self._ends[index - 1], True
        return (self._starts[index] if index < len(self._starts) else sys.maxsize), False
