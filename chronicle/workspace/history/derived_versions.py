"""Derives the versions that paths below a renamed directory get, which have no records of their own for it.

Renaming a directory writes a record for its new path and one for its old path, whatever it holds. Each path below gets
a version too: ``rename`` at its new path if its old one had an entry, else ``delete`` if the new one had an entry
before. These are derived from the operations alone, so the result does not depend on which of them were stored
meanwhile.

Two records of one operation may exist above a path: that of the renamed directory, and a stored derived one of a
directory in between. They have the same seq and meaning, and count once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from chronicle.workspace.history.path_histories import DIRECTORY, Record, kinds_of
from chronicle.workspace.paths import above
from chronicle.workspace.trees.tree import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chronicle.workspace.history.own_records import OwnRecords

__all__ = ["NOW", "DerivedVersions", "Unstored", "above"]

NOW: Final = 1 << 62
"""Greater than any seq."""
_KEPT: Final = 20_000
"""Limit of each cache, in states or records of paths; beyond it the cache is cleared."""

Stamp = tuple[int, ...]
"""Grows with each record that may give a path a version: counts of pending records of the path and those above it."""


@dataclass(frozen=True, slots=True)
class Unstored:
    """The versions of a path that are not stored, oldest first. Their numbers are not final."""

    records: Sequence[Record]
    """Read-only. Valid until the next operation."""
    kinds: int
    """Their kinds; see `chronicle.workspace.history.path_histories.PathHistory.kinds`."""


class DerivedVersions:
    """Derives versions.

    Args:
        own: the records that paths have themselves.
        moved_seq: the seq of the last renaming of a directory; 0 if there was none. The caller updates it.
        beat: called repeatedly during long derivations: the watchdog's progress report.
    """

    def __init__(self, own: OwnRecords, moved_seq: int, beat: Callable[[], None]) -> None:
        self._own = own
        self._beat = beat
        self.moved_seq = moved_seq
        self._last: dict[tuple[bytes, int], tuple[bytes, Record] | None] = {}
        self._alive: dict[tuple[bytes, int], Record | None] = {}
        self._fresh: dict[bytes, tuple[Stamp, Unstored]] = {}
        self._fresh_size = 0
        self._came: dict[bytes, tuple[Stamp, dict[bytes, int]]] = {}
        self._came_size = 0
        self._known_sources: dict[bytes, tuple[Stamp, set[bytes]]] = {}
        self._sources_size = 0
        self._known_origins: dict[tuple[bytes, int], frozenset[bytes]] = {}

    def alive(self, path: bytes, before: int) -> Record | None:
        """Return the version of a path just before an operation, as it was recorded; ``None`` if the path was absent.

        Args:
            path: of the version.
            before: the seq of a past operation.
        """
        known = self._alive
        trail: list[tuple[bytes, int]] = []
        while True:
            key = path, before
            if key in known:
                found = known[key]
                break
            trail.append(key)
            last = self._own.last_before(path, before)
            since = last.seq if last is not None else 0
            move = self._last_above(path, since, before)
            if move is None:
                found = last if last is not None and not last.deleted else None
                break
            directory, record = move
            source = _source(record)
            if source is None:
                found = None
                break
            path, before = source + path[len(directory) :], record.seq
        if len(known) + len(trail) > _KEPT:
            known.clear()
        known.update(dict.fromkeys(trail, found))
        return found

    def unstored(self, path: bytes) -> Unstored:
        """Return the versions of a path after the stored ones."""
        own = self._own.pending(path)
        stamp = (self.moved_seq, len(own), *(len(self._own.pending(directory)) for directory in above(path)))
        known = self._fresh.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        last = self._own.last_stored(path)
        since = last.seq if last is not None else 0
        moves = self._moves_above(path, since) if self.moved_seq > since else []
        if moves:
            found = self._merged(path, own, moves, last)
            fresh = Unstored(found, kinds_of(found))
        elif known is not None and known[1].records is own:
            fresh = Unstored(own, known[1].kinds | kinds_of(own[known[0][1] :]))
        else:
            fresh = Unstored(own, kinds_of(own))
        size = 1 if fresh.records is own else 1 + len(fresh.records)
        self._fresh_size += size
        if self._fresh_size > _KEPT:
            self._fresh.clear()
            self._fresh_size = size
        self._fresh[path] = stamp, fresh
        return fresh

    def _merged(
        self, path: bytes, own: Sequence[Record], moves: list[tuple[bytes, Record]], last: Record | None
    ) -> list[Record]:
        merged: list[Record] = []
        now = last if last is not None and not last.deleted else None
        events: list[tuple[int, bytes | None, Record]] = [(record.seq, None, record) for record in own]
        events += [(record.seq, directory, record) for directory, record in moves]
        events.sort(key=lambda event: event[0])
        for seq, directory, record in events:
            self._beat()
            if directory is None:
                merged.append(record)
                now = None if record.deleted else record
                continue
            source = _source(record)
            came = None
            if source is not None:
                source += path[len(directory) :]
                came = self.alive(source, seq)
            if came is not None:
                derived = replace(
                    came, seq=seq, timestamp_ms=record.timestamp_ms, op="rename", turn=record.turn, source=source
                )
                merged.append(derived)
            elif now is not None:
                merged.append(Record(0, seq, record.timestamp_ms, "delete", record.turn, now.kind))
            now = came
        return merged

    def _moves_above(self, path: bytes, since: int) -> list[tuple[bytes, Record]]:
        """Return the moves of directories above a path, each operation once."""
        found: dict[int, tuple[bytes, Record]] = {}
        for directory in above(path):
            for record in self._own.moves(directory, since, NOW):
                found.setdefault(record.seq, (directory, record))
        return list(found.values())

    def _last_above(self, path: bytes, since: int, before: int) -> tuple[bytes, Record] | None:
        """Return the newest move of a directory above a path with a seq between two."""
        if self.moved_seq <= since:
            return None
        directory, _, _ = path.rpartition(b"/")
        found = self._last_of(directory, before) if directory else None
        return found if found is not None and found[1].seq > since else None

    def _last_of(self, path: bytes, before: int) -> tuple[bytes, Record] | None:
        """Return the newest move of a directory or one above it before an operation; all its entries share it."""
        key = path, before
        if before != NOW and key in self._last:
            return self._last[key]
        found = None
        since = 0
        for directory in (*above(path), path):
            record = self._own.last_move(directory, since, before)
            if record is not None:
                found = directory, record
                since = record.seq
        if before != NOW:
            if len(self._last) >= _KEPT:
                self._last.clear()
            self._last[key] = found
        return found

    def came(self, directory: bytes) -> Mapping[bytes, int]:
        """Return the names that may have entered a directory by renames of directories, even if removed since.

        Returns:
            By name, a superset of the kinds that it had, as in `PathHistory.kinds`. Names that never entered may occur.
        """
        own = self._own
        stamp = tuple(len(own.pending(at)) for at in (*above(directory), directory))
        known = self._came.get(directory)
        if known is not None and known[0] == stamp:
            return known[1]
        found: dict[bytes, int] = {}
        for source in self._sources(directory):
            for name, kinds in own.children(source).items():
                # A name without a record of its own, and with records below it, was a directory that was moved there.
                found[name] = found.get(name, 0) | (kinds or DIRECTORY)
        self._came_size += 1 + len(found)
        if self._came_size > _KEPT:
            self._came.clear()
            self._came_size = 1 + len(found)
        self._came[directory] = stamp, found
        return found

    def moved_since(self, path: bytes) -> bool:
        """Say whether a directory above a path was moved since the path's last stored record."""
        last = self._own.last_stored(path)
        return self._last_above(path, last.seq if last is not None else 0, NOW) is not None

    def _sources(self, path: bytes) -> set[bytes]:
        """Return a superset of the paths at which entries that were moved into a directory may have records.

        An entry of a directory either has records there, or arrived with the last move of the directory or of one above
        it. So each such move is followed back through the last one before it. All directories inside one moved
        directory share its moves.
        """
        if not path or not self.moved_seq:
            return set()
        stamp = tuple(len(self._own.pending(at)) for at in (*above(path), path))
        known = self._known_sources.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        directory, _, name = path.rpartition(b"/")
        found = {source + b"/" + name for source in self._sources(directory)}
        for at in [path, *found]:
            for record in self._own.moves(at, 0, NOW):
                found |= self._origins(at, record)
        self._sources_size += 1 + len(found)
        if self._sources_size > _KEPT:
            self._known_sources.clear()
            self._sources_size = 1 + len(found)
        self._known_sources[path] = stamp, found
        return found

    def _origins(self, directory: bytes, record: Record) -> frozenset[bytes]:
        """Return the former paths of a moved directory, from the last one back to the first."""
        trail: list[tuple[bytes, int]] = []
        path, known = directory, frozenset[bytes]()
        while (source := _source(record)) is not None:
            path = source + path[len(directory) :]
            key = path, record.seq
            if key in self._known_origins:
                known = self._known_origins[key]
                break
            trail.append(key)
            before = self._last_of(path, record.seq)
            if before is None:
                break
            directory, record = before
        if len(self._known_origins) + len(trail) > _KEPT:
            self._known_origins.clear()
        for key in reversed(trail):
            if key[0] not in known:
                known |= {key[0]}
            self._known_origins[key] = known
        return known


def _source(record: Record) -> bytes | None:
    """Return the source of a move of a directory; ``None`` for its removal or replacement."""
    return record.source if record.op == "rename" and record.kind is Kind.DIR else None
