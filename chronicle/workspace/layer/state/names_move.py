"""Moving the names in memory from the last seal, and what changed since, to another commit, in place.

The nodes that callers hold go on: an open file, a directory that is a working directory. Which node becomes which entry
of the commit is decided in this order:

* a node of the last seal becomes the entry that stores its inode number, under whatever name;
* a node that was made since becomes the entry at its path, if that is of its kind and neither has several names: a
  program that runs again makes its files again, under other numbers. It keeps its number, which the kernel knows
  (`chronicle.workspace.layer.state.renumbered_inodes`);
* all others lose their names, as if they had been removed.

Only what differs is read: directories whose tree and attributes are those of the last seal are skipped. Planning reads
everything and changes nothing; applying a plan reads nothing and cannot fail.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from chronicle.workspace.history.oplog import Attr, decode_attr
from chronicle.workspace.layer.state.node import DeviceNode, DirNode, FileNode, LinkNode, Node, kind_of, new_node
from chronicle.workspace.layer.state.touched import Touched
from chronicle.workspace.trees import nodes, tree
from chronicle.workspace.trees.tree import Entry, Kind, decode_entry, map_root

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.history.oplog import OplogRoot
    from chronicle.workspace.layer.state.names import Names

__all__ = ["NamesMove", "plan_move"]


@dataclass(slots=True, eq=False)
class _Place:
    """An entry of the commit that is moved to."""

    above: _Place | None
    """Its directory; ``None`` for the root."""
    name: bytes
    entry: Entry
    attr: Attr
    node: Node | None = None
    """Node that is there in memory, or is to be."""


class _Stored(NamedTuple):
    """A directory as it is stored: its tree and its map of attributes."""

    tree: BlobId | None
    attrs: BlobId | None


@dataclass(slots=True, eq=False)
class NamesMove:
    """A planned move."""

    names: Names
    commit: OplogRoot
    kept: list[_Place] = field(default_factory=list)
    """Places whose node stays there, or comes there; a directory before its entries, unless it moves itself."""
    seated: list[_Place] = field(default_factory=list)
    """Those of them whose node comes there from another name."""
    lost: list[tuple[DirNode, bytes, Node]] = field(default_factory=list)
    """Names that their nodes lose."""
    unset: list[tuple[DirNode, bytes]] = field(default_factory=list)
    """Removed names, which the commit may have."""
    touched: Touched = field(default_factory=lambda: Touched([], []))

    def changed_files(self) -> list[tuple[FileNode, Content]]:
        """Return the files that get another content, with it."""
        found = {}
        for place in self.kept:
            node, content = place.node, place.entry.content
            if isinstance(node, FileNode) and content is not None and (node.dirty or node.content != content):
                found[node] = content
        return list(found.items())

    def apply(self) -> list[Node]:
        """Carry it out, but for the contents of files; return the nodes that have no name any more."""
        names = self.names
        for directory, name, node in self.lost:
            names.detach(directory, name, node)
            directory.children.pop(name, None)
        for directory, name in self.unset:
            directory.children.pop(name, None)
        for place in self.kept:
            assert place.node is not None
            self._set_attributes(place.node, place.entry, place.attr)
        names.links = self.commit.links
        names.next_ino = max(names.next_ino, self.commit.next_ino)
        names.root_changed = False
        names.invalidate_paths()
        coming = {place.node for place in self.seated}
        gone = [node for node in {node: None for _, _, node in self.lost} if node.parent is None and node not in coming]
        for node in gone:
            node.nlink = 0
            names.renumbered.remove(node.ino)
            if not _is_in_use(names, node):
                del names.by_ino[node.ino]
        for place in self.seated:
            assert place.node is not None
            assert place.above is not None
            names.attach(self._directory(place.above), place.name, place.node)
        return gone

    def _set_attributes(self, node: Node, entry: Entry, attr: Attr) -> None:
        names = self.names
        fresh = new_node(entry, attr.ino, *names.owner_of(entry), attr.mtime_ns)
        node.mode, node.uid, node.gid, node.xattrs = fresh.mode, fresh.uid, fresh.gid, fresh.xattrs
        if attr.ino:
            node.mtime_ns, node.ctime_ns = attr.mtime_ns, attr.ctime_ns
            names.renumbered.put(node.ino, attr.ino)
        node.nlink = max(attr.links, 2 if entry.subtree is not None else 1)
        node.versioned = True
        if isinstance(node, DirNode):
            assert entry.subtree is not None
            node.tree, node.attrs = entry.subtree, attr.below
            node.changed.clear()
        elif isinstance(node, FileNode):
            assert entry.content is not None
            node.length = entry.content.size
            node.unversioned = False
        elif isinstance(node, LinkNode):
            node.target = entry.target
        elif isinstance(node, DeviceNode):
            node.device = entry.device or 0

    def _directory(self, place: _Place) -> DirNode:
        """Return the node of a directory's place, loading it and those above as needed."""
        above = []
        at: _Place | None = place
        while at is not None and at.node is None:
            above.append(at)
            at = at.above
        assert at is not None
        node = at.node
        for at in reversed(above):
            assert isinstance(node, DirNode)
            found = node.children.get(at.name)
            node = at.node = found if found is not None else self.names.load(node, at.name, at.entry, at.attr)
        assert isinstance(node, DirNode)
        return node


def plan_move(reader: BlobReader, names: Names, sealed: OplogRoot, commit: OplogRoot) -> NamesMove:
    """Plan a move. Changes nothing.

    Args:
        reader: reads trees and attributes.
        names: the names.
        sealed: the last seal, from which they differ where they are marked as changed.
        commit: what they are to be.

    Raises:
        NotFound, Corrupt, Unavailable: what differs could not be read.
    """
    planner = _Planner(reader, names, sealed, commit)
    planner.run()
    return planner.move


class _Planner:
    def __init__(self, reader: BlobReader, names: Names, sealed: OplogRoot, commit: OplogRoot) -> None:
        self._reader = reader
        self._names = names
        self._first_unsealed_ino = sealed.next_ino
        self._commit = commit
        self.move = NamesMove(names, commit)
        self._to_compare: list[tuple[_Place, _Stored]] = []
        """Directories, each with what the last seal stores of it."""
        self._unread: list[_Place] = []
        """Directories that the last seal does not have, or has elsewhere, and whose entries were not read."""
        self._places: dict[int, _Place] = {}
        """By stored inode number, the entries of the commit that were read."""
        self._homeless: dict[int, Node] = {}
        """Nodes that lost a name, and perhaps have another place."""
        self._inodes: set[int] = set()

    def run(self) -> None:
        root = tree.entry_at(self._reader, self._commit.tree_id, b"")
        assert root is not None
        self._keep(_Place(None, b"", root, self._commit.root), self._names.root)
        while self._to_compare or self._homeless:
            while self._to_compare:
                self._compare(*self._to_compare.pop())
            if not self._seat_homeless() and not self._read_more():
                self._give_up_homeless()
        self.move.touched.inodes.extend(sorted(self._inodes))

    def _compare(self, place: _Place, was: _Stored) -> None:
        """Compare a directory as the last seal stores it, and as it is in memory if it is, with the commit."""
        now = _stored(place.entry, place.attr)
        differing = {name for name, _, _ in nodes.diff(self._reader, was.tree, now.tree)}
        differing.update(name for name, _, _ in nodes.diff(self._reader, was.attrs, now.attrs))
        directory, ino = place.node, self._names.renumbered.number(place.attr.ino)
        if isinstance(directory, DirNode):
            differing |= directory.changed
            ino = directory.ino
        differing.discard(b".")
        self._inodes.add(ino)
        before, after = self._read(was, differing), self._read(now, differing)
        for name in differing:
            self.move.touched.names.append((ino, name))
            old, there = before.get(name), self._add_place(place, name, after.get(name))
            if old is not None:
                self._inodes.add(self._names.renumbered.number(old[1].ino))
            if isinstance(directory, DirNode) and name in directory.children:
                self._match(directory, name, there)
            elif there is not None and there.entry.kind is Kind.DIR:
                if old is not None and old[0].kind is Kind.DIR and old[1].ino == there.attr.ino:
                    self._to_compare.append((there, _stored(*old)))
                else:
                    self._unread.append(there)

    def _read(self, stored: _Stored, names: Iterable[bytes]) -> dict[bytes, tuple[Entry, Attr]]:
        """Return some entries of a directory; one that stores no attributes has the inode number 0."""
        wanted = list(names)
        entries = nodes.lookup_many(self._reader, stored.tree, wanted)
        attrs = nodes.lookup_many(self._reader, stored.attrs, wanted)
        return {name: _decoded(value, attrs.get(name)) for name, value in entries.items()}

    def _add_place(self, above: _Place, name: bytes, found: tuple[Entry, Attr] | None) -> _Place | None:
        if found is None:
            return None
        place = _Place(above, name, *found)
        self._places[place.attr.ino] = place
        return place

    def _match(self, directory: DirNode, name: bytes, there: _Place | None) -> None:
        """Decide about a name in memory, which has a node or was removed."""
        node = directory.children[name]
        if node is not None and there is not None and self._is_same(node, there):
            self._keep(there, node)
            return
        if node is None:
            self.move.unset.append((directory, name))
        else:
            self._lose(directory, name, node)
        if there is not None and there.entry.kind is Kind.DIR:
            self._unread.append(there)

    def _is_same(self, node: Node, there: _Place) -> bool:
        """Whether a node and the entry at its path are one file."""
        if kind_of(node) is not there.entry.kind:
            return False
        stored = self._names.renumbered.stored(node.ino)
        if stored == there.attr.ino or not there.attr.ino:
            return True
        has_one_name = there.entry.link is None and (node.nlink == 1 or isinstance(node, DirNode))
        return stored >= self._first_unsealed_ino and has_one_name

    def _keep(self, place: _Place, node: Node) -> None:
        place.node = node
        self.move.kept.append(place)
        self._inodes.add(node.ino)
        if isinstance(node, DirNode):
            self._to_compare.append((place, _Stored(map_root(node.tree), node.attrs)))

    def _lose(self, directory: DirNode, name: bytes, node: Node) -> None:
        self.move.lost.append((directory, name, node))
        self._homeless[node.ino] = node
        self._inodes.add(node.ino)

    def _seat_homeless(self) -> bool:
        """Give nodes the places that store their numbers; return whether there were any."""
        count = len(self._homeless)
        for node in list(self._homeless.values()):
            stored = self._names.renumbered.stored(node.ino)
            place = self._places.get(stored) if stored < self._first_unsealed_ino else None
            if place is not None and place.node is None and place.entry.kind is kind_of(node):
                del self._homeless[node.ino]
                self.move.seated.append(place)
                self._keep(place, node)
        return len(self._homeless) < count

    def _read_more(self) -> bool:
        """Read one level of the directories that are not read yet, if a place may be found there for a node in use."""
        if not self._unread or not any(self._matters(node) for node in self._homeless.values()):
            return False
        unread, self._unread = self._unread, []
        for place in unread:
            if place.node is not None:
                continue  # it has been compared
            stored = _stored(place.entry, place.attr)
            attrs = dict(nodes.items(self._reader, stored.attrs))
            for name, value in nodes.items(self._reader, stored.tree):
                child = self._add_place(place, name, _decoded(value, attrs.get(name)))
                if child is not None and child.entry.kind is Kind.DIR:
                    self._unread.append(child)
        return True

    def _matters(self, node: Node) -> bool:
        return _is_in_use(self._names, node) or (isinstance(node, DirNode) and any(node.children.values()))

    def _give_up_homeless(self) -> None:
        """Leave nodes without a name, and look for places of what is below them."""
        homeless, self._homeless = self._homeless, {}
        for node in homeless.values():
            if isinstance(node, DirNode):
                for name, child in node.children.items():
                    if child is not None:
                        self.move.touched.names.append((node.ino, name))
                        self._lose(node, name, child)


def _stored(entry: Entry, attr: Attr) -> _Stored:
    assert entry.subtree is not None
    return _Stored(map_root(entry.subtree), attr.below)


def _decoded(value: bytes, attributes: bytes | None) -> tuple[Entry, Attr]:
    return decode_entry(value), decode_attr(attributes) if attributes is not None else Attr(0, 0, 0)


def _is_in_use(names: Names, node: Node) -> bool:
    """Whether the kernel knows a node, or a handle has it open."""
    return node.ino in names.referenced or (isinstance(node, FileNode) and node.opens > 0)
