"""The format of a pack: many blobs in one object, written once, never changed. Pure; knows no store.

    magic and version, 8 bytes
    the blobs, one after the other, each as it is or as one zstd frame
    the index: an entry of 49 bytes for each blob, ascending by id
    the trailer, 36 bytes: where the index begins, how many entries it has, its checksum, magic

Numbers are big-endian. A blob is checked against its id when it is read, the index against the trailer's checksum, so
a pack that was cut short or damaged is noticed. docs/internals/trees.md has the bytes.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import zstandard
from blake3 import blake3

from chronicle.blobs.ident import blob_id, from_raw, to_raw
from chronicle.errors import Corrupt, UnsupportedFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.ids import BlobId

__all__ = [
    "ENTRY_BYTES",
    "HEAD",
    "TRAILER_BYTES",
    "PackEntry",
    "encode_pack",
    "index_start",
    "pack_entries",
    "read_index",
    "unpack_blob",
    "unpack_entries",
]

_MAGIC: Final = b"CHRPACK"
_END_MAGIC: Final = b"CHRPEND"
FORMAT: Final = 1
HEAD: Final = _MAGIC + bytes((FORMAT,))
"""The first bytes of every pack."""
_END: Final = _END_MAGIC + bytes((FORMAT,))
_ENTRY: Final = struct.Struct(">32sQIIB")
ENTRY_BYTES: Final = _ENTRY.size
_TRAILER: Final = struct.Struct(">QI16s8s")
TRAILER_BYTES: Final = _TRAILER.size
_AS_IS, _ZSTD = 0, 1
_WORTH: Final = 16
"""Compression must save one part in 16: else reading pays for nothing."""
_ZSTD_LEVEL: Final = 1
"""400 MB/s at a ratio of about 4 on text; the next levels halve the speed for a few per cent."""
_SMALLEST: Final = 48
"""Below this many bytes a zstd frame saves nothing."""

_local = threading.local()  # zstd contexts are not safe to share between threads, and costly to make


@dataclass(frozen=True, slots=True)
class PackEntry:
    """Where a blob lies in its pack."""

    raw_id: bytes
    """Its id, 32 bytes."""
    offset: int
    """Of its first stored byte in the pack."""
    stored: int
    """Stored bytes."""
    size: int
    """Bytes of the blob itself."""
    codec: int
    """0: as it is, 1: a zstd frame."""


def encode_pack(blobs: Mapping[BlobId, bytes]) -> tuple[list[bytes], list[PackEntry]]:
    """Return a pack as parts to write one after the other, and its entries, ascending by id."""
    compressor = _compressor()
    parts = [HEAD]
    entries = []
    offset = len(HEAD)
    for identifier, data in blobs.items():
        stored, codec = data, _AS_IS
        if len(data) >= _SMALLEST:
            frame = compressor.compress(data)
            if len(frame) <= len(data) - len(data) // _WORTH:
                stored, codec = frame, _ZSTD
        parts.append(stored)
        entries.append(PackEntry(to_raw(identifier), offset, len(stored), len(data), codec))
        offset += len(stored)
    entries.sort(key=lambda entry: entry.raw_id)
    index = pack_entries(entries)
    parts.extend((index, _TRAILER.pack(offset, len(entries), blake3(index).digest(length=16), _END)))
    return parts, entries


def pack_entries(entries: list[PackEntry]) -> bytes:
    """Return entries as the bytes of an index."""
    return b"".join(_ENTRY.pack(entry.raw_id, entry.offset, entry.stored, entry.size, entry.codec) for entry in entries)


def unpack_entries(index: bytes) -> list[PackEntry]:
    """Return the entries that the bytes of an index hold."""
    return [PackEntry(*fields) for fields in _ENTRY.iter_unpack(index)]


def index_start(name: str, size: int, tail: bytes) -> int:
    """Return where a pack's index begins.

    Args:
        name: the pack's, for messages.
        size: of the whole pack, bytes.
        tail: its last bytes, the trailer at least.

    Raises:
        UnsupportedFormat: written by a newer version.
        Corrupt: these are not the last bytes of a pack of that size.
    """
    if size < len(HEAD) + TRAILER_BYTES or len(tail) < TRAILER_BYTES:
        raise Corrupt(f"pack {name} is cut short: {size} bytes")
    start, count, _, end = _TRAILER.unpack_from(tail, len(tail) - TRAILER_BYTES)
    if end != _END:
        if end.startswith(_END_MAGIC) and end[-1] > FORMAT:
            raise UnsupportedFormat(f"pack {name} has format {end[-1]}; this code reads {FORMAT}: upgrade podium")
        raise Corrupt(f"pack {name} is cut short or damaged: it has no trailer")
    if start + count * ENTRY_BYTES + TRAILER_BYTES != size:
        raise Corrupt(f"pack {name} is damaged: its trailer does not fit its size of {size} bytes")
    return int(start)


def read_index(name: str, index_and_trailer: bytes) -> list[PackEntry]:
    """Return a pack's entries, from its bytes from the start of the index to the end.

    Raises:
        Corrupt: the index is not what was written.
    """
    index = index_and_trailer[:-TRAILER_BYTES]
    checksum = _TRAILER.unpack_from(index_and_trailer, len(index))[2]
    if blake3(index).digest(length=16) != checksum:
        raise Corrupt(f"pack {name} is damaged: its index has another checksum than when it was written")
    return unpack_entries(index)


def unpack_blob(name: str, entry: PackEntry, stored: bytes) -> bytes:
    """Return a blob from its stored bytes, checked against its id.

    Raises:
        Corrupt: the bytes are not what was written; the message names pack and blob.
    """
    identifier = from_raw(entry.raw_id)
    data = stored
    if entry.codec == _ZSTD:
        try:
            if zstandard.frame_content_size(stored) != entry.size:  # checked first: that much memory would be taken
                raise Corrupt(f"blob {identifier} in pack {name} is damaged: its frame has another size")
            data = _decompressor().decompress(stored, max_output_size=entry.size)
        except zstandard.ZstdError as error:
            raise Corrupt(f"blob {identifier} in pack {name} is damaged: {error}") from error
    elif entry.codec != _AS_IS:
        raise Corrupt(f"blob {identifier} in pack {name} has the unknown codec {entry.codec}")
    if len(data) != entry.size or blob_id(data) != identifier:
        raise Corrupt(f"blob {identifier} in pack {name} has other bytes than when it was written")
    return data


def _compressor() -> zstandard.ZstdCompressor:
    made: zstandard.ZstdCompressor | None = getattr(_local, "compressor", None)
    if made is None:
        made = _local.compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL)
    return made


def _decompressor() -> zstandard.ZstdDecompressor:
    made: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if made is None:
        made = _local.decompressor = zstandard.ZstdDecompressor()
    return made
