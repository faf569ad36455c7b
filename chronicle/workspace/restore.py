"""Making a layer's files what they were in an earlier commit: all of them, or one path and what is below it.

Nothing is forgotten by it. Each path that differs gets one more version, ``restore``, ``delete`` or ``link``, and all
of it can be undone by restoring what was there before. The work is in proportion to what differs, and no content is
read: files refer to what the blob store has. What differs is found by sealing first.

A path that is restored alone does not become one file with names outside of it, whatever it was in the commit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from chronicle.blobs.buffer import ScratchBuffer
from chronicle.errors import InvalidInput, NotFound
from chronicle.workspace import nodes, tree
from chronicle.workspace.layer_node import DirNode, kind_of
from chronicle.workspace.oplog import decode_attr, first_root, read_root
from chronicle.workspace.port import Usage
from chronicle.workspace.quota import measure
from chronicle.workspace.tree import EMPTY, Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.ids import BlobId
    from chronicle.workspace.layer import Layer
    from chronicle.workspace.layer_node import Node
    from chronicle.workspace.oplog import OplogRoot
    from chronicle.workspace.port import TreeRef

__all__ = ["Touched", "restore", "restored_tree"]

Difference = tuple[bytes, Entry | None, Entry | None]
"""A path, what it is, and what it is to be."""


class Touched(NamedTuple):
    """What a restore changed, for whoever keeps names and contents of the layer."""

    names: list[tuple[int, bytes]]
    """Inode number of a directory, and a name in it."""
    inodes: list[int]
    """What is behind those names before and after, and the directories."""


def restored_tree(buffer: nodes.NodeBuffer, now: BlobId, then: BlobId, path: bytes = b"") -> BlobId:
    """Return the tree that restoring gives, without restoring; for showing what it would change.

    Args:
        buffer: takes new nodes; they need not be kept.
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
        raise NotFound(f"{_text(path)} was not there at that moment; to have it gone, remove it")
    changes: dict[bytes, Entry | None] = {}
    for above in _above(path):
        entry = tree.entry_at(buffer, now, above)
        if entry is None:
            was = tree.entry_at(buffer, then, above)
            assert was is not None, "what is below it was there"
            changes[above] = replace(was, subtree=EMPTY)
        elif entry.kind is not Kind.DIR:
            raise InvalidInput(f"{_text(above)} is no directory now; restore that, or remove it first")
    if tree.entry_at(buffer, now, path) == wanted:
        return now
    return tree.update_tree(buffer, now, {**changes, path: replace(wanted, link=None)})


def restore(layer: Layer, then: TreeRef | None, path: bytes = b"") -> Touched:
    """Make a path of a layer what it was in a commit.

    Args:
        layer: changed; with a quota, nothing is changed if it would be over it.
        then: the commit; ``None`` for the time before the first one.
        path: what to restore, ``b""`` for everything.

    Raises:
        NotFound: the path was not there then.
        InvalidInput: something that is no directory is in its way now.
        OSError: EDQUOT, EFBIG, or the disk.
        Corrupt, Unavailable: what differs could not be read.
    """
    now = layer.seal()
    root = read_root(layer.reader, then.oplog_id) if then is not None else first_root(layer.root.mtime_ns)
    buffer = ScratchBuffer(layer.reader)
    wanted = restored_tree(buffer, now.tree_id, root.tree_id, path)
    found = list(tree.diff_trees(buffer, now.tree_id, wanted))
    work = _Restore(layer, root, alone=bool(path))
    work.check(root, found)
    work.run(found)
    return Touched(work.names, sorted(work.inodes))


class _Restore:
    def __init__(self, layer: Layer, root: OplogRoot, *, alone: bool) -> None:
        self._layer = layer
        self._root = root
        self._alone = alone
        self._linked: dict[bytes, Node] = {}
        """By what the names of a file have in common, the file."""
        self.names: list[tuple[int, bytes]] = []
        self.inodes: set[int] = set()

    def check(self, root: OplogRoot, found: list[Difference]) -> None:
        layer = self._layer
        if layer.quota is None:
            return
        sizes = [(_size(was), _size(now)) for _, was, now in found]
        if self._alone:
            before = layer.usage
            after = Usage(
                before.bytes + sum(now - was for was, now in sizes),
                before.files + sum((now is not None) - (was is not None) for _, was, now in found),
            )
        else:
            after = root.usage or measure(layer.reader, root.tree_id)
        layer.check_quota(after, max((now for was, now in sizes if now > was), default=0))

    def run(self, found: list[Difference]) -> None:
        """Do what the differences ask for: a directory goes after what is in it, and comes before."""
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
            self._date(path)

    def _remove(self, path: bytes) -> None:
        parent, name = self._place(path)
        node = self._layer.lookup(parent, name)
        assert node is not None
        self.inodes.add(node.ino)
        if isinstance(node, DirNode):
            self._layer.rmdir(parent, name)
        else:
            self._layer.unlink(parent, name)

    def _put(self, path: bytes, wanted: Entry, changed: set[bytes]) -> None:
        layer = self._layer
        there = layer.resolve(path)
        if not path:
            layer.put(path, wanted, self._mtime_ns(path))
            return
        if wanted.link is not None:
            file = self._linked.get(wanted.link)
            if file is None and not self._alone and wanted.link not in changed:
                file = layer.resolve(wanted.link)  # as it is
            if file is not None:
                if there is not file:
                    if there is not None:
                        self._remove(path)
                    layer.link(file, *self._place(path))
                    self.inodes.add(file.ino)
                return
        if there is not None and (
            kind_of(there) is not wanted.kind or (there.nlink > 1 and not isinstance(there, DirNode))
        ):
            self._remove(path)
        node = layer.put(path, replace(wanted, link=None), self._mtime_ns(path))
        self._place(path)
        self.inodes.add(node.ino)
        if wanted.link is not None:
            self._linked[wanted.link] = node

    def _place(self, path: bytes) -> tuple[DirNode, bytes]:
        directory, _, name = path.rpartition(b"/")
        parent = self._layer.resolve(directory)
        assert isinstance(parent, DirNode)
        self.inodes.add(parent.ino)
        self.names.append((parent.ino, name))
        return parent, name

    def _date(self, path: bytes) -> None:
        """Give a directory in which something was done the time that it had; none if it was not there."""
        node = self._layer.resolve(path)
        mtime_ns = self._mtime_ns(path)
        if node is not None and mtime_ns:
            self._layer.set_times(node, node.atime_ns, mtime_ns)

    def _mtime_ns(self, path: bytes) -> int:
        """Return what a path's modification time was; 0 if it was not there."""
        attr = self._root.root
        for name in path.split(b"/") if path else ():
            value = nodes.lookup(self._layer.reader, attr.below, name)
            if value is None:
                return 0
            attr = decode_attr(value)
        return attr.mtime_ns


def _above(path: bytes) -> Iterator[bytes]:
    """Yield the directories that a path is in, the root left out."""
    parts = path.split(b"/")[:-1]
    for count in range(1, len(parts) + 1):
        yield b"/".join(parts[:count])


def _size(entry: Entry | None) -> int:
    return entry.content.size if entry is not None and entry.content is not None else 0


def _text(path: bytes) -> str:
    return path.decode(errors="backslashreplace")
