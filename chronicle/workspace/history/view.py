"""The whole history of a path: stored, pending and derived versions.

Renaming a directory gives every path below it a version (``rename`` at its new path, ``delete`` at its old one), but
writing one for each of 100,000 files would make a rename cost what the tree holds. So only the directory gets records;
those of the paths below are derived on demand (`chronicle.workspace.history.derived_versions`). When a path gets a
record of its own, the derived ones before it are stored with it (`HistoryView.unstored`). Numbers follow the order of
operations and are the same before and after that.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

from chronicle.errors import NotFound
from chronicle.workspace.history import path_histories
from chronicle.workspace.history.derived_versions import DerivedVersions
from chronicle.workspace.history.own_records import OwnRecords
from chronicle.workspace.paths import above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.workspace.history.oplog import Gap, OplogRoot
    from chronicle.workspace.history.path_histories import PathHistory, Record

__all__ = ["HistoryView", "Versions", "floors_of"]


class HistoryView:
    """Reads the histories of one commit with the pending records on top.

    Reads are cached. The view of an open layer stays valid while records are added to ``pending``, if `moved` is called
    after each renaming of a directory.

    Args:
        reader: reads the blobs.
        commit: the commit; its ``moved_seq`` includes pending renamings of directories, and its gaps those that were
            rolled back since.
        pending: records by path that are not stored yet, oldest first; their numbers are ignored.
        floors: by path, the highest number given to versions that were rolled back. They apply to versions after the
            commit: versions derived from earlier ones have their numbers already.
        beat: called repeatedly during long derivations: the watchdog's progress report.
    """

    def __init__(
        self,
        reader: BlobReader,
        commit: OplogRoot,
        pending: Mapping[bytes, Sequence[Record]] = {},
        floors: Mapping[bytes, int] = {},
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._reader = reader
        self._own = OwnRecords(reader, commit.histories, pending)
        self._derived = DerivedVersions(self._own, commit.moved_seq, beat)
        self._floors = floors
        self._gaps: dict[bytes, list[Gap]] = {}
        for gap in commit.gaps:
            self._gaps.setdefault(gap.directory, []).append(gap)
        self._floors_seq = commit.next_seq

    def moved(self, seq: int) -> None:
        """Record the seq of the last renaming of a directory."""
        self._derived.moved_seq = seq

    def records(self, path: bytes) -> list[Record]:
        """Return all versions of a path, oldest first; empty without any."""
        history = self.stored(path)
        if history is None:
            return self.unstored(path)
        return path_histories.all_records(self._reader, history) + self.unstored(path)

    def in_order(self, path: bytes) -> Versions:
        """Return what `records` does, lazily."""
        return Versions(self._reader, self.stored(path), self.numbered(path))

    def is_short(self, path: bytes, limit: int) -> bool:
        """Whether a path has at most so many versions, is stored without blocks, and has no derived versions."""
        history = self.stored(path)
        stored_here = 0
        if history is not None:
            if history.head is not None:
                return False
            stored_here = len(history.tail)
        return stored_here + len(self._own.pending(path)) <= limit and not self._derived.moved_since(path)

    def find(self, path: bytes, number: int) -> Record | None:
        """Return one version of a path."""
        history = self.stored(path)
        if history is not None and number <= history.last:
            found = path_histories.find(self._reader, history, number)
            if found is not None:
                return found
        fresh = self._derived.unstored(path).records
        numbers = self._count(path, fresh)[0]
        at = bisect_left(numbers, number)
        return replace(fresh[at], number=number) if at < len(numbers) and numbers[at] == number else None

    def missing(self, path: bytes, number: int) -> NotFound:
        """Return the error for a path without content at a number; its message explains why. Reads the history."""
        name = os.fsdecode(path)
        records = self.records(path)
        if not records:
            return NotFound(f"{name!r} never existed")
        numbers = [record.number for record in records]
        at = bisect_left(numbers, number)
        if at < len(numbers) and numbers[at] == number:
            before = f"; what it was before: iteration {numbers[at - 1]}" if at else ""
            return NotFound(f"{name!r} has no content at iteration {number}, which is its deletion{before}")
        if 0 < number <= self.floor(path):
            beside = " and ".join(map(str, numbers[max(at - 1, 0) : at + 1]))
            return NotFound(f"iteration {number} of {name!r} was rolled back; the next ones that are there: {beside}")
        which = f"iterations {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"iteration {numbers[0]} only"
        return NotFound(f"{name!r} has {which}; there is no iteration {number}")

    def last(self, path: bytes) -> Record | None:
        """Return the newest version of a path, possibly a deletion; its number is not final if it is not stored."""
        fresh = self._derived.unstored(path).records
        return fresh[-1] if fresh else self._own.last_stored(path)

    def kinds(self, path: bytes) -> int:
        """Return the kinds of all versions of a path, as in `PathHistory.kinds`; 0 without any."""
        own = self._own.kinds(path)
        directory, _, name = path.rpartition(b"/")
        if not self._derived.came(directory).get(name, 0) & ~own:
            return own
        return own | self._derived.unstored(path).kinds

    def floor(self, path: bytes) -> int:
        """Return the highest number ever given to a version of a path."""
        return self._count(path, self._derived.unstored(path).records)[1]

    def unstored(self, path: bytes) -> list[Record]:
        """Return the versions of a path that are not stored: pending and derived ones, with their final numbers."""
        return [replace(record, number=number) for number, record in self.numbered(path)]

    def numbered(self, path: bytes) -> list[tuple[int, Record]]:
        """Return what `unstored` does, as pairs of number and record."""
        fresh = self._derived.unstored(path).records
        return list(zip(self._count(path, fresh)[0], fresh, strict=True)) if fresh else []

    def noted(self, path: bytes) -> list[tuple[int, Record]]:
        """Return what `numbered` does, without derived versions."""
        own = {record.seq for record in self._own.pending(path)}
        return [(number, record) for number, record in self.numbered(path) if record.seq in own]

    def had_entries(self, path: bytes) -> bool:
        """Whether any path below a path ever had a version."""
        return self._own.any_below(path) or any(self.kinds(path + b"/" + name) for name in self._derived.came(path))

    def names(self, path: bytes) -> list[bytes]:
        """Return the names in a directory that ever had a version, or had one below them."""
        own = self._own.children(path)
        prefix = path + b"/" if path else b""
        came = (name for name in self._derived.came(path) if name not in own and self.kinds(prefix + name))
        return sorted([*own, *came])

    def stored(self, path: bytes) -> PathHistory | None:
        """Return the stored history of a path."""
        return self._own.stored(path)

    def _count(self, path: bytes, fresh: Sequence[Record]) -> tuple[Sequence[int], int]:
        """Return the numbers of the unstored versions, and the highest number ever given out.

        Floors and gaps apply to later versions only: an earlier one had its number before.
        """
        history = self.stored(path)
        given = history.last if history is not None else 0
        skipped = self._skipped(path)
        if not skipped:
            return range(given + 1, given + 1 + len(fresh)), given + len(fresh)
        numbers = []
        for record in fresh:
            while skipped and skipped[0][0] <= record.seq:
                given = _skip(given, skipped.pop(0))
            given += 1
            numbers.append(given)
        for skip in skipped:
            given = _skip(given, skip)
        return numbers, given

    def _skipped(self, path: bytes) -> list[tuple[int, int, int]]:
        """Return the numbers that a path skips, oldest first: from which seq on, up to which number, how many more."""
        floor = self._floors.get(path)
        skipped = [(self._floors_seq, floor, 0)] if floor is not None else []
        if self._gaps:
            last = self._own.last_stored(path)
            since = last.seq if last is not None else 0
            skipped.extend(
                (gap.seq, 0, gap.numbers)
                for directory in above(path)
                for gap in self._gaps.get(directory, ())
                if since < gap.seq
            )
        return sorted(skipped, key=itemgetter(0))


class Versions:
    """The versions of a path, oldest first; can be iterated over repeatedly.

    Stored versions are read as they are reached. Pending ones stay readable after they are stored, but not after a
    rollback.

    Args:
        reader: reads the blobs.
        history: the stored versions.
        fresh: the unstored ones, with their numbers.
    """

    def __init__(self, reader: BlobReader, history: PathHistory | None, fresh: Sequence[tuple[int, Record]]) -> None:
        self._reader = reader
        self._history = history
        self._fresh = fresh

    def __iter__(self) -> Iterator[Record]:
        """Yield them."""
        if self._history is not None:
            yield from path_histories.oldest_first(self._reader, self._history)
        for number, record in self._fresh:
            yield replace(record, number=number)


def _skip(given: int, skip: tuple[int, int, int]) -> int:
    _, floor, more = skip
    return max(given, floor) + more


def floors_of(reader: BlobReader, abandoned: Sequence[OplogRoot], paths: Iterable[bytes]) -> dict[bytes, int]:
    """Return the highest number that each path has in abandoned commits, for paths that have any."""
    views = [HistoryView(reader, commit) for commit in abandoned]
    return {path: floor for path in paths if (floor := max((view.floor(path) for view in views), default=0))}
