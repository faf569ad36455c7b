"""Index segments: the places of the blobs of many packs, in one sorted object. Pure; derived from the packs.

A segment is searched in place (a memory map of a local file costs no private memory, for any number of blobs), so
opening a store of 10,000 packs reads one header instead of 10,000 pack indexes.

    magic and version, 8 bytes · number of packs, 4 · number of entries, 8
    pack names, 26 bytes each
    a table of 256 numbers of 4 bytes: the number of entries whose first id byte is at most the index
    entries of 53 bytes, ascending by id: raw id, number of the pack, offset, stored bytes, bytes, codec
    checksum over all before it: 16 bytes of BLAKE3
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from chronicle.blobs.ident import RAW_ID_BYTES
from chronicle.blobs.packs.pack_format import NAME_BYTES, PackEntry
from chronicle.errors import Corrupt

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterable, Iterator

__all__ = ["Segment", "build_segment"]

_MAGIC: Final = b"CHRINDX\x01"
_HEADER: Final = struct.Struct(">8sIQ")
_FANOUT: Final = struct.Struct(">256I")
_ENTRY: Final = struct.Struct(">32sIQIIB")
_CHECKSUM_BYTES: Final = 16


def build_segment(found: Iterable[tuple[str, PackEntry]]) -> bytes:
    """Return a segment of these entries and their packs' names; it has one place for each id."""
    numbers: dict[str, int] = {}
    records = []
    for name, entry in found:
        number = numbers.setdefault(name, len(numbers))
        records.append(_ENTRY.pack(entry.raw_id, number, entry.offset, entry.stored, entry.size, entry.codec))
    records.sort()
    kept = []
    counts = [0] * 256
    last = b""
    for record in records:
        raw = record[:RAW_ID_BYTES]
        if raw != last:
            kept.append(record)
            counts[raw[0]] += 1
            last = raw
    fanout = []
    total = 0
    for count in counts:
        total += count
        fanout.append(total)
    body = b"".join(
        (
            _HEADER.pack(_MAGIC, len(numbers), len(kept)),
            *(name.encode() for name in numbers),
            _FANOUT.pack(*fanout),
            *kept,
        )
    )
    return body + blake3(body).digest(length=_CHECKSUM_BYTES)


class Segment:
    """An open segment.

    Args:
        name: its name, for messages and as its identity.
        data: its bytes or a map of them.

    Raises:
        Corrupt: it is not a whole segment of this format; it can be dropped, because it is derived from packs.
    """

    def __init__(self, name: str, data: bytes | mmap.mmap) -> None:
        self.name = name
        self._data = data
        if len(data) < _HEADER.size + _FANOUT.size + _CHECKSUM_BYTES:
            raise Corrupt(f"index segment {name} is cut short")
        magic, pack_count, self.count = _HEADER.unpack_from(data, 0)
        self._names = _HEADER.size
        self._fanout = self._names + pack_count * NAME_BYTES
        self._entries = self._fanout + _FANOUT.size
        end = self._entries + self.count * _ENTRY.size
        if magic != _MAGIC or end + _CHECKSUM_BYTES != len(data):
            raise Corrupt(f"index segment {name} is cut short or of another format")
        with memoryview(data) as view, view[:end] as body:
            checksum = blake3(body).digest(length=_CHECKSUM_BYTES)
        if checksum != data[end:]:
            raise Corrupt(f"index segment {name} has another checksum than when it was written")
        self._pack_count = pack_count

    @property
    def size_bytes(self) -> int:
        """The size of the whole segment, bytes."""
        return len(self._data)

    def find(self, raw_id: bytes) -> tuple[str, PackEntry] | None:
        """Return the name of a blob's pack and its entry there, or ``None``."""
        first = raw_id[0]
        low = self._fan(first - 1) if first else 0
        high = self._fan(first)
        while low < high:
            middle = (low + high) // 2
            at = self._entries + middle * _ENTRY.size
            here = self._data[at : at + RAW_ID_BYTES]
            if here == raw_id:
                return self._entry(middle)
            if here < raw_id:
                low = middle + 1
            else:
                high = middle
        return None

    def entries(self) -> Iterator[tuple[str, PackEntry]]:
        """Yield all entries, ascending by id."""
        for number in range(self.count):
            yield self._entry(number)

    def pack_names(self) -> list[str]:
        """Return the names of the packs it covers."""
        return [self._pack_name(number) for number in range(self._pack_count)]

    def _fan(self, byte: int) -> int:
        at = self._fanout + 4 * byte
        return int.from_bytes(self._data[at : at + 4], "big")

    def _pack_name(self, number: int) -> str:
        at = self._names + number * NAME_BYTES
        return self._data[at : at + NAME_BYTES].decode()

    def _entry(self, number: int) -> tuple[str, PackEntry]:
        raw, pack, offset, stored, size, codec = _ENTRY.unpack_from(self._data, self._entries + number * _ENTRY.size)
        return self._pack_name(pack), PackEntry(raw, offset, stored, size, codec)
