"""The names of a layer: a cache of nodes over the tree of the last seal, with what changed since.

A name is looked up in the loaded children of its directory first, then in the tree. This module reads blobs and changes
memory; the parts of `chronicle.workspace.layer` check and log before they call it.

Invariant, which makes a seal cost what changed: if anything differs from the last seal at a name or below it, the name
is in the ``changed`` set of its directory, and so on up to the root.

A node that does not differ is clean: it can be loaded again, so it may be evicted between two operations. That happens
when the kernel forgets its inode number (`Names.forget`), and when many are loaded (`Names.evict_surplus`).
"""

from __future__ import annotations

import stat
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Protocol

import msgpack

from chronicle.errors import Corrupt
from chronicle.workspace.history import link_map
from chronicle.workspace.history.oplog import ROOT_INO, Attr, OplogRoot, decode_attr
from chronicle.workspace.layer.state.evicted_inodes import EvictedInodes
from chronicle.workspace.layer.state.node import DirNode, FileNode, Node, kind_bits, loaded_names, new_node
from chronicle.workspace.layer.state.renumbered_inodes import RenumberedInodes
from chronicle.workspace.trees import nodes, tree
from chronicle.workspace.trees.tree import EMPTY, Entry

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader

__all__ = ["MAX_CLEAN_NODES", "Names", "ReferencedInodes"]

MAX_CLEAN_NODES: Final = 10_000
"""Nodes in memory before clean ones are evicted: 7 MB."""


class ReferencedInodes(Protocol):
    """The inode numbers that are in use outside of the layer, by the kernel."""

    def __contains__(self, inode: int, /) -> bool:
        """Say whether a number is in use."""

    def pack(self) -> None:
        """Compact in memory; called after many nodes were evicted."""


class _NoReferences:
    """No number is in use."""

    def __contains__(self, inode: int, /) -> bool:
        return False

    def pack(self) -> None:
        """Nothing to compact."""


class Names:
    """The nodes of a layer, by inode number and by name.

    Args:
        reader: reads trees and attributes.
        commit: the state to start from.
        owner: user and group of entries that store none.
    """

    def __init__(self, reader: BlobReader, commit: OplogRoot, owner: tuple[int, int]) -> None:
        self._reader = reader
        self._owner = owner
        self._generation = 0
        """Incremented when a directory gets another path; invalidates cached paths."""
        self.links = commit.links
        """The map of hard-linked files at the last seal."""
        self.next_ino = commit.next_ino
        self.by_ino: dict[int, Node] = {}
        """The nodes in memory."""
        self.referenced: ReferencedInodes = _NoReferences()
        """Set by a presentation whose callers use inode numbers."""
        self.max_clean_nodes = MAX_CLEAN_NODES
        self.evicted = EvictedInodes()
        """Where evicted nodes are whose number is in use."""
        self._unstored_inodes: set[int] = set()
        """Numbers that were assigned to entries that store none: such nodes are not evicted, to keep their numbers."""
        self.renumbered = RenumberedInodes()
        """Nodes whose number differs from the stored one: they are not evicted either."""
        self._loaded = 0
        """Nodes loaded since the last eviction."""
        self._tree_finder = nodes.NodeCache(reader)
        self._attr_finder = nodes.NodeCache(reader)
        root = tree.entry_at(reader, commit.tree_id, b"")
        assert root is not None
        self.root = DirNode(ROOT_INO, stat.S_IFDIR | root.mode, *self.owner_of(root), commit.root.mtime_ns)
        self.root.ctime_ns = commit.root.ctime_ns
        self.root.nlink = max(2, commit.root.links)
        self.root.xattrs = dict(root.xattrs)
        self.root.tree = commit.tree_id
        self.root.attrs = commit.root.below
        self.root.versioned = True
        self.by_ino[ROOT_INO] = self.root
        self.root_changed = False
        """Whether the root directory's own attributes differ from the last seal."""

    # -- looking up -----------------------------------------------------------------------------------------------

    def child(self, directory: DirNode, name: bytes) -> Node | None:
        """Return the node at a name in a directory, loading it if needed."""
        try:
            return directory.children[name]
        except KeyError:
            return self._load(directory, name) if directory.tree != EMPTY else None

    def resolve(self, path: bytes) -> Node | None:
        """Return the node at a path, ``b""`` being the root; symlinks are not followed."""
        node: Node | None = self.root
        if path:
            for name in path.split(b"/"):
                if not isinstance(node, DirNode):
                    return None
                node = self.child(node, name)
        return node

    def is_empty(self, directory: DirNode) -> bool:
        """Say whether a directory has no entries."""
        children = directory.children
        if any(node is not None for node in children.values()):
            return False
        return all(name in children for name, _ in tree.list_dir(self._reader, directory.tree))

    def entries(self, directory: DirNode) -> list[tuple[bytes, Node]]:
        """Load and return a directory's entries by name."""
        children = directory.children
        if directory.tree != EMPTY:
            entries = nodes.items(self._reader, directory.tree)
            fresh = {name: value for name, value in entries if name not in children and name != b"."}
            if fresh:
                attrs = nodes.items(self._reader, directory.attrs)
                known = {name: value for name, value in attrs if name in fresh}
                for name, value in fresh.items():
                    self._make(directory, name, tree.decode_entry(value), known.get(name))
        return sorted((name, node) for name, node in children.items() if node is not None)

    def dirents(self, directory: DirNode) -> list[tuple[bytes, int, int]]:
        """Return a directory's names with inode numbers and kinds as in ``st_mode``, loading no node."""
        children = directory.children
        found = [(name, node.ino, stat.S_IFMT(node.mode)) for name, node in children.items() if node is not None]
        if directory.tree != EMPTY:
            attrs = nodes.items(self._reader, directory.attrs)
            number = self.renumbered.number
            known = {name: number(msgpack.unpackb(value)[0]) for name, value in attrs if name not in children}
            for name, value in nodes.items(self._reader, directory.tree):
                if name in children or name == b".":
                    continue
                if name not in known:  # an entry without a number gets one when it is loaded
                    return [(name, node.ino, stat.S_IFMT(node.mode)) for name, node in self.entries(directory)]
                found.append((name, known[name], kind_bits(tree.entry_kind(value))))
        found.sort()
        return found

    def path(self, directory: DirNode) -> bytes:
        """Return a directory's path, ``b""`` for the root."""
        generation = self._generation
        if directory.path_generation == generation:
            return directory.path_cache
        below = []  # no recursion: directories may be nested deeper than the stack
        at = directory
        while at.path_generation != generation and at.parent is not None:
            below.append(at)
            at = at.parent
        if at.path_generation != generation:
            at.path_cache, at.path_generation = b"", generation
        path = at.path_cache
        for at in reversed(below):
            path = path + b"/" + at.name if path else at.name
            at.path_cache, at.path_generation = path, generation
        return path

    def join(self, directory: DirNode, name: bytes) -> bytes:
        """Return the path of a name in a directory."""
        above = self.path(directory)
        return above + b"/" + name if above else name

    def path_of(self, node: Node) -> bytes | None:
        """Return a node's path, its first if it has several; None if it was removed."""
        if node.parent is not None:
            return self.join(node.parent, node.name)
        return b"" if node is self.root else None

    def all_paths(self, node: Node) -> list[bytes]:
        """Return every path of a node."""
        if node.nlink > 1 and not isinstance(node, DirNode):
            self.load_links(node)
        return [self.join(directory, name) for directory, name in loaded_names(node)]

    def load_links(self, node: Node) -> None:
        """Load the missing names of a hard-linked file. For any other node nothing is read."""
        if len(loaded_names(node)) < node.nlink:
            for path in link_map.paths(self._reader, self.links, self.renumbered.stored(node.ino)):
                self.resolve(path)

    def _load(self, directory: DirNode, name: bytes) -> Node | None:
        value = self._tree_finder.lookup(directory.tree, name)
        if value is None or name == b".":
            return None
        attr = self._attr_finder.lookup(directory.attrs, name)
        return self._make(directory, name, tree.decode_entry(value), attr)

    def _make(self, directory: DirNode, name: bytes, entry: Entry, attributes: bytes | None) -> Node:
        """Load an entry of the last seal: a new node, or one more name of a hard-linked file's node."""
        if attributes is not None:
            attr = decode_attr(attributes)
        else:
            attr = Attr(self._take_ino(), directory.mtime_ns, directory.ctime_ns)
            self._unstored_inodes.add(attr.ino)
        return self.load(directory, name, entry, attr)

    def _take_ino(self) -> int:
        self.next_ino += 1
        return self.next_ino - 1

    def load(self, directory: DirNode, name: bytes, entry: Entry, attr: Attr) -> Node:
        """Load an entry of the last seal into a directory that has no node at the name. Reads nothing."""
        ino = self.renumbered.number(attr.ino)
        node = self.by_ino.get(ino)
        if node is not None and (node.nlink == 0 or self.renumbered.stored(ino) != attr.ino):
            node, ino = None, self._take_ino()  # another file has the number while the kernel or a handle knows it
            self.renumbered.put(ino, attr.ino)
        if node is not None:
            if entry.link is not None and not isinstance(node, DirNode):
                self.attach(directory, name, node)
                return node
            raise Corrupt(f"inode {attr.ino} is both {self.path_of(node)!r} and {self.join(directory, name)!r}")
        node = new_node(entry, ino, *self.owner_of(entry), attr.mtime_ns)
        if isinstance(node, FileNode):
            assert entry.content is not None
            node.content = entry.content
            node.length = entry.content.size
        elif isinstance(node, DirNode):
            assert entry.subtree is not None
            node.tree = entry.subtree
            node.attrs = attr.below
        node.ctime_ns = attr.ctime_ns
        node.nlink = max(attr.links, 2 if entry.subtree is not None else 1)
        node.versioned = True
        node.parent = directory
        node.name = name
        directory.children[name] = node
        self.by_ino[ino] = node
        self.evicted.remove(ino)
        self._loaded += 1
        return node

    def owner_of(self, entry: Entry) -> tuple[int, int]:
        """Return the user and group of an entry."""
        uid, gid = self._owner
        return (uid if entry.uid is None else entry.uid, gid if entry.gid is None else entry.gid)

    # -- eviction -------------------------------------------------------------------------------------------------

    def node(self, ino: int) -> Node | None:
        """Return the node of an inode number, loading it if it was evicted; ``None`` if there is none."""
        above = []
        at = ino
        while at not in self.by_ino:
            place = self.evicted.find(at)
            if place is None:
                return None
            at, name = place
            above.append(name)
        node: Node | None = self.by_ino[at]
        while above:
            if not isinstance(node, DirNode):
                return None
            node = self.child(node, above.pop())
        return node if node is not None and node.ino == ino else None

    def forget(self, ino: int) -> None:
        """Evict a node whose number is in use no more, if it is clean or removed."""
        node = self.by_ino.get(ino)
        while node is not None:
            if node.nlink == 0:
                if not (isinstance(node, FileNode) and node.opens):
                    del self.by_ino[node.ino]
                return
            parent = node.parent
            if not self._drop(node) or parent is None or parent.ino in self.referenced:
                return
            node = parent  # it was in memory for its children only
        self._forget_place(ino)

    def evict_surplus(self) -> bool:
        """Evict clean nodes if many were loaded. Must be called between operations only.

        The cost is amortised constant per loaded node: all nodes are scanned after half as many were loaded.

        Returns:
            whether many were evicted.
        """
        if self._loaded <= max(self.max_clean_nodes, len(self.by_ino) // 2):
            return False
        return self.evict_clean()

    def evict_clean(self) -> bool:
        """Evict clean nodes if there are more nodes than `max_clean_nodes`; return whether many were evicted."""
        self._loaded = 0
        before = len(self.by_ino)
        if before <= self.max_clean_nodes:
            return False
        for node in reversed(list(self.by_ino.values())):  # children first: directories are mostly older
            self._drop(node)
        self.evicted.pack()
        self.referenced.pack()
        self.by_ino = dict(self.by_ino)  # the table of a dictionary does not shrink by itself
        return before - len(self.by_ino) > self.max_clean_nodes

    def _drop(self, node: Node) -> bool:
        """Evict a node if it is clean; remember where it is if its number is in use."""
        parent = node.parent
        if parent is None or node.nlink == 0 or node.name in parent.changed:
            return False
        if node.ino in self._unstored_inodes or node.ino in self.renumbered:
            return False
        if isinstance(node, FileNode):
            data = node.data
            is_partial = data is not None and data.partial is not None
            if node.dirty or node.opens or node.sparse_blocks is not None or is_partial:
                return False
        elif isinstance(node, DirNode) and (node.children or node.changed):
            return False
        if node.links is not None:
            if any(name in directory.changed for directory, name in node.links):
                return False
            for directory, name in node.links:
                self._drop_name(directory, name)
        self._drop_name(parent, node.name)
        del self.by_ino[node.ino]
        if node.ino in self.referenced or self.evicted.has_below(node.ino):
            self.evicted.add(node.ino, parent.ino, node.name)
        return True

    def _drop_name(self, directory: DirNode, name: bytes) -> None:
        del directory.children[name]
        if not directory.children:
            directory.children = {}  # as above

    def _forget_place(self, ino: int | None) -> None:
        """Forget where an evicted node is, and its ancestors that were remembered for it only."""
        while ino is not None and ino not in self.referenced and not self.evicted.has_below(ino):
            ino = self.evicted.remove(ino)

    # -- changing -------------------------------------------------------------------------------------------------

    def attach(self, directory: DirNode, name: bytes, node: Node) -> None:
        """Add a name to a node. The caller changes link counts."""
        directory.children[name] = node
        if node.parent is None:
            node.parent = directory
            node.name = name
        elif node.links is None:
            node.links = [(directory, name)]
        else:
            node.links.append((directory, name))

    def detach(self, directory: DirNode, name: bytes, node: Node) -> None:
        """Remove a name from its node."""
        if directory.tree != EMPTY:
            directory.children[name] = None
        else:
            directory.children.pop(name, None)
        if node.parent is directory and node.name == name:
            if node.links:
                node.parent, node.name = node.links.pop()
            else:
                node.parent, node.name = None, b""
        elif node.links:
            node.links.remove((directory, name))

    def invalidate_paths(self) -> None:
        """Invalidate cached paths: a directory was moved or removed."""
        self._generation += 1

    def mark_changed(self, directory: DirNode, name: bytes) -> None:
        """Mark a name as different from the last seal."""
        while name not in directory.changed:
            directory.changed.add(name)
            parent = directory.parent
            if parent is None:
                return
            directory, name = parent, directory.name

    def mark_node_changed(self, node: Node) -> None:
        """Mark all names of a node as different from the last seal. Reads nothing after `load_links`."""
        if node.nlink > 1 and not isinstance(node, DirNode):
            self.load_links(node)
            for directory, name in loaded_names(node):
                self.mark_changed(directory, name)
        elif node.parent is not None:
            self.mark_changed(node.parent, node.name)
        elif node is self.root:
            self.root_changed = True

    def links_below(self, path: bytes) -> list[Node]:
        """Load and return the hard-linked files with a name below a directory, with all their names.

        The map of links holds the paths of the last seal, so this must be called before a directory is renamed, while
        paths below it still resolve. It reads the whole map: few workspaces have hard links, and few of them many.
        """
        prefix = path + b"/"
        found: dict[int, Node] = {}
        for _, value in nodes.items(self._reader, self.links):
            paths: list[bytes] = sorted(msgpack.unpackb(value))
            at = bisect_left(paths, prefix)
            if at < len(paths) and paths[at].startswith(prefix):
                for other in paths:
                    node = self.resolve(other)
                    if node is not None and not isinstance(node, DirNode):
                        found[node.ino] = node
        for node in self.by_ino.values():
            if node.nlink > 1 and not isinstance(node, DirNode):
                found[node.ino] = node
        linked = list(found.values())
        for node in linked:
            self.load_links(node)
        return linked
