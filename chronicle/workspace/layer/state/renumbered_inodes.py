"""Inodes whose number in this layer differs from the one that seals store for them.

A number that the kernel or a handle knows stays with its inode for as long as they do. When a layer moves to a commit
in which the same file has another number (`chronicle.workspace.layer.state.names_move`), or in which another file has
the number, the stored number and the one in use differ until the layer is closed. Seals go on to store the former: a
file that is made again by each attempt of a turn has one number in all of its seals. Its data file is not entered into
the cache index, which the next process would read with the stored numbers.
"""

from __future__ import annotations

__all__ = ["RenumberedInodes"]


class RenumberedInodes:
    """A one-to-one map between numbers in use and stored ones; all other numbers stand for themselves."""

    def __init__(self) -> None:
        self._stored: dict[int, int] = {}
        self._numbers: dict[int, int] = {}

    def __contains__(self, ino: int) -> bool:
        return ino in self._stored

    def stored(self, ino: int) -> int:
        """Return the stored number of the inode that has this one."""
        return self._stored.get(ino, ino)

    def number(self, stored: int) -> int:
        """Return the number of the inode that is stored under this one."""
        return self._numbers.get(stored, stored)

    def put(self, ino: int, stored: int) -> None:
        """Record the two numbers of an inode."""
        self.remove(ino)
        if stored in self._numbers:
            self.remove(self._numbers[stored])
        if ino != stored:
            self._stored[ino] = stored
            self._numbers[stored] = ino

    def remove(self, ino: int) -> None:
        """Forget an inode by its number, if it is known here."""
        stored = self._stored.pop(ino, None)
        if stored is not None:
            del self._numbers[stored]
