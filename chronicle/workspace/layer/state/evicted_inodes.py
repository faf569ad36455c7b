"""Where evicted nodes are, by inode number.

The kernel uses the inode number of a file as long as it has it in its cache, which may be for days. A clean node can be
loaded from the stored tree at any time; of an evicted one only the number of its directory and its name remain, some 40
bytes instead of 700.
"""

from __future__ import annotations

from typing import Final

from chronicle.packed_map import PackedMap

__all__ = ["EvictedInodes"]

_INO_BYTES: Final = 8


class EvictedInodes:
    """Directory and name of evicted nodes, by inode number."""

    def __init__(self) -> None:
        self._at = PackedMap()
        """The directory's number and the name, in one value."""
        self._below: dict[int, int] = {}
        """By directory, the number of entries in it."""

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, ino: int) -> bool:
        return ino in self._at

    def add(self, ino: int, parent: int, name: bytes) -> None:
        """Add an entry for a node that has none."""
        self._at.put(ino, parent.to_bytes(_INO_BYTES) + name)
        self._below[parent] = self._below.get(parent, 0) + 1

    def find(self, ino: int) -> tuple[int, bytes] | None:
        """Return the number of a node's directory and its name there; ``None`` without an entry."""
        place = self._at.get(ino)
        return (int.from_bytes(place[:_INO_BYTES]), place[_INO_BYTES:]) if place is not None else None

    def remove(self, ino: int) -> int | None:
        """Remove a node's entry; return its directory's number, ``None`` without an entry."""
        place = self._at.pop(ino)
        if place is None:
            return None
        parent = int.from_bytes(place[:_INO_BYTES])
        left = self._below[parent] - 1
        if left:
            self._below[parent] = left
        else:
            del self._below[parent]
        return parent

    def pack(self) -> None:
        """Compact in memory, after many entries were added."""
        self._at.pack()

    def has_below(self, ino: int) -> bool:
        """Say whether a directory has entries; it must then stay reachable itself."""
        return ino in self._below
