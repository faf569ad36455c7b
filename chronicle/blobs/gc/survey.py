"""The packs of a store and their entries, compact enough for a million blobs.

Entries are stored as the bytes of the packs' own indexes, 49 for each blob, and decoded on access. A *place* is a
number that denotes a pack and an entry in it.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from chronicle.blobs.packs import pack_format

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from chronicle.blobs.packs.pack_format import PackEntry, PackIndex

__all__ = ["Survey"]

_POSITIONS: Final = 1 << 32
"""Exceeds the number of entries of any pack, which has four bytes in the format."""


class Survey:
    """The packs of a store, in the order in which they were found."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        """By name: the size of each pack, bytes."""
        self.made_ms: dict[str, int] = {}
        """By name: when each pack was made, epoch milliseconds."""
        self._followed: dict[str, tuple[str, ...]] = {}
        """By name: the packs that each pack of a line follows."""
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._indexes: dict[str, bytes] = {}

    def add(self, name: str, index: PackIndex, size: int) -> None:
        """Add a pack."""
        self.sizes[name] = size
        self.made_ms[name] = index.made_ms
        if index.links.follows:
            self._followed[name] = index.links.follows
        self._indexes[name] = pack_format.pack_entries(index.entries)
        self._numbers[name] = len(self._names)
        self._names.append(name)

    def remove(self, name: str) -> None:
        """Remove a pack; its places become invalid."""
        del self.sizes[name], self.made_ms[name], self._indexes[name], self._numbers[name]
        self._followed.pop(name, None)

    def names(self) -> set[str]:
        """Return the names of the packs."""
        return set(self._indexes)

    def heads(self) -> set[str]:
        """Return the last packs of lines (`chronicle.blobs.packs.linked_catalog`): they follow one, and none them."""
        return self._followed.keys() - set(chain(*self._followed.values()))

    def in_time(self, place: int) -> tuple[int, int]:
        """Return a sort key of places: by the packs' times, then in the order of their entries."""
        return self.made_ms[self._names[place // _POSITIONS]], place

    def entries(self, name: str) -> Iterator[PackEntry]:
        """Yield the entries of a pack, ascending by id."""
        return pack_format.iter_entries(self._indexes[name])

    def raw_ids(self, name: str) -> Iterator[bytes]:
        """Yield the raw ids of a pack's blobs, ascending."""
        return pack_format.iter_raw_ids(self._indexes[name])

    def count(self) -> int:
        """Return the number of entries of all packs."""
        return sum(map(len, self._indexes.values())) // pack_format.ENTRY_BYTES

    def places(self, names: Iterable[str], wanted: Collection[bytes]) -> dict[bytes, tuple[int, ...]]:
        """Return the places of blobs in some packs, those in older packs first; blobs without a place are left out.

        Args:
            wanted: the blobs' raw ids.
        """
        found: dict[bytes, tuple[int, ...]] = {}
        for name in sorted(names, key=lambda name: (self.made_ms[name], name)):
            first = self._numbers[name] * _POSITIONS
            for position, raw_id in enumerate(self.raw_ids(name)):
                if raw_id in wanted:
                    found[raw_id] = (*found.get(raw_id, ()), first + position)
        return found

    def at(self, place: int) -> tuple[str, PackEntry]:
        """Return the pack and the entry that a place denotes."""
        number, position = divmod(place, _POSITIONS)
        name = self._names[number]
        start = position * pack_format.ENTRY_BYTES
        (entry,) = pack_format.iter_entries(self._indexes[name][start : start + pack_format.ENTRY_BYTES])
        return name, entry

    def all(self) -> Iterator[tuple[str, PackEntry]]:
        """Yield all entries with their packs' names, from the pack added last to the first."""
        for name in reversed(self._indexes):
            for entry in self.entries(name):
                yield name, entry
