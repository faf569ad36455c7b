"""Restoring a layer's files from an earlier commit: all of them, or one path and what is below it.

A restore adds history, and removes none: each path that differs gets one more version, ``restore``, ``delete`` or
``link``, and restoring the state before it undoes it. The cost is in proportion to what differs, and no content is
read: files refer to stored contents. The difference is that of two trees, so the layer is sealed first.

A restore is atomic. All records are planned before anything changes, and logged so that they count together or not at
all; then they are applied by the code of the replay. All blobs that this needs were read while planning. So every
failure comes before the first change, and after a crash either all of it happened or nothing.

A path that is restored alone is not hard-linked to names outside of it, whatever it was in the commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from chronicle.blobs.buffer import ScratchBuffer
from chronicle.errors import InvalidInput, NotFound
from chronicle.workspace.history.oplog import decode_attr, first_root, read_root
from chronicle.workspace.layer.disk import log_records as records
from chronicle.workspace.layer.disk.log_records import pack
from chronicle.workspace.layer.replay import redo
from chronicle.workspace.layer.state.node import DirNode, FileNode, kind_of
from chronicle.workspace.layer.state.touched import Touched
from chronicle.workspace.port import Usage
from chronicle.workspace.trees import nodes, tree
from chronicle.workspace.trees.tree import EMPTY, Entry, Kind, encode_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chronicle.ids import BlobId
    from chronicle.workspace.history.oplog import OplogRoot
    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.disk.log import LayerLog
    from chronicle.workspace.layer.open_files import OpenFiles
    from chronicle.workspace.layer.state.apply import Applier
    from chronicle.workspace.layer.state.layer_state import LayerState
    from chronicle.workspace.layer.state.node import Node
    from chronicle.workspace.port import TreeRef

__all__ = ["Plan", "Restorer", "plan", "restored_tree"]

Difference = tuple[bytes, Entry | None, Entry | None]
"""A path, its entry now, and the wanted one."""


class Plan(NamedTuple):
    """The planned changes of a restore."""

    records: list[bytes]
    """Records to log together and to apply, in this order."""
    changed: list[Node]
    """Existing nodes that get another content, mode or target."""
    touched: Touched


def restored_tree(buffer: nodes.NodeBuffer, now: BlobId, then: BlobId, path: bytes = b"") -> BlobId:
    """Return the tree that a restore would give; for showing what it would change.

    Args:
        buffer: takes new nodes; they may be discarded.
        now: the tree of the layer.
        then: the tree of the commit.
        path: what to restore, ``b""`` for everything.

    Raises:
        NotFound: the path was not there then.
        InvalidInput: something that is no directory is in its way now.
    """
    if not path:
        return then
    wanted = tree.entry_at(buffer, then, path)
    if wanted is None:
        raise NotFound(f"{_text(path)!r} was not there at that moment; to have it gone, remove it")
    changes: dict[bytes, Entry | None] = {}
    for above in _ancestors(path):
        entry = tree.entry_at(buffer, now, above)
        if entry is None:
            was = tree.entry_at(buffer, then, above)
            assert was is not None, "what is below it was there"
            changes[above] = replace(was, subtree=EMPTY)
        elif entry.kind is not Kind.DIR:
            raise InvalidInput(f"{_text(above)!r} is no directory now; restore that, or remove it first")
    if tree.entry_at(buffer, now, path) == wanted:
        return now
    return tree.update_tree(buffer, now, {**changes, path: replace(wanted, link=None)})


def plan(state: LayerState, now: BlobId, then: TreeRef | None, path: bytes, ts_ns: int) -> Plan:
    """Plan the restore of a path. Changes nothing.

    Args:
        state: of the layer, which was just sealed.
        now: the tree of that seal.
        then: the commit; ``None`` for the time before the first one.
        path: what to restore, ``b""`` for everything.
        ts_ns: when it happens.

    Raises:
        NotFound: the path was not there then.
        InvalidInput: something that is no directory is in its way now.
        OSError: EDQUOT, EFBIG, or the disk.
        Corrupt, Unavailable: what differs could not be read.
    """
    root = read_root(state.reader, then.oplog_id) if then is not None else first_root(state.names.root.mtime_ns)
    buffer = ScratchBuffer(state.reader)
    wanted = restored_tree(buffer, now, root.tree_id, path)
    found = list(tree.diff_trees(buffer, now, wanted))
    work = _Planner(state, root, ts_ns, alone=bool(path))
    work.check(found)
    work.run(found)
    return Plan(work.records, work.changed, Touched(work.names, sorted(work.inodes)))


class Restorer:
    """Restores earlier commits into a layer, in one step.

    Args:
        applier: changes the state.
        files: the layer's files on disk.
        log: the layer's log.
        now: gives the time, epoch nanoseconds.
        open_files: the open handles, which go on with the restored content.
    """

    def __init__(
        self,
        applier: Applier,
        files: LayerFiles,
        log: LayerLog,
        now: Callable[[], int],
        open_files: OpenFiles,
    ) -> None:
        self._applier = applier
        self._files = files
        self._log = log
        self._now = now
        self._open_files = open_files

    def restore(self, sealed: BlobId, then: TreeRef | None, path: bytes = b"") -> Touched:
        """Make a path, or everything, what it was in a commit; see `plan` for arguments and errors.

        Args:
            sealed: the tree of a seal that was made just now.
            then: the commit; ``None`` for the time before the first one.
            path: what to restore, ``b""`` for everything.
        """
        planned = plan(self._applier.state, sealed, then, path, self._now())
        if planned.records:
            for node in planned.changed:  # while this may still fail; a data file that is not indexed is not used
                self._files.unindex(node.ino)
            self._log.append_together([pack((records.TOGETHER, len(planned.records))), *planned.records])
            redo(self._applier, self._files, planned.records)
            for node in planned.changed:
                if isinstance(node, FileNode):
                    self._open_files.reopen(node)
        return planned.touched._replace(open_files=self._open_files.paths_of(planned.changed))


@dataclass(slots=True, eq=False)
class _PlannedInode:
    """An inode at one point of the plan."""

    ino: int
    kind: Kind
    names: int
    """Number of names; 1 for a directory."""
    atime_ns: int
    node: Node | None = field(default=None)
    """Its node in the layer; None if it is only planned."""


class _Planner:
    def __init__(self, state: LayerState, root: OplogRoot, ts_ns: int, *, alone: bool) -> None:
        self._state = state
        self._root = root
        self._ts_ns = ts_ns
        self._alone = alone
        self._finder = nodes.NodeCache(state.reader)
        self._above: dict[bytes, BlobId | None] = {}
        """By directory, its map of attributes in the commit."""
        self._at: dict[bytes, _PlannedInode | None] = {}
        """By path, the inode after the records so far, where they change it."""
        self._live: dict[int, _PlannedInode] = {}
        """By inode number, existing inodes that were looked up."""
        self._linked: dict[bytes, bytes] = {}
        """By link group of an entry, the path at which the file was restored."""
        self.records: list[bytes] = []
        self.changed: list[Node] = []
        self.names: list[tuple[int, bytes]] = []
        self.inodes: set[int] = set()

    def check(self, found: list[Difference]) -> None:
        """Refuse a result above the quota."""
        meter, root = self._state.usage, self._root
        if meter.quota is None:
            return
        sizes = [(_size(was), _size(now)) for _, was, now in found]
        if self._alone:
            before = meter.usage
            after = Usage(
                before.bytes + sum(now - was for was, now in sizes),
                before.files + sum((now is not None) - (was is not None) for _, was, now in found),
            )
        else:
            after = root.usage
        meter.check_replaced(after, max((now for was, now in sizes if now > was), default=0))

    def run(self, found: list[Difference]) -> None:
        """Plan the differences: a directory is removed after its entries, and created before them."""
        directories = set()
        for path, _, wanted in reversed(found):
            if wanted is None:
                self._remove(path)
        changed = {path for path, _, _ in found}
        for path, _, wanted in found:
            if wanted is not None:
                self._put(path, wanted, changed)
                if wanted.kind is Kind.DIR:
                    directories.add(path)
            directories.update([path.rpartition(b"/")[0]] if path else [])
        for path in sorted(directories, reverse=True):
            self._restore_mtime(path)

    def _resolve(self, path: bytes) -> _PlannedInode | None:
        """Return the inode at a path after the records so far."""
        if path in self._at:
            return self._at[path]
        node = self._state.names.resolve(path)
        if node is None:
            return None
        thing = self._live.get(node.ino)
        if thing is None:
            is_dir = isinstance(node, DirNode)
            thing = _PlannedInode(node.ino, kind_of(node), 1 if is_dir else node.nlink, node.atime_ns, node)
            self._live[node.ino] = thing
            if not is_dir:
                self._state.names.load_links(node)
        return thing

    def _remove(self, path: bytes) -> None:
        thing = self._resolve(path)
        assert thing is not None
        self._note_name(path)
        self.inodes.add(thing.ino)
        self.records.append(pack((records.REMOVE, self._ts_ns, path)))
        thing.names -= 1
        self._at[path] = None

    def _put(self, path: bytes, wanted: Entry, changed: set[bytes]) -> None:
        there = self._resolve(path)
        if wanted.link is not None:
            source = self._linked.get(wanted.link)
            if source is None and not self._alone and wanted.link not in changed:
                source = wanted.link  # as it is
            file = self._resolve(source) if source is not None else None
            if source is not None and file is not None:
                if there is not file:
                    if there is not None:
                        self._remove(path)
                    self._note_name(path)
                    self.inodes.add(file.ino)
                    self.records.append(pack((records.LINK, self._ts_ns, source, path)))
                    file.names += 1
                    self._at[path] = file
                return
        if there is not None and (there.kind is not wanted.kind or there.names > 1):
            self._remove(path)
            there = None
        mtime_ns = self._mtime_ns(path) or 0
        if there is None:
            names = self._state.names
            there = self._at[path] = _PlannedInode(names.next_ino, wanted.kind, 1, mtime_ns)
            names.next_ino += 1  # a number is not reused if the plan fails
        elif there.node is not None:
            self.changed.append(there.node)
        entry = encode_entry(replace(wanted, link=None))
        self.records.append(pack((records.RESTORE, self._ts_ns, path, there.ino, entry, mtime_ns)))
        self.inodes.add(there.ino)
        if path:
            self._note_name(path)
        if wanted.link is not None:
            self._linked[wanted.link] = path

    def _note_name(self, path: bytes) -> None:
        """Record a name whose node changes."""
        directory, _, name = path.rpartition(b"/")
        parent = self._resolve(directory)
        assert parent is not None
        self.inodes.add(parent.ino)
        self.names.append((parent.ino, name))

    def _restore_mtime(self, path: bytes) -> None:
        """Restore the modification time of a directory whose entries change, if it was in the commit."""
        thing = self._resolve(path)
        mtime_ns = self._mtime_ns(path)
        if thing is not None and mtime_ns is not None:
            self.records.append(pack((records.TIMES, self._ts_ns, path, thing.atime_ns, mtime_ns)))

    def _mtime_ns(self, path: bytes) -> int | None:
        """Return a path's modification time in the commit; ``None`` if it was not there."""
        if not path:
            return self._root.root.mtime_ns
        above, _, name = path.rpartition(b"/")
        value = self._finder.lookup(self._attributes_in(above), name)
        return decode_attr(value).mtime_ns if value is not None else None

    def _attributes_in(self, directory: bytes) -> BlobId | None:
        """Return a directory's map of attributes in the commit; ``None`` if it had no entries."""
        if directory not in self._above:
            below = self._root.root.below
            for name in directory.split(b"/") if directory else ():
                value = nodes.lookup(self._state.reader, below, name)
                below = decode_attr(value).below if value is not None else None
            self._above[directory] = below
        return self._above[directory]


def _ancestors(path: bytes) -> Iterator[bytes]:
    """Yield the ancestor directories of a path, without the root."""
    parts = path.split(b"/")[:-1]
    for count in range(1, len(parts) + 1):
        yield b"/".join(parts[:count])


def _size(entry: Entry | None) -> int:
    return entry.content.size if entry is not None and entry.content is not None else 0


def _text(path: bytes) -> str:
    return path.decode(errors="backslashreplace")
