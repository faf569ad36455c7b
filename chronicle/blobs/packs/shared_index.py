"""The index of a far store that gc, or a process that listed the packs, leaves for all nodes: sorted, in shards.

    index/all                   {"format": 1, "name": N, "bits": b, "listed_ms": t}, replaced by each new index
    index/<N>/<number>          a segment (`chronicle.blobs.packs.segments`): the blobs whose ids begin with these bits
    index/<N>/packs             the names of all packs that it covers, 26 bytes each

A reader gets ``all``, and the shards of the blobs that it looks for, of about 64 KiB each, whatever the number of
packs. All of it is derived, and only reads use it: of two processes that write it at once one wins, and what only the
other one knew is found by a listing.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from chronicle.blobs.packs.catalog import INDEX_FOLDER
from chronicle.blobs.packs.pack_format import NAME_BYTES
from chronicle.blobs.packs.segments import Segment, build_segment
from chronicle.errors import Corrupt, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from chronicle.blobs.cache import BlobCache
    from chronicle.blobs.media.objects import Objects
    from chronicle.blobs.packs.pack_format import PackEntry

__all__ = ["SharedIndex", "publish", "read_shared_index"]

_OBJECT: Final = f"{INDEX_FOLDER}/all"
_PACKS: Final = "packs"
_FORMAT: Final = 1
_SHARD_ENTRIES: Final = 1200
"""About 64 KiB: a request takes as long as moving this on a link of 25 Mbit/s."""
_MAX_BITS: Final = 16
SHARD_BYTES: Final = 4 * 1024 * 1024
"""Exceeds the size of any shard: the first read of one."""
_TOGETHER: Final = 8
_KEPT: Final = 32
"""Shards in memory: 2 MiB; a cache on this node has the others."""


class SharedIndex:
    """An index that is there, and its shards as far as they were read.

    Args:
        objects: the medium.
        cache: caches shards on this node; they never change.
        name: of the index.
        bits: the number of first bits of an id that name its shard.
        listed_ms: every pack that was made before, but for skewed clocks, is in the index; epoch milliseconds.
    """

    def __init__(self, objects: Objects, cache: BlobCache | None, name: str, bits: int, listed_ms: int) -> None:
        self.name = name
        self.listed_ms = listed_ms
        self.is_whole = True
        """Whether every shard that was looked for could be read."""
        self._objects = objects
        self._cache = cache
        self._bits = bits
        self._shards: OrderedDict[int, Segment | None] = OrderedDict()

    def find(self, raw_id: bytes) -> tuple[str, PackEntry] | None:
        """Return the place of a blob, if its shard was read."""
        shard = self._shards.get(_number(raw_id, self._bits))
        return shard.find(raw_id) if shard is not None else None

    def read(self, raw_ids: Iterable[bytes]) -> bool:
        """Read the shards of these blobs; return whether there are any.

        Raises:
            Unavailable: the medium could not be reached.
        """
        return self._read({_number(raw_id, self._bits) for raw_id in raw_ids})

    def entries(self) -> Iterator[tuple[str, PackEntry]]:
        """Read all shards, and yield their entries.

        Raises:
            Unavailable: the medium could not be reached.
        """
        for first in range(0, 1 << self._bits, _KEPT):
            numbers = set(range(first, min(first + _KEPT, 1 << self._bits)))
            self._read(numbers)
            for shard in [self._shards[number] for number in sorted(numbers)]:
                if shard is not None:
                    yield from shard.entries()

    def packs(self) -> set[str]:
        """Return the names of all packs that it covers; none if they cannot be read.

        Raises:
            Unavailable: the medium could not be reached.
        """
        try:
            names = self._objects.read(f"{INDEX_FOLDER}/{self.name}/{_PACKS}").decode("ascii", "replace")
        except NotFound:
            return set()
        return {names[at : at + NAME_BYTES] for at in range(0, len(names), NAME_BYTES)}

    def _read(self, numbers: AbstractSet[int]) -> bool:
        lacking = sorted(numbers - self._shards.keys())
        names = {number: _shard(self.name, number) for number in lacking}
        kept = {number: self._cache.get_part(names[number]) if self._cache is not None else None for number in lacking}
        wanted = [number for number in lacking if kept[number] is None]
        read = self._objects.read_many([(names[number], 0, SHARD_BYTES) for number in wanted])
        for number, data in zip(wanted, read, strict=True):
            if not isinstance(data, NotFound):
                kept[number] = data
                if self._cache is not None:
                    self._cache.put_part(names[number], data)
        for number in numbers & self._shards.keys():
            self._shards.move_to_end(number)
        for number, found in kept.items():
            try:
                self._shards[number] = Segment(names[number], found) if found is not None else None
            except Corrupt:
                self._shards[number] = None
            if self._shards[number] is None:
                self.is_whole = False
        while len(self._shards) > max(_KEPT, len(numbers)):
            self._shards.popitem(last=False)
        return any(self._shards[number] is not None for number in numbers)


def read_shared_index(objects: Objects, cache: BlobCache | None) -> SharedIndex | None:
    """Return the present index of a store; ``None`` if there is none, or it cannot be read.

    Raises:
        Unavailable: the medium could not be reached.
    """
    try:
        found = json.loads(objects.read(_OBJECT))
        if found["format"] != _FORMAT:
            return None
        return SharedIndex(objects, cache, str(found["name"]), int(found["bits"]), int(found["listed_ms"]))
    except (NotFound, ValueError, KeyError, TypeError):
        return None


def publish(
    objects: Objects, name: str, places: Iterable[tuple[str, PackEntry]], packs: Iterable[str], listed_ms: int
) -> None:
    """Write an index and make it the present one.

    Args:
        objects: the medium.
        name: of the index; a new id.
        places: of the blobs; of several of one blob, the first counts.
        packs: the names of all packs that it covers.
        listed_ms: when these packs were listed, epoch milliseconds.

    Raises:
        Unavailable: the medium could not store it. The index before stays the present one.
    """
    found = list(places)
    bits = min(_MAX_BITS, max(0, (len(found) // _SHARD_ENTRIES).bit_length()))
    shards: dict[int, list[tuple[str, PackEntry]]] = {}
    for place in found:
        shards.setdefault(_number(place[1].raw_id, bits), []).append(place)

    def write(number: int) -> None:
        objects.write(_shard(name, number), [build_segment(shards.get(number, ()))])

    with ThreadPoolExecutor(_TOGETHER, "chronicle-index") as pool:
        for _ in pool.map(write, range(1 << bits)):
            pass
    objects.write(f"{INDEX_FOLDER}/{name}/{_PACKS}", ["".join(packs).encode()])
    described = {"format": _FORMAT, "name": name, "bits": bits, "listed_ms": listed_ms}
    objects.write(_OBJECT, [json.dumps(described).encode()])


def _number(raw_id: bytes, bits: int) -> int:
    return int.from_bytes(raw_id[:2], "big") >> (_MAX_BITS - bits)


def _shard(name: str, number: int) -> str:
    return f"{INDEX_FOLDER}/{name}/{number:04x}"
