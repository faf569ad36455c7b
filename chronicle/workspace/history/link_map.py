"""The map of hard-linked files of a commit: from an inode number (8 bytes, big-endian) to the paths of its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgpack

from chronicle.workspace.trees import nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId

__all__ = ["inodes", "paths", "update"]


def update(
    buffer: nodes.NodeBuffer, root: BlobId | None, changed: Mapping[int, Iterable[bytes] | None]
) -> BlobId | None:
    """Return the root of the map with the paths of some inodes put, or the inode removed (``None``)."""
    edits: dict[bytes, bytes | None] = {}
    for ino, paths in changed.items():
        edits[ino.to_bytes(8, "big")] = msgpack.packb(sorted(paths)) if paths is not None else None
    return nodes.update(buffer, root, edits)


def inodes(reader: BlobReader, root: BlobId | None) -> Iterator[int]:
    """Yield the inode numbers that the map has, ascending."""
    for key, _ in nodes.items(reader, root):
        yield int.from_bytes(key, "big")


def paths(reader: BlobReader, root: BlobId | None, ino: int) -> list[bytes]:
    """Return the paths of a file that has several, ascending; empty for one that has not."""
    value = nodes.lookup(reader, root, ino.to_bytes(8, "big")) if root is not None else None
    return list(msgpack.unpackb(value)) if value is not None else []
