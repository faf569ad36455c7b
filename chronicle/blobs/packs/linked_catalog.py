"""The catalog for media that can only be listed, such as ``s3://``: packs lead to packs, so that nothing is listed.

A pack is named by its *key*, the blob that a reader looks for first (the last one of a put: a turn's commit). So a
reference from the journal gives the pack's name. The pack's end has its index, the nodes of its trees, and *links*:
the names of earlier packs of the same *line* that no index covers yet, and of the index segments that cover the others.
A line goes on with each put whose key refers to the key before, on whatever node; it writes a segment for every
`_LINKED_PACKS` packs and merges small ones, so that a link list stays short. What is older is in the shared index
(`chronicle.blobs.packs.shared_index`), which gc writes.

A blob is looked for in this order, and each step reads only what the one before did not find:

1. the pack whose key it is, if one blob is asked for: one request, which reads index and nodes along
2. the packs and segments that the packs read so lead to, if they are younger than the shared index
3. its shard of the shared index
4. a listing of all packs (`scan`)

Nothing of this is proof that a pack is there: a put that relies on one asks for it (`PackBlobStore`). Derived objects
that are lost cost requests, not blobs.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from chronicle.blobs.packs import pack_format
from chronicle.blobs.packs.catalog import (
    INDEX_FOLDER,
    KEY_MARK,
    PACK_FOLDER,
    SEGMENT_SUFFIX,
    TAIL_BYTES,
    Catalog,
    PackEnd,
    index_from,
    pack_object,
    read_pack_index,
    read_pack_indexes,
)
from chronicle.blobs.packs.pack_format import NAME_BYTES, Links, PackIndex
from chronicle.blobs.packs.segments import Segment, build_segment
from chronicle.blobs.packs.shared_index import SHARD_BYTES, SharedIndex, publish, read_shared_index
from chronicle.errors import Conflict, Corrupt, NotFound, Unavailable
from chronicle.ids import made_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from chronicle.blobs.cache import BlobCache
    from chronicle.blobs.media.objects import CreatingObjects
    from chronicle.blobs.packs.pack_format import PackEntry

__all__ = ["SKEW_MS", "LinkedCatalog", "key_name"]

SKEW_MS: Final = 600_000
"""Clocks of nodes differ by less."""
_LINKED_PACKS: Final = 16
"""With this many packs that no segment covers, one is written: each of them costs a cold reader a request."""
_MAX_LINKS: Final = 64
"""Links of each kind: older ones are left out, and what they lead to is found by a listing."""
_TIER: Final = 4
"""A segment is merged with newer ones once they have a quarter of its size; see `LocalCatalog`."""
_MERGED_BYTES: Final = SHARD_BYTES // 2
"""Larger segments are not merged but by gc."""
_HEADS: Final = 1024
"""Lines that are remembered: of that many workspaces in one process, the last used."""
_UNSURE: Final = 64
"""Blobs read on this node that are asked for as keys, if a new key refers to one of them."""
_UNCOVERED_LIMIT: Final = 64
"""With this many packs that only a listing found, a shared index is written: the next one would read them all again."""
_READ_TOGETHER: Final = 64
"""Indexes per batch of reads: at most 4 MiB of them."""
_MSGPACK_ID: Final = re.compile(rb"(?=\xc4\x20(.{32}))", re.DOTALL)
"""A blob's raw id as MessagePack has it, as in commits."""
_KEY_BYTES: Final = 4096
"""Of a key that is searched for ids: a commit has some 300 bytes."""
_DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def key_name(raw_key: bytes) -> str:
    """Return the name of the pack with a key: its first 125 bits."""
    bits = int.from_bytes(raw_key[:16], "big") >> 3
    return KEY_MARK + "".join(_DIGITS[bits >> 5 * place & 31] for place in reversed(range(NAME_BYTES - 1)))


@dataclass(slots=True)
class _Head:
    """The last known pack of a line."""

    name: str
    links: Links
    """Where it leads to, but for what this process wrote."""
    made_ms: int
    is_own: bool = False
    """Whether this process wrote it."""
    is_followed: bool = False
    """Whether what it leads to was read."""


class LinkedCatalog(Catalog):
    """The places of the blobs of a store that can only be listed.

    Args:
        objects, new_name: see `Catalog`.
        cache: caches indexes, segments and shards, which are immutable, on this node.
    """

    def __init__(self, objects: CreatingObjects, new_name: Callable[[], str], cache: BlobCache | None = None) -> None:
        super().__init__(objects, new_name)
        self._creating = objects
        self._cache = cache
        self._heads: OrderedDict[bytes, _Head] = OrderedDict()
        """By the key's raw id."""
        self._met: deque[bytes] = deque(maxlen=_HEADS)
        """Keys that were read on this node, and are not in ``_heads`` yet. Threads append without the store's lock."""
        self._unsure: deque[bytes] = deque(maxlen=_UNSURE)
        """The same for blobs that may be keys: this node has no index of a pack of their name."""
        self._indexes: dict[str, PackIndex] = {}
        """Packs that were written or read, and that no segment of this process covers."""
        self._unproven: set[str] = set()
        """Those of them that this node's cache had: others may have their names by now."""
        self._own: dict[str, int] = {}
        """Packs that this process wrote and no segment covers; when, epoch milliseconds."""
        self._covering: dict[str, Segment] = {}
        """Segments that cover what this process wrote."""
        self._shared: SharedIndex | None = None
        self._asked = False
        """Whether the shared index was looked for."""

    def find(self, raw_id: bytes, avoiding: AbstractSet[str] = frozenset()) -> tuple[str, PackEntry] | None:
        """Return a place of a blob, as far as it is known."""
        found = self._places.find(raw_id, avoiding)
        if found is None and self._shared is not None:
            found = self._shared.find(raw_id)
            if found is not None and not self._places.counts(raw_id, found[0], avoiding):
                return None
        return found

    def refresh(self) -> None:
        """Do nothing: a request would cost as much as the put, so duplicate blobs are accepted."""

    def look_for(self, raw_ids: Sequence[bytes]) -> None:
        """Follow links, and look into the shared index."""

        def lacking() -> list[bytes]:
            return [raw_id for raw_id in raw_ids if self.find(raw_id) is None]

        if lacking():
            self._follow(lacking)
        before = None
        while (left := lacking()) and self._shared is not None and self._shared is not before:
            before = self._shared
            before.read(left)
            if lacking():
                self._load_shared()  # another one may have taken its place

    def renew(self) -> None:
        """Drop what the shared index has by now."""
        self._load_shared()
        if self._shared is None:
            return
        before_ms = self._shared.listed_ms - SKEW_MS
        self._places.segments = [each for each in self._places.segments if made_ms(each.name) >= before_ms]
        old = {name for name, index in self._indexes.items() if index.made_ms < before_ms}
        self._indexes = {name: index for name, index in self._indexes.items() if name not in old}
        self._places.fresh = {raw: place for raw, place in self._places.fresh.items() if place[0] not in old}
        self._own = {name: at_ms for name, at_ms in self._own.items() if at_ms >= before_ms}
        self._covering = {name: segment for name, segment in self._covering.items() if made_ms(name) >= before_ms}
        for head in self._heads.values():
            if head.made_ms < before_ms:
                head.links, head.is_followed = Links(), True

    def scan(self) -> None:
        """List the packs, and read the indexes of those that no index has.

        An index has one place of each blob. If it names a pack that is gone, or whose name another one has now, because
        a collection took place while it was written or read, blobs may be in others of its packs as well, and it counts
        as none.
        """
        index_name = self._new_name()
        self._load_shared()  # before the listing, which then has all that it names but what was removed
        listed = {name.rpartition("/")[2]: size for name, size in self._objects.sizes(PACK_FOLDER).items()}
        if self._shared is not None and not self._shared.is_whole:
            self._shared = None  # what a lost or damaged shard had is read from the packs
        covered = self._shared.packs() if self._shared is not None else set()
        indexes = [covered, *(set(segment.pack_names()) for segment in self._places.segments)]
        self._places.gone |= self._indexes.keys() - listed.keys()
        self._places.gone.update(*(packs - listed.keys() for packs in indexes))
        self._places.gone -= listed.keys()
        self._prove(listed)
        sound = listed.keys() - self._places.renewed.keys()
        covered = covered if covered <= sound else set()
        known = self._indexes.keys() | set[str]().union(*(packs for packs in indexes if packs <= sound))
        for name in self._indexes.keys() & listed.keys():
            self._places.add_lacking(name, self._indexes[name].entries)
        new = sorted(listed.keys() - known)
        for at in range(0, len(new), _READ_TOGETHER):
            self._take({name: listed[name] for name in new[at : at + _READ_TOGETHER]})
        uncovered = listed.keys() - covered - self._places.damaged.keys()
        if len(uncovered) > _UNCOVERED_LIMIT:
            with suppress(Unavailable):  # read-only: what was read suffices
                self._publish(
                    self.entries(), listed.keys() - self._places.damaged.keys(), index_name, made_ms(index_name)
                )

    def links(self, key: bytes) -> Links:
        """Return where a pack with this key leads to: to what its line has, and this process wrote."""
        before = list(self._before(key))
        packs = dict.fromkeys(reversed(self._own))
        segments = dict.fromkeys(self._covering)
        for head in before:
            packs.update(dict.fromkeys(head.links.packs))
            segments.update(dict.fromkeys(head.links.segments))
        follows = tuple(head.name for head in before)
        others = [name for name in packs if name not in follows]
        return Links(follows, tuple(others[:_MAX_LINKS]), tuple(segments)[:_MAX_LINKS])

    def write(self, raw_key: bytes, parts: list[bytes], avoiding: AbstractSet[str]) -> str:
        """Write a pack, named by its key unless that name is taken or a collection may remove it."""
        name = key_name(raw_key)
        if name not in avoiding:
            with suppress(Conflict):
                self._creating.create(pack_object(name), b"".join(parts))
                return name
        return super().write(raw_key, parts, avoiding)

    def note(self, name: str, index: PackIndex, raw_key: bytes) -> None:
        """Add a pack that was just written; its line goes on from it."""
        self._places.gone.discard(name)
        self._learn(name, index)
        self._cache_index(name, index)  # for the line's next process on this node
        self._own[name] = index.made_ms
        own = {head.name for head in self._heads.values() if head.is_own}
        packs = [other for other in (*index.links.follows, *index.links.packs) if other not in own | self._own.keys()]
        segments = [other for other in index.links.segments if other not in self._covering]
        line = Links((), tuple(packs), tuple(segments))
        self._remember(raw_key, _Head(name, line, index.made_ms, is_own=True, is_followed=True))
        if len(self._own) >= _LINKED_PACKS:
            with suppress(Unavailable):  # the links stay, until there are too many
                self._cover(raw_key)

    def note_read(self, raw_id: bytes) -> None:
        """Remember a blob as the key of a pack, maybe. Needs no lock: a blob on this node waits for no request."""
        (self._met if self._cached(key_name(raw_id)) is not None else self._unsure).append(raw_id)

    def read_again(self, name: str, raw_id: bytes) -> bool:
        """Read a pack's index from the pack itself; return whether another one was known.

        Of two packs with one key the second may have been made when the first was gone.
        """
        before = self._indexes.get(name)
        try:
            now = read_pack_index(self._objects, name)
        except (NotFound, Corrupt):
            return False
        is_new = now != before or all(entry.raw_id != raw_id for entry in now.entries)
        if is_new:
            self._renew(name, now)
        return is_new

    def replace(self, places: Iterable[tuple[str, PackEntry]], dropped: AbstractSet[str], listed_ms: int) -> None:
        """Write a shared index of all packs but the dropped ones; then remove these."""
        kept = [place for place in places if place[0] not in dropped]
        self._publish(kept, {name for name, _ in kept}, self._new_name(), listed_ms)
        for pack in dropped:
            self._objects.delete(pack_object(pack))

    def cover(self, places: Iterable[tuple[str, PackEntry]], packs: AbstractSet[str], listed_ms: int) -> None:
        """Write a shared index, unless the present one has nearly all of the packs."""
        self._load_shared()
        if len(packs - (self._shared.packs() if self._shared is not None else set())) > _UNCOVERED_LIMIT:
            self._publish(places, packs, self._new_name(), listed_ms)

    def entries(self) -> Iterator[tuple[str, PackEntry]]:
        """Yield the known entries, each id once."""
        seen = set()
        for place in super().entries():
            seen.add(place[1].raw_id)
            yield place
        shared = self._shared
        if shared is None:
            return
        for place in shared.entries():
            if place[1].raw_id not in seen and self._places.counts(place[1].raw_id, place[0]):
                seen.add(place[1].raw_id)
                yield place
        if not shared.is_whole:
            self.scan()
            yield from (place for place in super().entries() if place[1].raw_id not in seen)

    # -- links ----------------------------------------------------------------------------------------------------

    def _before(self, key: bytes) -> Iterator[_Head]:
        """Yield the heads that a key refers to."""
        self._learn_met()
        referred = {found[1] for found in _MSGPACK_ID.finditer(key[:_KEY_BYTES])}
        for raw_id in referred - self._heads.keys():
            if self._cached(key_name(raw_id)) is not None:  # another process of this node wrote or read it
                self._read_head(raw_id)
        for raw_id in [raw_id for raw_id in self._unsure.copy() if raw_id in key and raw_id not in self._heads]:
            self._read_head(raw_id)
        yield from [head for raw_id, head in self._heads.items() if raw_id in key]

    def _learn_met(self) -> None:
        """Take the keys that were read on this node for heads."""
        while self._met:
            raw_id = self._met.popleft()
            if raw_id not in self._heads:
                self._read_head(raw_id)

    def read_end(self, raw_key: bytes) -> PackEnd | None:
        """Read the end of the pack with this key, if there is one: from this node's cache, or from the medium."""
        name = key_name(raw_key)
        index = self._cached(name)
        if index is not None:
            return PackEnd(name, index, {}, is_cached=True)
        try:
            tail = self._objects.read(pack_object(name), -TAIL_BYTES)
            size = pack_format.pack_size(name, tail)
            index = index_from(self._objects, name, size, tail)
        except NotFound:
            return None
        except Corrupt as error:
            return PackEnd(name, None, {}, str(error))
        self._cache_index(name, index)
        return PackEnd(name, index, _blobs_in(name, index, size - len(tail), tail))

    def learn_end(self, raw_key: bytes, end: PackEnd) -> None:
        """Add the pack whose end was read: a line may go on from it."""
        if end.index is None:
            self._places.damaged[end.name] = end.damage
            return
        if not end.is_cached:
            self._places.gone.discard(end.name)
        self._learn(end.name, end.index, is_proven=not end.is_cached)
        if raw_key not in self._heads:
            links = Links((), (*end.index.links.follows, *end.index.links.packs), end.index.links.segments)
            self._remember(raw_key, _Head(end.name, links, end.index.made_ms))

    def _read_head(self, raw_key: bytes) -> None:
        """Read and add the pack with this key, if there is one."""
        end = self.read_end(raw_key)
        if end is not None:
            self.learn_end(raw_key, end)

    def _follow(self, lacking: Callable[[], list[bytes]]) -> None:
        """Read what the known packs lead to, the last used first, until no blob is lacking."""
        self._learn_met()
        if not self._asked:
            self._load_shared()
        since_ms = self._shared.listed_ms - SKEW_MS if self._shared is not None else 0
        for head in reversed(list(self._heads.values())):
            if head.is_followed or head.made_ms < since_ms:
                continue
            self._take(dict.fromkeys(name for name in head.links.packs if name not in self._indexes))
            self._load(head.links.segments)
            head.is_followed = True
            if not lacking():
                return

    def _remember(self, raw_id: bytes, head: _Head) -> None:
        self._heads[raw_id] = head
        self._heads.move_to_end(raw_id)
        while len(self._heads) > _HEADS:
            self._heads.popitem(last=False)

    def _cover(self, raw_key: bytes) -> None:
        """Write a segment for a line's packs, and for its small segments; its links lead there from now on."""
        line = self._heads[raw_key]
        inherited = line.links
        self._take(dict.fromkeys(name for name in inherited.packs if name not in self._indexes))
        self._load(inherited.segments)
        loaded = {segment.name: segment for segment in self._places.segments}
        linked = {name: loaded[name] for name in (*self._covering, *inherited.segments) if name in loaded}
        covered = [name for name in dict.fromkeys((*self._own, *inherited.packs)) if name in self._indexes]
        found = [(name, entry) for name in covered for entry in self._indexes[name].entries]
        size = len(found) * pack_format.ENTRY_BYTES
        for segment in sorted(linked.values(), key=lambda segment: segment.size_bytes):
            if segment.size_bytes > _TIER * size or size + segment.size_bytes > _MERGED_BYTES:
                break
            found.extend(segment.entries())
            size += segment.size_bytes
            del linked[segment.name]
        name = self._new_name()
        data = build_segment(found)
        self._objects.write(_segment_object(name), [data])
        if self._cache is not None:
            self._cache.put_part(name, data)
        linked[name] = Segment(name, data)
        merged = loaded.keys() - linked.keys()
        self._places.segments = [linked[name], *(each for each in self._places.segments if each.name not in merged)]
        for pack in covered:
            for entry in self._indexes.pop(pack).entries:
                if self._places.fresh.get(entry.raw_id, ("",))[0] == pack:
                    del self._places.fresh[entry.raw_id]
        self._own.clear()
        self._covering = linked
        line.links = Links()

    # -- reading indexes ------------------------------------------------------------------------------------------

    def _learn(self, name: str, index: PackIndex, *, is_proven: bool = True) -> None:
        self._indexes[name] = index
        (self._unproven.discard if is_proven else self._unproven.add)(name)
        self._places.damaged.pop(name, None)
        self._places.renewed.pop(name, None)
        self._places.add(name, index.entries)

    def _take(self, packs: dict[str, int] | dict[str, None]) -> None:
        """Read the indexes of packs, from this node's cache or their ends; unreadable ones are noted as damaged."""
        lacking = []
        for name in packs:
            index = self._cached(name)
            if index is None:
                lacking.append(name)
            else:
                self._learn(name, index, is_proven=False)
        tails = self._objects.read_many([(pack_object(name), -TAIL_BYTES, TAIL_BYTES) for name in lacking])
        for name, tail in zip(lacking, tails, strict=True):
            index = self._places.take(name, partial(self._index_of, name, packs[name], tail))
            if index is not None:
                self._indexes[name] = index
                self._cache_index(name, index)
            elif name not in self._places.damaged:
                self._places.gone.add(name)

    def _prove(self, sizes: Mapping[str, int]) -> None:
        """Read again the indexes of packs in whose place others may be."""
        doubtful = [
            name
            for name, index in self._indexes.items()
            if name in sizes and (name in self._unproven or pack_format.size_with(index) != sizes[name])
        ]
        for at in range(0, len(doubtful), _READ_TOGETHER):
            for name, now in read_pack_indexes(self._objects, doubtful[at : at + _READ_TOGETHER], sizes):
                if isinstance(now, PackIndex):
                    if now != self._indexes[name]:
                        self._renew(name, now)
                    self._unproven.discard(name)

    def _renew(self, name: str, now: PackIndex) -> None:
        """Add a pack in the place of another one; what else is known of that one, such as a segment, does not count."""
        self._learn(name, now)
        self._cache_index(name, now)
        self._places.renewed[name] = frozenset(entry.raw_id for entry in now.entries)

    def _index_of(self, name: str, size: int | None, tail: bytes | NotFound) -> PackIndex:
        if isinstance(tail, NotFound):
            raise tail
        return index_from(self._objects, name, size if size is not None else pack_format.pack_size(name, tail), tail)

    def _cached(self, name: str) -> PackIndex | None:
        part = self._cache.get_part(name) if self._cache is not None else None
        return pack_format.read_index(name, part) if part is not None else None

    def _cache_index(self, name: str, index: PackIndex) -> None:
        if self._cache is not None:
            self._cache.put_part(name, pack_format.encode_index(index, 0))

    def _load(self, names: Iterable[str]) -> None:
        """Read segments; lost ones are left out, as the shared index has what they covered."""
        there = {segment.name for segment in self._places.segments}
        lacking = [name for name in names if name not in there]
        kept = {name: self._cache.get_part(name) if self._cache is not None else None for name in lacking}
        wanted = [name for name in lacking if kept[name] is None]
        read = self._objects.read_many([(_segment_object(name), 0, SHARD_BYTES) for name in wanted])
        for name, data in zip(wanted, read, strict=True):
            if not isinstance(data, NotFound):
                kept[name] = data
                if self._cache is not None:
                    self._cache.put_part(name, data)
        for name, found in kept.items():
            if found is not None:
                with suppress(Corrupt):
                    self._places.segments.append(Segment(name, found))

    # -- the shared index -----------------------------------------------------------------------------------------

    def _load_shared(self) -> None:
        self._asked = True
        now = read_shared_index(self._objects, self._cache)
        if now is None or self._shared is None or now.name != self._shared.name:
            self._shared = now

    def _publish(
        self, places: Iterable[tuple[str, PackEntry]], packs: Iterable[str], name: str, listed_ms: int
    ) -> None:
        """Write a shared index, and remove the derived objects that it makes superfluous."""
        before = self._objects.names(INDEX_FOLDER)
        publish(self._objects, name, places, packs, listed_ms)
        self._load_shared()
        for derived in before:
            made = derived.removeprefix(f"{INDEX_FOLDER}/")[:NAME_BYTES]
            if len(made) == NAME_BYTES and made_ms(made) < listed_ms - SKEW_MS:
                self._objects.delete(derived)


def _segment_object(name: str) -> str:
    return f"{INDEX_FOLDER}/{name}{SEGMENT_SUFFIX}"


def _blobs_in(name: str, index: PackIndex, start: int, tail: bytes) -> dict[bytes, bytes]:
    """Return the blobs that are whole in the end of a pack, which begins at ``start``; damaged ones are left out."""
    found = {}
    for entry in index.entries:
        at = entry.offset - start
        if at >= 0:
            with suppress(Corrupt):
                found[entry.raw_id] = pack_format.unpack_blob(name, entry, tail[at : at + entry.stored])
    return found
