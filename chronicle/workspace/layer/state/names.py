"""The names of a layer: which node is where, over the tree of the last seal.

A name is looked up in its directory's loaded children first and in the blob store's tree then. Everything here is in
memory and reads blobs; nothing is logged or checked, which is for the caller (`chronicle.workspace.layer.layer`) to do
before.

Invariant, which makes a seal cost what changed: if anything differs from the last seal at a name or below it, the name
is in the ``changed`` set of its directory, and so on up to the root.

What does not differ may be dropped from memory at any time between two operations, as it can be had again: when it is
forgotten by whoever refers to it by number (`Names.forget`), and when there is much of it (`Names.evict_surplus`).
"""

from __future__ import annotations

import stat
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Protocol

import msgpack

from chronicle.errors import Corrupt
from chronicle.workspace.history.oplog import ROOT_INO, Attr, OplogRoot, decode_attr
from chronicle.workspace.layer.state.evicted_inodes import EvictedInodes
from chronicle.workspace.layer.state.node import DirNode, FileNode, Node, kind_bits, loaded_names, new_node
from chronicle.workspace.trees import nodes, tree
from chronicle.workspace.trees.tree import EMPTY, Entry

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader

__all__ = ["MAX_CLEAN_NODES", "Names", "ReferencedInodes"]

MAX_CLEAN_NODES: Final = 10_000
"""How many nodes may be in memory although nothing of them differs from the last seal: 7 MB."""


class ReferencedInodes(Protocol):
    """The inode numbers by which nodes are called from outside."""

    def __contains__(self, inode: int, /) -> bool:
        """Say whether a node is called by this number."""

    def pack(self) -> None:
        """Take as little memory as can be: many nodes were dropped."""


class _NoReferences:
    """Calls no node by its number."""

    def __contains__(self, inode: int, /) -> bool:
        return False

    def pack(self) -> None:
        """Nothing is kept."""


class Names:
    """The nodes of a layer, by inode number and by name.

    Args:
        reader: reads trees and attributes.
        commit: the state to start from.
        owner: user and group of what has none of its own in the tree.
    """

    def __init__(self, reader: BlobReader, commit: OplogRoot, owner: tuple[int, int]) -> None:
        self._reader = reader
        self._owner = owner
        self._generation = 0
        """Grows whenever a directory gets another path."""
        self.links = commit.links
        """The map of hard-linked files at the last seal."""
        self.next_ino = commit.next_ino
        self.by_ino: dict[int, Node] = {}
        """Those in memory."""
        self.referenced: ReferencedInodes = _NoReferences()
        """Set by what calls nodes by their numbers."""
        self.max_clean_nodes = MAX_CLEAN_NODES
        self.evicted = EvictedInodes()
        """Where those are that are not in memory and called by their numbers."""
        self._unstored_inodes: set[int] = set()
        """Numbers that were given to what is in the tree without one: they must not be given again."""
        self._loaded = 0
        """How many nodes were made from the tree since `evict_surplus` looked at them."""
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
        """Return what a name in a directory is, loading it if need be."""
        try:
            return directory.children[name]
        except KeyError:
            return self._load(directory, name) if directory.tree != EMPTY else None

    def resolve(self, path: bytes) -> Node | None:
        """Return what is at a path, ``b""`` being the root; symlinks are not followed."""
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
        """Return a directory's entries, loaded, by name."""
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
        """Return what a directory holds by name, with inode numbers and kinds as in ``st_mode``, loading nothing."""
        children = directory.children
        found = [(name, node.ino, stat.S_IFMT(node.mode)) for name, node in children.items() if node is not None]
        if directory.tree != EMPTY:
            attrs = nodes.items(self._reader, directory.attrs)
            known = {name: msgpack.unpackb(value)[0] for name, value in attrs if name not in children}
            for name, value in nodes.items(self._reader, directory.tree):
                if name in children or name == b".":
                    continue
                if name not in known:  # it gets its number when it is loaded
                    return [(name, node.ino, stat.S_IFMT(node.mode)) for name, node in self.entries(directory)]
                found.append((name, known[name], kind_bits(tree.entry_kind(value))))
        found.sort()
        return found

    def path(self, directory: DirNode) -> bytes:
        """Return a directory's path, ``b""`` for the root."""
        generation = self._generation
        if directory.path_generation == generation:
            return directory.path_cache
        below = []  # not by recursion: directories may be nested deeper than calls
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
        """Load the names of a hard-linked file that are not loaded yet. Of any other node nothing is read."""
        if len(loaded_names(node)) < node.nlink:
            value = nodes.lookup(self._reader, self.links, node.ino.to_bytes(8, "big"))
            for path in msgpack.unpackb(value) if value is not None else ():
                self.resolve(path)

    def _load(self, directory: DirNode, name: bytes) -> Node | None:
        value = self._tree_finder.lookup(directory.tree, name)
        if value is None or name == b".":
            return None
        attr = self._attr_finder.lookup(directory.attrs, name)
        return self._make(directory, name, tree.decode_entry(value), attr)

    def _make(self, directory: DirNode, name: bytes, entry: Entry, attributes: bytes | None) -> Node:
        """Make the node of an entry of the last seal, or give the node of a hard-linked file one more name."""
        if attributes is not None:
            attr = decode_attr(attributes)
        else:
            attr = Attr(self.next_ino, directory.mtime_ns, directory.ctime_ns)
            self._unstored_inodes.add(attr.ino)
            self.next_ino += 1
        node = self.by_ino.get(attr.ino)
        if node is not None:
            if entry.link is not None and not isinstance(node, DirNode):
                self.attach(directory, name, node)
                return node
            raise Corrupt(f"inode {attr.ino} is both {self.path_of(node)!r} and {self.join(directory, name)!r}")
        node = new_node(entry, attr.ino, *self.owner_of(entry), attr.mtime_ns)
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
        self.by_ino[attr.ino] = node
        self.evicted.remove(attr.ino)
        self._loaded += 1
        return node

    def owner_of(self, entry: Entry) -> tuple[int, int]:
        """Return the user and group of an entry."""
        uid, gid = self._owner
        return (uid if entry.uid is None else entry.uid, gid if entry.gid is None else entry.gid)

    # -- memory ---------------------------------------------------------------------------------------------------

    def node(self, ino: int) -> Node | None:
        """Return what has an inode number, loading it if it was dropped; ``None`` if nothing has it, or it is lost."""
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
        """Drop what nobody calls by its inode number any more, if it can be had again or is gone for good."""
        node = self.by_ino.get(ino)
        while node is not None:
            if node.nlink == 0:
                if not (isinstance(node, FileNode) and node.opens):
                    del self.by_ino[node.ino]
                return
            parent = node.parent
            if not self._drop(node) or parent is None or parent.ino in self.referenced:
                return
            node = parent  # it was kept for what is in it
        self._forget_place(ino)

    def evict_surplus(self) -> bool:
        """Drop what is as it was sealed, if that may be much. To be called between operations only.

        Amortised, it costs a constant for each node that is loaded: it looks at all when half as many were loaded.

        Returns:
            whether much was dropped.
        """
        if self._loaded <= max(self.max_clean_nodes, len(self.by_ino) // 2):
            return False
        return self.evict_clean()

    def evict_clean(self) -> bool:
        """Drop what is as it was sealed, if there are more nodes than may be kept; return whether much was dropped."""
        self._loaded = 0
        before = len(self.by_ino)
        if before <= self.max_clean_nodes:
            return False
        for node in reversed(list(self.by_ino.values())):  # directories are mostly older than what is in them
            self._drop(node)
        self.evicted.pack()
        self.referenced.pack()
        self.by_ino = dict(self.by_ino)  # the table of a dictionary does not shrink by itself
        return before - len(self.by_ino) > self.max_clean_nodes

    def _drop(self, node: Node) -> bool:
        """Drop a node if it can be had again; note where it is if somebody may call it by its number."""
        parent = node.parent
        if parent is None or node.nlink == 0 or node.name in parent.changed or node.ino in self._unstored_inodes:
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
        """Forget where a node is that nobody calls by its number, and those above that were kept for it."""
        while ino is not None and ino not in self.referenced and not self.evicted.has_below(ino):
            ino = self.evicted.remove(ino)

    # -- changing -------------------------------------------------------------------------------------------------

    def attach(self, directory: DirNode, name: bytes, node: Node) -> None:
        """Give a node a name; link counts are the caller's."""
        directory.children[name] = node
        if node.parent is None:
            node.parent = directory
            node.name = name
        elif node.links is None:
            node.links = [(directory, name)]
        else:
            node.links.append((directory, name))

    def detach(self, directory: DirNode, name: bytes, node: Node) -> None:
        """Take a name away from its node."""
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
        """Note that a directory got another path, or none."""
        self._generation += 1

    def mark_changed(self, directory: DirNode, name: bytes) -> None:
        """Note that a name's entry or attributes differ from the last seal."""
        while name not in directory.changed:
            directory.changed.add(name)
            parent = directory.parent
            if parent is None:
                return
            directory, name = parent, directory.name

    def mark_node_changed(self, node: Node) -> None:
        """Note that a node differs from the last seal. Reads nothing once `load_links` was called for it."""
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

        The map of links holds the paths of the last seal, so this comes before a directory is renamed, while those
        below it can be resolved still. It reads the whole map: few workspaces have hard links, and few of them many.
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
