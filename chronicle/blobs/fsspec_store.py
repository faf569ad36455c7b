"""A blob store of packs on any medium that fsspec reaches: ``file://``, ``memory://``, ``s3://``, ``gs://``.

One `put` writes one pack (`chronicle.blobs.packs`); a catalog derived from the packs says where blobs lie. Local files
are written without fsspec, by `chronicle.blobs.objects.LocalObjects`, which syncs them; all else is reached through
`chronicle.blobs.fsspec_objects`. Several processes may use one store; each opens its own `FsspecBlobStore`, after
forking. What is fetched from a far store is kept on this node, in a `chronicle.blobs.cache.BlobCache` that all share.

    format              {"format": 1}, written with the first pack
    packs/<shard>/<name>
    index/              derived, may be deleted at any time
    tmp/                packs being written; what a crash leaves here is swept by gc
"""

from __future__ import annotations

import json
import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from chronicle.blobs import ident, packs
from chronicle.blobs.cache import BlobCache, cache_from
from chronicle.blobs.catalog import Catalog, ListedCatalog, check_pack, pack_object, read_pack_index
from chronicle.blobs.condemned import MarkWatch
from chronicle.blobs.local_catalog import LocalCatalog
from chronicle.blobs.objects import LocalObjects, Objects, shown_url
from chronicle.clock import Clock, SystemClock
from chronicle.errors import BlobMissing, Corrupt, NotFound, Unavailable, UnsupportedFormat
from chronicle.ids import BlobId, IdSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from chronicle.blobs.packs import PackEntry

__all__ = ["FsspecBlobStore", "open_medium"]

_FORMAT: Final = 1
_FORMAT_OBJECT: Final = "format"
_FORMAT_BYTES: Final = json.dumps({"format": _FORMAT}).encode()
_LOCAL: Final = "file://"
"""Resolved here: what is run for the first time in a mount server becomes its private memory, and fsspec's way to a
path costs each of them a quarter of a megabyte."""
_CACHE_BYTES: Final = 4 * 1024 * 1024
"""Enough for the upper tree nodes of many directories."""
_CACHED_BLOB_BYTES: Final = 32 * 1024
"""Blobs up to this size are cached: tree nodes are at most about 16 KiB, and file chunks would drive them out."""
_GAP_BYTES: Final = 32 * 1024
"""Blobs of one pack with no more than this between them are read in one go: a request costs more than that."""
_INDEXES: Final = 16
"""Packs whose whole index is remembered by who reads more of them than was asked for."""
_SMALL_BYTES: Final = 16 * 1024
"""Nodes of trees are not larger."""
_BEHIND_BYTES: Final = 64 * 1024
"""Read with a small blob: some twenty nodes of trees. 64 KiB more take 5 ms on a line of 100 Mbit/s, a request 20."""
_RUN_BYTES: Final = 4 * 1024 * 1024
"""One go reads no more than about this: several at a time are faster than one."""


class FsspecBlobStore:
    """A `chronicle.blobs.store.BlobStore` of packs. Safe to share between threads.

    Args:
        url: where the store is, such as ``file:///var/lib/podium/blobs``; it is made with the first put.
        clock: dates the packs.
        ids: names the packs.
        cache_bytes: how much of small blobs is kept in memory.
        options: what the fsspec file system takes, such as credentials.
        cache: keeps what is fetched from a far store. ``"node"`` is the cache that the environment names; ``None``
            fetches each time, which verifying the store itself wants.

    Raises:
        InvalidInput: no such kind of URL.
        UnsupportedFormat: a newer version made the store.
        Unavailable: it could not be reached.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        cache_bytes: int = _CACHE_BYTES,
        options: Mapping[str, Any] | None = None,
        cache: BlobCache | Literal["node"] | None = "node",
    ) -> None:
        self.url = url
        self.shown = shown_url(url)
        """The URL as messages have it: without what may be secret in it."""
        self._clock = clock if clock is not None else SystemClock()
        self._ids = ids if ids is not None else IdSource()
        self._objects, self._catalog, self._disk = open_medium(url, self._new_name, options, cache)
        self._mark = MarkWatch(self._objects)
        self._lock = threading.RLock()
        self._cache = _Cache(cache_bytes)
        self._indexes: OrderedDict[str, list[PackEntry]] = OrderedDict()
        self._formatted = self._check_format()

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes, checked against its id.

        Raises:
            NotFound: no such blob.
            Corrupt: the stored bytes do not have that id, or the blob may have been in a pack that is damaged.
            Unavailable: the store could not be reached.
        """
        raw = ident.to_raw(blob_id)
        with self._lock:
            cached = self._cache.get(raw)
        if cached is not None:
            return cached
        if self._objects.is_far:
            return self._fetch([raw])[raw]
        data = self._read(raw)
        with self._lock:
            self._cache.put(raw, data)
        return data

    def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the bytes of blobs, those that lie together in one read; each as `get` does.

        Raises:
            NotFound, Corrupt, Unavailable: as `get`; nothing is returned then.
        """
        found: dict[bytes, bytes] = {}
        lacking = []
        with self._lock:
            for raw in dict.fromkeys(map(ident.to_raw, blob_ids)):
                cached = self._cache.get(raw)
                if cached is not None:
                    found[raw] = cached
                else:
                    lacking.append(raw)
        if lacking:
            found |= self._fetch(lacking)
        return {ident.from_raw(raw): data for raw, data in found.items()}

    def get_stretch(self, blob_id: BlobId, size_bytes: int) -> dict[BlobId, bytes]:
        """Return a blob and those that lie behind it in its pack, as many as fit into so many stored bytes.

        They are read in one go, and each is checked; others than the one asked for are left out if they are damaged.

        Raises:
            NotFound, Corrupt, Unavailable: as `get`, for the blob itself.
        """
        raw = ident.to_raw(blob_id)
        with self._lock:
            place = self._find(raw)
        if place is None:
            raise self._nowhere(raw)
        name, entry = place
        stretch = [entry]
        try:
            until = entry.offset + size_bytes
            stretch += [
                other
                for other in self._entries_of(name)
                if entry.offset < other.offset and other.offset + other.stored <= until
            ]
            size = stretch[-1].offset + stretch[-1].stored - entry.offset
            stored = self._objects.read(pack_object(name), entry.offset, size)
        except (NotFound, Corrupt):  # dropped since, or its index is damaged: the blob itself may be had all the same
            return {blob_id: self._read(raw)}
        found = {}
        for other in stretch:
            at = other.offset - entry.offset
            try:
                found[ident.from_raw(other.raw_id)] = packs.unpack_blob(name, other, stored[at : at + other.stored])
            except Corrupt:
                continue
        if blob_id not in found:
            found[blob_id] = self._read(raw)
        return found

    def _behind(self, name: str, entry: PackEntry) -> list[PackEntry]:
        """Return what lies right behind a small blob of a far store, if that is known here: a request costs more."""
        if self._disk is None or entry.stored > _SMALL_BYTES:
            return []
        entries = self._indexes.get(name)
        if entries is None:
            part = self._disk.get_part(name)
            if part is None:
                return []
            entries = self._remember(name, packs.unpack_entries(part))
        behind: list[PackEntry] = []
        with self._lock:
            for other in entries[bisect_right(entries, entry.offset, key=_offset) :]:
                is_known = self._cache.get(other.raw_id) is not None
                if is_known or other.offset + other.stored > entry.offset + _BEHIND_BYTES:
                    break
                behind.append(other)
        return behind

    def _remember(self, name: str, entries: list[PackEntry]) -> list[PackEntry]:
        """Keep a pack's entries, by their offset, for a while."""
        self._indexes[name] = ordered = sorted(entries, key=lambda entry: entry.offset)
        while len(self._indexes) > _INDEXES:
            self._indexes.popitem(last=False)
        return ordered

    def _entries_of(self, name: str) -> list[PackEntry]:
        """Return a pack's entries by their offset."""
        entries = self._indexes.get(name)
        return entries if entries is not None else self._remember(name, read_pack_index(self._objects, name))

    @property
    def is_far(self) -> bool:
        """Whether reading crosses a network."""
        return self._objects.is_far

    def put(self, blobs: Mapping[BlobId, bytes]) -> None:
        """Store those blobs that are not there yet as one pack, durable on return; without any, nothing is written.

        A blob that another process put a moment ago may be stored twice on media that can only be listed.

        Raises:
            InvalidInput: an id is not the BLAKE3 of its bytes.
            Unavailable: the store could not be reached; nothing of the pack is visible.
        """
        ident.check_ids(blobs)
        with self._lock:
            self._look()
            new = {key: data for key, data in blobs.items() if self._safe(key) is None}
        if not new:
            return
        if not self._formatted:
            self._objects.write(_FORMAT_OBJECT, [_FORMAT_BYTES])
            self._formatted = True
        parts, entries = packs.encode_pack(new)
        name = self._new_name()
        self._objects.write(pack_object(name), parts)
        with self._lock:
            self._translated(lambda: self._catalog.note(name, entries))
            for key, data in new.items():
                self._cache.put(ident.to_raw(key), data)
        if self._disk is not None:
            for key, data in new.items():
                if len(data) <= _CACHED_BLOB_BYTES:  # trees, which whoever opens the workspace again reads first
                    self._disk.put(ident.to_raw(key), data)

    def missing(self, blob_ids: Iterable[BlobId]) -> set[BlobId]:
        """Return those of the ids that the store does not have, or is about to drop: putting them again is safe.

        Raises:
            Unavailable: the store could not be reached.
        """
        with self._lock:
            self._look()
            lacking = {key for key in blob_ids if self._safe(key) is None}
            if lacking:
                self._translated(self._catalog.scan)
                lacking = {key for key in lacking if self._safe(key) is None}
            return lacking

    def blob_ids(self) -> Iterator[BlobId]:
        """Yield all ids, in no order.

        Raises:
            Unavailable: the store could not be reached.
        """
        with self._lock:
            self._translated(self._catalog.scan)
            found = [entry.raw_id for _, entry in self._catalog.entries()]
        for raw in found:
            yield ident.from_raw(raw)

    def blob_sizes(self) -> dict[BlobId, int]:
        """Return the bytes of every blob, before compression.

        Raises:
            Unavailable: the store could not be reached.
        """
        with self._lock:
            self._translated(self._catalog.scan)
            return {ident.from_raw(entry.raw_id): entry.size for _, entry in self._catalog.entries()}

    def pack_of(self, blob_id: BlobId) -> str | None:
        """Return the name of the pack that a blob is read from; ``None`` if there is none.

        Raises:
            Unavailable: the store could not be reached.
        """
        with self._lock:
            place = self._find(ident.to_raw(blob_id))
        return place[0] if place is not None else None

    def check_pack(self, name: str) -> None:
        """Check a pack's own index and the frame around its blobs: by these they are found if the index is lost.

        Raises:
            NotFound: it was dropped since.
            Corrupt: it is damaged.
            Unavailable: the store could not be reached.
        """
        check_pack(self._objects, name)

    def close(self) -> None:
        """Let go of what is cached; files are open only while they are read or written."""
        with self._lock:
            self._cache.clear()

    def _fetch(self, raws: list[bytes]) -> dict[bytes, bytes]:
        """Return blobs, from this node's cache or else the store; several who want the same one fetch it once."""
        disk = self._disk
        found = {raw: data for raw in raws if (data := disk.get(raw)) is not None} if disk is not None else {}
        lacking = [raw for raw in raws if raw not in found]
        if lacking:
            with disk.claim(lacking) if disk is not None else nullcontext():
                for raw in lacking:  # someone else may have been first
                    if disk is not None and (data := disk.get(raw)) is not None:
                        found[raw] = data
                read = self._read_all([raw for raw in lacking if raw not in found])
                for raw, data in read.items():
                    if disk is not None:
                        disk.put(raw, data)
                    found[raw] = data
        with self._lock:
            for raw, data in found.items():
                self._cache.put(raw, data)
        return {raw: found[raw] for raw in raws}

    def _read_all(self, raws: list[bytes]) -> dict[bytes, bytes]:
        """Read blobs from their packs, neighbours in one go, and a little of what lies behind small ones."""
        places: dict[str, list[PackEntry]] = {}
        with self._lock:
            for raw in raws:
                place = self._find(raw)
                if place is None:
                    raise self._nowhere(raw)
                places.setdefault(place[0], []).append(place[1])
        runs = [(name, run) for name, entries in places.items() for run in _runs(entries)]
        for name, run in runs:
            run.extend(self._behind(name, run[-1]))
        wanted = [
            (pack_object(name), run[0].offset, run[-1].offset + run[-1].stored - run[0].offset) for name, run in runs
        ]
        found = {}
        for (name, run), stored in zip(runs, self._objects.read_many(wanted), strict=True):
            if isinstance(stored, NotFound):
                continue
            start = run[0].offset
            for entry in run:
                part = stored[entry.offset - start : entry.offset - start + entry.stored]
                try:
                    found[entry.raw_id] = packs.unpack_blob(name, entry, part)
                except Corrupt:
                    continue  # maybe on the way only: it is read once more
        for raw in raws:
            if raw not in found:
                found[raw] = self._read(raw)
        return found

    def _read(self, raw: bytes) -> bytes:
        """Read a blob from its pack, or another one."""
        with self._lock:
            place = self._find(raw)
        while place is not None:
            name, entry = place
            try:
                stored = self._objects.read(pack_object(name), entry.offset, entry.stored)
            except NotFound:
                with self._lock:  # the pack was dropped since: its living blobs are elsewhere now
                    self._catalog.forget(name)
                    place = self._find(raw)
                continue
            return packs.unpack_blob(name, entry, stored)
        raise self._nowhere(raw)

    def _nowhere(self, raw: bytes) -> Corrupt | NotFound:
        """Return what is to be said of a blob that is in no pack."""
        damaged = self._catalog.damaged
        blob_id = ident.from_raw(raw)
        if damaged:
            return Corrupt(
                f"blob {blob_id} is not found; it may have been in what is damaged: {'; '.join(damaged.values())}"
            )
        return BlobMissing(f"no blob {blob_id} in {self.shown}")

    def _find(self, raw: bytes) -> tuple[str, PackEntry] | None:
        """Return a blob's place, looking for new packs if it is not known; the lock is held."""
        place = self._catalog.find(raw)
        for look in (self._catalog.refresh, self._catalog.scan):
            if place is None:
                self._translated(look)
                place = self._catalog.find(raw)
        return place

    def _look(self) -> None:
        """Learn what other processes have put and dropped; the lock is held."""
        self._translated(self._catalog.scan if self._mark.look() else self._catalog.refresh)

    def _safe(self, blob_id: BlobId) -> tuple[str, PackEntry] | None:
        """Return a place of a blob at which it will stay."""
        return self._catalog.find(ident.to_raw(blob_id), self._mark.packs)

    def _new_name(self) -> str:
        return self._ids.other("", self._clock.now_ms())

    def _check_format(self) -> bool:
        """Return whether the store is there; refuse one of a newer format."""
        try:
            described = self._objects.read(_FORMAT_OBJECT)
            if described == _FORMAT_BYTES:  # nearly always: a mount server need not touch what reads JSON
                return True
            found = json.loads(described)["format"]
        except NotFound:
            return False
        except (ValueError, KeyError, TypeError) as error:
            raise Corrupt(f"{self.shown}/{_FORMAT_OBJECT} is damaged: {error}") from error
        if found != _FORMAT:
            raise UnsupportedFormat(f"{self.shown} has format {found}; this code reads {_FORMAT}: upgrade podium")
        return True

    def _translated(self, call: Callable[[], None]) -> None:
        try:
            call()
        except OSError as error:
            raise Unavailable(f"the index of {self.shown} could not be used: {error.strerror}") from error


def open_medium(
    url: str,
    new_name: Callable[[], str],
    options: Mapping[str, Any] | None = None,
    cache: BlobCache | Literal["node"] | None = None,
) -> tuple[Objects, Catalog, BlobCache | None]:
    """Return the objects of a store, the catalog of its packs, and what keeps what is fetched of them.

    For the store itself and for gc.

    Raises:
        InvalidInput: no such kind of URL.
    """
    if url.startswith(_LOCAL):
        # A relative path is one from the working directory.
        path = Path(url.removeprefix(_LOCAL))
        local = LocalObjects(path if path.is_absolute() else path.expanduser().absolute())
        return local, LocalCatalog(local, new_name), None
    from chronicle.blobs.fsspec_objects import open_remote  # noqa: PLC0415 - a mount server on a local disk needs none

    remote = open_remote(url, options)
    if not remote.is_far:
        cache = None
    elif cache == "node":
        cache = cache_from(os.environ, _home())
    return remote, ListedCatalog(remote, new_name, cache), cache


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # a container's user may have none
        return None


def _runs(entries: list[PackEntry]) -> Iterator[list[PackEntry]]:
    """Yield entries of one pack in groups that are read in one go."""
    run: list[PackEntry] = []
    for entry in sorted(entries, key=lambda entry: entry.offset):
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


class _Cache:
    """The small blobs read last, up to a number of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size = 0
        self._blobs: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, raw_id: bytes) -> bytes | None:
        data = self._blobs.get(raw_id)
        if data is not None:
            self._blobs.move_to_end(raw_id)
        return data

    def put(self, raw_id: bytes, data: bytes) -> None:
        if len(data) > _CACHED_BLOB_BYTES or raw_id in self._blobs:
            return
        self._blobs[raw_id] = data
        self._size += len(data)
        while self._size > self._limit_bytes:
            self._size -= len(self._blobs.popitem(last=False)[1])

    def clear(self) -> None:
        self._blobs.clear()
        self._size = 0
