"""The trees of turns, as ``.chronicle/turn`` and ``.chronicle/diff`` show them.

A turn that is over never changes. So commits, and the directories that were looked up last, are cached.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from chronicle.workspace.history import oplog
from chronicle.workspace.trees import nodes, tree

if TYPE_CHECKING:
    from chronicle.ids import BlobId
    from chronicle.workspace.layer.layer import Layer
    from chronicle.workspace.port import TreeRef
    from chronicle.workspace.trees.tree import Entry, Kind

__all__ = ["TurnEntry", "TurnTrees"]

_CACHED_ENTRIES: Final = 20_000
"""Directories, and entries of those that were listed: some 10 MB."""
_CACHED_TURNS: Final = 1000
_MAX_LISTED: Final = 1000
"""Listed directories with up to so many entries are cached with them."""


class TurnEntry(NamedTuple):
    """An entry of a turn's tree."""

    entry: Entry
    mtime_ns: int | None
    """``None`` if unknown."""
    below: BlobId | None = None
    """For a directory, the map of its entries' attributes."""


class _Directory:
    """A cached directory of a turn."""

    __slots__ = ("attributes", "entries", "subtree")

    def __init__(self, found: TurnEntry) -> None:
        assert found.entry.subtree is not None
        self.subtree = found.entry.subtree
        self.attributes = found.below
        self.entries: dict[bytes, TurnEntry] | None = None
        """All its entries, if it was listed and they are few."""


class TurnTrees:
    """Reads the trees of turns that are over.

    Args:
        layer: of the workspace.
    """

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._base: tuple[TreeRef, int] | None = None
        """The last commit, and its turn."""
        self._refs: dict[int, TreeRef | None] = {}
        self._directories: OrderedDict[tuple[int, bytes], _Directory] = OrderedDict()
        self._cached_entries = 0

    def last(self) -> int:
        """Return the turn of the last commit; 0 if there was none."""
        base = self._layer.base
        if self._base is None or self._base[0] is not base:
            self._base = base, oplog.read_root(self._layer.reader, base.oplog_id).committed_turn
        return self._base[1]

    def is_over(self, turn: int) -> bool:
        """Whether a turn was committed, or has changed nothing."""
        return turn <= max(self.last(), self._layer.turn - 1)

    def tree_id(self, turn: int) -> BlobId:
        """Return the tree after a turn that is over."""
        ref = self._commit(turn)
        return ref.tree_id if ref is not None else tree.EMPTY

    def find(self, turn: int, path: bytes) -> TurnEntry | None:
        """Return the entry of a path after a turn; ``None`` if there is none, or the turn is not over."""
        if not self.is_over(turn):
            return None
        if not path:
            return self._root(turn)
        above, _, name = path.rpartition(b"/")
        directory = self._directory(turn, above)
        return self._child(directory, name) if directory is not None else None

    def listing(self, turn: int, path: bytes) -> list[tuple[bytes, Kind]]:
        """Return a directory's entries after a turn: names and kinds."""
        directory = self._directory(turn, path) if self.is_over(turn) else None
        if directory is None:
            return []
        if directory.entries is None:
            entries = tree.list_dir(self._layer.reader, directory.subtree)
            values = dict(nodes.items(self._layer.reader, directory.attributes))
            found = {name: _turn_entry(entry, values.get(name)) for name, entry in entries}
            if len(found) > _MAX_LISTED:
                return [(name, there.entry.kind) for name, there in found.items()]
            directory.entries = found
            self._count_cached(len(found))
        return [(name, there.entry.kind) for name, there in directory.entries.items()]

    def _root(self, turn: int) -> TurnEntry:
        reader = self._layer.reader
        ref = self._commit(turn)
        if ref is None:
            entry = tree.entry_at(reader, tree.EMPTY, b"")
            assert entry is not None
            return TurnEntry(entry, None)
        entry = tree.entry_at(reader, ref.tree_id, b"")
        assert entry is not None
        root = oplog.read_root(reader, ref.oplog_id).root
        return TurnEntry(entry, root.mtime_ns, root.below)

    def _commit(self, turn: int) -> TreeRef | None:
        """Return the last commit at or before a turn that is over; None if there was none."""
        if turn >= self.last():
            return self._layer.base
        if turn not in self._refs:
            if len(self._refs) >= _CACHED_TURNS:
                self._refs.clear()
            reader = self._layer.reader
            found = oplog.commit_at(reader, oplog.read_root(reader, self._layer.base.oplog_id).commits, turn)
            self._refs[turn] = found[1] if found is not None else None
        return self._refs[turn]

    def _directory(self, turn: int, path: bytes) -> _Directory | None:
        """Return a directory of a turn; ``None`` if the path was none."""
        # Turns after the last commit show the same tree until the next commit: they are cached under its number.
        turn = min(turn, self.last())
        at, names = path, []
        while (directory := self._directories.get((turn, at))) is None and at:
            at, _, name = at.rpartition(b"/")
            names.append(name)
        if directory is None:
            directory = self._cache(turn, b"", _Directory(self._root(turn)))
        else:
            self._directories.move_to_end((turn, at))
        for name in reversed(names):
            found = self._child(directory, name)
            if found is None or found.entry.subtree is None:
                return None
            at = at + b"/" + name if at else name
            directory = self._cache(turn, at, _Directory(found))
        return directory

    def _cache(self, turn: int, path: bytes, directory: _Directory) -> _Directory:
        self._directories[turn, path] = directory
        self._count_cached(1)
        return directory

    def _count_cached(self, more: int) -> None:
        """Count cached entries, and evict the least recently used."""
        self._cached_entries += more
        while self._cached_entries > _CACHED_ENTRIES:
            _, dropped = self._directories.popitem(last=False)
            self._cached_entries -= 1 + len(dropped.entries or ())

    def _child(self, directory: _Directory, name: bytes) -> TurnEntry | None:
        if directory.entries is not None:
            return directory.entries.get(name)
        entry = tree.entry_at(self._layer.reader, directory.subtree, name)
        if entry is None:
            return None
        return _turn_entry(entry, nodes.lookup(self._layer.reader, directory.attributes, name))


def _turn_entry(entry: Entry, value: bytes | None) -> TurnEntry:
    if value is None:
        return TurnEntry(entry, None)
    attributes = oplog.decode_attr(value)
    return TurnEntry(entry, attributes.mtime_ns, attributes.below)
