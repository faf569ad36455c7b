"""Which committed files a layer keeps as data files beside the blob store, and for how many bytes.

What a seal has stored is in the blob store. Its data files are kept for reading and changing them fast, up to a number
of bytes; beyond that they go, and the files are read from the blob store as on a node that never had them. A large file
goes before small ones: reading each small one costs a request, and a large one would drive out thousands. Among equals
the one goes that was opened longest ago, as far as that is known, and else the one that was written longest ago.

Files that differ from what is stored, and those that somebody has open (or mapped, which the kernel counts as open),
are never taken: that is for the caller to say.
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
"""So many entries are remembered in the order in which they were used."""
_BLOCK_BYTES: Final = 4096
_LARGE_PART: Final = 4
"""A file that would take more than such a part of all is large."""
_FREE_PART: Final = 8
"""Such a part is freed at a time: looking at all entries is paid for by that many new ones."""


class WarmFiles:
    """The clean data files of a layer: for each inode the number of its data file and what that holds."""

    def __init__(self) -> None:
        self._entries = PackedMap()
        """By inode number, as `_ENTRY` has it."""
        self._recent: dict[int, None] = {}
        """Those used last come last; of more than `_RECENT` the numbers of the data files tell the order."""
        self.taken_bytes = 0
        """What all of them take on the disk."""

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterator[tuple[int, tuple[int, Content]]]:
        """Yield all entries, in no order: inode, and number and content."""
        for ino, raw in self._entries.items():
            yield ino, _decode(raw)

    def get(self, ino: int) -> tuple[int, Content] | None:
        """Return an entry."""
        raw = self._entries.get(ino)
        return _decode(raw) if raw is not None else None

    def put(self, ino: int, number: int, content: Content, on_disk: int | None = None) -> None:
        """Set an entry.

        Args:
            on_disk: what the data file takes, bytes, if that is known and may be less than its size.
        """
        self.pop(ino)
        size = content.size if on_disk is None else min(on_disk, content.size)
        taken = -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
        self._entries.put(ino, _ENTRY.pack(number, content.size, taken, to_raw(content.id)))
        self.taken_bytes += taken

    def pack(self) -> None:
        """Let the entries take little memory; after many were put."""
        self._entries.pack()

    def touch(self, ino: int) -> None:
        """Note that an entry was used, if there is one."""
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
        """Return what an entry's data file takes on the disk, bytes; 0 if there is none."""
        raw = self._entries.get(ino)
        return _taken(raw) if raw is not None else 0

    def is_large(self, ino: int, limit_bytes: int) -> bool:
        """Say whether an entry is of a file that goes before small ones."""
        return self.size_of(ino) > limit_bytes // _LARGE_PART

    def surplus(self, limit_bytes: int, busy: Iterable[int]) -> list[int]:
        """Return the inodes whose data files are to go, so that at most so many bytes are kept.

        Args:
            limit_bytes: of those that are not busy.
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
