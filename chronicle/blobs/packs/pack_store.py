"""A blob store of packs on any medium of fsspec: ``file://``, ``memory://``, ``s3://``, ``gs://``.

One `put` writes one pack (`chronicle.blobs.packs.pack_format`); a catalog derived from the packs maps blobs to their
places. Local files are written without fsspec, by `chronicle.blobs.media.objects.LocalObjects`, which syncs them; other
media are accessed through `chronicle.blobs.media.fsspec_objects`. Several processes may use one store; each opens its
own `PackBlobStore`, after forking. Blobs of a far store are cached on this node, in a shared
`chronicle.blobs.cache.BlobCache`.

    format              {"format": 1}, written with the first pack
    packs/<shard>/<name>
    index/              derived, may be deleted at any time
    tmp/                packs being written; gc removes the leftovers of a crash
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Final, Literal

from cachetools import LRUCache

from chronicle.blobs import ident
from chronicle.blobs.media.objects import shown_url
from chronicle.blobs.packs import pack_format
from chronicle.blobs.packs.catalog import KEY_MARK, PACK_FOLDER, check_pack, pack_object, read_pack_index
from chronicle.blobs.packs.condemned import CondemnedWatch
from chronicle.blobs.packs.opening import open_medium
from chronicle.blobs.packs.pack_reader import CACHED_BLOB_BYTES, PackReader
from chronicle.clock import Clock, SystemClock
from chronicle.errors import Corrupt, NotFound, UnsupportedFormat
from chronicle.ids import BlobId, IdSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from chronicle.blobs.cache import BlobCache
    from chronicle.blobs.packs.pack_format import PackEntry

__all__ = ["PackBlobStore"]

_FORMAT: Final = 1
_FORMAT_OBJECT: Final = "format"
_FORMAT_BYTES: Final = json.dumps({"format": _FORMAT}).encode()
_ASKED_BYTES: Final = 64 * 1024
"""A request takes as long as moving this on a link of 25 Mbit/s."""
_TRUSTED: Final = 64 * 1024
"""Packs, and blobs of them, that are remembered as there: 8 MiB."""
_CACHE_BYTES: Final = 4 * 1024 * 1024
"""Enough for the upper tree nodes of many directories."""


class PackBlobStore:
    """A `chronicle.blobs.port.BlobStore` of packs. Safe to share between threads.

    Args:
        url: of the store, such as ``file:///var/lib/chronicle/blobs``; the first put creates it.
        clock: dates the packs.
        ids: names the packs.
        cache_bytes: the size of the cache of small blobs in memory.
        options: arguments of the fsspec file system, such as credentials.
        cache: caches blobs of a far store on disk. ``"node"`` is the cache named by the environment; ``None`` fetches
            each time, as verification of the store itself needs.

    Raises:
        InvalidInput: the URL's protocol is not supported.
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
        """The URL for messages, without its possibly secret parts."""
        self._clock = clock if clock is not None else SystemClock()
        self._ids = ids if ids is not None else IdSource()
        self._objects, self._catalog, self._disk = open_medium(url, self._new_name, options, cache)
        self._condemned = CondemnedWatch(self._objects)
        self._lock = threading.RLock()
        self._reader = PackReader(self._objects, self._catalog, self._lock, self._disk, self.shown, cache_bytes)
        self._is_behind = False
        """Whether packs may have been removed that the catalog still lists."""
        self._trusted: LRUCache[str, frozenset[bytes]] = LRUCache(_TRUSTED, lambda blobs: 1 + len(blobs))
        """Packs that a put has written, or found there, since the last removal of any; for a name that may be given
        again, the raw ids of the pack's blobs."""
        self._formatted: bool | None = None
        """Whether the store is there; ``None`` before it was asked, as reading a far store needs no request for it."""
        if not self._objects.is_far:
            self._check_format_once()

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes, checked against its id.

        Raises:
            NotFound: no such blob.
            Corrupt: the stored bytes do not have that id, or the blob may have been in a damaged pack.
            Unavailable: the store could not be reached.
        """
        return self._reader.get(ident.to_raw(blob_id))

    def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the bytes of blobs, each as `get` does; adjacent blobs share a read.

        Raises:
            NotFound, Corrupt, Unavailable: as `get`; nothing is returned then.
        """
        found = self._reader.get_many(list(dict.fromkeys(map(ident.to_raw, blob_ids))))
        return {ident.from_raw(raw): data for raw, data in found.items()}

    def get_here(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the bytes of those blobs that are in memory or in this node's cache, each checked against its id."""
        found = self._reader.get_here(list(map(ident.to_raw, blob_ids)))
        return {ident.from_raw(raw): data for raw, data in found.items()}

    def get_stretch(self, blob_id: BlobId, size_bytes: int) -> tuple[dict[BlobId, bytes], str | None]:
        """Return a blob and its neighbours in its pack, read in one request.

        Args:
            blob_id: the blob's.
            size_bytes: a smaller pack is read whole; of a larger one, the blob's group, and the blobs after it, up to
                so many stored bytes.

        Returns:
            the blobs, each checked; damaged ones are left out, except the requested blob. And the name of their pack,
            if it was read whole: then everything of it was checked as by `check_pack`.

        Raises:
            NotFound, Corrupt, Unavailable: as `get`, for the blob itself.
        """
        found, whole = self._reader.get_stretch(ident.to_raw(blob_id), size_bytes)
        return {ident.from_raw(raw): data for raw, data in found.items()}, whole

    def get_packs(self, blob_ids: Sequence[BlobId], limit_bytes: int) -> dict[str, dict[BlobId, bytes]]:
        """Return the blobs of the packs that have some blobs, several packs at a time, each read and checked whole.

        Left out are damaged blobs, packs that are damaged around them or not smaller than the limit, and blobs that are
        in no pack.

        Raises:
            Unavailable: the store could not be reached.
        """
        found = self._reader.get_packs(list(map(ident.to_raw, blob_ids)), limit_bytes)
        return {name: {ident.from_raw(raw): data for raw, data in blobs.items()} for name, blobs in found.items()}

    @property
    def is_far(self) -> bool:
        """Whether reads cross a network."""
        return self._objects.is_far

    def put(self, blobs: Mapping[BlobId, bytes]) -> None:
        """Store the missing ones of some blobs as one pack, durable on return; if none is missing, nothing is written.

        On media that can only be listed, a blob that another process has put may be stored twice. There the last blob
        is the pack's key: who reads it first finds the others at once (`chronicle.blobs.packs.linked_catalog`).

        Raises:
            InvalidInput: an id is not the BLAKE3 of its bytes.
            Unavailable: the store could not be reached; nothing of the pack is visible.
        """
        ident.check_ids(blobs)
        self._check_format_once()
        with self._lock:
            self._refresh()
            new = {key: data for key, data in blobs.items() if self._safe(key, len(data)) is None}
        if not new:
            return
        if not self._formatted:
            self._objects.write(_FORMAT_OBJECT, [_FORMAT_BYTES])
            self._formatted = True
        key = next(reversed(new))
        made_ms = self._clock.now_ms()
        with self._lock:
            links = self._catalog.links(new[key])
            condemned = self._condemned.packs
        parts, entries = pack_format.encode_pack(new, made_ms, links)
        name = self._catalog.write(ident.to_raw(key), parts, condemned)
        index = pack_format.PackIndex(entries, links, made_ms)
        with self._lock:
            self._reader.translated(lambda: self._catalog.note(name, index, ident.to_raw(key)))
            self._trust(name, entries)
            for key, data in new.items():
                self._reader.keep(ident.to_raw(key), data)
        if self._disk is not None:
            for key, data in new.items():
                if len(data) <= CACHED_BLOB_BYTES:  # tree nodes, which are read first when the workspace is opened next
                    self._disk.put(ident.to_raw(key), data)

    def missing(self, blob_ids: Iterable[BlobId]) -> set[BlobId]:
        """Return the ids that the store does not have or is about to drop; putting them again is safe.

        Raises:
            Unavailable: the store could not be reached.
        """
        self._check_format_once()
        with self._lock:
            self._refresh()
            lacking = {key for key in blob_ids if self._safe(key) is None}
            for look in self._searches(lacking):
                if lacking:
                    self._reader.translated(look)
                    lacking = {key for key in lacking if self._safe(key) is None}
            return lacking

    def sizes(self, blob_ids: Iterable[BlobId]) -> dict[BlobId, int]:
        """Return the sizes, before compression, of those blobs that the store has; no blob is read.

        Raises:
            Unavailable: the store could not be reached.
        """
        with self._lock:
            self._refresh()
            places = {key: self._catalog.find(ident.to_raw(key)) for key in blob_ids}
            for look in self._searches(places):
                if None in places.values():
                    self._reader.translated(look)
                    places = {key: self._catalog.find(ident.to_raw(key)) for key in places}
        return {key: place[1].size for key, place in places.items() if place is not None}

    def blob_ids(self) -> Iterator[BlobId]:
        """Yield all ids, unordered.

        Raises:
            Unavailable: the store could not be reached.
        """
        with self._lock:
            self._reader.translated(self._catalog.scan)
            found = [entry.raw_id for _, entry in self._catalog.entries()]
        for raw in found:
            yield ident.from_raw(raw)

    def blob_sizes(self) -> dict[BlobId, int]:
        """Return the bytes of every blob, before compression.

        Raises:
            Unavailable: the store could not be reached.
        """
        with self._lock:
            self._reader.translated(self._catalog.scan)
            return {ident.from_raw(entry.raw_id): entry.size for _, entry in self._catalog.entries()}

    def pack_of(self, blob_id: BlobId) -> str | None:
        """Return the name of the pack from which a blob is read; ``None`` if it is in no pack.

        Raises:
            Unavailable: the store could not be reached.
        """
        with self._lock:
            place = self._reader.find(ident.to_raw(blob_id))
        return place[0] if place is not None else None

    def packs(self) -> list[str]:
        """Return the names of all packs, sorted.

        Raises:
            Unavailable: the store could not be reached.
        """
        return sorted(name.rpartition("/")[2] for name in self._objects.names(PACK_FOLDER))

    def check_pack(self, name: str) -> None:
        """Check a pack's own index, header and trailer, from which the store's index can be rebuilt.

        Raises:
            NotFound: the pack was dropped.
            Corrupt: it is damaged.
            Unavailable: the store could not be reached.
        """
        check_pack(self._objects, name)

    def drop_cached(self) -> None:
        """Drop the cache in memory; the cache on this node's disk stays."""
        self._reader.clear()

    def close(self) -> None:
        """Drop the cache in memory. Files are open only while they are read or written."""
        self.drop_cached()

    def _refresh(self) -> None:
        """Refresh the catalog and the condemned packs from other processes' changes; the caller holds the lock."""
        if self._condemned.refresh():
            self._is_behind = True  # even if the scan fails: the condemned packs have been read
        if self._is_behind:
            self._trusted.clear()
            self._reader.translated(self._catalog.renew)
            self._is_behind = False
        else:
            self._reader.translated(self._catalog.refresh)

    def _searches(self, blob_ids: Iterable[BlobId]) -> tuple[Callable[[], None], ...]:
        """Return what to call until blobs without a known place are found, cheapest first."""
        raws = [ident.to_raw(key) for key in blob_ids]

        def look() -> None:
            self._catalog.look_for([raw for raw in raws if self._catalog.find(raw) is None])

        return look, self._catalog.scan, look  # an index may be written meanwhile

    def _safe(self, blob_id: BlobId, size: int | None = None) -> tuple[str, PackEntry] | None:
        """Return a place of a blob in a pack that is not condemned, exists, and has it.

        Places are derived data, which may be outdated, so they alone are no reason to skip a put.

        Args:
            blob_id: the blob's.
            size: of a blob that is put, bytes: to store a small one again costs less than to ask a far store for its
                pack.
        """
        raw = ident.to_raw(blob_id)
        may_ask = not self._objects.is_far or size is None or size >= _ASKED_BYTES
        while (place := self._catalog.find(raw, self._condemned.packs)) is not None:
            name = place[0]
            if name not in self._trusted and not may_ask:
                return None
            try:
                blobs = self._trusted[name] if name in self._trusted else self._ask(name)
            except NotFound:
                self._catalog.forget(name)
                continue
            except Corrupt:  # to store it again is safe
                return None
            return place if raw in blobs or not name.startswith(KEY_MARK) else None
        return None

    def _ask(self, name: str) -> frozenset[bytes]:
        """Return the raw ids of the blobs of a pack if its name may be given again; otherwise ask only if it is there.

        Raises:
            NotFound, Corrupt, Unavailable: as `read_pack_index`.
        """
        if name.startswith(KEY_MARK):
            return self._trust(name, read_pack_index(self._objects, name).entries)
        self._objects.size(pack_object(name))
        return self._trust(name, ())

    def _trust(self, name: str, entries: Iterable[PackEntry]) -> frozenset[bytes]:
        """Remember that a pack is there; return what `_ask` does."""
        blobs = frozenset(entry.raw_id for entry in entries) if name.startswith(KEY_MARK) else frozenset()
        if len(blobs) < _TRUSTED:
            self._trusted[name] = blobs
        return blobs

    def _check_format_once(self) -> None:
        if self._formatted is None:
            self._formatted = self._check_format()

    def _new_name(self) -> str:
        return self._ids.other("", self._clock.now_ms())

    def _check_format(self) -> bool:
        """Return whether the store exists; raise for one of a newer format."""
        try:
            described = self._objects.read(_FORMAT_OBJECT)
            if described == _FORMAT_BYTES:  # the common case, without the JSON decoder in a mount server's memory
                return True
            found = json.loads(described)["format"]
            if found > _FORMAT:
                raise UnsupportedFormat(f"{self.shown} has format {found}; this code reads {_FORMAT}")
        except NotFound:
            return False
        except (ValueError, KeyError, TypeError):
            pass
        raise Corrupt(
            f"{self.shown}/{_FORMAT_OBJECT} is damaged: it should hold {_FORMAT_BYTES.decode()}, without a line break; "
            "write that into it"
        )
