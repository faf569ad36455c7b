"""The second pass of a seal: the changed directories with the attributes of their entries, and the hard links."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chronicle.workspace.history import link_map, oplog
from chronicle.workspace.history.oplog import Attr
from chronicle.workspace.layer.state.node import DeviceNode, DirNode, FileNode, LinkNode, Node, kind_of
from chronicle.workspace.trees import nodes, tree
from chronicle.workspace.trees.tree import EMPTY, ROOT_DEFAULT, Entry

if TYPE_CHECKING:
    from chronicle.ids import BlobId
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.layer.sealing.contents import StoredContents
    from chronicle.workspace.layer.state.names import Names

__all__ = ["SealedTree", "put_links", "put_tree"]


@dataclass(slots=True)
class SealedTree:
    """The changed part of a tree."""

    directories: dict[DirNode, tuple[BlobId, BlobId | None]] = field(default_factory=dict)
    """Each changed directory with its new subtree and map of attributes, children before parents."""
    contents: dict[FileNode, Content] = field(default_factory=dict)
    """Each dirty file with its new content."""


def put_tree(buffer: nodes.NodeBuffer, names: Names, owner: tuple[int, int], stored: StoredContents) -> SealedTree:
    """Put the changed directories.

    Args:
        buffer: takes the nodes of the maps.
        names: the names of the layer.
        owner: user and group of entries that store none.
        stored: the contents that the first pass has put.
    """
    found = SealedTree()
    stored_ino = names.renumbered.stored
    for directory in reversed(_changed_directories(names)):
        entries: dict[bytes, bytes | None] = {}
        attributes: dict[bytes, bytes | None] = {}
        for name in directory.changed:
            child = directory.children.get(name)
            if child is None:
                entries[name] = attributes[name] = None
                continue
            subtree = below = content = None
            if isinstance(child, DirNode):
                subtree, below = found.directories.get(child, (child.tree, child.attrs))
            elif isinstance(child, FileNode):
                content = child.content
                if child.dirty:
                    assert child.data is not None
                    assert child.data.pinned is not None
                    content = found.contents[child] = stored[child.data.pinned]
            entries[name] = tree.encode_entry(_entry(names, owner, child, content, subtree))
            attributes[name] = oplog.encode_attr(
                Attr(stored_ino(child.ino), child.mtime_ns, child.ctime_ns, child.nlink, below)
            )
        if directory is names.root:
            entry = _entry(names, owner, directory, None, EMPTY)
            entries[b"."] = None if entry == ROOT_DEFAULT else tree.encode_entry(entry)
        subtree = nodes.update(buffer, tree.map_root(directory.tree), entries) or EMPTY
        found.directories[directory] = (subtree, nodes.update(buffer, directory.attrs, attributes))
    return found


def put_links(buffer: nodes.NodeBuffer, names: Names, links: BlobId | None) -> BlobId | None:
    """Put the paths of the hard-linked files that changed, and return the root of their map.

    Args:
        links: the root of the map at the last seal.
    """
    changed: dict[int, list[bytes] | None] = {}
    for directory in _changed_directories(names):
        for name in directory.changed:
            child = directory.children.get(name)
            if child is not None and _is_linked(child):
                changed[names.renumbered.stored(child.ino)] = names.all_paths(child)
    for ino in link_map.inodes(buffer, links):
        known = names.by_ino.get(names.renumbered.number(ino))
        if known is not None and known.nlink <= 1:
            changed[ino] = None
    return link_map.update(buffer, links, changed)


def _changed_directories(names: Names) -> list[DirNode]:
    """Return the directories with changes in or below them, parents before children."""
    found = [names.root] if names.root.changed or names.root_changed else []
    for directory in found:  # the list grows during the iteration
        for name in directory.changed:
            child = directory.children.get(name)
            if isinstance(child, DirNode) and child.changed:
                found.append(child)
    return found


def _is_linked(node: Node) -> bool:
    return node.nlink > 1 and not isinstance(node, DirNode)


def _entry(names: Names, owner: tuple[int, int], node: Node, content: Content | None, subtree: BlobId | None) -> Entry:
    uid, gid = owner
    return Entry(
        kind=kind_of(node),
        mode=0o777 if isinstance(node, LinkNode) else node.mode & 0o7777,
        content=content,
        subtree=subtree,
        target=node.target if isinstance(node, LinkNode) else b"",
        uid=None if node.uid == uid else node.uid,
        gid=None if node.gid == gid else node.gid,
        xattrs=tuple(sorted(node.xattrs.items())),
        link=min(names.all_paths(node)) if _is_linked(node) else None,
        device=node.device if isinstance(node, DeviceNode) else None,
    )
