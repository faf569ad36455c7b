"""Where nodes are that are not in memory, by inode number, for those that are referred to by number from outside.

The kernel calls a file by its number as long as it remembers it, which may be for days. A node that is as it was sealed
can be read from the stored tree whenever it is asked for; what is kept of it is its directory's number and its name,
some 40 bytes instead of 700.
"""

from __future__ import annotations

from typing import Final

from chronicle.packed_map import PackedMap

__all__ = ["EvictedInodes"]

_INO_BYTES: Final = 8


class EvictedInodes:
    """The directories and names of nodes, by inode number."""

    def __init__(self) -> None:
        self._at = PackedMap()
        """A directory's number and a name in it, in one object."""
        self._below: dict[int, int] = {}
        """By directory, how many of the others are in it."""

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, ino: int) -> bool:
        return ino in self._at

    def add(self, ino: int, parent: int, name: bytes) -> None:
        """Note where a node is that is not noted yet."""
        self._at.put(ino, parent.to_bytes(_INO_BYTES) + name)
        self._below[parent] = self._below.get(parent, 0) + 1

    def find(self, ino: int) -> tuple[int, bytes] | None:
        """Return the number of a node's directory and its name there; ``None`` if it is not noted."""
        place = self._at.get(ino)
        return (int.from_bytes(place[:_INO_BYTES]), place[_INO_BYTES:]) if place is not None else None

    def remove(self, ino: int) -> int | None:
        """Forget where a node is; return its directory's number, ``None`` if it was not noted."""
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
        """Take as little memory as can be, after many were added."""
        self._at.pack()

    def has_below(self, ino: int) -> bool:
        """Say whether a node is noted that is in this directory, which is to be found then, too."""
        return ino in self._below
