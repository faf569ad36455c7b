"""The kernel's lookup counts: which inode numbers it knows. It says itself when it forgets one.

The kernel uses a node's inode number in the layer, so no number is translated; only the counts are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.packed_map import PackedMap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["MAGIC", "UNCACHED", "LookupCounts"]

MAGIC: Final = 1 << 62
"""The inode number of ``.chronicle``. Greater numbers are those of its entries."""
UNCACHED: Final = MAGIC + (1 << 60)
"""The kernel may cache nothing of inodes with this number or a greater one."""
_COUNT_BYTES: Final = 8


class LookupCounts:
    """The kernel's lookup counts.

    Args:
        forgotten: called with each number whose count has come to zero.
    """

    def __init__(self, forgotten: Callable[[int], None]) -> None:
        self._forgotten = forgotten
        self.counts: dict[int, int] = {}
        """By inode number, the lookups since `pack`. The hot paths increment it directly."""
        self._packed = PackedMap()
        """The lookups before `pack`, of numbers below `MAGIC`."""

    def __contains__(self, inode: int) -> bool:
        return inode in self.counts or inode in self._packed

    def known(self) -> list[int]:
        """Return the numbers of the files and directories of which the kernel may have cached something."""
        return list({*(inode for inode in self.counts if inode < MAGIC), *(inode for inode, _ in self._packed.items())})

    def pack(self) -> None:
        """Reduce the memory to a minimum."""
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
        """Return a number's lookups before `pack`."""
        packed = self._packed.get(inode)
        return int.from_bytes(packed) if packed is not None else 0

    def count(self, inode: int) -> None:
        """Record that a reply gave this number to the kernel."""
        self.counts[inode] = self.counts.get(inode, 0) + 1

    def forget(self, forgotten: Iterable[tuple[int, int]]) -> None:
        """Subtract what the kernel has forgotten: numbers, and how many lookups of each."""
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
            counts.clear()  # releases the table, which may be large
