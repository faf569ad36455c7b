"""The encoding of one node. The format is in docs/internals/trees.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgpack

from chronicle.blobs.ident import RAW_ID_BYTES, blob_id, from_raw
from chronicle.errors import Corrupt, UnsupportedFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import BlobId

__all__ = ["Node", "decode_node", "encode_node"]

FORMAT: Final = 1
"""The first byte of every node."""


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
    """Decode a node.

    Raises:
        UnsupportedFormat: written by a newer version.
        Corrupt: not a node.
    """
    if data[:1] != bytes((FORMAT,)):
        if data and FORMAT < data[0] < 0x20:  # version bytes stay below the printable ones
            raise UnsupportedFormat(f"a tree node has format {data[0]}; this code reads {FORMAT}")
        raise Corrupt(f"blob {blob_id(data)} is not a tree node")
    try:
        level, keys, values = msgpack.unpackb(memoryview(data)[1:], use_list=False, raw=False)
        sound = isinstance(level, int) and isinstance(keys, tuple) and len(keys) == len(values)
        if sound and level > 0:
            sound = set(map(len, values)) <= {RAW_ID_BYTES}
    except (ValueError, TypeError, msgpack.UnpackException):
        sound = False
    if not sound:
        raise Corrupt(f"blob {blob_id(data)} is not a tree node")
    return Node(level, keys, values)
