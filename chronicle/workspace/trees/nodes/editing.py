"""Edits a map: nodes that an edit does not touch are shared and not read."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from blake3 import blake3

from chronicle.blobs.ident import from_raw, to_raw
from chronicle.workspace.trees.nodes.boundaries import Cutter
from chronicle.workspace.trees.nodes.building import build
from chronicle.workspace.trees.nodes.node import Node, decode_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chronicle.ids import BlobId
    from chronicle.workspace.trees.nodes.building import NodeBuffer

__all__ = ["update"]


def update(buffer: NodeBuffer, root: BlobId | None, edits: Mapping[bytes, bytes | None]) -> BlobId | None:
    """Return the root of the map with edits applied: a value puts a key, ``None`` removes it (if present).

    New nodes are added to the buffer and nowhere else. The cost in nodes read and written is the number of edits times
    that of levels; edits that change nothing write nothing.
    """
    if not edits:
        return root
    if root is None:
        return build(buffer, ((key, value) for key, value in sorted(edits.items()) if value is not None))
    return _Edit(buffer).apply(root, sorted(edits.items()))


class _Edit:
    """One `update`: the nodes it has read, and the new ones that are not in the buffer yet."""

    def __init__(self, buffer: NodeBuffer) -> None:
        self._buffer = buffer
        self._read: dict[BlobId, Node] = {}
        self._made: dict[BlobId, bytes] = {}

    def apply(self, root: BlobId, edits: list[tuple[bytes, bytes | None]]) -> BlobId | None:
        """Return the new root and add the new nodes to the buffer."""
        height = self.node(root).level
        for level in range(height):
            changed = self._recut(root, level, edits)
            if not changed:
                return root
            edits = sorted(changed.items())
        level = height
        top = self._recut_root(root, edits)
        while len(top) > 1:
            level += 1
            top = self._cut(level, top)
        if not top:
            return None
        new_root = self._collapse(from_raw(top[0][1]))
        for data in self._made.values():
            self._buffer.add(data)
        return new_root

    def node(self, identifier: BlobId) -> Node:
        """Return a node, read once only."""
        node = self._read.get(identifier)
        if node is None:
            made = self._made.get(identifier)
            node = decode_node(made if made is not None else self._buffer.get(identifier))
            self._read[identifier] = node
        return node

    def _recut(self, root: BlobId, level: int, edits: list[tuple[bytes, bytes | None]]) -> dict[bytes, bytes | None]:
        """Edit one level below the root's; return the resulting edits of the level above."""
        keys = [key for key, _ in edits]
        before: dict[bytes, bytes] = {}
        cutter = Cutter(level)
        done = 0
        while done < len(edits):
            cursor = _Cursor(self, root, level, keys[done])
            while True:
                before[cursor.last_key] = to_raw(cursor.identifier)
                upto = len(edits) if cursor.is_last else bisect_right(keys, cursor.last_key, done)
                for key, value in _merged(self.node(cursor.identifier), edits[done:upto]):
                    cutter.feed(key, value)
                done = upto
                if cursor.is_last:
                    cutter.finish()
                if cutter.at_boundary:
                    break
                cursor.advance()
        changed: dict[bytes, bytes | None] = dict.fromkeys(before)
        for key, data in cutter.nodes:
            raw = blake3(data).digest()
            if before.get(key) == raw:
                del changed[key]
            else:
                changed[key] = raw
                self._made[from_raw(raw)] = data
        return changed

    def _recut_root(self, root: BlobId, edits: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes]]:
        """Edit the root's own level; return the items of the level above it."""
        node = self.node(root)
        top = self._cut(node.level, _merged(node, edits))
        self._made.pop(root, None)
        return top

    def _cut(self, level: int, pairs: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Cut a whole level into nodes; return the items of the level above."""
        cutter = Cutter(level)
        for key, value in pairs:
            cutter.feed(key, value)
        cutter.finish()
        above = []
        for key, data in cutter.nodes:
            raw = blake3(data).digest()
            self._made[from_raw(raw)] = data
            above.append((key, raw))
        return above

    def _collapse(self, root: BlobId) -> BlobId:
        """Drop roots that have a single child: a map that shrank has as many levels as one that was always small."""
        node = self.node(root)
        while node.level > 0 and len(node.keys) == 1:
            self._made.pop(root, None)
            root = node.child(0)
            node = self.node(root)
        return root


class _Cursor:
    """A position in one level of a map: starts at the node that holds a key, or would, and advances to the right."""

    def __init__(self, edit: _Edit, root: BlobId, level: int, key: bytes) -> None:
        self._edit = edit
        self._path: list[tuple[Node, int]] = []
        node = edit.node(root)
        while True:
            index = min(bisect_left(node.keys, key), len(node.keys) - 1)
            self._path.append((node, index))
            if node.level == level + 1:
                break
            node = edit.node(node.child(index))

    @property
    def identifier(self) -> BlobId:
        """The node's id."""
        node, index = self._path[-1]
        return node.child(index)

    @property
    def last_key(self) -> bytes:
        """The node's last key."""
        node, index = self._path[-1]
        return node.keys[index]

    @property
    def is_last(self) -> bool:
        """Whether this is the last node of its level."""
        return all(index == len(node.keys) - 1 for node, index in self._path)

    def advance(self) -> None:
        """Advance to the next node of the level; there must be one."""
        depth = len(self._path) - 1
        while self._path[depth][1] == len(self._path[depth][0].keys) - 1:
            depth -= 1
        node, index = self._path[depth]
        self._path[depth] = (node, index + 1)
        for below in range(depth + 1, len(self._path)):
            parent, at = self._path[below - 1]
            self._path[below] = (self._edit.node(parent.child(at)), 0)


def _merged(node: Node, edits: Iterable[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes]]:
    """Return a node's items with edits applied, in order."""
    content = dict(zip(node.keys, node.values, strict=True))
    in_order = True
    for key, value in edits:
        if value is None:
            content.pop(key, None)
        else:
            in_order = in_order and key in content
            content[key] = value
    return list(content.items()) if in_order else sorted(content.items())
