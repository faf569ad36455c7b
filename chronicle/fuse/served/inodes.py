"""Which inode numbers the kernel knows: it says itself when it has forgotten one.

A node's inode number in the layer is what the kernel calls it too, so nothing is translated; only the kernel's counts
are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.packed_map import PackedMap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["MAGIC", "UNCACHED", "LookupCounts"]

MAGIC: Final = 1 << 62
"""``.chronicle`` itself. Numbers from here on are those of what is in it."""
UNCACHED: Final = MAGIC + (1 << 60)
"""Of what has this number or a greater one, the kernel may keep nothing."""
_COUNT_BYTES: Final = 8


class LookupCounts:
    """The kernel's lookup counts.

    Args:
        forgotten: called with each number whose count has come to zero.
    """

    def __init__(self, forgotten: Callable[[int], None]) -> None:
        self._forgotten = forgotten
        self.counts: dict[int, int] = {}
        """By inode number, what was counted since `pack`. The hot paths add to it by themselves."""
        self._packed = PackedMap()
        """What was counted before, of numbers below `MAGIC`."""

    def __contains__(self, inode: int) -> bool:
        return inode in self.counts or inode in self._packed

    def known(self) -> list[int]:
        """Return the numbers of the files and directories that the kernel may have something cached of."""
        return list({*(inode for inode in self.counts if inode < MAGIC), *(inode for inode, _ in self._packed.items())})

    def pack(self) -> None:
        """Take as little memory as can be."""
        magic: dict[int, int] = {}
        for inode, times in self.counts.items():
            if inode < MAGIC:
                self._packed.put(inode, (times + self._before(inode)).to_bytes(_COUNT_BYTES))
            else:
                magic[inode] = times
        self._packed.pack()
        self.counts.clear()
        self.counts.update(magic)

    def _before(self, inode: int) -> int:
        """Return how often the kernel got a number before `pack`."""
        packed = self._packed.get(inode)
        return int.from_bytes(packed) if packed is not None else 0

    def count(self, inode: int) -> None:
        """Note that a reply gave this number to the kernel."""
        self.counts[inode] = self.counts.get(inode, 0) + 1

    def forget(self, forgotten: Iterable[tuple[int, int]]) -> None:
        """Take off what the kernel has forgotten: numbers, and how often."""
        counts = self.counts
        for inode, times in forgotten:
            left = counts.pop(inode, 0) - times
            if left <= 0 and inode in self._packed:
                left += int.from_bytes(self._packed.pop(inode) or b"")
            if left > 0:
                counts[inode] = left
            else:
                self._forgotten(inode)
        if not counts:
            counts.clear()  # its table, too, which may be large
