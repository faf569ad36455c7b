"""References to the content of files, and the chunk lists that large ones consist of.

Up to `WHOLE_BYTES` content is one blob. Above, its chunks are listed in a map of `chronicle.workspace.trees.nodes`: the
key is the offset at which a chunk ends (8 bytes, big-endian), the value its length (4 bytes, big-endian) and raw id. So
the list itself is split into blobs: a change in a file of 1 GiB rewrites two or three list nodes, not 16,000 entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.blobs.ident import RAW_ID_BYTES, from_raw, to_raw
from chronicle.errors import Corrupt, NotFound
from chronicle.workspace.trees import nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId

__all__ = [
    "WHOLE_BYTES",
    "Chunk",
    "Content",
    "bytes_added",
    "chunk_list",
    "chunks_in",
    "encode_end",
    "encode_place",
    "end_offset",
]

WHOLE_BYTES: Final = 64 * 1024
"""Content up to this size is one blob: chunking it would cost more than it could save."""
_OFFSET_BYTES: Final = 8
_LENGTH_BYTES: Final = 4
_MAX_COMPARED: Final = 64 * 1024
"""New chunks, 4 GiB, from which on a content counts as new as a whole, and as many old ones: each 10 MiB of memory."""


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file, by reference."""

    id: BlobId
    """The blob of the bytes, or the root of the chunk list."""
    size: int
    """Bytes."""
    chunked: bool
    """Whether ``id`` is a chunk list; exactly when ``size`` is above `WHOLE_BYTES`."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk of a large file."""

    start: int
    """Where it begins in the file, bytes."""
    end: int
    """Where it ends, bytes."""
    id: BlobId
    """The blob of its bytes."""


def chunk_list(reader: BlobReader, content: Content, offset: int = 0) -> Iterator[Chunk]:
    """Yield the chunks of chunked content, from the one that holds ``offset`` on. Reads list nodes as it goes."""
    for key, value in nodes.items(reader, content.id, after=encode_end(offset)):
        yield _chunk(key, value)


def bytes_added(reader: BlobReader, before: Content | None, content: Content) -> int:
    """Return the bytes of the chunks of content that the content before it does not have.

    The cost is proportional to the difference. Of small content, of one that differs nearly everywhere in many
    gigabytes, and of one before which the store has lost what it was, all bytes count.
    """
    if before is None or not (before.chunked and content.chunked):
        return content.size
    removed: set[bytes | None] = set()
    added: set[bytes] = set()
    try:
        for _, old, new in nodes.diff(reader, before.id, content.id):
            if len(removed) < _MAX_COMPARED:  # what was moved from behind them counts as new
                removed.add(old)
            if new is not None:
                added.add(new)
                if len(added) > _MAX_COMPARED:
                    return content.size
    except (NotFound, Corrupt):
        return content.size
    return sum(int.from_bytes(place[:_LENGTH_BYTES], "big") for place in added - removed)


def chunks_in(node: nodes.Node) -> list[Chunk]:
    """Return the chunks that a node of level 0 of a chunk list names.

    Raises:
        Corrupt: it is no such node.
    """
    return [_chunk(key, value) for key, value in zip(node.keys, node.values, strict=True)]


def end_offset(key: bytes) -> int:
    """Return the offset, in bytes, that a key of a chunk list stands for."""
    return int.from_bytes(key, "big")


def encode_end(end: int) -> bytes:
    """Return the key of the chunk that ends at an offset."""
    return end.to_bytes(_OFFSET_BYTES, "big")


def encode_place(length: int, identifier: BlobId) -> bytes:
    """Return the value of a chunk of so many bytes."""
    return length.to_bytes(_LENGTH_BYTES, "big") + to_raw(identifier)


def _chunk(key: bytes, value: bytes) -> Chunk:
    if len(key) != _OFFSET_BYTES or len(value) != _LENGTH_BYTES + RAW_ID_BYTES:
        raise Corrupt(f"a chunk list has an entry of {len(key)} and {len(value)} bytes")
    end = end_offset(key)
    return Chunk(end - int.from_bytes(value[:_LENGTH_BYTES], "big"), end, from_raw(value[_LENGTH_BYTES:]))
