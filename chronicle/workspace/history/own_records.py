"""The records that paths have themselves, stored and pending: the input of `derived_versions`.

Reads are cached, so a view reads each history once. Records are only ever appended with growing sequence numbers, so
cached reads stay valid.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from chronicle.workspace.history import path_histories
from chronicle.workspace.trees import nodes
from chronicle.workspace.trees.tree import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.history.path_histories import PathHistory, Record

__all__ = ["OwnRecords", "is_move"]

_KEPT: Final = 4_096
"""Limit of the caches of histories and moves, in paths; beyond it they are cleared."""
_KEPT_CHILDREN: Final = 20_000
"""Limit of the cache of names in directories, likewise."""
_KEPT_NODES: Final = 64
"""Of the stored map, some 10 KB each."""
_LONGEST_NAME: Final = b"\xff" * 256
"""Sorts behind every name, which has 255 bytes at most."""


def is_move(record: Record) -> bool:
    """Whether a record of a directory may change the paths below it."""
    return record.op == "rename" or (record.op == "delete" and record.kind is Kind.DIR)


class OwnRecords:
    """Records by path.

    Args:
        reader: where blobs are read.
        root: the stored map of histories.
        pending: records that are not stored yet, oldest first. During this object's life they are only appended to, and
            their turns may change.
    """

    def __init__(self, reader: BlobReader, root: BlobId | None, pending: Mapping[bytes, Sequence[Record]]) -> None:
        self._reader = reader
        self._root = root
        self._nodes = nodes.NodeCache(reader, _KEPT_NODES)
        self._pending = pending
        self._histories: dict[bytes, PathHistory | None] = {}
        self._moves: dict[bytes, _StoredMoves] = {}
        self._pending_kinds: dict[bytes, tuple[int, int]] = {}
        """By path, how many pending records were examined, and their kinds."""
        self._names: dict[bytes, set[bytes]] = {}
        """By directory, the names in it that have pending records, or have some below them."""
        self._children: dict[bytes, dict[bytes, int]] = {}
        self._kept_children = 0
        self._named = 0
        """How many of the pending paths are indexed in `_names`."""

    def stored(self, path: bytes) -> PathHistory | None:
        """Return the stored history of a path."""
        try:
            return self._histories[path]
        except KeyError:
            pass
        value = self._nodes.lookup(self._root, path)
        found = path_histories.decode_history(value) if value is not None else None
        if len(self._histories) >= _KEPT:
            self._histories.clear()
        self._histories[path] = found
        return found

    def pending(self, path: bytes) -> Sequence[Record]:
        """Return a path's pending records, oldest first. Valid until the next operation."""
        return self._pending.get(path, ())

    def last_stored(self, path: bytes) -> Record | None:
        """Return a path's newest stored record."""
        history = self.stored(path)
        return next(path_histories.newest_first(self._reader, history), None) if history is not None else None

    def kinds(self, path: bytes) -> int:
        """Return the kinds of a path's own records."""
        pending = self._pending.get(path)
        known = 0
        if pending:
            seen, known = self._pending_kinds.get(path, (0, 0))
            if seen < len(pending):
                known |= path_histories.kinds_of(pending[seen:])
                self._pending_kinds[path] = len(pending), known
        history = self.stored(path)
        return known | history.kinds if history is not None else known

    def last_before(self, path: bytes, before: int) -> Record | None:
        """Return a path's newest record with a smaller seq."""
        pending = self._pending.get(path)
        if pending and pending[0].seq < before:
            return pending[bisect_left(pending, before, key=_seq) - 1]
        history = self.stored(path)
        return path_histories.last_before(self._reader, history, before) if history is not None else None

    def moves(self, directory: bytes, since: int, before: int) -> list[Record]:
        """Return the moves of a directory with a seq between two, oldest first; see `is_move`."""
        found = self._stored_moves(directory, since, before)
        pending = self._pending.get(directory)
        if pending:
            last = len(pending) if pending[-1].seq < before else bisect_left(pending, before, key=_seq)
            first = bisect_left(pending, since + 1, 0, last, key=_seq)
            found += [record for record in pending[first:last] if is_move(record)]
        return found

    def last_move(self, directory: bytes, since: int, before: int) -> Record | None:
        """Return the newest of `moves`."""
        pending = self._pending.get(directory)
        if pending and pending[-1].seq > since:
            at = len(pending) if pending[-1].seq < before else bisect_left(pending, before, key=_seq)
            while at and pending[at - 1].seq > since:
                at -= 1
                if is_move(pending[at]):
                    return pending[at]
        moves = self._loaded(directory)
        return moves.last(since, before) if moves is not None else None

    def _stored_moves(self, directory: bytes, since: int, before: int) -> list[Record]:
        moves = self._loaded(directory)
        return moves.between(since, before) if moves is not None else []

    def _loaded(self, directory: bytes) -> _StoredMoves | None:
        moves = self._moves.get(directory)
        if moves is None:
            history = self.stored(directory)
            if history is None or history.kinds == path_histories.OTHER:
                return None
            if len(self._moves) >= _KEPT:
                self._moves.clear()
            moves = self._moves[directory] = _StoredMoves(self._reader, history)
        return moves

    def children(self, directory: bytes) -> dict[bytes, int]:
        """Return the names in a directory that have records, or have some below them, and their kinds.

        Returns:
            By name, the kinds of its own records, as in `kinds`; 0 for a name that has none.
        """
        known = self._children.get(directory)
        if known is None:
            known = self._stored_children(directory)
            self._kept_children += 1 + len(known)
            if self._kept_children > _KEPT_CHILDREN:
                self._children.clear()
                self._kept_children = 1 + len(known)
            self._children[directory] = known
        found = dict(known)
        prefix = directory + b"/" if directory else b""
        for name in self._pending_names(directory):
            found[name] = self.kinds(prefix + name)
        return found

    def _stored_children(self, directory: bytes) -> dict[bytes, int]:
        prefix = directory + b"/" if directory else b""
        cut = len(prefix)
        found: dict[bytes, int] = {}
        after = prefix
        while True:
            item = self._nodes.after(self._root, after)
            if item is None or not item[0].startswith(prefix):
                return found
            after, value = item
            name = after[cut:].split(b"/", 1)[0]
            kinds = path_histories.kinds_in(value)
            if after == prefix + name:
                if kinds != 0:
                    found[name] = kinds
            elif kinds != 0:
                found.setdefault(name, 0)
                after = prefix + name + b"/" + _LONGEST_NAME  # skip the rest below the name

    def any_below(self, directory: bytes) -> bool:
        """Whether any path below a directory has records."""
        if self._pending_names(directory):
            return True
        prefix = directory + b"/" if directory else b""
        after = prefix
        while (item := self._nodes.after(self._root, after)) is not None and item[0].startswith(prefix):
            after, value = item
            if path_histories.kinds_in(value) != 0:
                return True
        return False

    def _pending_names(self, directory: bytes) -> set[bytes]:
        if self._named < len(self._pending):
            for path in islice(self._pending, self._named, None):
                self._add_name(path)
            self._named = len(self._pending)
        return self._names.get(directory, set())

    def _add_name(self, path: bytes) -> None:
        while path:
            directory, _, name = path.rpartition(b"/")
            names = self._names.setdefault(directory, set())
            if name in names:
                return
            names.add(name)
            path = directory


class _StoredMoves:
    """The stored moves of one directory, read lazily from the newest on."""

    def __init__(self, reader: BlobReader, history: PathHistory) -> None:
        self._reader = reader
        self._history = history
        self._newest_first: list[Record] = []
        self._minus_seqs: list[int] = []
        """Of those, and so ascending."""
        self._rest: Iterator[Record] | None = path_histories.newest_first(reader, history)
        self._read_to = 1 << 63
        """The seq of the last record that was read."""

    def between(self, since: int, before: int) -> list[Record]:
        """Return those with a seq between two, oldest first."""
        self._read_on(since)
        seqs = self._minus_seqs
        return self._newest_first[bisect_left(seqs, 1 - before) : bisect_left(seqs, -since)][::-1]

    def last(self, since: int, before: int) -> Record | None:
        """Return the newest with a seq between two."""
        found = self._newest_first
        while True:
            at = bisect_left(self._minus_seqs, 1 - before)
            if at < len(found):
                return found[at] if found[at].seq > since else None
            if self._read_to <= since or not self._read_one():
                return None

    def _read_on(self, since: int) -> None:
        while self._read_to > since and self._read_one():
            pass

    def _read_one(self) -> bool:
        if self._rest is None:
            return False
        try:
            record = next(self._rest, None)
        except BaseException:  # a generator that has raised is exhausted: start again
            self._rest = path_histories.newest_first(self._reader, self._history)
            self._newest_first.clear()
            self._minus_seqs.clear()
            self._read_to = 1 << 63
            raise
        if record is None:
            self._rest = None
            return False
        self._read_to = record.seq
        if is_move(record):
            self._newest_first.append(record)
            self._minus_seqs.append(-record.seq)
        return True


_seq = attrgetter("seq")
