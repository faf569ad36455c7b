"""Copies blobs of condemned and merged packs to new ones, with similar blobs side by side.

A blob that is in several packs is copied from the first undamaged place, so that damage to one of them loses nothing.
Far stores are read once and in order: grouping similar blobs would read everything twice.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from chronicle.blobs import ident
from chronicle.blobs.gc.similarity import runs_of_similar, sketch
from chronicle.blobs.packs import pack_format
from chronicle.blobs.packs.catalog import pack_object
from chronicle.errors import Corrupt, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from chronicle.blobs.gc.survey import Survey
    from chronicle.blobs.media.objects import Objects
    from chronicle.blobs.packs.pack_format import PackEntry, PackIndex

    Places = Mapping[bytes, Sequence[int]]

__all__ = ["Copier"]

_PACK_BYTES: Final = 32 * 1024 * 1024
"""The approximate size of new packs, before compression."""
_RUN_BYTES: Final = 4 * 1024 * 1024
"""Bytes per read."""
_GAP_BYTES: Final = 32 * 1024
"""A gap of at most this size between two blobs is read along with them."""


class Copier:
    """Reads blobs from their packs, and writes them to new ones.

    Args:
        objects: the medium.
        survey: the packs, and the places of blobs in them.
        new_name: names new packs.
    """

    def __init__(self, objects: Objects, survey: Survey, new_name: Callable[[], str]) -> None:
        self._objects = objects
        self._survey = survey
        self._new_name = new_name
        self.damaged: dict[tuple[bytes, str], str] = {}
        """By a blob's raw id and a pack's name: the damage to the blob there."""

    def sound(self, places: Places, wanted: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the raw id and the bytes of each blob that is undamaged at one of its places, in the order of packs.

        Args:
            places: the places of blobs.
            wanted: the raw ids of the blobs to read.
        """
        rest = list(wanted)
        while rest:
            firsts = []
            for raw_id in rest:
                for place in places[raw_id]:
                    if not self.damaged or (raw_id, self._survey.at(place)[0]) not in self.damaged:
                        firsts.append(place)
                        break
            rest = []
            firsts.sort(key=self._survey.in_time)  # within a pack, places are ordered by id
            for name, of_pack in groupby(map(self._survey.at, firsts), itemgetter(0)):
                for raw_id, data in self.sound_in(name, [entry for _, entry in of_pack]):
                    if data is None:
                        rest.append(raw_id)
                    else:
                        yield raw_id, data

    def sound_in(self, name: str, entries: list[PackEntry]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield blobs of one pack; ``None`` for a damaged one, which is recorded."""
        entries.sort(key=_range)
        for run in _runs(entries):
            for entry, data in self._read(name, run):
                if isinstance(data, str):
                    self.damaged[entry.raw_id, name] = data
                    yield entry.raw_id, None
                else:
                    yield entry.raw_id, data

    def copy(self, places: Places, made_ms: int) -> Iterator[tuple[str, PackIndex, int]]:
        """Write blobs to new packs; yield each pack's name, index and bytes once it is durable.

        Blobs without an undamaged place are left out. The caller may remove yielded blobs from ``places``.

        Args:
            places: the places of blobs.
            made_ms: dates the packs, epoch milliseconds.
        """
        for groups in self._in_order(places) if self._objects.is_far else self._alike(places):
            named = [{ident.from_raw(raw_id): data for raw_id, data in group.items()} for group in groups if group]
            if named:
                parts, entries = pack_format.encode_groups(named, made_ms)
                name = self._new_name()
                self._objects.write(pack_object(name), parts)
                yield name, pack_format.PackIndex(entries, made_ms=made_ms), sum(len(part) for part in parts)

    def _in_order(self, places: Places) -> Iterator[list[dict[bytes, bytes]]]:
        """Yield the contents of each new pack, each blob in its own group."""
        groups: list[dict[bytes, bytes]] = []
        size = 0
        for raw_id, data in self.sound(places, places):
            groups.append({raw_id: data})
            size += len(data)
            if size >= _PACK_BYTES:
                yield groups
                groups, size = [], 0
        yield groups

    def _alike(self, places: Places) -> Iterator[list[dict[bytes, bytes]]]:
        """Yield the contents of each new pack, in groups of similar blobs."""
        found = [(sketch(data), len(data), raw_id) for raw_id, data in self.sound(places, places)]
        runs: list[list[bytes]] = []
        size = 0
        for run, run_size in runs_of_similar(found, pack_format.GROUP_BYTES, pack_format.GROUP_BLOBS):
            runs.append(run)
            size += run_size
            if size >= _PACK_BYTES:
                yield self._read_again(runs, places)
                runs, size = [], 0
        yield self._read_again(runs, places)

    def _read_again(self, runs: list[list[bytes]], places: Places) -> list[dict[bytes, bytes]]:
        found = dict(self.sound(places, (raw_id for run in runs for raw_id in run)))
        return [{raw_id: found[raw_id] for raw_id in run if raw_id in found} for run in runs]

    def _read(self, name: str, run: list[PackEntry]) -> Iterator[tuple[PackEntry, bytes | str]]:
        """Yield adjacent blobs of a pack, or the damage to one."""
        start = run[0].offset
        end = run[-1].offset + run[-1].stored
        try:
            stored = self._objects.read(pack_object(name), start, end - start)
        except Unavailable as error:
            if self._objects.is_far:
                raise
            if run[0].offset != run[-1].offset:  # a bad sector, perhaps: the other blobs are read one by one
                for _, sharing in groupby(run, _range):
                    yield from self._read(name, list(sharing))
                return
            for entry in run:
                yield entry, str(error)
            return
        for (offset, size), sharing in groupby(run, _range):
            for entry, data in pack_format.unpack_group(name, sharing, stored[offset - start : offset - start + size]):
                yield entry, str(data) if isinstance(data, Corrupt) else data


def _range(entry: PackEntry) -> tuple[int, int]:
    """Return the range of a frame, equal for blobs of a group. An empty blob has the offset of the next one."""
    return entry.offset, entry.stored


def _runs(entries: list[PackEntry]) -> Iterator[list[PackEntry]]:
    """Yield the entries of a pack, ordered by offset, in groups that share a read."""
    run: list[PackEntry] = []
    for entry in entries:
        if run:
            end = run[-1].offset + run[-1].stored
            shares = _range(entry) == _range(run[-1])
            if not shares and (entry.offset - end > _GAP_BYTES or end - run[0].offset > _RUN_BYTES):
                yield run
                run = []
        run.append(entry)
    if run:
        yield run
