"""Application of operations to a layer's state, without checks and without logging.

Live operations call these methods after they checked and logged; replay calls them with the logged arguments
(`chronicle.workspace.layer.replay`). They take the time as an argument and depend on the state alone, so replay yields
the same versions with the same numbers.

During a live operation none of them reads the blob store: the record is logged already, and a read error would leave
the operation half applied. The caller reads what they need before it logs: `Applier.moving` for a rename,
`chronicle.workspace.layer.state.names.Names.load_links` for a hard-linked file.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from chronicle.workspace.content.lazy_reader import LazyFile
from chronicle.workspace.layer.disk.partial_files import Partial
from chronicle.workspace.layer.state.node import DeviceNode, DirNode, FileNode, LinkNode, Node, new_node

if TYPE_CHECKING:
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.content.lazy_reader import Chunks
    from chronicle.workspace.layer.disk.data_file import DataFile
    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.disk.undo_file import UndoFile
    from chronicle.workspace.layer.state.layer_state import LayerState
    from chronicle.workspace.trees.tree import Entry

__all__ = ["RENAME_EXCHANGE", "RENAME_NOREPLACE", "Applier", "Moving"]

RENAME_NOREPLACE: Final = 1
"""rename(2): fail if the new name exists."""
RENAME_EXCHANGE: Final = 2
"""rename(2): swap the two names."""


class Moving(NamedTuple):
    """The nodes that a rename concerns, all in memory."""

    node: Node
    """The renamed node."""
    target: Node | None
    """The node at the new name: it is removed, or exchanged."""
    linked: list[Node]
    """Hard-linked files below directories that move: their entries hold paths, so they change too."""


class Applier:
    """Applies operations to a state.

    Args:
        state: the state.
        files: the layer's files on disk; data files that nothing needs any more are removed.
        chunks: reads stored contents.
    """

    def __init__(self, state: LayerState, files: LayerFiles, chunks: Chunks) -> None:
        self.state = state
        self._history = state.history
        self._usage = state.usage
        self._files = files
        self._chunks = chunks

    # -- names ------------------------------------------------------------------------------------------------------

    def create(
        self, parent: DirNode, name: bytes, ino: int, mode: int, uid: int, gid: int, data: DataFile, ts_ns: int
    ) -> FileNode:
        node = FileNode(ino, stat.S_IFREG | mode, uid, gid, ts_ns)
        node.data = data
        node.dirty = True
        node.guarded = False
        self.state.modified[ino] = node
        self._insert(parent, name, node, ts_ns)
        return node

    def make(
        self, parent: DirNode, name: bytes, ino: int, mode: int, uid: int, gid: int, target: bytes | None, ts_ns: int
    ) -> Node:
        """Make a directory, symlink (with a target), FIFO or socket."""
        node: Node
        if stat.S_ISDIR(mode):
            node = DirNode(ino, mode, uid, gid, ts_ns)
            parent.nlink += 1
        elif target is not None:
            node = LinkNode(ino, mode, uid, gid, ts_ns)
            node.target = target
        else:
            node = Node(ino, mode, uid, gid, ts_ns)
        self._insert(parent, name, node, ts_ns)
        op = "mkdir" if stat.S_ISDIR(mode) else "create" if target is None else "symlink"
        self._history.add(self.state.names.join(parent, name), node, op, ts_ns)
        return node

    def make_device(
        self, parent: DirNode, name: bytes, ino: int, mode: int, uid: int, gid: int, device: int, ts_ns: int
    ) -> Node:
        node = DeviceNode(ino, mode, uid, gid, ts_ns)
        node.device = device
        self._insert(parent, name, node, ts_ns)
        self._history.add(self.state.names.join(parent, name), node, "create", ts_ns)
        return node

    def _insert(self, parent: DirNode, name: bytes, node: Node, ts_ns: int) -> None:
        names = self.state.names
        node.parent = parent
        node.name = name
        parent.children[name] = node
        parent.mtime_ns = parent.ctime_ns = ts_ns
        names.by_ino[node.ino] = node
        self._usage.add_file()
        if node.ino >= names.next_ino:
            names.next_ino = node.ino + 1
        if name not in parent.changed:
            names.mark_changed(parent, name)
        if parent.parent is None:
            names.root_changed = True

    def _touch(self, directory: DirNode, ts_ns: int) -> None:
        """Date a change of a directory's entries."""
        directory.mtime_ns = directory.ctime_ns = ts_ns
        if directory.parent is None:
            self.state.names.root_changed = True

    def remove(self, parent: DirNode, name: bytes, node: Node, ts_ns: int) -> None:
        """Remove a name; a directory must be empty."""
        names = self.state.names
        path = names.join(parent, name)
        if node.versioned:
            self._history.add(path, node, "delete", ts_ns)
        self._remove_name(parent, name, node, ts_ns)
        self._touch(parent, ts_ns)

    def _remove_name(self, parent: DirNode, name: bytes, node: Node, ts_ns: int) -> None:
        names = self.state.names
        names.mark_node_changed(node)
        names.detach(parent, name, node)
        node.ctime_ns = ts_ns
        if isinstance(node, DirNode):
            node.nlink = 0
            parent.nlink -= 1
            names.invalidate_paths()
        else:
            node.nlink -= 1
        if node.nlink == 0:
            self._usage.remove(node)
            if isinstance(node, FileNode) and not node.opens:
                self.drop_data(node)

    def drop_data(self, node: FileNode) -> None:
        """Detach a file from its data file; versions keep that."""
        data = node.data
        node.data = None
        if data is not None:
            self._retire(data)

    def _retire(self, data: DataFile) -> None:
        """Remove a data file that no file refers to, unless versions do."""
        if data.versions:
            self.state.retired.append(data)
        else:
            self._files.drop_unneeded(data)

    def moving(self, old_dir: DirNode, old: bytes, new_dir: DirNode, new: bytes, flags: int) -> Moving:
        """Return the nodes that a rename concerns, reading what it needs of the blob store. Changes nothing.

        Raises:
            NotFound, Corrupt, Unavailable: it could not be read.
        """
        names = self.state.names
        node, target = names.child(old_dir, old), names.child(new_dir, new)
        assert node is not None
        names.load_links(node)
        linked = self._linked_below(names.join(old_dir, old), node)
        if target is not None:
            names.load_links(target)
            if flags & RENAME_EXCHANGE:
                linked += self._linked_below(names.join(new_dir, new), target)
        return Moving(node, target, linked)

    def rename(
        self, old_dir: DirNode, old: bytes, new_dir: DirNode, new: bytes, flags: int, ts_ns: int, moving: Moving
    ) -> None:
        names = self.state.names
        node, target, linked = moving
        old_path, new_path = names.join(old_dir, old), names.join(new_dir, new)
        if target is not None and not flags & RENAME_EXCHANGE:
            self._remove_name(new_dir, new, target, ts_ns)
        seq = self._history.take_seq()
        names.mark_node_changed(node)
        names.detach(old_dir, old, node)
        if flags & RENAME_EXCHANGE:
            assert target is not None
            names.mark_node_changed(target)
            names.detach(new_dir, new, target)
            self._attach(target, new_dir, old_dir, old, ts_ns)
        self._attach(node, old_dir, new_dir, new, ts_ns)
        for other in linked:
            names.mark_node_changed(other)
        self._history.add(new_path, node, "rename", ts_ns, old_path, seq=seq)
        moved = isinstance(node, DirNode)
        if flags & RENAME_EXCHANGE:
            assert target is not None
            self._history.add(old_path, target, "rename", ts_ns, new_path, seq=seq)
            moved = moved or isinstance(target, DirNode)
        else:
            self._history.add(old_path, node, "delete", ts_ns, seq=seq)
        if moved:
            self._history.add_move(seq, new_path, old_path)
        self._touch(old_dir, ts_ns)
        self._touch(new_dir, ts_ns)

    def _linked_below(self, path: bytes, node: Node) -> list[Node]:
        """Return the nodes that change with a node that moves: the hard-linked files below it."""
        if not isinstance(node, DirNode):
            return []
        return self.state.names.links_below(path)

    def _attach(self, node: Node, old_dir: DirNode, new_dir: DirNode, name: bytes, ts_ns: int) -> None:
        """Give a detached node its new name."""
        names = self.state.names
        names.attach(new_dir, name, node)
        names.mark_node_changed(node)
        node.ctime_ns = ts_ns
        if isinstance(node, DirNode):
            names.invalidate_paths()
            old_dir.nlink -= 1
            new_dir.nlink += 1

    def link(self, node: Node, source: bytes, parent: DirNode, name: bytes, ts_ns: int) -> None:
        names = self.state.names
        names.load_links(node)
        node.nlink += 1
        names.attach(parent, name, node)
        names.mark_node_changed(node)
        node.ctime_ns = ts_ns
        self._history.add(names.join(parent, name), node, "link", ts_ns, source)
        self._touch(parent, ts_ns)

    def set_mode(self, node: Node, mode: int, uid: int, gid: int, ts_ns: int) -> None:
        node.mode = stat.S_IFMT(node.mode) | mode
        node.uid, node.gid = uid, gid
        node.ctime_ns = ts_ns
        self.state.names.mark_node_changed(node)
        if node.versioned:
            self._add_versions(node, "mode", ts_ns)

    def set_times(self, node: Node, atime_ns: int, mtime_ns: int, ts_ns: int) -> None:
        node.atime_ns, node.mtime_ns, node.ctime_ns = atime_ns, mtime_ns, ts_ns
        self.state.names.mark_node_changed(node)

    def set_xattr(self, node: Node, name: bytes, value: bytes | None, ts_ns: int) -> None:
        node.set_xattr(name, value)
        node.ctime_ns = ts_ns
        self.state.names.mark_node_changed(node)
        if node.versioned:
            self._add_versions(node, "xattr", ts_ns)

    def begin_write(self, node: FileNode, data: DataFile, undo: UndoFile | None) -> None:
        """Make a file writable.

        Args:
            node: the file.
            data: holds its bytes from now on.
            undo: takes what its last version needs of overwritten ranges; None if no version does.
        """
        old = node.data
        if old is not None and old is not data:
            self._retire(old)
        node.data = data
        data.unpin(undo)
        node.dirty = True
        node.guarded = data.undo is not None
        node.unversioned = True
        self.state.modified[node.ino] = node
        self.state.names.mark_node_changed(node)

    def begin_part(self, data: DataFile, content: Content) -> None:
        """Make a data file stand for a stored content of which it has no byte yet."""
        data.partial = Partial(content, LazyFile(self.state.reader, self._chunks, content, ahead=False))

    def revert(self, node: FileNode) -> None:
        """Return a file to its stored content; versions of its changed state keep the data file."""
        data, content = node.data, node.content
        assert data is not None
        assert content is not None
        self.state.retired.append(data)
        node.data = None
        node.dirty = False
        node.guarded = True
        node.unversioned = bool(data.versions)
        del self.state.modified[node.ino]
        self._usage.resize(node, content.size)

    def add_version(self, node: FileNode, op: str, size: int, mtime_ns: int, ts_ns: int) -> None:
        """Add the version that a close makes."""
        self._usage.resize(node, size)
        node.mtime_ns = mtime_ns
        # Writes are not logged, so replay learns of them here; times that were set are logged.
        node.ctime_ns = max(node.ctime_ns, min(mtime_ns, ts_ns))
        node.unversioned = False
        self._add_versions(node, op, ts_ns)

    def restore(
        self,
        parent: DirNode | None,
        name: bytes,
        node: Node | None,
        ino: int,
        entry: Entry,
        mtime_ns: int,
        ts_ns: int,
    ) -> Node:
        """Restore a name from a commit, whose contents the blob store has.

        Args:
            parent: None for the root itself.
            name: the name.
            node: the node at the name, of the entry's kind and with one name; None if there is none.
            ino: the inode number that it has, or gets.
            entry: its entry in the commit; the entries of a directory stay as they are.
            mtime_ns: its modification time in the commit.
            ts_ns: when this happens.
        """
        names = self.state.names
        fresh = new_node(entry, ino, *names.owner_of(entry), mtime_ns)
        if node is None:
            assert parent is not None
            node = fresh
            if isinstance(node, DirNode):
                parent.nlink += 1
            self._insert(parent, name, node, ts_ns)
        else:
            node.mode, node.uid, node.gid, node.xattrs = fresh.mode, fresh.uid, fresh.gid, fresh.xattrs
            if isinstance(node, LinkNode) and isinstance(fresh, LinkNode):
                node.target = fresh.target
            elif isinstance(node, DeviceNode) and isinstance(fresh, DeviceNode):
                node.device = fresh.device
        if isinstance(node, FileNode):
            assert entry.content is not None
            self._set_content(node, entry.content)
        node.mtime_ns, node.ctime_ns = mtime_ns, ts_ns
        names.mark_node_changed(node)
        if parent is not None:
            self._history.add(names.join(parent, name), node, "restore", ts_ns)
        return node

    def _set_content(self, node: FileNode, content: Content) -> None:
        """Give a file a content that the blob store has; versions keep its data file."""
        self.drop_data(node)
        # Otherwise the index would offer the inode's data file as clean when that content is wanted again.
        self._files.unindex(node.ino)
        self.state.modified.pop(node.ino, None)
        node.set_stored(content)
        self._usage.resize(node, content.size)

    def _add_versions(self, node: Node, op: str, ts_ns: int) -> None:
        """Add a version to every path of a node."""
        if node.nlink > 1 and not isinstance(node, DirNode):
            for path in sorted(self.state.names.all_paths(node)):
                self._history.add(path, node, op, ts_ns)
        elif node.parent is not None:
            self._history.add(self.state.names.join(node.parent, node.name), node, op, ts_ns)
