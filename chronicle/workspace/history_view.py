"""The whole history of a path: what is stored, what is not sealed yet, and what follows from directories that moved.

Renaming a directory gives every path below it a version (``rename`` at its new place, ``delete`` at its old one), but
writing one for each of 100,000 files would make a rename cost what the tree holds. So only the directory gets records,
and those of the paths below are derived when they are asked for: each record of a directory that is younger than the
last record of the path itself counts for the path too, if it was there at that moment. As soon as the path gets a
record of its own, the derived ones before it are stored with it (`HistoryView.settle`), so that numbers never change.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

from chronicle.errors import NotFound
from chronicle.workspace import history as stored
from chronicle.workspace import nodes
from chronicle.workspace.history import PathHistory, Record
from chronicle.workspace.tree import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chronicle.blobs.store import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.oplog import Gap

__all__ = ["HistoryView"]


class HistoryView:
    """Reads histories at a moment.

    Args:
        reader: where blobs are read.
        root: the stored map of histories.
        moved_seq: the seq of the last renaming of a directory, stored or pending; 0 if there never was one.
        pending: records by path that are not stored yet, oldest first; their numbers are ignored.
        floors: by path, numbers given out by versions that were rolled back.
        gaps: numbers given out, below directories, by renamings that were rolled back.
        floors_seq: when that was: floors count for versions from this seq on. What is derived from a commit before it
            has its numbers already.
    """

    def __init__(
        self,
        reader: BlobReader,
        root: BlobId | None,
        moved_seq: int,
        pending: Mapping[bytes, Sequence[Record]],
        floors: Mapping[bytes, int],
        gaps: Sequence[Gap],
        floors_seq: int = 0,
    ) -> None:
        self._reader = reader
        self._root = root
        self._pending = pending
        self._floors = floors
        self._gaps = gaps
        self._floors_seq = floors_seq
        self._moved_seq = moved_seq
        self._loaded: dict[bytes, PathHistory | None] = {}

    def records(self, path: bytes) -> list[Record]:
        """Return all versions of a path, oldest first; empty if there never was one."""
        history = self._history(path)
        if history is None:
            return self.settle(path)
        return stored.records(self._reader, history) + self.settle(path)

    def find(self, path: bytes, number: int) -> Record | None:
        """Return one version of a path."""
        history = self._history(path)
        if history is not None:
            found = stored.find(self._reader, history, number)
            if found is not None:
                return found
        return next((record for record in self.settle(path) if record.number == number), None)

    def missing(self, path: bytes, number: int) -> NotFound:
        """Return the error that says why a path has no content at a number that was asked for. Reads its history."""
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
        """Return the newest version of a path, a deletion perhaps."""
        return self._last_before(path, None)

    def floor(self, path: bytes) -> int:
        """Return the highest number ever given out for a path."""
        return self._count(path, self._fresh(path, None))[1]

    def settle(self, path: bytes) -> list[Record]:
        """Return the versions of a path that are not stored: pending and derived ones, with their final numbers."""
        return [replace(record, number=number) for number, record in self.numbered(path)]

    def numbered(self, path: bytes) -> list[tuple[int, Record]]:
        """Return what `settle` does, the numbers beside the records."""
        fresh = self._fresh(path, None)
        return list(zip(self._count(path, fresh)[0], fresh, strict=True)) if fresh else []

    def below(self, path: bytes) -> bool:
        """Say whether any path below this one has a history of its own."""
        prefix = path + b"/" if path else b""
        if any(other.startswith(prefix) for other in self._pending):
            return True
        found = next(nodes.items(self._reader, self._root, after=prefix), None)
        return found is not None and found[0].startswith(prefix)

    def names(self, path: bytes) -> list[bytes]:
        """Return the names in a directory that have a history, or below which something has. Skips what is below."""
        prefix = path + b"/" if path else b""
        cut = len(prefix)
        found = {other[cut:].split(b"/", 1)[0] for other in self._pending if other.startswith(prefix)}
        after = prefix
        while True:
            item = next(nodes.items(self._reader, self._root, after=after), None)
            if item is None or not item[0].startswith(prefix):
                return sorted(found)
            name = item[0][cut:].split(b"/", 1)[0]
            found.add(name)
            # What is below the name is passed over: no name has 256 bytes.
            after = item[0] if item[0] == prefix + name else prefix + name + b"/" + b"\xff" * 256

    def stored(self, path: bytes) -> PathHistory | None:
        """Return what is stored for a path."""
        return self._history(path)

    def _history(self, path: bytes) -> PathHistory | None:
        if path not in self._loaded:
            self._loaded[path] = stored.path_history(self._reader, self._root, path)
        return self._loaded[path]

    def _count(self, path: bytes, fresh: Sequence[Record]) -> tuple[list[int], int]:
        """Return the numbers of the versions that are not stored, and the highest number ever given out.

        Floors and gaps count from the moment they came to be: a version from before has had its number since.
        """
        history = self._history(path)
        given = history.last if history is not None else 0
        skipped = self._skipped(path)
        if not skipped:
            numbers = list(range(given + 1, given + 1 + len(fresh)))
            return numbers, given + len(fresh)
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
        """Return what a path's numbers skip, oldest first: from which seq on, up to which number, how many more."""
        floor = self._floors.get(path)
        skipped = [(self._floors_seq, floor, 0)] if floor is not None else []
        if self._gaps:
            last = self._stored_before(path, None)
            since = last.seq if last is not None else 0
            skipped.extend(
                (gap.seq, 0, gap.numbers)
                for gap in self._gaps
                if since < gap.seq and path.startswith(gap.directory + b"/")
            )
        return sorted(skipped, key=itemgetter(0))

    def _last_before(self, path: bytes, before: int | None) -> Record | None:
        """Return the last version of a path with a smaller seq; only its number may not be final."""
        fresh = self._fresh(path, before)
        return fresh[-1] if fresh else self._stored_before(path, before)

    def _stored_before(self, path: bytes, before: int | None) -> Record | None:
        history = self._history(path)
        if history is None:
            return None
        if before is None:
            return next(stored.newest_first(self._reader, history), None)
        return stored.last_before(self._reader, history, before)

    def _fresh(self, path: bytes, before: int | None) -> list[Record]:
        """Return the versions after the stored ones, with a smaller seq than ``before`` if that is given."""
        last = self._stored_before(path, before)
        since = last.seq if last is not None else 0
        own = [record for record in self._pending.get(path, ()) if before is None or record.seq < before]
        if self._moved_seq <= since:
            return own
        events = self._moves_above(path, since, before)
        if not events:
            return own
        merged: list[Record] = []
        for record, directory in sorted([*((record, None) for record in own), *events], key=_seq):
            if directory is None:
                merged.append(record)
                continue
            now = merged[-1] if merged else last
            derived = self._derive(path, directory, record, now)
            if derived is not None:
                merged.append(derived)
        return merged

    def _moves_above(self, path: bytes, since: int, before: int | None) -> list[tuple[Record, bytes | None]]:
        """Return the records of the directories above a path that may count for it, each with its directory."""
        events: list[tuple[Record, bytes | None]] = []
        cut = path.find(b"/")
        while cut > 0:
            directory = path[:cut]
            history = self._history(directory)
            own: list[Record] = []
            if history is not None:
                for record in stored.newest_first(self._reader, history):
                    if record.seq <= since:
                        break
                    own.append(record)
            own.extend(record for record in self._pending.get(directory, ()) if record.seq > since)
            events.extend(
                (record, directory)
                for record in own
                if record.kind is Kind.DIR
                and record.op in {"rename", "delete"}
                and (before is None or record.seq < before)
            )
            cut = path.find(b"/", cut + 1)
        return events

    def _derive(self, path: bytes, directory: bytes, event: Record, now: Record | None) -> Record | None:
        """Return what a directory's record means for a path below it, or None if nothing.

        Args:
            path: below the directory.
            directory: what was renamed to, or away.
            event: its record.
            now: the path's version just before.
        """
        if event.source is not None:
            source = event.source + path[len(directory) :]
            came = self._last_before(source, event.seq)
            if came is not None and not came.deleted:
                return replace(
                    came,
                    seq=event.seq,
                    timestamp_ms=event.timestamp_ms,
                    op="rename",
                    turn=event.turn,
                    source=source,
                )
        if now is None or now.deleted:
            return None
        return Record(0, event.seq, event.timestamp_ms, "delete", event.turn, now.kind)


def _skip(given: int, skip: tuple[int, int, int]) -> int:
    _, floor, more = skip
    return max(given, floor) + more


def _seq(event: tuple[Record, bytes | None]) -> int:
    return event[0].seq
