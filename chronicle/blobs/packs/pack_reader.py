"""Reads blobs of packs from memory, this node's cache, or the medium; adjacent blobs share a read."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter, OrderedDict
from contextlib import nullcontext, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from chronicle.blobs import ident
from chronicle.blobs.packs import pack_format
from chronicle.blobs.packs.catalog import index_from, pack_object, read_pack_index
from chronicle.errors import BlobMissing, Corrupt, NotFound, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from chronicle.blobs.cache import BlobCache
    from chronicle.blobs.media.objects import Objects
    from chronicle.blobs.packs.catalog import Catalog
    from chronicle.blobs.packs.pack_format import PackEntry

__all__ = ["CACHED_BLOB_BYTES", "PackReader"]

CACHED_BLOB_BYTES: Final = 32 * 1024
"""Blobs up to this size are cached: tree nodes are at most about 16 KiB, and file chunks would evict them."""
_GAP_BYTES: Final = 32 * 1024
"""Blobs of one pack with at most this gap share a request, which costs more than the gap."""
_INDEXES: Final = 16
"""Packs whose whole index is cached, for readers that read the neighbours of a blob."""
_SMALL_BYTES: Final = 16 * 1024
"""Tree nodes are not larger."""
_READS_FOR_INDEX: Final = 4
"""With this many reads of small blobs from one pack its index is fetched: what is read next are their neighbours."""
_BEHIND_BYTES: Final = 64 * 1024
"""Read-ahead after a small blob: some twenty tree nodes. 64 KiB take 5 ms on a link of 100 Mbit/s, a request 20."""
_RUN_BYTES: Final = 4 * 1024 * 1024
"""A request reads at most about this: several concurrent requests are faster than one."""


class PackReader:
    """Reads the blobs of one store. Safe to share between threads.

    Args:
        objects: the medium.
        catalog: maps blobs to their places.
        lock: guards the catalog; may be held while packs are listed.
        disk: caches blobs of a far store on this node.
        shown: the store's URL for messages.
        cache_bytes: the size of the cache of small blobs in memory.
    """

    def __init__(
        self,
        objects: Objects,
        catalog: Catalog,
        lock: threading.RLock,
        disk: BlobCache | None,
        shown: str,
        cache_bytes: int,
    ) -> None:
        self._objects = objects
        self._catalog = catalog
        self._lock = lock
        self._disk = disk
        self._shown = shown
        self._cache = _Cache(cache_bytes)
        self._indexes: OrderedDict[str, list[PackEntry]] = OrderedDict()
        self._reads: Counter[str] = Counter()
        """How often small blobs were read of packs whose index is not on this node."""
        self._in_parts: set[str] = set()
        """Packs of which `get_stretch` reads parts."""

    def get(self, raw: bytes) -> bytes:
        """Return a blob's bytes, checked; see `chronicle.blobs.port.BlobReader.get`."""
        cached = self._cache.get(raw)
        if cached is not None:
            return cached
        if self._objects.is_far:
            return self._fetch([raw])[raw]
        data = self._read(raw)
        self.keep(raw, data)
        return data

    def get_many(self, raws: list[bytes]) -> dict[bytes, bytes]:
        """Return the bytes of blobs; adjacent ones share a read."""
        found: dict[bytes, bytes] = {}
        lacking = []
        for raw in raws:
            cached = self._cache.get(raw)
            if cached is not None:
                found[raw] = cached
            else:
                lacking.append(raw)
        if lacking:
            found |= self._fetch(lacking)
        return found

    def get_here(self, raws: list[bytes]) -> dict[bytes, bytes]:
        """Return the bytes of those blobs that are in memory or in this node's cache.

        Does not wait for reads of other threads.
        """
        found: dict[bytes, bytes] = {}
        for raw in raws:
            data = self._cache.get(raw)
            if data is None and self._disk is not None and (data := self._disk.get(raw)) is not None:
                self.keep(raw, data)
            if data is not None:
                found[raw] = data
        return found

    def get_stretch(self, raw: bytes, size_bytes: int) -> tuple[dict[bytes, bytes], str | None]:
        """Return a blob and its neighbours in its pack; see `PackBlobStore.get_stretch`."""
        with self._lock:
            place = self.find(raw)
        if place is None:
            raise self._nowhere(raw)
        name, entry = place
        try:
            if self._may_be_whole(name, entry, size_bytes):
                [whole] = self._read_whole([name], size_bytes)
                if whole is not None:
                    return (whole if raw in whole else {**whole, raw: self._read(raw)}), name
            until = max(entry.offset + size_bytes, entry.offset + entry.stored)
            stretch = [
                other
                for other in self._entries_of(name)
                if entry.offset <= other.offset and other.offset + other.stored <= until
            ]
            if not stretch:  # its pack's own index lacks it
                return {raw: self._read(raw)}, None
            size = stretch[-1].offset + stretch[-1].stored - entry.offset
            stored = self._objects.read(pack_object(name), entry.offset, size)
        except (NotFound, Corrupt):  # dropped, or its index is damaged: the blob itself may be readable
            return {raw: self._read(raw)}, None
        found = _unpacked(name, stretch, stored)
        if raw not in found:
            found[raw] = self._read(raw)
        return found, None

    def get_packs(self, raws: Sequence[bytes], limit_bytes: int) -> dict[str, dict[bytes, bytes]]:
        """Return the blobs of the packs of some blobs; see `PackBlobStore.get_packs`."""
        with self._lock:
            self.find(raws[0])  # which finds the others, too, if it must be searched for
            places = [place for raw in raws if (place := self._catalog.find(raw)) is not None]
        names = list({name: None for name, entry in places if self._may_be_whole(name, entry, limit_bytes)})
        read = zip(names, self._read_whole(names, limit_bytes), strict=True)
        return {name: blobs for name, blobs in read if blobs is not None}

    def _may_be_whole(self, name: str, entry: PackEntry, limit_bytes: int) -> bool:
        return name not in self._in_parts and entry.offset + entry.stored < limit_bytes

    def _read_whole(self, names: Sequence[str], limit_bytes: int) -> Iterator[dict[bytes, bytes] | None]:
        """Yield the undamaged blobs of packs, each pack read in one request.

        For a pack that was dropped, is damaged around its blobs, or is not smaller than the limit, it yields ``None``.

        Raises:
            UnsupportedFormat, Unavailable: as `read_pack_index`.
        """
        read = self._objects.read_many([(pack_object(name), -limit_bytes, limit_bytes) for name in names])
        for name, stored in zip(names, read, strict=True):
            blobs = None
            if not isinstance(stored, NotFound) and len(stored) < limit_bytes:
                with suppress(Corrupt):
                    index = index_from(self._objects, name, len(stored), stored)
                    pack_format.check_head(name, stored[: len(pack_format.HEAD)], stored)
                    entries = sorted(index.entries, key=_place)
                    blobs = _unpacked(name, entries, stored[entries[0].offset :]) if entries else {}
            if blobs is None:
                self._in_parts.add(name)
            yield blobs

    def keep(self, raw: bytes, data: bytes) -> None:
        """Cache a blob in memory if it is small."""
        self._cache.put(raw, data)

    def clear(self) -> None:
        """Drop the cache in memory."""
        self._cache.clear()

    def find(self, raw: bytes) -> tuple[str, PackEntry] | None:
        """Return a blob's place, after a search for new packs if it is unknown; the caller holds the lock.

        Raises:
            Unavailable: the store could not be reached.
        """
        place = self._catalog.find(raw)
        if place is None:
            self._read_end(raw)
            self.translated(lambda: self._catalog.look_for([raw]))
            place = self._find_by_scan(raw)
        return place

    def _find_by_scan(self, raw: bytes) -> tuple[str, PackEntry] | None:
        """Return a blob's place, after a listing of the packs if it is unknown; the caller holds the lock."""
        place = self._catalog.find(raw)
        if place is None:
            self.translated(self._catalog.scan)
            place = self._catalog.find(raw)
        if place is None:  # in an index that was written meanwhile
            self.translated(lambda: self._catalog.look_for([raw]))
            place = self._catalog.find(raw)
        return place

    def translated(self, call: Callable[[], None]) -> None:
        """Call a function that uses the index, and translate its errors.

        Raises:
            Unavailable: it could not.
        """
        try:
            call()
        except OSError as error:
            raise Unavailable(f"the index of {self._shown} could not be used: {error.strerror}") from error

    def _fetch(self, raws: list[bytes]) -> dict[bytes, bytes]:
        """Return blobs, from this node's cache or else the store; concurrent requests for a blob fetch it once."""
        disk = self._disk
        found = {raw: data for raw in raws if (data := disk.get(raw)) is not None} if disk is not None else {}
        if len(raws) == 1 and found:
            self._catalog.note_read(raws[0])
        lacking = [raw for raw in raws if raw not in found]
        if lacking:
            with disk.claim(lacking) if disk is not None else nullcontext():
                for raw in lacking:  # another thread or process may have fetched it
                    if disk is not None and (data := disk.get(raw)) is not None:
                        found[raw] = data
                read = self._read_all([raw for raw in lacking if raw not in found])
                for raw, data in read.items():
                    if disk is not None:
                        disk.put(raw, data)
                    found[raw] = data
        for raw, data in found.items():
            self._cache.put(raw, data)
        return {raw: found[raw] for raw in raws}

    def _read_all(self, raws: list[bytes]) -> dict[bytes, bytes]:
        """Read blobs from their packs, with one request for neighbours and a read-ahead after small blobs."""
        places: dict[str, list[PackEntry]] = {}
        found = self._read_end(raws[0]) if len(raws) == 1 else {}
        with self._lock:
            unknown = [raw for raw in raws if raw not in found and self._catalog.find(raw) is None]
            if unknown:
                self.translated(lambda: self._catalog.look_for(unknown))
            for raw in raws:
                if raw in found:
                    continue
                place = self._find_by_scan(raw)
                if place is None:
                    raise self._nowhere(raw)
                places.setdefault(place[0], []).append(place[1])
        runs = [(name, run) for name, entries in places.items() for run in _runs(entries)]
        for name, run in runs:
            run.extend(self._behind(name, run[-1]))
        wanted = [
            (pack_object(name), run[0].offset, run[-1].offset + run[-1].stored - run[0].offset) for name, run in runs
        ]
        for (name, run), stored in zip(runs, self._objects.read_many(wanted), strict=True):
            if not isinstance(stored, NotFound):
                found |= _unpacked(name, run, stored)
        for raw in raws:
            if raw not in found:  # damaged, perhaps only in transit: it is read once more
                found[raw] = self._read(raw)
        return found

    def _read_end(self, raw: bytes) -> dict[bytes, bytes]:
        """Read the end of the pack whose key a blob of unknown place may be; other threads go on meanwhile.

        Returns:
            the blobs in it.
        """
        with self._lock:
            if self._catalog.find(raw) is not None:
                return {}
        end = self._catalog.read_end(raw)
        if end is None:
            return {}
        with self._lock:
            self._catalog.learn_end(raw, end)
        for key, data in end.blobs.items():
            self.keep(key, data)
        return end.blobs

    def _read(self, raw: bytes) -> bytes:
        """Read a blob from its pack, or another one."""
        with self._lock:
            place = self.find(raw)
        while place is not None:
            name, entry = place
            try:
                stored = self._objects.read(pack_object(name), entry.offset, entry.stored)
                return pack_format.unpack_blob(name, entry, stored)
            except NotFound:
                with self._lock:  # the pack was dropped: its reachable blobs are in other packs
                    self._catalog.forget(name)
                    place = self.find(raw)
            except Corrupt:
                with self._lock:
                    if not self._catalog.read_again(name, raw):
                        raise
                    place = self.find(raw)
        raise self._nowhere(raw)

    def _behind(self, name: str, entry: PackEntry) -> list[PackEntry]:
        """Return the entries to read ahead after a small blob of a far store, once the pack's index is worth a request.

        Raises:
            Unavailable: the store could not be reached.
        """
        if self._disk is None or entry.stored > _SMALL_BYTES:
            return []
        entries = self._indexes.get(name)
        if entries is None:
            part = self._disk.get_part(name)
            if part is None:
                self._reads[name] += 1
                if self._reads[name] < _READS_FOR_INDEX:
                    return []
                self._reads.clear()
                try:
                    part = pack_format.encode_index(read_pack_index(self._objects, name), 0)
                except (NotFound, Corrupt):  # found when the blob itself is read
                    return []
                self._disk.put_part(name, part)
            entries = self._remember(name, pack_format.read_index(name, part).entries)
        behind: list[PackEntry] = []
        for other in entries[bisect_right(entries, entry.offset, key=_offset) :]:
            is_known = self._cache.get(other.raw_id) is not None
            if is_known or other.offset + other.stored > entry.offset + _BEHIND_BYTES:
                break
            behind.append(other)
        return behind

    def _entries_of(self, name: str) -> list[PackEntry]:
        """Return a pack's entries by offset."""
        entries = self._indexes.get(name)
        return entries if entries is not None else self._remember(name, read_pack_index(self._objects, name).entries)

    def _remember(self, name: str, entries: list[PackEntry]) -> list[PackEntry]:
        """Cache a pack's entries by offset."""
        ordered = sorted(entries, key=_place)
        with self._lock:
            self._indexes[name] = ordered
            while len(self._indexes) > _INDEXES:
                self._indexes.popitem(last=False)
        return ordered

    def _nowhere(self, raw: bytes) -> Corrupt | NotFound:
        """Return the error for a blob that is in no pack."""
        damaged = self._catalog.damaged
        blob_id = ident.from_raw(raw)
        if damaged:
            return Corrupt(
                f"blob {blob_id} is not found; it may have been in what is damaged: {'; '.join(damaged.values())}"
            )
        return BlobMissing(f"no blob {blob_id} in {self._shown}")


def _unpacked(name: str, entries: list[PackEntry], stored: bytes) -> dict[bytes, bytes]:
    """Return the undamaged ones of adjacent blobs of a pack, from their stored bytes."""
    found = {}
    start = entries[0].offset
    for (offset, size), sharing in groupby(entries, key=_place):
        for entry, data in pack_format.unpack_group(name, sharing, stored[offset - start : offset - start + size]):
            if not isinstance(data, Corrupt):
                found[entry.raw_id] = data
    return found


def _runs(entries: list[PackEntry]) -> Iterator[list[PackEntry]]:
    """Yield the entries of one pack in groups that share a request."""
    run: list[PackEntry] = []
    for entry in sorted(entries, key=_place):
        if run:
            end = run[-1].offset + run[-1].stored
            if entry.offset - end > _GAP_BYTES or end - run[0].offset > _RUN_BYTES:
                yield run
                run = []
        run.append(entry)
    if run:
        yield run


def _offset(entry: PackEntry) -> int:
    return entry.offset


def _place(entry: PackEntry) -> tuple[int, int]:
    """Return the range of a frame, equal for blobs of a group. An empty blob has the offset of the next one."""
    return entry.offset, entry.stored


class _Cache:
    """An LRU cache of small blobs, bounded in bytes. Safe to share between threads.

    It has a separate lock, because the catalog's lock is held while packs are listed, which may take long.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._lock = threading.Lock()
        self._blobs: LRUCache[bytes, bytes] = LRUCache(limit_bytes, len)

    def get(self, raw_id: bytes) -> bytes | None:
        with self._lock:
            return self._blobs.get(raw_id)

    def put(self, raw_id: bytes, data: bytes) -> None:
        if len(data) > min(CACHED_BLOB_BYTES, self._blobs.maxsize):
            return
        with self._lock:
            if raw_id not in self._blobs:
                self._blobs[raw_id] = data

    def clear(self) -> None:
        with self._lock:
            self._blobs.clear()
