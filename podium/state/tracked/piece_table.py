"""A piece table: the edits of a sequence since its base, as runs of kept items and runs of new ones.

A tracked list does not compare itself with an earlier copy, which would cost the list's length. It keeps a
`PieceTable`: the present list as kept runs of the base and runs of new items. Appending is O(1), any other edit costs
the number of pieces, and the resulting edit script has each changed position once, however often it was changed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

__all__ = ["Change", "PieceTable", "longest_increasing"]

_NEW: Final = -1
_MAX_PIECES: Final = 4096
"""Beyond it, everything between the first and the last change counts as new; this keeps an edit below about 0.1 ms."""


@dataclass(frozen=True, slots=True)
class Change:
    """At ``start`` (an index of the present sequence), ``inserted`` new items replace ``removed`` old ones."""

    start: int
    removed: int
    inserted: int


class PieceTable:
    """The edits from the base, a sequence of known length, to the present sequence.

    Attributes:
        base: the length of the base.

    Args:
        length: of the base; the sequence still equals it.
    """

    __slots__ = ("_ends", "_starts", "base")

    def __init__(self, length: int) -> None:
        self.base = length
        # Piece i ends before index _ends[i] of the present sequence; _starts[i] is the base index of its first item,
        # or _NEW. No piece is empty. Neighbours are never both new, nor consecutive in the base.
        self._starts: list[int] = [0] if length else []
        self._ends: list[int] = [length] if length else []

    def __len__(self) -> int:
        """Return the length of the present sequence."""
        return self._ends[-1] if self._ends else 0

    def append(self, count: int) -> None:
        """Record that ``count`` new items were appended."""
        starts, ends = self._starts, self._ends
        if not count:
            return
        if starts and starts[-1] == _NEW:
            ends[-1] += count
        else:
            ends.append(ends[-1] + count if ends else count)
            starts.append(_NEW)

    def splice(self, start: int, removed: int, inserted: int) -> None:
        """Record that ``inserted`` new items replaced the ``removed`` items from ``start`` on."""
        if start == len(self) and not removed:
            self.append(inserted)
            return
        if not removed and not inserted:
            return
        stop = start + removed
        first = bisect_right(self._ends, start)
        last = bisect_left(self._ends, stop, first)
        starts: list[int] = []
        ends: list[int] = []
        begin = self._begin(first)
        if begin < start:
            starts.append(self._starts[first])
            ends.append(start)
        if inserted:
            if starts and starts[-1] == _NEW:
                ends[-1] = start + inserted
            else:
                starts.append(_NEW)
                ends.append(start + inserted)
        after = last
        if last < len(self._ends):
            if self._ends[last] > stop:
                source = self._starts[last]
                starts.append(source if source == _NEW else source + stop - self._begin(last))
                ends.append(self._ends[last] + inserted - removed)
            after = last + 1
        shift = inserted - removed
        if shift:
            self._ends[after:] = [end + shift for end in self._ends[after:]]
        self._starts[first:after] = starts
        self._ends[first:after] = ends
        self._join(max(first - 1, 0), first + len(starts) + 1)
        if len(self._ends) > _MAX_PIECES:
            self._coarsen()

    def rearrange(self, order: Sequence[int]) -> None:
        """Record that the items were reordered, or some removed: item ``i`` is now the former item ``order[i]``.

        A longest run of items in unchanged relative order counts as kept; the others count as new.
        """
        source = self.sources()
        kept = set(longest_increasing([old for old in order if source[old] != _NEW]))
        now = [source[old] if old in kept else _NEW for old in order]
        self._starts, self._ends = [], []
        for index, base in enumerate(now):
            if self._starts and (
                base == self._starts[-1] == _NEW
                or (base != _NEW != self._starts[-1] and base == self._starts[-1] + index - self._begin(-1))
            ):
                self._ends[-1] = index + 1
            else:
                self._starts.append(base)
                self._ends.append(index + 1)
        if len(self._ends) > _MAX_PIECES:
            self._coarsen()

    def sources(self) -> list[int]:
        """Return for each item its index in the base, or -1 for a new one."""
        found: list[int] = []
        begin = 0
        for base, end in zip(self._starts, self._ends, strict=True):
            found.extend([_NEW] * (end - begin) if base == _NEW else range(base, base + end - begin))
            begin = end
        return found

    def kept(self) -> int:
        """Return how many items of the base are kept."""
        begin = total = 0
        for base, end in zip(self._starts, self._ends, strict=True):
            if base != _NEW:
                total += end - begin
            begin = end
        return total

    def changes(self) -> Iterator[Change]:
        """Yield the edit script from left to right; each change applies to the result of those before it."""
        base_at = begin = inserted_from = 0
        for base, end in zip(self._starts, self._ends, strict=True):
            if base == _NEW:
                begin = end
                continue
            if base > base_at or begin > inserted_from:
                yield Change(inserted_from, base - base_at, begin - inserted_from)
            base_at = base + end - begin
            begin = inserted_from = end
        if self.base > base_at or begin > inserted_from:
            yield Change(inserted_from, self.base - base_at, begin - inserted_from)

    def is_new(self, index: int) -> bool:
        """Return whether the item at ``index`` counts as new."""
        return self._starts[bisect_right(self._ends, index)] == _NEW

    def _begin(self, piece: int) -> int:
        if piece < 0:
            piece += len(self._ends)
        return self._ends[piece - 1] if piece else 0

    def _join(self, first: int, last: int) -> None:
        """Merge neighbours from ``first`` to before ``last`` that are both new or consecutive in the base."""
        piece = first + 1
        while piece < min(last + 1, len(self._starts)):
            left, right = self._starts[piece - 1], self._starts[piece]
            length = self._ends[piece - 1] - self._begin(piece - 1)
            if left == right == _NEW or (left != _NEW != right and right == left + length):
                del self._starts[piece], self._ends[piece - 1]
                last -= 1
            else:
                piece += 1

    def _coarsen(self) -> None:
        """Count everything between the kept head and the kept tail as new."""
        length = len(self)
        head = self._ends[0] if self._starts[0] == 0 else 0
        tail_from = length
        if self._starts[-1] != _NEW and self._starts[-1] + length - self._begin(-1) == self.base:
            tail_from = self._begin(-1)
        runs = [(0, 0, head), (_NEW, head, tail_from), (self.base - (length - tail_from), tail_from, length)]
        self._starts = [base for base, begin, end in runs if end > begin]
        self._ends = [end for _, begin, end in runs if end > begin]


def longest_increasing(order: Sequence[int]) -> list[int]:
    """Return the values of a longest increasing subsequence."""
    if all(left < right for left, right in pairwise(order)):
        return list(order)
    tails: list[int] = []
    tail_at: list[int] = []
    before: list[int] = []
    for index, value in enumerate(order):
        place = bisect_left(tails, value)
        before.append(tail_at[place - 1] if place else -1)
        if place == len(tails):
            tails.append(value)
            tail_at.append(index)
        else:
            tails[place] = value
            tail_at[place] = index
    found: list[int] = []
    index = tail_at[-1] if tail_at else -1
    while index >= 0:
        found.append(order[index])
        index = before[index]
    found.reverse()
    return found
