"""Node boundaries: a function of content alone, so that equal content has an equal root."""

from __future__ import annotations

from typing import Final

from blake3 import blake3

from chronicle.workspace.trees.nodes.node import encode_node

__all__ = ["MAX_NODE_BYTES", "Cutter"]

MIN_NODE_BYTES: Final = 1024
"""No node ends before this size, the last of its level excepted: a parent entry costs about 50 bytes."""
MAX_NODE_BYTES: Final = 16 * 1024
"""A node ends once it has this size, whatever its keys: names chosen to avoid every boundary gain nothing."""
_BOUNDARY_MASK: Final = 31
"""One key in 32 may end a node. With 60 bytes an item nodes have about 3 KB: a change of one file in a directory of
100,000 rewrites three of them."""
_MIN_ITEMS: Final = 2
"""Each level has at most half the nodes of the one below, however large the keys, so the levels end."""
_ITEM_OVERHEAD: Final = 4
"""The bytes that msgpack adds to a key and a value of usual length."""


class Cutter:
    """Cuts the sorted items of one level into nodes.

    A node ends after an item if it has at least `MIN_NODE_BYTES` and `_MIN_ITEMS` and the hash of the item's key
    selects it, or when it reaches `MAX_NODE_BYTES`. The hash is salted with the level; otherwise a key that ends a node
    on one level would end one on the next level too. The decision depends on the node's own items only and on nothing
    before a boundary, so an edit can stop at the first boundary that the old version has too.
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
        """Whether no node is open."""
        return not self._keys

    def feed(self, key: bytes, value: bytes) -> None:
        """Add the next item."""
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
        """End the open node, if any: the level ends here."""
        if self._keys:
            self.nodes.append((self._keys[-1], encode_node(self._level, self._keys, self._values)))
            self._keys, self._values, self._size = [], [], 0
