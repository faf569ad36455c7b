"""Copying blobs out of packs that are to go into new ones, those that are alike side by side.

Of a blob that lies in several packs the first place at which it is sound counts, so that damage in one of them loses
nothing. Far stores are read once and in order: putting what is alike together would mean reading everything twice.
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
    from chronicle.blobs.packs.pack_format import PackEntry

    Places = Mapping[bytes, Sequence[int]]

__all__ = ["Copier"]

_PACK_BYTES: Final = 32 * 1024 * 1024
"""Blobs that are copied go into packs of about this size, before compression."""
_RUN_BYTES: Final = 4 * 1024 * 1024
"""Read at a time."""
_GAP_BYTES: Final = 32 * 1024
"""What lies between two blobs is read as well if it is no more."""


class Copier:
    """Reads blobs from their packs, and writes them into others.

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
        """By a blob's raw id and a pack's name, what was found wrong with it there."""

    def sound(self, places: Places, wanted: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the raw id and the bytes of each blob that is sound at one of its places, in the order of packs.

        Args:
            places: where blobs lie.
            wanted: which of them.
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
            firsts.sort()  # by pack; within one, places are by id
            for name, of_pack in groupby(map(self._survey.at, firsts), itemgetter(0)):
                for raw_id, data in self.sound_in(name, [entry for _, entry in of_pack]):
                    if data is None:
                        rest.append(raw_id)
                    else:
                        yield raw_id, data

    def sound_in(self, name: str, entries: list[PackEntry]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield blobs of one pack; None for one that is damaged, which is noted."""
        entries.sort(key=_range)
        for run in _runs(entries):
            for entry, data in self._read(name, run):
                if isinstance(data, str):
                    self.damaged[entry.raw_id, name] = data
                    yield entry.raw_id, None
                else:
                    yield entry.raw_id, data

    def copy(self, places: Places) -> Iterator[tuple[str, list[PackEntry], int]]:
        """Write blobs into new packs; yield each one's name, entries and bytes once it is durable.

        What is sound nowhere is in none of them. Those that were yielded need not be in ``places`` any more.
        """
        for groups in self._in_order(places) if self._objects.is_far else self._alike(places):
            named = [{ident.from_raw(raw_id): data for raw_id, data in group.items()} for group in groups if group]
            if named:
                parts, entries = pack_format.encode_groups(named)
                name = self._new_name()
                self._objects.write(pack_object(name), parts)
                yield name, entries, sum(len(part) for part in parts)

    def _in_order(self, places: Places) -> Iterator[list[dict[bytes, bytes]]]:
        """Yield what goes into one pack, each blob by itself."""
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
        """Yield what goes into one pack, blobs that are alike together."""
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
        """Yield blobs that lie together in a pack, or what is wrong with one."""
        start = run[0].offset
        end = run[-1].offset + run[-1].stored
        try:
            stored = self._objects.read(pack_object(name), start, end - start)
        except Unavailable as error:
            if self._objects.is_far:
                raise
            if run[0].offset != run[-1].offset:  # a bad sector, perhaps: it keeps nothing else from being copied
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
    """What those that share a frame have in common. An empty blob has the offset of the next one."""
    return entry.offset, entry.stored


def _runs(entries: list[PackEntry]) -> Iterator[list[PackEntry]]:
    """Yield entries of a pack, which are in their order, in groups that are read in one go."""
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
