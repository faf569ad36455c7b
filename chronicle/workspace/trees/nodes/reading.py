"""Reads maps: by key, in order, node by node, and the difference of two."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from chronicle.blobs.ident import from_raw
from chronicle.blobs.port import get_many
from chronicle.workspace.trees.nodes.node import Node, decode_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId

__all__ = ["NodeCache", "diff", "items", "lookup", "lookup_many", "walk"]

_KEPT_NODES: Final = 8
"""Two paths from the root of a map of four levels to its leaves."""
_TOGETHER: Final = 64
"""Nodes in one batch when a map is read in order: 200 KB. They mostly lie side by side in a pack."""


def lookup(reader: BlobReader, root: BlobId | None, key: bytes) -> bytes | None:
    """Return the value of a key, or ``None``. Reads one node a level."""
    return _value(lambda identifier: decode_node(reader.get(identifier)), root, key)


class NodeCache:
    """Looks up keys and caches the decoded nodes it used last: a look-up of the next key in order costs little.

    Args:
        reader: where nodes are read.
        most: how many nodes are cached, some 10 KB each. A look-up uses one a level of its map.
    """

    def __init__(self, reader: BlobReader, most: int = _KEPT_NODES) -> None:
        self._reader = reader
        self._kept: LRUCache[BlobId, Node] = LRUCache(most)

    def lookup(self, root: BlobId | None, key: bytes) -> bytes | None:
        """Return the value of a key in the map of this root, or ``None``."""
        return _value(self._node, root, key)

    def after(self, root: BlobId | None, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the first item with a greater key in the map of this root."""
        found = _find(self._node, root, key, bisect_right)
        if found is None:
            return None
        node, index = found
        return node.keys[index], node.values[index]

    def _node(self, identifier: BlobId) -> Node:
        node = self._kept.get(identifier)
        if node is None:
            node = self._kept[identifier] = decode_node(self._reader.get(identifier))
        return node


def _value(read: Callable[[BlobId], Node], root: BlobId | None, key: bytes) -> bytes | None:
    found = _find(read, root, key, bisect_left)
    if found is None:
        return None
    node, index = found
    return node.values[index] if node.keys[index] == key else None


def _find(
    read: Callable[[BlobId], Node],
    root: BlobId | None,
    key: bytes,
    bisect: Callable[[Sequence[bytes], bytes], int],
) -> tuple[Node, int] | None:
    """Return the leaf and the index in it where a map is bisected; ``None`` behind its last key.

    A node's key is the last one of its child, so the first key that is not smaller leads down.
    """
    while root is not None:
        node = read(root)
        index = bisect(node.keys, key)
        if index == len(node.keys):
            return None
        if node.level == 0:
            return node, index
        root = node.child(index)
    return None


def lookup_many(reader: BlobReader, root: BlobId | None, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the values of those keys that exist; each node on the way is read once."""
    found: dict[bytes, bytes] = {}
    if root is None:
        return found
    todo = [(root, sorted(set(keys)))]
    while todo:
        at, wanted = todo.pop()
        if not wanted:
            continue
        node = decode_node(reader.get(at))
        start = 0
        while start < len(wanted):
            index = bisect_left(node.keys, wanted[start])
            if index == len(node.keys):
                break
            if node.level == 0:
                if node.keys[index] == wanted[start]:
                    found[wanted[start]] = node.values[index]
                start += 1
            else:
                end = bisect_right(wanted, node.keys[index], start)
                todo.append((node.child(index), wanted[start:end]))
                start = end
    return found


def items(reader: BlobReader, root: BlobId | None, after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Yield the items in key order, from the first key after ``after`` on. Nodes are read as they are reached."""
    if root is None:
        return
    stack = [root]
    ready: dict[BlobId, bytes] = {}
    together = 1
    while stack:
        at = stack.pop()
        if at not in ready:  # batches grow, so a caller that stops after a few items has read a few nodes
            ready.update(get_many(reader, [at, *reversed(stack[max(0, len(stack) - together + 1) :])]))
            together = min(2 * together, _TOGETHER)
        node = decode_node(ready.pop(at))
        start = 0 if after is None else bisect_right(node.keys, after)
        if node.level == 0:
            yield from zip(node.keys[start:], node.values[start:], strict=True)
        else:
            stack.extend(node.child(index) for index in range(len(node.keys) - 1, start - 1, -1))


def walk(reader: BlobReader, root: BlobId | None, seen: set[BlobId]) -> Iterator[tuple[BlobId, Node]]:
    """Yield the nodes that are not in ``seen``, parents first, and add them to it; a seen subtree is not read."""
    stack = [] if root is None else [root]
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        seen.add(at)
        node = decode_node(reader.get(at))
        yield at, node
        if node.level > 0:
            stack.extend(node.child(index) for index in range(len(node.keys) - 1, -1, -1))


def diff(
    reader: BlobReader, old: BlobId | None, new: BlobId | None
) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Yield ``(key, old value, new value)`` where two maps differ, in key order; ``None`` for an absent key.

    Nodes that both maps share are not read: the cost is proportional to the difference.
    """
    if old == new:
        return
    left, right = _Frontier(reader, old), _Frontier(reader, new)
    while True:
        a, b = left.level, right.level
        if a < 0 and b < 0:
            return
        if a > 0 or b > 0:
            if a == b and left.value == right.value:
                left.skip()
                right.skip()
                continue
            if a >= b:
                left.open()
            if b >= a:
                right.open()
            continue
        if b < 0 or (a == 0 and left.key < right.key):
            yield left.key, left.value, None
            left.skip()
        elif a < 0 or right.key < left.key:
            yield right.key, None, right.value
            right.skip()
        else:
            if left.value != right.value:
                yield left.key, left.value, right.value
            left.skip()
            right.skip()


class _Frontier:
    """One side of a `diff`: the rest of a map that is not compared yet, as items and unread nodes, in key order.

    ``level`` is that of the first one: -1 at the end, 0 for an item, n for a node of level n - 1.
    """

    def __init__(self, reader: BlobReader, root: BlobId | None) -> None:
        self._reader = reader
        self._stack: list[tuple[int, bytes, bytes]] = []
        self.level, self.key, self.value = -1, b"", b""
        if root is not None:
            self._push(decode_node(reader.get(root)))
            self.skip()

    def skip(self) -> None:
        """Drop the first one."""
        self.level, self.key, self.value = self._stack.pop() if self._stack else (-1, b"", b"")

    def open(self) -> None:
        """Replace the first one, a node, by its content."""
        self._push(decode_node(self._reader.get(from_raw(self.value))))
        self.skip()

    def _push(self, node: Node) -> None:
        pairs = zip(reversed(node.keys), reversed(node.values), strict=True)
        self._stack.extend((node.level, key, value) for key, value in pairs)
