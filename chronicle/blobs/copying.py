"""Copying blobs out of packs that are to go into new ones, those that are alike side by side.

Of a blob that lies in several packs the first place at which it is sound counts, so that damage in one of them loses
nothing. Far stores are read once and in order: putting what is alike together would mean reading everything twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.blobs import ident, packs
from chronicle.blobs.catalog import pack_object
from chronicle.blobs.similar import runs_of_similar, sketch
from chronicle.errors import Corrupt, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from chronicle.blobs.objects import Objects
    from chronicle.blobs.packs import PackEntry

    Place = tuple[str, PackEntry]
    Copied = tuple[str, list[PackEntry], int]

__all__ = ["Copier"]

_PACK_BYTES: Final = 32 * 1024 * 1024
"""Blobs that are copied go into packs of about this size, before compression."""


class Copier:
    """Reads blobs from their packs, and writes them into others.

    Args:
        objects: the medium.
        new_name: names new packs.
    """

    def __init__(self, objects: Objects, new_name: Callable[[], str]) -> None:
        self._objects = objects
        self._new_name = new_name
        self.damaged: dict[tuple[bytes, str], str] = {}
        """By a blob's raw id and a pack's name, what was found wrong with it there."""

    def sound(self, places: Mapping[bytes, Sequence[Place]]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the raw id and the bytes of each blob that is sound at one of its places, each range read once."""
        rest = list(places)
        while rest:
            ranges: dict[tuple[str, int, int], list[PackEntry]] = {}
            for raw_id in rest:
                for name, entry in places[raw_id]:
                    if (raw_id, name) not in self.damaged:  # an empty blob has the offset of the next one
                        ranges.setdefault((name, entry.offset, entry.stored), []).append(entry)
                        break
            rest = []
            for name, offset, size in sorted(ranges):
                entries = ranges.pop((name, offset, size))
                for entry, data in self._unpacked(name, offset, size, entries):
                    if isinstance(data, str):
                        self.damaged[entry.raw_id, name] = data
                        rest.append(entry.raw_id)
                    else:
                        yield entry.raw_id, data

    def copy(self, places: Mapping[bytes, Sequence[Place]]) -> Iterator[Copied]:
        """Write blobs into new packs; yield each one's name, entries and bytes once it is durable.

        What is sound nowhere is in none of them.
        """
        for groups in self._in_order(places) if self._objects.is_far else self._alike(places):
            named = [{ident.from_raw(raw_id): data for raw_id, data in group.items()} for group in groups if group]
            if named:
                parts, entries = packs.encode_groups(named)
                name = self._new_name()
                self._objects.write(pack_object(name), parts)
                yield name, entries, sum(len(part) for part in parts)

    def _in_order(self, places: Mapping[bytes, Sequence[Place]]) -> Iterator[list[dict[bytes, bytes]]]:
        """Yield what goes into one pack, each blob by itself."""
        groups: list[dict[bytes, bytes]] = []
        size = 0
        for raw_id, data in self.sound(places):
            groups.append({raw_id: data})
            size += len(data)
            if size >= _PACK_BYTES:
                yield groups
                groups, size = [], 0
        yield groups

    def _alike(self, places: Mapping[bytes, Sequence[Place]]) -> Iterator[list[dict[bytes, bytes]]]:
        """Yield what goes into one pack, blobs that are alike together."""
        found = [(sketch(data), len(data), raw_id) for raw_id, data in self.sound(places)]
        sizes = {raw_id: length for _, length, raw_id in found}
        runs: list[list[bytes]] = []
        size = 0
        for run in runs_of_similar(found, packs.GROUP_BYTES, packs.GROUP_BLOBS):
            runs.append(run)
            size += sum(sizes[raw_id] for raw_id in run)
            if size >= _PACK_BYTES:
                yield self._read_again(runs, places)
                runs, size = [], 0
        yield self._read_again(runs, places)

    def _read_again(self, runs: list[list[bytes]], places: Mapping[bytes, Sequence[Place]]) -> list[dict[bytes, bytes]]:
        found = dict(self.sound({raw_id: places[raw_id] for run in runs for raw_id in run}))
        return [{raw_id: found[raw_id] for raw_id in run if raw_id in found} for run in runs]

    def _unpacked(
        self, name: str, offset: int, size: int, entries: list[PackEntry]
    ) -> Iterator[tuple[PackEntry, bytes | str]]:
        """Yield the blobs of one range of a pack, or what is wrong with one."""
        try:
            stored = self._objects.read(pack_object(name), offset, size)
        except Unavailable as error:
            if self._objects.is_far:
                raise
            for entry in entries:  # a bad sector must not keep all the others from being collected
                yield entry, str(error)
            return
        for entry, data in packs.unpack_group(name, entries, stored):
            yield entry, str(data) if isinstance(data, Corrupt) else data
