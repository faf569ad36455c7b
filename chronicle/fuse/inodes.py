"""Which inode numbers the kernel knows: it says itself when it has forgotten one.

A node's inode number in the layer is what the kernel calls it too, so nothing is translated; only the kernel's counts
are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["FLEETING", "MAGIC", "Inodes"]

MAGIC: Final = 1 << 62
"""Numbers from here on are those of ``.chronicle`` and what is in it."""
FLEETING: Final = MAGIC + (1 << 60)
"""``.chronicle`` itself. Of it, and of what has a greater number, the kernel may keep nothing."""


class Inodes:
    """The kernel's lookup counts.

    Args:
        forgotten: called with each number whose count has come to zero.
    """

    def __init__(self, forgotten: Callable[[int], None]) -> None:
        self._forgotten = forgotten
        self.counts: dict[int, int] = {}
        """By inode number. The hot paths add to it by themselves."""

    def known(self) -> list[int]:
        """Return the numbers of the files and directories that the kernel may have something cached of."""
        return [inode for inode in self.counts if inode < MAGIC]

    def count(self, inode: int) -> None:
        """Note that a reply gave this number to the kernel."""
        self.counts[inode] = self.counts.get(inode, 0) + 1

    def forget(self, forgotten: Iterable[tuple[int, int]]) -> None:
        """Take off what the kernel has forgotten: numbers, and how often."""
        counts = self.counts
        for inode, times in forgotten:
            left = counts.get(inode, 0) - times
            if left > 0:
                counts[inode] = left
            else:
                counts.pop(inode, None)
                self._forgotten(inode)
