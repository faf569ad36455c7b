"""The cache of clean data files: committed content that a layer keeps beside the blob store, up to a limit.

Data files make reading and changing committed files fast. Beyond the limit they are removed, and the files are read
from the blob store as on a node that never had them. Large files are removed before small ones: reading each small one
costs a request, and one large file would evict thousands. Among equals the least recently opened one is removed first
where that is known, else the one that was written longest ago.

Changed files, and open or mapped ones (the kernel counts a mapping as open), must stay; the caller names them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from chronicle.blobs.ident import from_raw, to_raw
from chronicle.packed_map import PackedMap
from chronicle.workspace.content.content import WHOLE_BYTES, Content

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["WarmFiles"]

_ENTRY: Final = struct.Struct("<QQQ32s")
"""Number of the data file, bytes of the content, bytes on the disk, raw id of the content."""
_RECENT: Final = 2000
"""Entries whose order of use is remembered."""
_BLOCK_BYTES: Final = 4096
_LARGE_PART: Final = 4
"""A file of more than this part of the limit is large."""
_FREE_PART: Final = 8
"""This part of the limit is freed at a time: the scan of all entries is amortised over as many new ones."""


class WarmFiles:
    """The clean data files of a layer: for each inode the number of its data file and its content."""

    def __init__(self) -> None:
        self._entries = PackedMap()
        """By inode number, packed as `_ENTRY`."""
        self._recent: dict[int, None] = {}
        """The most recently used last. Beyond `_RECENT`, the numbers of data files give the order."""
        self.taken_bytes = 0
        """Their disk usage."""

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterator[tuple[int, tuple[int, Content]]]:
        """Yield all entries in no order: inode, and number and content."""
        for ino, raw in self._entries.items():
            yield ino, _decode(raw)

    def get(self, ino: int) -> tuple[int, Content] | None:
        """Return an entry."""
        raw = self._entries.get(ino)
        return _decode(raw) if raw is not None else None

    def put(self, ino: int, number: int, content: Content, on_disk: int | None = None) -> None:
        """Set an entry.

        Args:
            on_disk: disk usage of the data file in bytes, if it is known and may be less than the size.
        """
        self.pop(ino)
        size = content.size if on_disk is None else min(on_disk, content.size)
        taken = -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
        self._entries.put(ino, _ENTRY.pack(number, content.size, taken, to_raw(content.id)))
        self.taken_bytes += taken

    def pack(self) -> None:
        """Compact in memory, after many entries were put."""
        self._entries.pack()

    def touch(self, ino: int) -> None:
        """Record that an entry was used, if it exists."""
        recent = self._recent
        recent.pop(ino, None)
        recent[ino] = None
        if len(recent) > _RECENT:
            del recent[next(iter(recent))]

    def pop(self, ino: int) -> bool:
        """Remove an entry; say whether there was one."""
        raw = self._entries.pop(ino)
        if raw is None:
            return False
        self.taken_bytes -= _taken(raw)
        self._recent.pop(ino, None)
        return True

    def size_of(self, ino: int) -> int:
        """Return the disk usage of an entry's data file, bytes; 0 without an entry."""
        raw = self._entries.get(ino)
        return _taken(raw) if raw is not None else 0

    def is_large(self, ino: int, limit_bytes: int) -> bool:
        """Say whether an entry is of a large file, which is removed before small ones."""
        return self.size_of(ino) > limit_bytes // _LARGE_PART

    def surplus(self, limit_bytes: int, busy: Iterable[int]) -> list[int]:
        """Return the inodes whose data files must be removed to meet a limit.

        Args:
            limit_bytes: disk usage of the data files that are not busy.
            busy: inodes that must stay.
        """
        kept = frozenset(busy)
        excess = self.taken_bytes - sum(map(self.size_of, kept)) - limit_bytes
        if excess <= 0:
            return []
        used = {ino: position for position, ino in enumerate(self._recent, 1)}
        order = sorted(
            (used.get(ino, 0), _ENTRY.unpack(raw)[0], ino, _taken(raw))
            for ino, raw in self._entries.items()
            if ino not in kept
        )
        found: dict[int, None] = {}
        for *_, ino, taken in order:
            if excess > 0 and taken > limit_bytes // _LARGE_PART:
                found[ino] = None
                excess -= taken
        if excess > 0:
            excess += limit_bytes // _FREE_PART
            for *_, ino, taken in order:
                if excess > 0 and ino not in found:
                    found[ino] = None
                    excess -= taken
        return list(found)


def _taken(raw: bytes) -> int:
    taken: int = _ENTRY.unpack(raw)[2]
    return taken


def _decode(raw: bytes) -> tuple[int, Content]:
    number, size, _, identifier = _ENTRY.unpack(raw)
    return number, Content(from_raw(identifier), size, chunked=size > WHOLE_BYTES)
