"""Verifies that maps of `chronicle.workspace.trees.nodes` have their one canonical shape.

Equal content must have an equal root, or equal trees would differ. So nodes must not only exist: each must be encoded
as `encode_node` does, and end where its content determines. This is checked node by node, because the end of a node
depends on its own items: a node that is not the last of its level must end at a boundary, and none may have a boundary
inside. The result for a node holds in every map that has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from chronicle.errors import Corrupt
from chronicle.workspace.trees.nodes import Cutter, Node, decode_node

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId

__all__ = ["MapChecker"]

_MAX_LEVEL: Final = 255
"""The level salts hashes as one byte. Each level has at most half the nodes of the one below."""


class MapChecker:
    """Checks maps, each node once. Discard it after it raised.

    Args:
        reader: must check what it returns, as a blob store does.
    """

    def __init__(self, reader: BlobReader) -> None:
        self._reader = reader
        self._shapes: dict[BlobId, _Shape] = {}

    def check(self, root: BlobId | None) -> list[tuple[BlobId, Node]]:
        """Read the nodes of a map that were not read before and return them, children first, in key order.

        Raises:
            NotFound, Corrupt, Unavailable, UnsupportedFormat: as reading a node does.
            Corrupt: the map is not in its canonical shape.
        """
        read: list[tuple[BlobId, Node]] = []
        if root is not None and self._visit(root, None, read).only_child:
            raise Corrupt(f"the map {root} has a level too many")
        return read

    def last_key(self, identifier: BlobId) -> bytes:
        """Return the last key of a node that was checked."""
        return self._shapes[identifier].last_key

    def _visit(self, identifier: BlobId, level: int | None, read: list[tuple[BlobId, Node]]) -> _Shape:
        shape = self._shapes.get(identifier)
        if shape is None:
            data = self._reader.get(identifier)
            node = decode_node(data)
            shape = _shape_of(identifier, node, data)
            if level is not None and node.level != level:
                raise Corrupt(f"node {identifier} is of level {node.level}, its place of level {level}")
            if node.level:
                shape = self._with_children(identifier, node, shape, read)
            self._shapes[identifier] = shape
            read.append((identifier, node))
        elif level is not None and shape.level != level:
            raise Corrupt(f"node {identifier} is of level {shape.level}, its place of level {level}")
        return shape

    def _with_children(self, identifier: BlobId, node: Node, shape: _Shape, read: list[tuple[BlobId, Node]]) -> _Shape:
        """Check the children of a node and return its shape with theirs."""
        children = [self._visit(node.child(index), node.level - 1, read) for index in range(len(node.keys))]
        for index, child in enumerate(children):
            if child.last_key != node.keys[index] or (index and child.first_key <= node.keys[index - 1]):
                raise Corrupt(f"node {identifier} names the keys of its child {node.child(index)} wrongly")
        if not all(child.closed for child in children[:-1]):
            raise Corrupt(f"below node {identifier} nodes end where their content does not")
        return shape._replace(first_key=children[0].first_key, closed=shape.closed and children[-1].closed)


class _Shape(NamedTuple):
    """The checked properties of a node and its subtree."""

    level: int
    only_child: bool
    """It is above level 0 and has one child only, which is not allowed for a root."""
    first_key: bytes
    """Of the items."""
    last_key: bytes
    closed: bool
    """Whether it, and the last node of each level below it, end at a boundary: so others may follow."""


def _shape_of(identifier: BlobId, node: Node, data: bytes) -> _Shape:
    """Check a node by itself."""
    sound = type(node.level) is int and 0 <= node.level <= _MAX_LEVEL  # a bool would pass for a number
    sound = sound and all(type(part) is bytes for part in (*node.keys, *node.values))
    if not sound or any(before >= after for before, after in zip(node.keys, node.keys[1:], strict=False)):
        raise Corrupt(f"node {identifier} has keys out of order, or something else than keys and values")
    cutter = Cutter(node.level)
    for key, value in zip(node.keys, node.values, strict=True):
        cutter.feed(key, value)
    closed = cutter.at_boundary
    cutter.finish()
    if [made for _, made in cutter.nodes] != [data]:
        raise Corrupt(f"node {identifier} is not cut or encoded as its content calls for")
    return _Shape(node.level, node.level > 0 and len(node.keys) == 1, node.keys[0], node.keys[-1], closed)
