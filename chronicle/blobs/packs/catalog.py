"""Catalogs map blobs to their places: the part that is common to all media, and the catalog for remote ones.

A catalog is derived from the packs, the only source of truth: it may be lost or outdated, and is then rebuilt. It
has *segments* (`chronicle.blobs.packs.segments`), which cover many packs, and *fresh* entries of packs that no segment
covers yet. `ListedCatalog` finds new packs by listing them and reads their own indexes; a process that finds many
uncovered ones writes a segment for the others. Not safe to share between threads: the store locks it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Final

from chronicle.blobs.packs import pack_format
from chronicle.blobs.packs.segments import Segment, build_segment
from chronicle.errors import Corrupt, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from chronicle.blobs.cache import BlobCache
    from chronicle.blobs.media.objects import Objects
    from chronicle.blobs.packs.pack_format import PackEntry

__all__ = [
    "INDEX_FOLDER",
    "PACK_FOLDER",
    "Catalog",
    "ListedCatalog",
    "Places",
    "check_pack",
    "pack_object",
    "read_pack_index",
]

PACK_FOLDER: Final = "packs"
INDEX_FOLDER: Final = "index"
SEGMENT_SUFFIX: Final = ".idx"
_SHARD_DIGITS: Final = 5
"""Packs are in folders by the first digits of their names, which encode a time: one folder for nine hours."""
_UNCOVERED_LIMIT: Final = 64
"""With this many packs without a segment one is written: reading each one's index takes a request."""
_SEGMENT_LIMIT: Final = 8
"""More segments than this are merged, because a look-up searches each."""
_READ_TOGETHER: Final = 64
"""Indexes per batch of reads: at most 4 MiB of them."""
_TAIL_BYTES: Final = 64 * 1024
"""The first read of a pack's end: it includes the whole index of up to 1,300 blobs."""


class Catalog(ABC):
    """The places of a store's blobs.

    Args:
        objects: the medium.
        new_name: returns new names for segments.
    """

    def __init__(self, objects: Objects, new_name: Callable[[], str]) -> None:
        self._objects = objects
        self._new_name = new_name
        self._places = Places()

    def find(self, raw_id: bytes, avoiding: AbstractSet[str] = frozenset()) -> tuple[str, PackEntry] | None:
        """Return the name of a blob's pack and its entry there, without a refresh."""
        return self._places.find(raw_id, avoiding)

    @abstractmethod
    def refresh(self) -> None:
        """Find other writers' packs as far as that is cheap."""

    @abstractmethod
    def scan(self) -> None:
        """Find every pack of the store."""

    @abstractmethod
    def note(self, name: str, entries: list[PackEntry]) -> None:
        """Add a pack that was just written, and announce it to other processes if that is cheap."""

    def forget(self, name: str) -> None:
        """Treat a pack as removed."""
        self._places.gone.add(name)

    @abstractmethod
    def replace(self, places: Iterable[tuple[str, PackEntry]], dropped: AbstractSet[str]) -> None:
        """Rebuild the index from these places and from entries added since; then remove the dropped packs.

        The index omits them before the first of them is removed, so a reader that misses a pack finds the copies. They
        must not be added again, or writers would treat their blobs as present.

        Raises:
            Unavailable: it was interrupted. Another call continues.
        """

    def entries(self) -> Iterator[tuple[str, PackEntry]]:
        """Yield the known entries, each id once."""
        return self._places.entries()

    @property
    def damaged(self) -> Mapping[str, str]:
        """The packs with an unreadable index, and the reasons: their blobs are unknown."""
        return self._places.damaged


def pack_object(name: str) -> str:
    """Return the object name of a pack."""
    return f"{PACK_FOLDER}/{name[:_SHARD_DIGITS]}/{name}"


def read_pack_index(objects: Objects, name: str, size: int | None = None) -> list[PackEntry]:
    """Return the entries of a pack, read from the pack itself.

    Args:
        objects: the medium.
        name: the pack's.
        size: of the pack, bytes; by default it is requested.

    Raises:
        NotFound: no such pack.
        Corrupt: it is damaged.
        UnsupportedFormat: written by a newer version.
        Unavailable: the medium could not be reached.
    """
    at = pack_object(name)
    if size is None:
        size = objects.size(at)
    return _index_from(objects, name, size, objects.read(at, max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES)))


def check_pack(objects: Objects, name: str) -> None:
    """Check a pack except its blobs, which every read checks.

    Raises:
        NotFound, Corrupt, UnsupportedFormat, Unavailable: as `read_pack_index`.
    """
    at = pack_object(name)
    size = objects.size(at)
    tail = objects.read(at, max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES))
    _index_from(objects, name, size, tail)
    pack_format.check_head(name, objects.read(at, 0, len(pack_format.HEAD)), tail)


def _index_from(objects: Objects, name: str, size: int, tail: bytes) -> list[PackEntry]:
    """Return the entries of a pack, given its last bytes."""
    at = pack_object(name)
    start = pack_format.index_start(name, size, tail)
    if size - start > len(tail):
        tail = objects.read(at, start)
    return pack_format.read_index(name, tail[len(tail) - (size - start) :])


class Places:
    """The known entries, searchable: segments and fresh entries."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.fresh: dict[bytes, tuple[str, PackEntry]] = {}
        self.gone: set[str] = set()
        self.damaged: dict[str, str] = {}

    def find(self, raw_id: bytes, avoiding: AbstractSet[str] = frozenset()) -> tuple[str, PackEntry] | None:
        """Return a place of a blob outside of removed packs and those to avoid."""
        found = self.fresh.get(raw_id)
        if found is not None and found[0] not in self.gone and found[0] not in avoiding:
            return found
        for segment in self.segments:
            found = segment.find(raw_id)
            if found is not None and found[0] not in self.gone and found[0] not in avoiding:
                return found
        return None

    def add(self, name: str, entries: list[PackEntry]) -> None:
        """Add the entries of a pack. A later place replaces an earlier one, whose pack may be condemned."""
        for entry in entries:
            self.fresh[entry.raw_id] = (name, entry)

    def read(self, objects: Objects, name: str) -> list[PackEntry] | None:
        """Add a pack from its own index; ``None`` if it is removed or damaged."""
        return self.take(name, lambda: read_pack_index(objects, name))

    def take(self, name: str, read: Callable[[], list[PackEntry]]) -> list[PackEntry] | None:
        """Add a pack from the index that ``read`` returns; ``None`` if it is removed or damaged."""
        try:
            entries = read()
        except NotFound:
            return None
        except Corrupt as error:
            self.damaged[name] = str(error)
            return None
        self.damaged.pop(name, None)
        self.add(name, entries)
        return entries

    def entries(self) -> Iterator[tuple[str, PackEntry]]:
        """Yield one place for each id."""
        for raw_id in list(self.fresh):
            found = self.find(raw_id)
            if found is not None:
                yield found
        for number, segment in enumerate(self.segments):
            for place in segment.entries():
                raw_id = place[1].raw_id
                if raw_id in self.fresh or any(earlier.find(raw_id) for earlier in self.segments[:number]):
                    continue
                if place[0] not in self.gone:
                    yield place


class ListedCatalog(Catalog):
    """The catalog for media that can only be listed, such as ``memory://`` and ``s3://``.

    Args:
        objects, new_name: see `Catalog`.
        cache: caches indexes and segments, which are immutable, on this node.
    """

    def __init__(self, objects: Objects, new_name: Callable[[], str], cache: BlobCache | None = None) -> None:
        super().__init__(objects, new_name)
        self._cache = cache
        self._known: set[str] = set()
        self._scanned = False

    def find(self, raw_id: bytes, avoiding: AbstractSet[str] = frozenset()) -> tuple[str, PackEntry] | None:
        """Return a place of a blob."""
        if not self._scanned:
            self.scan()
        return super().find(raw_id, avoiding)

    def refresh(self) -> None:
        """List once. A later listing would cost as much as its put, so duplicate blobs are accepted."""
        if not self._scanned:
            self.scan()

    def scan(self) -> None:
        """List packs and segments, and read the new ones."""
        found = self._objects.sizes(INDEX_FOLDER)
        loaded = {segment.name for segment in self._places.segments}
        for name in found.keys() - loaded:
            segment = self._load(name, found[name]) if name.endswith(SEGMENT_SUFFIX) else None
            if segment is not None:
                self._places.segments.append(segment)
                self._known.update(segment.pack_names())
        listed = {name.rpartition("/")[2]: size for name, size in self._objects.sizes(PACK_FOLDER).items()}
        self._places.gone |= self._known - listed.keys()
        uncovered = []
        new = sorted(listed.keys() - self._known)
        for at in range(0, len(new), _READ_TOGETHER):
            for name, read in self._indexes({name: listed[name] for name in new[at : at + _READ_TOGETHER]}):
                entries = self._places.take(name, read)
                if entries is not None:
                    self._known.add(name)
                    uncovered.append((name, entries))
        self._scanned = True
        if len(uncovered) > _UNCOVERED_LIMIT:
            self._cover(uncovered)

    def note(self, name: str, entries: list[PackEntry]) -> None:
        """Add a pack that was just written."""
        self._places.add(name, entries)
        self._known.add(name)

    def replace(self, places: Iterable[tuple[str, PackEntry]], dropped: AbstractSet[str]) -> None:
        """Replace all segments by one for all packs except the dropped ones; then remove the dropped packs.

        Another process may add them to a segment meanwhile, but a pack that is missing in the listing never counts as
        present.
        """
        self.scan()
        found = [place for place in (*places, *self._places.fresh.values()) if place[0] not in dropped]
        name = f"{INDEX_FOLDER}/{self._new_name()}{SEGMENT_SUFFIX}"
        data = build_segment(found)
        self._objects.write(name, [data])
        for segment in self._places.segments:
            self._objects.delete(segment.name)
        self._places.segments = [Segment(name, data)]
        self._places.fresh.clear()
        self._known = set(self._places.segments[0].pack_names())
        for pack in dropped:
            self._objects.delete(pack_object(pack))

    def _load(self, name: str, size: int) -> Segment | None:
        try:
            kept = self._cache.get_part(name) if self._cache is not None else None
            data = kept if kept is not None else self._objects.read(name, 0, size)
            segment = Segment(name, data)
        except (NotFound, Corrupt):
            return None  # merged or damaged: the packs themselves are read instead
        if kept is None and self._cache is not None:
            self._cache.put_part(name, data)
        return segment

    def _indexes(self, sizes: dict[str, int]) -> Iterator[tuple[str, Callable[[], list[PackEntry]]]]:
        """Yield packs, in order, with functions that return their entries; the packs' ends are read in batches."""
        kept = {name: self._cache.get_part(name) if self._cache is not None else None for name in sizes}
        ends = {
            name: (pack_object(name), max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES))
            for name, size in sizes.items()
            if kept[name] is None
        }
        tails = dict(zip(ends, self._objects.read_many(list(ends.values())), strict=True))

        def entries(name: str) -> list[PackEntry]:
            index = kept[name]
            if index is not None:
                return pack_format.unpack_entries(index)
            tail = tails[name]
            if isinstance(tail, NotFound):
                raise tail
            found = _index_from(self._objects, name, sizes[name], tail)
            if self._cache is not None:
                self._cache.put_part(name, pack_format.pack_entries(found))
            return found

        for name in sizes:
            yield name, partial(entries, name)

    def _cover(self, uncovered: list[tuple[str, list[PackEntry]]]) -> None:
        """Write a segment for uncovered packs; merge all others into it if there are too many."""
        found = [(name, entry) for name, entries in uncovered for entry in entries]
        merged = self._places.segments if len(self._places.segments) >= _SEGMENT_LIMIT else []
        for segment in merged:
            found.extend(place for place in segment.entries() if place[0] not in self._places.gone)
        name = f"{INDEX_FOLDER}/{self._new_name()}{SEGMENT_SUFFIX}"
        data = build_segment(found)
        self._objects.write(name, [data])
        for segment in merged:
            self._objects.delete(segment.name)
        kept = [] if merged else self._places.segments
        self._places.segments = [Segment(name, data), *kept]
        for entry_id in [entry.raw_id for _, entries in uncovered for entry in entries]:
            self._places.fresh.pop(entry_id, None)
