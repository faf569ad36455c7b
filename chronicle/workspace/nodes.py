"""A persistent ordered map of bytes to bytes, made of blobs, whose root depends on its content alone.

Directories, chunk lists and operation logs are such maps. Items, sorted by key, are cut into *nodes*; nodes are listed
by their last keys in nodes of the level above, up to one *root*. Where a node ends is decided by its content only
(`Cutter`), never by the order of edits, so equal content has an equal root, whoever built it and however. An edit
rewrites the nodes it touches and the path above them; rarely it shifts a boundary, and then the nodes up to the next
boundary that both versions share. The empty map has no node: its root is ``None``.

The format of a node, in bytes, is in docs/internals/trees.md; it is part of every tree id and never changes without a
new version byte. This module does no I/O of its own and knows nothing of files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import msgpack
from blake3 import blake3

from chronicle.blobs.ident import RAW_ID_BYTES, blob_id, from_raw, to_raw
from chronicle.blobs.store import get_many
from chronicle.errors import Corrupt, UnsupportedFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from chronicle.blobs.store import BlobReader
    from chronicle.ids import BlobId

__all__ = [
    "Cutter",
    "Node",
    "NodeBuffer",
    "build",
    "decode_node",
    "diff",
    "encode_node",
    "items",
    "lookup",
    "lookup_many",
    "update",
    "walk",
]

FORMAT: Final = 1
"""The first byte of every node."""
MIN_NODE_BYTES: Final = 1024
"""No node ends before this size, the last of its level excepted: a parent entry costs about 50 bytes."""
MAX_NODE_BYTES: Final = 16 * 1024
"""A node ends once it has this size, whatever its keys: names chosen to avoid every boundary gain nothing."""
_BOUNDARY_MASK: Final = 31
"""One key in 32 may end a node. With 60 bytes an item nodes have about 3 KB: a change of one file in a directory of
100,000 rewrites three of them."""
_MIN_ITEMS: Final = 2
"""Each level has at most half the nodes of the one below, however large the keys, so the levels end."""
_TOGETHER: Final = 64
"""Nodes that are read at once when a map is read in order: 200 KB. They mostly lie side by side."""
_HELD_BYTES: Final = 4 * 1024 * 1024
"""So much of new nodes is added to the buffer at once by `build`, for nodes that lie side by side are read together."""
_ITEM_OVERHEAD: Final = 4
"""What msgpack adds to a key and a value of usual length."""


class NodeBuffer(Protocol):
    """What writing a map needs; `chronicle.blobs.buffer.BlobBuffer` is one."""

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes, pending or stored."""
        ...

    def add(self, data: bytes) -> BlobId:
        """Take a blob and return its id."""
        ...


@dataclass(frozen=True, slots=True)
class Node:
    """One node, decoded."""

    level: int
    """0 for items; above, each item is the last key of a node one level down and that node's raw id."""
    keys: Sequence[bytes]
    """Ascending, no two equal, never empty in a stored map."""
    values: Sequence[bytes]
    """As many as `keys`."""

    def child(self, index: int) -> BlobId:
        """Return the id of a child of a node above level 0."""
        return from_raw(self.values[index])


def encode_node(level: int, keys: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    """Return the canonical bytes of a node."""
    packed: bytes = msgpack.packb((level, keys, values), use_bin_type=True)
    return bytes((FORMAT,)) + packed


def decode_node(data: bytes) -> Node:
    """Return the node that these bytes are.

    Raises:
        UnsupportedFormat: written by a newer version.
        Corrupt: not a node.
    """
    if data[:1] != bytes((FORMAT,)):
        if data and FORMAT < data[0] < 0x20:  # version bytes stay below the printable ones
            raise UnsupportedFormat(f"a tree node has format {data[0]}; this code reads {FORMAT}: upgrade podium")
        raise Corrupt(f"blob {blob_id(data)} is not a tree node")
    try:
        level, keys, values = msgpack.unpackb(memoryview(data)[1:], use_list=False, raw=False)
        sound = isinstance(level, int) and isinstance(keys, tuple) and len(keys) == len(values)
        if sound and level > 0:
            sound = all(len(value) == RAW_ID_BYTES for value in values)
    except (ValueError, TypeError, msgpack.UnpackException):
        sound = False
    if not sound:
        raise Corrupt(f"blob {blob_id(data)} is not a tree node")
    return Node(level, keys, values)


def lookup(reader: BlobReader, root: BlobId | None, key: bytes) -> bytes | None:
    """Return the value of a key, or ``None``. Reads one node a level."""
    while root is not None:
        node = decode_node(reader.get(root))
        index = bisect_left(node.keys, key)
        if index == len(node.keys):
            return None
        if node.level == 0:
            return node.values[index] if node.keys[index] == key else None
        root = node.child(index)
    return None


def lookup_many(reader: BlobReader, root: BlobId | None, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the values of those keys that are there; each node on the way is read once."""
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
    """Yield the items in key order, those after a key only if one is given. Reads nodes as it gets to them."""
    if root is None:
        return
    stack = [root]
    ready: dict[BlobId, bytes] = {}
    together = 1
    while stack:
        at = stack.pop()
        if at not in ready:  # more at once the further it goes: whoever wants a few items reads a few nodes
            ready.update(get_many(reader, [at, *reversed(stack[max(0, len(stack) - together + 1) :])]))
            together = min(2 * together, _TOGETHER)
        node = decode_node(ready.pop(at))
        start = 0 if after is None else bisect_right(node.keys, after)
        if node.level == 0:
            yield from zip(node.keys[start:], node.values[start:], strict=True)
        else:
            stack.extend(node.child(index) for index in range(len(node.keys) - 1, start - 1, -1))


def walk(reader: BlobReader, root: BlobId | None, seen: set[BlobId]) -> Iterator[tuple[BlobId, Node]]:
    """Yield the nodes that are not in ``seen``, parents first, and add them to it; below a seen one none is read."""
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


def build(buffer: NodeBuffer, pairs: Iterable[tuple[bytes, bytes]]) -> BlobId | None:
    """Return the root of the map of these items, ascending by key; the same as an `update` of the empty map.

    Memory is bounded if the buffer's is: nodes are added as they are finished.
    """
    work = _Build(buffer)
    for key, value in pairs:
        work.feed(0, key, value)
    return work.finish()


def update(buffer: NodeBuffer, root: BlobId | None, edits: Mapping[bytes, bytes | None]) -> BlobId | None:
    """Return the root of the map with edits made: a value puts a key, ``None`` removes it (if it is there).

    New nodes are added to the buffer and nowhere else. Costs edits times levels in nodes read and written; edits that
    change nothing write nothing.
    """
    if not edits:
        return root
    if root is None:
        return build(buffer, ((key, value) for key, value in sorted(edits.items()) if value is not None))
    return _Edit(buffer).apply(root, sorted(edits.items()))


def diff(
    reader: BlobReader, old: BlobId | None, new: BlobId | None
) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Yield ``(key, old value, new value)`` where two maps differ, in key order; ``None`` where the key is not there.

    Nodes that both maps share are not read: the cost is in proportion to the difference.
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
    """One side of a `diff`: what of a map is still to be compared, as items and unopened nodes, in key order.

    ``level`` is that of the first: -1 if there is none, 0 for an item, n for a node whose level is n - 1.
    """

    def __init__(self, reader: BlobReader, root: BlobId | None) -> None:
        self._reader = reader
        self._stack: list[tuple[int, bytes, bytes]] = []
        self.level, self.key, self.value = -1, b"", b""
        if root is not None:
            self._push(decode_node(reader.get(root)))
            self.skip()

    def skip(self) -> None:
        """Drop the first."""
        self.level, self.key, self.value = self._stack.pop() if self._stack else (-1, b"", b"")

    def open(self) -> None:
        """Put the content of the first, a node, in its place."""
        self._push(decode_node(self._reader.get(from_raw(self.value))))
        self.skip()

    def _push(self, node: Node) -> None:
        pairs = zip(reversed(node.keys), reversed(node.values), strict=True)
        self._stack.extend((node.level, key, value) for key, value in pairs)


class Cutter:
    """Cuts the sorted items of one level into nodes.

    A node ends after an item if it has at least `MIN_NODE_BYTES` and `_MIN_ITEMS` and the hash of the item's key says
    so, or when it reaches `MAX_NODE_BYTES`. The hash is salted with the level, for else a key that ends a node on one
    level would on the next as well. The decision depends on the node's own items only; after a boundary nothing of
    the past counts, which is what lets an edit stop at the first boundary that the old version has too.
    """

    def __init__(self, level: int) -> None:
        self._level = level
        self._salt = bytes((level,))
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._size = 0
        self.nodes: list[tuple[bytes, bytes]] = []
        """``(last key, encoded node)`` of each finished node."""

    @property
    def at_boundary(self) -> bool:
        """Whether no node has been begun."""
        return not self._keys

    def feed(self, key: bytes, value: bytes) -> None:
        """Take the next item."""
        self._keys.append(key)
        self._values.append(value)
        self._size += len(key) + len(value) + _ITEM_OVERHEAD
        if (
            self._size >= MIN_NODE_BYTES
            and len(self._keys) >= _MIN_ITEMS
            and (self._size >= MAX_NODE_BYTES or blake3(self._salt + key).digest(length=1)[0] & _BOUNDARY_MASK == 0)
        ):
            self.finish()

    def finish(self) -> None:
        """End the node that was begun, if one was: the level ends here."""
        if self._keys:
            self.nodes.append((self._keys[-1], encode_node(self._level, self._keys, self._values)))
            self._keys, self._values, self._size = [], [], 0


class _Build:
    """One `build`: a node of each level, and finished ones that the buffer does not have yet."""

    def __init__(self, buffer: NodeBuffer) -> None:
        self._buffer = buffer
        self._cutters: list[Cutter] = []
        self._counts: list[int] = []
        """How many nodes of each level are finished."""
        self._root: bytes | None = None
        """The raw id of the last finished node."""
        self._made: list[bytes] = []
        self._made_bytes = 0

    def feed(self, level: int, key: bytes, value: bytes) -> None:
        """Take the next item of a level."""
        if level == len(self._cutters):
            self._cutters.append(Cutter(level))
            self._counts.append(0)
        cutter = self._cutters[level]
        cutter.feed(key, value)
        if cutter.nodes:
            self._lift(level)

    def finish(self) -> BlobId | None:
        """End all levels and return the root."""
        level = 0
        while level < len(self._cutters):
            self._cutters[level].finish()
            if self._cutters[level].nodes:
                self._lift(level)
            if self._counts[level] == 1:  # alone on its level, so it is the root; above is nothing but its item
                break
            level += 1
        self._add()
        return from_raw(self._root) if self._root is not None else None

    def _lift(self, level: int) -> None:
        """Take the finished nodes of a level, and make them items of the one above."""
        cutter = self._cutters[level]
        finished, cutter.nodes = cutter.nodes, []
        for key, data in finished:
            self._made.append(data)
            self._made_bytes += len(data)
            if self._made_bytes > _HELD_BYTES:
                self._add()
            self._root = raw = blake3(data).digest()
            self._counts[level] += 1
            self.feed(level + 1, key, raw)

    def _add(self) -> None:
        for data in self._made:
            self._buffer.add(data)
        self._made, self._made_bytes = [], 0


class _Edit:
    """One `update`: the nodes it has read, and those it made and has not handed to the buffer yet."""

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
        """Edit one level below the root's; return the edits that follow for the level above."""
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
    """A place in one level of a map: the node that holds a key, or would; from there it goes right."""

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
        """Whether no node of this level is to the right."""
        return all(index == len(node.keys) - 1 for node, index in self._path)

    def advance(self) -> None:
        """Go to the next node of the level; there must be one."""
        depth = len(self._path) - 1
        while self._path[depth][1] == len(self._path[depth][0].keys) - 1:
            depth -= 1
        node, index = self._path[depth]
        self._path[depth] = (node, index + 1)
        for below in range(depth + 1, len(self._path)):
            parent, at = self._path[below - 1]
            self._path[below] = (self._edit.node(parent.child(at)), 0)


def _merged(node: Node, edits: Iterable[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes]]:
    """Return a node's items with edits made, in order."""
    content = dict(zip(node.keys, node.values, strict=True))
    in_order = True
    for key, value in edits:
        if value is None:
            content.pop(key, None)
        else:
            in_order = in_order and key in content
            content[key] = value
    return list(content.items()) if in_order else sorted(content.items())
