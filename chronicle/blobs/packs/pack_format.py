"""The pack format: many blobs in one immutable object. Pure; knows no store.

    magic and version, 8 bytes
    the blobs, one after the other, each raw or as one zstd frame, or several similar ones in one frame
    the index: an entry of 49 bytes for each blob, ascending by id
    the links: names of 26 bytes of packs that it follows, of other earlier packs, and of index segments
    the trailer, 50 bytes: where the index begins, the numbers of its entries and of the links of each kind, when the
        pack was made, a checksum of index, links and these numbers, magic

The links of a far store's pack name what else its reader may need (`chronicle.blobs.packs.links`); other packs have
none.

Blobs that share a frame (a *group*) have entries with the same range; the entry's codec is the blob's position in the
group. The frame contains their number, their sizes, and their bytes one after the other. A pack with groups has version
2; only gc writes those, because a read of one blob decompresses its group.

Numbers are big-endian. Each read checks the blob against its id and the index against the trailer's checksum, so a
truncated or damaged pack is detected. docs/internals/trees.md has the bytes.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import zstandard
from blake3 import blake3

from chronicle.blobs.ident import RAW_ID_BYTES, blob_id, from_raw, to_raw
from chronicle.errors import Corrupt, UnsupportedFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from chronicle.ids import BlobId

__all__ = [
    "ENTRY_BYTES",
    "GROUP_BLOBS",
    "GROUP_BYTES",
    "HEAD",
    "NAME_BYTES",
    "TRAILER_BYTES",
    "Links",
    "PackEntry",
    "PackIndex",
    "check_head",
    "encode_groups",
    "encode_index",
    "encode_pack",
    "index_start",
    "iter_entries",
    "iter_raw_ids",
    "pack_entries",
    "pack_size",
    "read_index",
    "unpack_blob",
    "unpack_entries",
    "unpack_group",
]

_MAGIC: Final = b"CHRPACK"
_END_MAGIC: Final = b"CHRPEND"
FORMAT: Final = 1
"""The version of packs without groups."""
FORMAT_GROUPS: Final = 2
HEAD: Final = _MAGIC + bytes((FORMAT,))
"""The first bytes of a pack without groups; those of one with groups differ in the last of them."""
_ENDS: Final = {_END_MAGIC + bytes((number,)) for number in (FORMAT, FORMAT_GROUPS)}
_ENTRY: Final = struct.Struct(">32sQIIB")
ENTRY_BYTES: Final = _ENTRY.size
_NUMBERS: Final = struct.Struct(">QIHHHQ")
_TRAILER: Final = struct.Struct(f"{_NUMBERS.format}16s8s")
TRAILER_BYTES: Final = _TRAILER.size
NAME_BYTES: Final = 26
"""The length of a pack's and a segment's name."""
_AS_IS, _ZSTD, _FIRST_OF_GROUP = 0, 1, 2
GROUP_BLOBS: Final = 64
"""Most blobs of a group: the codec is one byte."""
GROUP_BYTES: Final = 128 * 1024
"""Most bytes of a group of more than one blob: decompressing them takes 0.1 ms."""
_SIZE: Final = struct.Struct(">I")
_LARGEST_GROUP: Final = GROUP_BYTES + 1 + GROUP_BLOBS * _SIZE.size
_WORTH: Final = 16
"""Compression must save one part in 16, to be worth the decompression."""
_ZSTD_LEVEL: Final = 1
"""400 MB/s at a ratio of about 4 on text; the next levels halve the speed for a few per cent."""
_GROUP_LEVEL: Final = 9
"""For groups, which gc writes in the background: 60 MB/s, a fifth smaller."""
_SMALLEST: Final = 48
"""Below this many bytes a zstd frame saves nothing."""

_local = threading.local()  # zstd contexts are not safe to share between threads, and costly to make


@dataclass(frozen=True, slots=True)
class PackEntry:
    """Where a blob lies in its pack."""

    raw_id: bytes
    """Its id, 32 bytes."""
    offset: int
    """Offset of its first stored byte in the pack."""
    stored: int
    """Number of stored bytes."""
    size: int
    """Number of bytes of the blob itself."""
    codec: int
    """0: raw; 1: a zstd frame; 2 and more: the first, second, … blob of a group."""


@dataclass(frozen=True, slots=True)
class Links:
    """Names that a pack gives to its readers."""

    follows: tuple[str, ...] = ()
    """Of the packs whose keys this pack's key refers to."""
    packs: tuple[str, ...] = ()
    """Of other earlier packs that no index has."""
    segments: tuple[str, ...] = ()
    """Of index segments."""


@dataclass(frozen=True, slots=True)
class PackIndex:
    """All of a pack but its blobs."""

    entries: list[PackEntry]
    """Ascending by id."""
    links: Links = Links()
    made_ms: int = 0
    """When the pack was made, epoch milliseconds."""


def encode_pack(
    blobs: Mapping[BlobId, bytes],
    made_ms: int = 0,
    links: Links = Links(),
) -> tuple[list[bytes], list[PackEntry]]:
    """Return a pack as parts to write one after the other, and its entries, ascending by id."""
    compressor = _compressor(_ZSTD_LEVEL)
    parts = [HEAD]
    entries = []
    offset = len(HEAD)
    for identifier, data in blobs.items():
        stored, codec = _compressed(compressor, data)
        parts.append(stored)
        entries.append(PackEntry(to_raw(identifier), offset, len(stored), len(data), codec))
        offset += len(stored)
    return _finished(parts, PackIndex(entries, links, made_ms), FORMAT)


def encode_groups(groups: Iterable[Mapping[BlobId, bytes]], made_ms: int = 0) -> tuple[list[bytes], list[PackEntry]]:
    """Return a pack in which similar blobs share a frame; else as `encode_pack`.

    Args:
        groups: of one blob each, or of up to `GROUP_BLOBS` and `GROUP_BYTES`.
    """
    compressor = _compressor(_GROUP_LEVEL)
    parts = [_MAGIC + bytes((FORMAT_GROUPS,))]
    entries = []
    offset = len(HEAD)
    for group in groups:
        if len(group) > 1:
            sizes = b"".join(_SIZE.pack(len(data)) for data in group.values())
            stored, codec = (
                compressor.compress(b"".join((bytes((len(group),)), sizes, *group.values()))),
                _FIRST_OF_GROUP,
            )
        else:
            stored, codec = _compressed(compressor, *group.values())
        parts.append(stored)
        for number, (identifier, data) in enumerate(group.items()):
            entries.append(PackEntry(to_raw(identifier), offset, len(stored), len(data), codec + number))
        offset += len(stored)
    return _finished(parts, PackIndex(entries, made_ms=made_ms), FORMAT_GROUPS)


def _compressed(compressor: zstandard.ZstdCompressor, data: bytes) -> tuple[bytes, int]:
    """Return the stored bytes of a single blob, and the codec."""
    if len(data) >= _SMALLEST:
        frame = compressor.compress(data)
        if len(frame) <= len(data) - len(data) // _WORTH:
            return frame, _ZSTD
    return data, _AS_IS


def _finished(parts: list[bytes], index: PackIndex, version: int) -> tuple[list[bytes], list[PackEntry]]:
    """Append index, links and trailer to the blobs."""
    start = sum(map(len, parts))
    index.entries.sort(key=lambda entry: entry.raw_id)
    parts.append(encode_index(index, start, version))
    return parts, index.entries


def encode_index(index: PackIndex, start: int, version: int = FORMAT) -> bytes:
    """Return the end of a pack: index, links and trailer.

    Args:
        index: its entries are sorted.
        start: the offset of the index in the pack.
        version: of the pack.
    """
    links = (index.links.follows, index.links.packs, index.links.segments)
    body = pack_entries(index.entries) + "".join(chain(*links)).encode()
    numbers = _NUMBERS.pack(start, len(index.entries), *map(len, links), index.made_ms)
    return body + numbers + blake3(body + numbers).digest(length=16) + _END_MAGIC + bytes((version,))


def size_with(index: PackIndex) -> int:
    """Return the bytes of the pack that has an index."""
    links = len(index.links.follows) + len(index.links.packs) + len(index.links.segments)
    start = max((entry.offset + entry.stored for entry in index.entries), default=len(HEAD))
    return start + ENTRY_BYTES * len(index.entries) + NAME_BYTES * links + TRAILER_BYTES


def pack_entries(entries: list[PackEntry]) -> bytes:
    """Return entries as the bytes of an index."""
    return b"".join(_ENTRY.pack(entry.raw_id, entry.offset, entry.stored, entry.size, entry.codec) for entry in entries)


def unpack_entries(index: bytes) -> list[PackEntry]:
    """Return the entries that the bytes of an index hold."""
    return list(iter_entries(index))


def iter_entries(index: bytes) -> Iterator[PackEntry]:
    """Yield the entries that the bytes of an index hold."""
    return (PackEntry(*fields) for fields in _ENTRY.iter_unpack(index))


def iter_raw_ids(index: bytes) -> Iterator[bytes]:
    """Yield the raw ids of the entries that the bytes of an index hold."""
    return (index[at : at + RAW_ID_BYTES] for at in range(0, len(index), ENTRY_BYTES))


def pack_size(name: str, tail: bytes) -> int:
    """Return the size of a whole pack, given its last bytes.

    Args:
        name: the pack's, for messages.
        tail: its last bytes, the trailer at least.

    Raises:
        UnsupportedFormat: written by a newer version.
        Corrupt: these are not the last bytes of a pack.
    """
    return _index_range(name, tail)[1]


def index_start(name: str, size: int, tail: bytes) -> int:
    """Return the offset of a pack's index.

    Args:
        name: the pack's, for messages.
        size: of the whole pack, bytes.
        tail: its last bytes, the trailer at least.

    Raises:
        UnsupportedFormat: written by a newer version.
        Corrupt: these are not the last bytes of a pack of that size.
    """
    if size < len(HEAD) + TRAILER_BYTES:
        raise Corrupt(f"pack {name} is cut short: {size} bytes")
    start, end = _index_range(name, tail)
    if end != size:
        raise Corrupt(f"pack {name} is damaged: its trailer does not fit its size of {size} bytes")
    return start


def _index_range(name: str, tail: bytes) -> tuple[int, int]:
    """Return the offsets of the index and of the pack's end, as the trailer says."""
    if len(tail) < TRAILER_BYTES:
        raise Corrupt(f"pack {name} is cut short: {len(tail)} bytes")
    start, count, *links, _, _, end = _TRAILER.unpack_from(tail, len(tail) - TRAILER_BYTES)
    if end not in _ENDS:
        if end.startswith(_END_MAGIC) and end[-1] > FORMAT_GROUPS:
            raise UnsupportedFormat(f"pack {name} has format {end[-1]}; this code reads up to {FORMAT_GROUPS}")
        raise Corrupt(f"pack {name} is cut short or damaged: it has no trailer")
    return start, start + count * ENTRY_BYTES + sum(links) * NAME_BYTES + TRAILER_BYTES


def check_head(name: str, head: bytes, tail: bytes) -> None:
    """Check the first bytes of a pack whose trailer is valid.

    Raises:
        Corrupt: the bytes are damaged.
    """
    if head != _MAGIC + tail[-1:]:
        raise Corrupt(f"pack {name} is damaged: its first {len(HEAD)} bytes are not those of a pack of its format")


def read_index(name: str, end: bytes) -> PackIndex:
    """Return what a pack says of itself, from its bytes from the index to the end.

    Raises:
        Corrupt: the index is damaged.
    """
    body = end[:-TRAILER_BYTES]
    _, count, follows, packs, segments, made_ms, checksum, _ = _TRAILER.unpack_from(end, len(body))
    if blake3(end[: len(body) + _NUMBERS.size]).digest(length=16) != checksum:
        raise Corrupt(f"pack {name} is damaged: its index has another checksum than when it was written")
    cut = count * ENTRY_BYTES
    names = iter([body[at : at + NAME_BYTES].decode() for at in range(cut, len(body), NAME_BYTES)])
    links = Links(*(tuple(islice(names, number)) for number in (follows, packs, segments)))
    return PackIndex(unpack_entries(body[:cut]), links, made_ms)


def unpack_blob(name: str, entry: PackEntry, stored: bytes) -> bytes:
    """Return a blob from its stored bytes, checked against its id.

    Raises:
        Corrupt: the bytes are damaged; the message names pack and blob.
    """
    if entry.codec >= _FIRST_OF_GROUP:
        return _member(name, entry, _opened(name, entry, stored))
    identifier = from_raw(entry.raw_id)
    data = stored
    if entry.codec == _ZSTD:
        try:
            if zstandard.frame_content_size(stored) != entry.size:  # checked first: it decides on the allocated memory
                raise Corrupt(f"blob {identifier} in pack {name} is damaged: its frame has another size")
            data = _decompressor().decompress(stored, max_output_size=entry.size)
        except zstandard.ZstdError as error:
            raise Corrupt(f"blob {identifier} in pack {name} is damaged: {error}") from error
    return _checked(name, entry, data)


def unpack_group(name: str, entries: Iterable[PackEntry], stored: bytes) -> Iterator[tuple[PackEntry, bytes | Corrupt]]:
    """Yield the blobs of one range of a pack, or the error of a damaged one; a group is decompressed once."""
    group: bytes | None = None
    for entry in entries:
        try:
            if entry.codec < _FIRST_OF_GROUP:
                yield entry, unpack_blob(name, entry, stored)
                continue
            if group is None:
                group = _opened(name, entry, stored)
            yield entry, _member(name, entry, group)
        except Corrupt as error:
            yield entry, error


def _opened(name: str, entry: PackEntry, stored: bytes) -> bytes:
    """Return the content of the frame of an entry's group."""
    try:
        if zstandard.frame_content_size(stored) > _LARGEST_GROUP:
            raise Corrupt(f"blob {from_raw(entry.raw_id)} in pack {name} is damaged: its frame has another size")
        return _decompressor().decompress(stored, max_output_size=_LARGEST_GROUP)
    except zstandard.ZstdError as error:
        raise Corrupt(f"blob {from_raw(entry.raw_id)} in pack {name} is damaged: {error}") from error


def _member(name: str, entry: PackEntry, group: bytes) -> bytes:
    """Return an entry's blob from its group."""
    number = entry.codec - _FIRST_OF_GROUP
    count = group[0] if group else 0
    start = 1 + count * _SIZE.size
    if number >= count or start > len(group):
        raise Corrupt(f"blob {from_raw(entry.raw_id)} in pack {name} is not in its group")
    start += sum(size for (size,) in _SIZE.iter_unpack(group[1 : 1 + number * _SIZE.size]))
    return _checked(name, entry, group[start : start + entry.size])


def _checked(name: str, entry: PackEntry, data: bytes) -> bytes:
    identifier = from_raw(entry.raw_id)
    if len(data) != entry.size or blob_id(data) != identifier:
        raise Corrupt(f"blob {identifier} in pack {name} has other bytes than when it was written")
    return data


def _compressor(level: int) -> zstandard.ZstdCompressor:
    made: dict[int, zstandard.ZstdCompressor] | None = getattr(_local, "compressors", None)
    if made is None:
        made = _local.compressors = {}
    if level not in made:
        made[level] = zstandard.ZstdCompressor(level=level)
    return made[level]


def _decompressor() -> zstandard.ZstdDecompressor:
    made: zstandard.ZstdDecompressor | None = getattr(_local, "decompressor", None)
    if made is None:
        made = _local.decompressor = zstandard.ZstdDecompressor()
    return made
