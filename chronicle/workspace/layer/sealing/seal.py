"""Sealing: the changes of a layer become blobs, in one put.

A seal reads the dirty data files, the versions that are not stored yet and the changed directories; nothing else. It
changes nothing of the layer before the put has succeeded, so a failed seal can be retried.

A large seal takes long, so requests are interleaved with it: whenever a blob is added to the buffer, and while blobs
are put (`chronicle.blobs.buffer.Meanwhile`). They must change nothing that a seal reads. What they may change: clean
nodes are loaded and evicted, files are opened and closed, and removed files drop data that no version needs. So a seal
holds no reference to such a node or file from one blob to the next: it does not iterate over `Names.by_ino` or
``children``, and opens data files again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chronicle.blobs.buffer import BlobBuffer
from chronicle.errors import Corrupt, NotFound
from chronicle.workspace.content import content as contents
from chronicle.workspace.history import link_map, oplog
from chronicle.workspace.history.commit_builder import CommitBuilder
from chronicle.workspace.history.oplog import Attr, OplogRoot
from chronicle.workspace.layer.state.node import DeviceNode, DirNode, FileNode, LinkNode, Node, kind_of
from chronicle.workspace.trees import nodes, tree
from chronicle.workspace.trees.tree import EMPTY, ROOT_DEFAULT, Entry

if TYPE_CHECKING:
    from chronicle.blobs.buffer import Meanwhile
    from chronicle.blobs.port import BlobStore
    from chronicle.ids import BlobId
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.history.oplog import Gap
    from chronicle.workspace.history.path_histories import Record
    from chronicle.workspace.history.view import HistoryView
    from chronicle.workspace.layer.disk.data_file import LocalContent
    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.state.names import Names
    from chronicle.workspace.port import TreeRef, Usage

__all__ = ["SealInput", "Sealed", "put_seal", "store_local"]


@dataclass(frozen=True, slots=True)
class SealInput:
    """The state of a layer that a seal reads."""

    names: Names
    files: LayerFiles
    view: HistoryView
    records: dict[bytes, list[Record]]
    """By path, versions that are not stored yet."""
    floors: dict[bytes, int]
    gaps: list[Gap]
    owner: tuple[int, int]
    commit: OplogRoot
    """The root of the last seal."""
    base: TreeRef | None
    """The last tree that was adopted."""
    base_commit: OplogRoot
    turn: int
    next_seq: int
    moved_seq: int
    sealed_operations: tuple[BlobId, ...]
    """The operation blobs of earlier seals since the base."""
    usage: Usage
    """Usage of the working tree."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The result of a seal, durable."""

    ref: TreeRef
    commit: OplogRoot
    directories: list[tuple[DirNode, BlobId, BlobId | None]]
    """Each changed directory with its new subtree and map of attributes."""
    contents: list[tuple[FileNode, Content]]
    """Each dirty file with its new content."""
    numbers: dict[bytes, int]
    """The last number given out for each path whose history changed."""


def put_seal(store: BlobStore, layer: SealInput, meanwhile: Meanwhile | None = None) -> Sealed:
    """Store what changed in a layer.

    Args:
        store: takes the blobs.
        layer: the state of the layer.
        meanwhile: interleaves requests that change nothing of ``layer``.

    Raises:
        Unavailable: the store could not be reached, or took too long; nothing was changed.
        OSError: a data file could not be read.
    """
    buffer = BlobBuffer(store, meanwhile=meanwhile)
    work = _Seal(buffer, layer)
    sealed = work.run()
    buffer.flush()
    return sealed


def store_local(
    buffer: nodes.NodeBuffer, files: LayerFiles, held: LocalContent, before: LocalContent | None = None
) -> Content:
    """Put the content of a version that is on disk into a buffer and return its reference.

    Args:
        buffer: takes the content.
        files: has the data file.
        held: the content of the version.
        before: that of the previous version of the same data file, if it was put into the same buffer: what they have
            in common is not read again.
    """
    content = _put_local(buffer, files, held, before)
    held.content = content
    return content


def _put_local(buffer: nodes.NodeBuffer, files: LayerFiles, held: LocalContent, before: LocalContent | None) -> Content:
    small = files.read_small(held)
    if small is not None:
        return contents.store_bytes(buffer, small)
    data = held.data
    with files.open_version(held, buffer) as file:
        if before is not None:
            assert before.content is not None
            return contents.store_changes(buffer, before.content, file, data.differences(before, held))
        if data.partial is not None:  # versions differ from the stored content in written ranges only
            return contents.store_changes(buffer, data.partial.content, file, data.partial.written)
        if data.changes is not None and held is data.versions[0]:
            with suppress(NotFound, Corrupt):  # a damaged store gets its lost blobs again
                return contents.store_changes(buffer, data.changes.content, file, data.changes.ranges)
            file.seek(0)
        return contents.store_file(buffer, file)


class _Seal:
    def __init__(self, buffer: BlobBuffer, layer: SealInput) -> None:
        self._buffer = buffer
        self._layer = layer
        self._stored: dict[LocalContent, Content] = {}
        self._dirty: list[tuple[FileNode, Content]] = []
        self._linked: dict[int, Node] = {}

    def run(self) -> Sealed:
        """Put everything into the buffer."""
        layer = self._layer
        directories = self._directories()
        root = layer.names.root
        tree_id, attrs = directories[-1][1:] if directories else (root.tree, root.attrs)
        builder = CommitBuilder(self._buffer, layer.view, layer.commit, layer.base, layer.base_commit)
        self._add_versions(builder)
        ref, commit = builder.build(
            turn=layer.turn,
            tree_id=tree_id,
            root=Attr(root.ino, root.mtime_ns, root.ctime_ns, root.nlink, attrs),
            links=self._link_map(),
            next_ino=layer.names.next_ino,
            next_seq=layer.next_seq,
            moved_seq=layer.moved_seq,
            usage=layer.usage,
            gaps=layer.gaps,
            earlier_operations=layer.sealed_operations,
        )
        return Sealed(ref, commit, directories, self._dirty, builder.last_numbers)

    # -- names ----------------------------------------------------------------------------------------------------

    def _directories(self) -> list[tuple[DirNode, BlobId, BlobId | None]]:
        """Put the changed directories, children before parents."""
        root = self._layer.names.root
        order = [root] if root.changed or self._layer.names.root_changed else []
        for directory in order:  # the list grows during the iteration
            for name in directory.changed:
                child = directory.children.get(name)
                if isinstance(child, DirNode) and child.changed:
                    order.append(child)
        done: dict[DirNode, tuple[BlobId, BlobId | None]] = {}
        stored_ino = self._layer.names.renumbered.stored
        for directory in reversed(order):
            entries: dict[bytes, bytes | None] = {}
            attributes: dict[bytes, bytes | None] = {}
            for name in directory.changed:
                child = directory.children.get(name)
                if child is None:
                    entries[name] = attributes[name] = None
                    continue
                below = None
                subtree = None
                if isinstance(child, DirNode):
                    subtree, below = done.get(child, (child.tree, child.attrs))
                entries[name] = tree.encode_entry(self._entry(child, subtree))
                attributes[name] = oplog.encode_attr(
                    Attr(stored_ino(child.ino), child.mtime_ns, child.ctime_ns, child.nlink, below)
                )
            if directory is root:
                entry = self._entry(root, EMPTY)
                entries[b"."] = None if entry == ROOT_DEFAULT else tree.encode_entry(entry)
            subtree = nodes.update(self._buffer, tree.map_root(directory.tree), entries) or EMPTY
            done[directory] = (subtree, nodes.update(self._buffer, directory.attrs, attributes))
        return [(directory, *done[directory]) for directory in reversed(order)]

    def _entry(self, node: Node, subtree: BlobId | None) -> Entry:
        uid, gid = self._layer.owner
        content = self._content(node) if isinstance(node, FileNode) else None
        link: bytes | None = None
        if node.nlink > 1 and not isinstance(node, DirNode):
            link = min(self._layer.names.all_paths(node))
            self._linked[node.ino] = node
        return Entry(
            kind=kind_of(node),
            mode=0o777 if isinstance(node, LinkNode) else node.mode & 0o7777,
            content=content,
            subtree=subtree,
            target=node.target if isinstance(node, LinkNode) else b"",
            uid=None if node.uid == uid else node.uid,
            gid=None if node.gid == gid else node.gid,
            xattrs=tuple(sorted(node.xattrs.items())),
            link=link,
            device=node.device if isinstance(node, DeviceNode) else None,
        )

    def _content(self, node: FileNode) -> Content:
        if not node.dirty:
            assert node.content is not None
            return node.content
        assert node.data is not None
        assert node.data.pinned is not None
        known = self._store(node.data.pinned)
        if node.nlink <= 1 or node.ino not in self._linked:
            self._dirty.append((node, known))
        return known

    def _store(self, held: LocalContent) -> Content:
        if held not in self._stored:
            before = None
            for version in tuple(held.data.versions):  # all are stored, each at the cost of its changes
                self._stored[version] = store_local(self._buffer, self._layer.files, version, before)
                before = version
        return self._stored[held]

    def _link_map(self) -> BlobId | None:
        """Put the paths of the hard-linked files that changed."""
        layer = self._layer
        changed: dict[int, list[bytes] | None] = {}
        for ino, node in self._linked.items():
            changed[layer.names.renumbered.stored(ino)] = layer.names.all_paths(node)
        for ino in link_map.inodes(self._buffer, layer.commit.links):
            known = layer.names.by_ino.get(layer.names.renumbered.number(ino))
            if known is not None and known.nlink <= 1:
                changed[ino] = None
        return link_map.update(self._buffer, layer.commit.links, changed)

    # -- histories ------------------------------------------------------------------------------------------------

    def _add_versions(self, builder: CommitBuilder) -> None:
        layer = self._layer
        # Where a floor is stored, what is derived is stored before it, or it would be numbered after it from then on.
        for path in dict.fromkeys([*layer.records, *layer.floors]):
            finalised = [
                record.finalised(number, record.content if record.held is None else self._store(record.held))
                for number, record in layer.view.numbered(path)
            ]
            own = {record.seq for record in layer.records.get(path, ())}
            builder.add_versions(path, finalised, floor=layer.floors.get(path, 0), logged=own)
