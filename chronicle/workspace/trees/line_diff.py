"""A line diff whose time is about proportional to the length of the texts, whatever they hold.

`difflib` is not used on whole texts because its time is quadratic and worse in the number of lines. Here it gets short
stretches only: common lines at both ends are cut off, lines that occur once on each side divide the rest (patience
diff), and a long stretch without such a line is taken to have nothing in common. The diff may be longer, never wrong.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["unified"]

_SHORT: Final = 200 * 200
"""Stretches whose product of line counts is up to this are compared line by line: 20 ms in the worst case."""
_COMPARED: Final = 50 * _SHORT
"""Limit for the sum of these products in one pair of texts; further stretches count as different."""
_DEPTH: Final = 32
"""Levels of division."""
_CONTEXT: Final = 3

Region = tuple[int, int, int, int]
"""Begin and end in the old lines, begin and end in the new ones."""


def unified(old: Sequence[bytes], new: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the hunks of a unified diff, with three lines of context. A last line without a newline gets none."""
    matcher = _Matcher(old, new)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        yield b"@@ -%s +%s @@\n" % (_range(group[0][1], group[-1][2]), _range(group[0][3], group[-1][4]))
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                yield from (b" " + line for line in old[old_start:old_end])
                continue
            yield from (b"-" + line for line in old[old_start:old_end])
            yield from (b"+" + line for line in new[new_start:new_end])


class _Matcher(difflib.SequenceMatcher[bytes]):
    """Groups the matches that were found here as `difflib` does."""

    def __init__(self, old: Sequence[bytes], new: Sequence[bytes]) -> None:
        super().__init__(None, (), ())
        self._blocks = [*map(difflib.Match._make, _matches(old, new)), difflib.Match(len(old), len(new), 0)]

    def get_matching_blocks(self) -> list[difflib.Match]:
        return self._blocks


def _range(start: int, end: int) -> bytes:
    """A range of lines in the form of a hunk's head."""
    length = end - start
    if length == 1:
        return b"%d" % (start + 1)
    return b"%d,%d" % (start + 1 if length else start, length)


def _matches(old: Sequence[bytes], new: Sequence[bytes]) -> list[tuple[int, int, int]]:
    """Return the stretches of equal lines as (start, new start, length), in order, none adjacent."""
    found: list[tuple[int, int, int]] = []
    left = _COMPARED
    todo: list[tuple[Region, int]] = [((0, len(old), 0, len(new)), 0)]
    while todo:
        (start, end, new_start, new_end), depth = todo.pop()
        head = 0
        while start + head < end and new_start + head < new_end and old[start + head] == new[new_start + head]:
            head += 1
        if head:
            found.append((start, new_start, head))
        start, new_start = start + head, new_start + head
        tail = 0
        while start < end - tail and new_start < new_end - tail and old[end - tail - 1] == new[new_end - tail - 1]:
            tail += 1
        end, new_end = end - tail, new_end - tail
        if tail:
            found.append((end, new_end, tail))
        product = (end - start) * (new_end - new_start)
        if product == 0:
            continue
        if product <= _SHORT:
            if product <= left:
                left -= product
                matcher = difflib.SequenceMatcher(None, old[start:end], new[new_start:new_end], autojunk=False)
                found.extend((start + at, new_start + to, size) for at, to, size in matcher.get_matching_blocks()[:-1])
        elif depth < _DEPTH:
            todo.extend((region, depth + 1) for region in _divided(old, new, (start, end, new_start, new_end)))
    merged: list[tuple[int, int, int]] = []
    for at, to, size in sorted(found):
        if merged and (merged[-1][0] + merged[-1][2], merged[-1][1] + merged[-1][2]) == (at, to):
            merged[-1] = (merged[-1][0], merged[-1][1], merged[-1][2] + size)
        else:
            merged.append((at, to, size))
    return merged


def _divided(old: Sequence[bytes], new: Sequence[bytes], region: Region) -> Iterator[Region]:
    """Yield the parts of a region that begin with a line which occurs once on each side: the longest increasing row.

    The part before the first of them is yielded too. Without such a line there is no part.
    """
    start, end, new_start, new_end = region
    counts, new_counts = Counter(old[start:end]), Counter(new[new_start:new_end])
    places = {line: at for at, line in enumerate(new[new_start:new_end], new_start) if new_counts[line] == 1}
    pairs = [(at, places[old[at]]) for at in range(start, end) if counts[old[at]] == 1 and old[at] in places]
    if not pairs:
        return
    # Longest increasing subsequence of the pairs: the last pair of each length, and the predecessor of each pair.
    lasts: list[int] = []
    ends: list[int] = []
    before = [-1] * len(pairs)
    for index, (_, to) in enumerate(pairs):
        length = bisect_left(lasts, to)
        before[index] = ends[length - 1] if length else -1
        lasts[length : length + 1] = [to]
        ends[length : length + 1] = [index]
    row = []
    index = ends[-1]
    while index >= 0:
        row.append(pairs[index])
        index = before[index]
    for at, to in row:  # the last first
        yield at, end, to, new_end
        end, new_end = at, to
    yield start, end, new_start, new_end
