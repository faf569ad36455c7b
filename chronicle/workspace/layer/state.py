"""What a layer is, and what each operation does to it, without checking it and without logging it.

The same methods run when an operation happens (`chronicle.workspace.layer.layer`, which has checked and logged it) and
when it is read back from the log (`chronicle.workspace.layer.disk.replay`). They take the time as an argument and
depend on nothing else but the state, so that reading the log back gives the same versions with the same numbers.

When an operation happens, none of them reads the blob store: it was logged already, and a read that fails then would
leave it half done. What they need of the store is read before the record is logged: `LayerState.moving` for a renaming,
`chronicle.workspace.layer.names.Names.load_links` for the names of a hard-linked file.
"""

from __future__ import annotations

import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from chronicle.workspace.content.lazy_reader import LazyFile
from chronicle.workspace.history.oplog import first_root, read_root
from chronicle.workspace.history.path_histories import Record
from chronicle.workspace.history.view import HistoryView
from chronicle.workspace.layer.disk.partial_files import Partial
from chronicle.workspace.layer.names import Names
from chronicle.workspace.layer.node import DeviceNode, DirNode, FileNode, LinkNode, Node, kind_of, new_node
from chronicle.workspace.port import Usage
from chronicle.workspace.quota import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.content.lazy_reader import Chunks
    from chronicle.workspace.history.oplog import Gap, OplogRoot
    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.disk.undo import DataFile, Undo
    from chronicle.workspace.port import TreeRef
    from chronicle.workspace.trees.tree import Entry

__all__ = ["MILLION", "RENAME_EXCHANGE", "RENAME_NOREPLACE", "LayerState", "Moving"]

RENAME_NOREPLACE: Final = 1
"""rename(2): fail if the new name is there."""
RENAME_EXCHANGE: Final = 2
"""rename(2): swap the two."""
MILLION: Final = 1_000_000


class Moving(NamedTuple):
    """What a renaming concerns, all of it in memory."""

    node: Node
    """What gets another name."""
    target: Node | None
    """What has that name before: it is removed, or exchanged with the node."""
    linked: list[Node]
    """Hard-linked files below directories that move: their entries hold paths, so they change too."""


class LayerState:
    """The names, versions and counters of a layer.

    Args:
        reader: reads trees, attributes and histories.
        chunks: where contents are read.
        files: the layer's files on disk.
        start: the commit whose state this is; None for an empty workspace.
        owner: user and group of what has none of its own in the tree.
        turn: the turn that changes belong to.
    """

    beat: Callable[[], None] = staticmethod(lambda: None)
    """Called again and again by what may take long, so that who looks on sees that it gets on."""

    def __init__(
        self,
        reader: BlobReader,
        chunks: Chunks,
        files: LayerFiles,
        start: TreeRef | None,
        owner: tuple[int, int],
        turn: int,
    ) -> None:
        self._reader = reader
        self._chunks = chunks
        self._files = files
        self._owner = owner
        self.turn = turn
        self.floors: dict[bytes, int] = {}
        """By path, the numbers of versions that were rolled back; they are not given out again."""
        self.gaps: list[Gap] = []
        """What the same means for paths below renamed directories, since the base."""
        self._next_seq = 1
        commit = read_root(reader, start.oplog_id) if start is not None else first_root(0)
        self._start_at(start, commit, Names(reader, commit, owner))

    def _start_at(self, start: TreeRef | None, commit: OplogRoot, names: Names) -> None:
        """Take a commit's state, whatever was here. Reads nothing, and cannot fail.

        Args:
            start: the commit.
            commit: what it says.
            names: its names, none of them changed.
        """
        self._sealed = start
        self._commit = commit
        self.names = names
        self._next_seq = max(self._next_seq, self._commit.next_seq)
        self._moved_seq = self._commit.moved_seq
        self._moves: list[bytes] = []
        """Where directories were renamed from and to since the last seal."""
        self._records: dict[bytes, list[Record]] = {}
        self._kept_view: HistoryView | None = None
        """See `_view`. To be dropped with anything that it was made of."""
        self.modified: dict[int, FileNode] = {}
        """Files whose data file was changed since the last seal."""
        self._retired: list[DataFile] = []
        """Data files that only versions refer to."""
        self._grown_bytes = 0
        """How many bytes more than at the last seal the files with a name have."""
        self._grown_files = 0
        """The same in inodes."""
        self._unnamed_bytes = 0
        """Of files that were removed and are open still."""

    @property
    def usage(self) -> Usage:
        """How much the working tree holds. Kept up with each operation; counted once where the commit does not say."""
        before = self._commit.usage
        if before is None:
            before = measure(self._reader, self._commit.tree_id)
            self._commit = replace(self._commit, usage=before)
        return Usage(before.bytes + self._grown_bytes, before.files + self._grown_files)

    def resize(self, node: FileNode, size: int) -> None:
        """Note the size that a file has now."""
        if node.nlink:
            self._grown_bytes += size - node.length
        else:
            self._unnamed_bytes += size - node.length
        node.length = size

    @property
    def reader(self) -> BlobReader:
        """Where trees, attributes and histories are read."""
        return self._reader

    @property
    def retired(self) -> Sequence[DataFile]:
        """Data files that only versions refer to."""
        return self._retired

    # -- versions -------------------------------------------------------------------------------------------------

    def _note(
        self, path: bytes, node: Node, op: str, ts_ns: int, source: bytes | None = None, *, seq: int | None = None
    ) -> None:
        """Give a path a version that is this node as it is now, or its deletion."""
        if seq is None:
            seq = self._next_seq
            self._next_seq = seq + 1
        content = target = held = None
        if op != "delete":
            node.versioned = True
            if isinstance(node, FileNode):
                if node.dirty:
                    assert node.data is not None
                    held = node.data.pin(node.length)
                    node.guarded = True
                else:
                    content = node.content
            elif isinstance(node, LinkNode):
                target = node.target
        mode = node.mode & 0o7777 if op != "delete" else None
        record = Record(0, seq, ts_ns // MILLION, op, self.turn, kind_of(node), content, target, source, held, mode)
        known = self._records.get(path)
        if known is None:
            self._records[path] = [record]
        else:
            known.append(record)

    def _note_all(self, node: Node, op: str, ts_ns: int) -> None:
        """Give every path of a node a version."""
        if node.nlink > 1 and not isinstance(node, DirNode):
            for path in sorted(self.names.all_paths(node)):
                self._note(path, node, op, ts_ns)
        elif node.parent is not None:
            self._note(self.names.join(node.parent, node.name), node, op, ts_ns)

    def _view(self) -> HistoryView:
        """Return the histories as they are now. It is the same until what is pending is stored or given up."""
        if self._kept_view is None:
            self._kept_view = self._new_view()
        return self._kept_view

    def _new_view(self) -> HistoryView:
        """Return the histories as they are now, for use while others may look."""
        commit = self._commit
        gaps = (*commit.gaps, *self.gaps)
        return HistoryView(
            self._reader,
            commit.histories,
            self._moved_seq,
            self._records,
            self.floors,
            gaps,
            commit.next_seq,
            lambda: self.beat(),  # noqa: PLW0108 - it is set after the first view was made
        )

    # -- operations -----------------------------------------------------------------------------------------------

    def do_create(
        self, parent: DirNode, name: bytes, ino: int, mode: int, uid: int, gid: int, data: DataFile, ts_ns: int
    ) -> FileNode:
        node = FileNode(ino, stat.S_IFREG | mode, uid, gid, ts_ns)
        node.data = data
        node.dirty = True
        node.guarded = False
        self.modified[ino] = node
        self._add(parent, name, node, ts_ns)
        return node

    def do_make(
        self, parent: DirNode, name: bytes, ino: int, mode: int, uid: int, gid: int, target: bytes | None, ts_ns: int
    ) -> Node:
        """Make a directory, symlink, FIFO or socket."""
        node: Node
        if stat.S_ISDIR(mode):
            node = DirNode(ino, mode, uid, gid, ts_ns)
            parent.nlink += 1
        elif target is not None:
            node = LinkNode(ino, mode, uid, gid, ts_ns)
            node.target = target
        else:
            node = Node(ino, mode, uid, gid, ts_ns)
        self._add(parent, name, node, ts_ns)
        op = "mkdir" if stat.S_ISDIR(mode) else "create" if target is None else "symlink"
        self._note(self.names.join(parent, name), node, op, ts_ns)
        return node

    def do_make_device(
        self, parent: DirNode, name: bytes, ino: int, mode: int, uid: int, gid: int, device: int, ts_ns: int
    ) -> Node:
        node = DeviceNode(ino, mode, uid, gid, ts_ns)
        node.device = device
        self._add(parent, name, node, ts_ns)
        self._note(self.names.join(parent, name), node, "create", ts_ns)
        return node

    def _add(self, parent: DirNode, name: bytes, node: Node, ts_ns: int) -> None:
        names = self.names
        node.parent = parent
        node.name = name
        parent.children[name] = node
        parent.mtime_ns = parent.ctime_ns = ts_ns
        names.by_ino[node.ino] = node
        self._grown_files += 1
        if node.ino >= names.next_ino:
            names.next_ino = node.ino + 1
        if name not in parent.changed:
            names.mark(parent, name)
        if parent.parent is None:
            names.root_changed = True

    def _touch_dir(self, directory: DirNode, ts_ns: int) -> None:
        """Note that a directory's entries changed."""
        directory.mtime_ns = directory.ctime_ns = ts_ns
        if directory.parent is None:
            self.names.root_changed = True

    def do_remove(self, parent: DirNode, name: bytes, node: Node, ts_ns: int) -> None:
        """Remove a name; of a directory only if it is empty."""
        names = self.names
        path = names.join(parent, name)
        if node.versioned:
            self._note(path, node, "delete", ts_ns)
        self._take_name(parent, name, node, ts_ns)
        self._touch_dir(parent, ts_ns)

    def _take_name(self, parent: DirNode, name: bytes, node: Node, ts_ns: int) -> None:
        names = self.names
        names.mark_node(node)
        names.detach(parent, name, node)
        node.ctime_ns = ts_ns
        if isinstance(node, DirNode):
            node.nlink = 0
            parent.nlink -= 1
            names.moved()
        else:
            node.nlink -= 1
        if node.nlink == 0:
            self._grown_files -= 1
            if isinstance(node, FileNode):
                self._grown_bytes -= node.length
                if node.opens:
                    self._unnamed_bytes += node.length
                else:
                    self._let_go(node)

    def _let_go(self, node: FileNode) -> None:
        """Drop the data file of a file that nothing names and nothing has open."""
        data = node.data
        if data is not None:
            node.data = None
            if data.versions:
                self._retired.append(data)
            else:
                self._files.drop_unneeded(data)

    def moving(self, old_dir: DirNode, old: bytes, new_dir: DirNode, new: bytes, flags: int) -> Moving:
        """Return what a renaming concerns, and read what it needs of the blob store. Changes nothing.

        Raises:
            NotFound, Corrupt, Unavailable: it could not be read.
        """
        names = self.names
        node, target = names.child(old_dir, old), names.child(new_dir, new)
        assert node is not None
        names.load_links(node)
        linked = self._linked_below(names.join(old_dir, old), node)
        if target is not None:
            names.load_links(target)
            if flags & RENAME_EXCHANGE:
                linked += self._linked_below(names.join(new_dir, new), target)
        return Moving(node, target, linked)

    def do_rename(
        self, old_dir: DirNode, old: bytes, new_dir: DirNode, new: bytes, flags: int, ts_ns: int, moving: Moving
    ) -> None:
        names = self.names
        node, target, linked = moving
        old_path, new_path = names.join(old_dir, old), names.join(new_dir, new)
        if target is not None and not flags & RENAME_EXCHANGE:
            self._take_name(new_dir, new, target, ts_ns)
        seq = self._next_seq
        self._next_seq = seq + 1
        names.mark_node(node)
        names.detach(old_dir, old, node)
        if flags & RENAME_EXCHANGE:
            assert target is not None
            names.mark_node(target)
            names.detach(new_dir, new, target)
            self._place(target, new_dir, old_dir, old, ts_ns)
        self._place(node, old_dir, new_dir, new, ts_ns)
        for other in linked:
            names.mark_node(other)
        self._note(new_path, node, "rename", ts_ns, old_path, seq=seq)
        moved = isinstance(node, DirNode)
        if flags & RENAME_EXCHANGE:
            assert target is not None
            self._note(old_path, target, "rename", ts_ns, new_path, seq=seq)
            moved = moved or isinstance(target, DirNode)
        else:
            self._note(old_path, node, "delete", ts_ns, seq=seq)
        if moved:
            self._moved_seq = seq
            if self._kept_view is not None:
                self._kept_view.moved(seq)
            self._moves += [new_path, old_path]
        self._touch_dir(old_dir, ts_ns)
        self._touch_dir(new_dir, ts_ns)

    def _linked_below(self, path: bytes, node: Node) -> list[Node]:
        """Return what has to be marked as changed besides a node that moves: hard-linked files below it."""
        if not isinstance(node, DirNode):
            return []
        return self.names.links_below(path)

    def _place(self, node: Node, old_dir: DirNode, new_dir: DirNode, name: bytes, ts_ns: int) -> None:
        """Give a node that was detached its new name."""
        names = self.names
        names.attach(new_dir, name, node)
        names.mark_node(node)
        node.ctime_ns = ts_ns
        if isinstance(node, DirNode):
            names.moved()
            old_dir.nlink -= 1
            new_dir.nlink += 1

    def do_link(self, node: Node, source: bytes, parent: DirNode, name: bytes, ts_ns: int) -> None:
        names = self.names
        names.load_links(node)
        node.nlink += 1
        names.attach(parent, name, node)
        names.mark_node(node)
        node.ctime_ns = ts_ns
        self._note(names.join(parent, name), node, "link", ts_ns, source)
        self._touch_dir(parent, ts_ns)

    def do_mode(self, node: Node, mode: int, uid: int, gid: int, ts_ns: int) -> None:
        node.mode = stat.S_IFMT(node.mode) | mode
        node.uid, node.gid = uid, gid
        node.ctime_ns = ts_ns
        self.names.mark_node(node)
        if node.versioned:
            self._note_all(node, "mode", ts_ns)

    def do_times(self, node: Node, atime_ns: int, mtime_ns: int, ts_ns: int) -> None:
        node.atime_ns, node.mtime_ns, node.ctime_ns = atime_ns, mtime_ns, ts_ns
        self.names.mark_node(node)

    def do_xattr(self, node: Node, name: bytes, value: bytes | None, ts_ns: int) -> None:
        node.set_xattr(name, value)
        node.ctime_ns = ts_ns
        self.names.mark_node(node)
        if node.versioned:
            self._note_all(node, "xattr", ts_ns)

    def do_data(self, node: FileNode, data: DataFile, undo: Undo | None) -> None:
        """Prepare a file for being changed: in this data file, with what its last version had going to this undo."""
        old = node.data
        if old is not None and old is not data:
            if old.versions:
                self._retired.append(old)
            else:
                self._files.drop_unneeded(old)
        node.data = data
        data.unpin(undo)
        node.dirty = True
        node.guarded = data.undo is not None
        node.unversioned = True
        self.modified[node.ino] = node
        self.names.mark_node(node)

    def do_part(self, data: DataFile, content: Content) -> None:
        """Let a data file stand for a stored content of which it has nothing."""
        data.partial = Partial(content, LazyFile(self._reader, self._chunks, content, ahead=False))

    def do_revert(self, node: FileNode) -> None:
        """Let a file be again what the blob store has; versions of what it was keep its data file."""
        data, content = node.data, node.content
        assert data is not None
        assert content is not None
        self._retired.append(data)
        node.data = None
        node.dirty = False
        node.guarded = True
        node.unversioned = bool(data.versions)
        del self.modified[node.ino]
        self.resize(node, content.size)

    def do_version(self, node: FileNode, op: str, size: int, mtime_ns: int, ts_ns: int) -> None:
        """Make the version that a close makes."""
        self.resize(node, size)
        node.mtime_ns = mtime_ns
        # Writes are not logged: when the log is read back, this is what tells of them. Times that were set are.
        node.ctime_ns = max(node.ctime_ns, min(mtime_ns, ts_ns))
        node.unversioned = False
        self._note_all(node, op, ts_ns)

    def do_restore(
        self,
        parent: DirNode | None,
        name: bytes,
        node: Node | None,
        ino: int,
        entry: Entry,
        mtime_ns: int,
        ts_ns: int,
    ) -> Node:
        """Make a name what it was in a commit, whose contents the blob store has.

        Args:
            parent: None for the root itself.
            name: the name.
            node: what has the name: nothing, or something of the entry's kind with one name.
            ino: the number that it has, or gets.
            entry: what it was; of a directory, what is in it stays as it is.
        """
        names = self.names
        fresh = new_node(entry, ino, *names.owner_of(entry), mtime_ns)
        if node is None:
            assert parent is not None
            node = fresh
            if isinstance(node, DirNode):
                parent.nlink += 1
            self._add(parent, name, node, ts_ns)
        else:
            node.mode, node.uid, node.gid, node.xattrs = fresh.mode, fresh.uid, fresh.gid, fresh.xattrs
            if isinstance(node, LinkNode) and isinstance(fresh, LinkNode):
                node.target = fresh.target
            elif isinstance(node, DeviceNode) and isinstance(fresh, DeviceNode):
                node.device = fresh.device
        if isinstance(node, FileNode):
            assert entry.content is not None
            self._take_content(node, entry.content)
        node.mtime_ns, node.ctime_ns = mtime_ns, ts_ns
        names.mark_node(node)
        if parent is not None:
            self._note(names.join(parent, name), node, "restore", ts_ns)
        return node

    def _take_content(self, node: FileNode, content: Content) -> None:
        """Let a file have a content that the blob store has; versions keep its data file."""
        data = node.data
        if data is not None:
            node.data = None
            if data.versions:
                self._retired.append(data)
            else:
                self._files.drop_unneeded(data)
        # Else the number's data file would be taken for clean when that content is wanted again.
        self._files.forget_clean(node.ino)
        self.modified.pop(node.ino, None)
        node.content = content
        node.sparse = None
        node.dirty = node.unversioned = False
        node.guarded = True
        self.resize(node, content.size)

    def do_turn(self, turn: int) -> None:
        """Begin a turn. What is pending will be part of its commit, so it belongs to it."""
        self.turn = turn
        for known in self._records.values():
            known[:] = [replace(record, turn=turn) for record in known]
        self._kept_view = None

    def _drop_versions(self) -> None:
        """Let go of what only pending versions needed: they are in the blob store, or given up."""
        for data in self._retired:
            self._files.drop_data(data)
        self._retired = []
        for node in self.modified.values():
            if node.data is not None:
                self._files.drop_undos(node.data)
                node.data.synced = False
                node.guarded = True
        self.modified = {}
        self._records = {}
        self._kept_view = None
        self._moves = []
