"""Which packs a store has, and what is in each: all that a collection asks, for a million blobs at a time.

Entries are kept as the bytes of the packs' own indexes, 49 for each blob, and made into objects as they are looked at.
A *place* is a number that stands for a pack and an entry in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.blobs.packs import pack_format

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from chronicle.blobs.packs.pack_format import PackEntry

__all__ = ["Survey"]

_POSITIONS: Final = 1 << 32
"""More than a pack has entries: their number has four bytes there."""


class Survey:
    """The packs of a store, in the order in which they were found."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        """By name, the bytes of each pack."""
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._indexes: dict[str, bytes] = {}

    def add(self, name: str, entries: list[PackEntry], size: int) -> None:
        """Take in a pack of so many bytes."""
        self.sizes[name] = size
        self._indexes[name] = pack_format.pack_entries(entries)
        self._numbers[name] = len(self._names)
        self._names.append(name)

    def remove(self, name: str) -> None:
        """Forget a pack; its places are not to be asked for again."""
        del self.sizes[name], self._indexes[name], self._numbers[name]

    def names(self) -> set[str]:
        """Return the names of the packs."""
        return set(self._indexes)

    def entries(self, name: str) -> Iterator[PackEntry]:
        """Yield what is in a pack, ascending by id."""
        return pack_format.iter_entries(self._indexes[name])

    def raw_ids(self, name: str) -> Iterator[bytes]:
        """Yield the raw ids of what is in a pack, ascending."""
        return pack_format.iter_raw_ids(self._indexes[name])

    def count(self) -> int:
        """Return how many entries all packs have."""
        return sum(map(len, self._indexes.values())) // pack_format.ENTRY_BYTES

    def places(self, names: Iterable[str], wanted: Collection[bytes]) -> dict[bytes, tuple[int, ...]]:
        """Return the places of blobs in some packs, of those that are in any, an older pack's first.

        Args:
            wanted: the blobs' raw ids.
        """
        found: dict[bytes, tuple[int, ...]] = {}
        for name in sorted(names):
            first = self._numbers[name] * _POSITIONS
            for position, raw_id in enumerate(self.raw_ids(name)):
                if raw_id in wanted:
                    found[raw_id] = (*found.get(raw_id, ()), first + position)
        return found

    def at(self, place: int) -> tuple[str, PackEntry]:
        """Return the pack and the entry that a place stands for."""
        number, position = divmod(place, _POSITIONS)
        name = self._names[number]
        start = position * pack_format.ENTRY_BYTES
        (entry,) = pack_format.iter_entries(self._indexes[name][start : start + pack_format.ENTRY_BYTES])
        return name, entry

    def all(self) -> Iterator[tuple[str, PackEntry]]:
        """Yield all entries with their packs' names, of the packs taken in last first."""
        for name in reversed(self._indexes):
            for entry in self.entries(name):
                yield name, entry
