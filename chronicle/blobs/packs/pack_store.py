"""A blob store of packs on any medium that fsspec reaches: ``file://``, ``memory://``, ``s3://``, ``gs://``.

One `put` writes one pack (`chronicle.blobs.packs.pack_format`); a catalog derived from the packs says where blobs lie.
Local files are written without fsspec, by `chronicle.blobs.media.objects.LocalObjects`, which syncs them; all else is
reached through `chronicle.blobs.media.fsspec_objects`. Several processes may use one store; each opens its own
`FsspecBlobStore`, after forking. What is fetched from a far store is kept on this node, in a
`chronicle.blobs.cache.BlobCache` that all share.

    format              {"format": 1}, written with the first pack
    packs/<shard>/<name>
    index/              derived, may be deleted at any time
    tmp/                packs being written; what a crash leaves here is swept by gc
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Final, Literal

from chronicle.blobs import ident
from chronicle.blobs.media.objects import shown_url
from chronicle.blobs.packs import pack_format
from chronicle.blobs.packs.catalog import check_pack, pack_object
from chronicle.blobs.packs.condemned import MarkWatch
from chronicle.blobs.packs.medium import open_medium
from chronicle.blobs.packs.pack_reader import CACHED_BLOB_BYTES, PackReader
from chronicle.clock import Clock, SystemClock
from chronicle.errors import Corrupt, NotFound, UnsupportedFormat
from chronicle.ids import BlobId, IdSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from chronicle.blobs.cache import BlobCache
    from chronicle.blobs.packs.pack_format import PackEntry

__all__ = ["FsspecBlobStore"]

_FORMAT: Final = 1
_FORMAT_OBJECT: Final = "format"
_FORMAT_BYTES: Final = json.dumps({"format": _FORMAT}).encode()
_CACHE_BYTES: Final = 4 * 1024 * 1024
"""Enough for the upper tree nodes of many directories."""


class FsspecBlobStore:
    """A `chronicle.blobs.port.BlobStore` of packs. Safe to share between threads.

    Args:
        url: where the store is, such as ``file:///var/lib/chronicle/blobs``; it is made with the first put.
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
        self._reader = PackReader(self._objects, self._catalog, self._lock, self._disk, self.shown, cache_bytes)
        self._is_behind = False
        """Whether packs may have gone of which the catalog does not know yet."""
        self._trusted: set[str] = set()
        """Packs that were there when a put relied on one, since any went."""
        self._formatted = self._check_format()

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes, checked against its id.

        Raises:
            NotFound: no such blob.
            Corrupt: the stored bytes do not have that id, or the blob may have been in a pack that is damaged.
            Unavailable: the store could not be reached.
        """
        return self._reader.get(ident.to_raw(blob_id))

    def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the bytes of blobs, those that lie together in one read; each as `get` does.

        Raises:
            NotFound, Corrupt, Unavailable: as `get`; nothing is returned then.
        """
        found = self._reader.get_many(list(dict.fromkeys(map(ident.to_raw, blob_ids))))
        return {ident.from_raw(raw): data for raw, data in found.items()}

    def get_here(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the bytes of those of some blobs that this process or node has kept, each checked against its id."""
        found = self._reader.get_here(list(map(ident.to_raw, blob_ids)))
        return {ident.from_raw(raw): data for raw, data in found.items()}

    def get_stretch(self, blob_id: BlobId, size_bytes: int) -> dict[BlobId, bytes]:
        """Return a blob and those that lie with it and behind it in its pack, up to so many stored bytes.

        They are read in one go, and each is checked; others than the one asked for are left out if they are damaged.

        Raises:
            NotFound, Corrupt, Unavailable: as `get`, for the blob itself.
        """
        found = self._reader.get_stretch(ident.to_raw(blob_id), size_bytes)
        return {ident.from_raw(raw): data for raw, data in found.items()}

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
        parts, entries = pack_format.encode_pack(new)
        name = self._new_name()
        self._objects.write(pack_object(name), parts)
        with self._lock:
            self._reader.translated(lambda: self._catalog.note(name, entries))
            self._trusted.add(name)
            for key, data in new.items():
                self._reader.keep(ident.to_raw(key), data)
        if self._disk is not None:
            for key, data in new.items():
                if len(data) <= CACHED_BLOB_BYTES:  # trees, which the next opener of the workspace reads first
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
                self._reader.translated(self._catalog.scan)
                lacking = {key for key in lacking if self._safe(key) is None}
            return lacking

    def blob_ids(self) -> Iterator[BlobId]:
        """Yield all ids, in no order.

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
        """Return the name of the pack that a blob is read from; ``None`` if there is none.

        Raises:
            Unavailable: the store could not be reached.
        """
        with self._lock:
            place = self._reader.find(ident.to_raw(blob_id))
        return place[0] if place is not None else None

    def check_pack(self, name: str) -> None:
        """Check a pack's own index and the frame around its blobs: by these they are found if the index is lost.

        Raises:
            NotFound: it was dropped since.
            Corrupt: it is damaged.
            Unavailable: the store could not be reached.
        """
        check_pack(self._objects, name)

    def drop_cached(self) -> None:
        """Remove from memory the blobs that were read or put last; what is cached on this node's disk stays."""
        self._reader.clear()

    def close(self) -> None:
        """Let go of what is cached; files are open only while they are read or written."""
        self.drop_cached()

    def _look(self) -> None:
        """Learn what other processes have put and dropped; the lock is held."""
        if self._mark.look():
            self._is_behind = True  # also if the scan fails: the mark has been looked at
        if self._is_behind:
            self._trusted.clear()
            self._reader.translated(self._catalog.scan)
            self._is_behind = False
        else:
            self._reader.translated(self._catalog.refresh)

    def _safe(self, blob_id: BlobId) -> tuple[str, PackEntry] | None:
        """Return a place of a blob at which it will stay."""
        raw = ident.to_raw(blob_id)
        while (place := self._catalog.find(raw, self._mark.packs)) is not None and not self._is_there(place[0]):
            self._catalog.forget(place[0])
        return place

    def _is_there(self, name: str) -> bool:
        """Whether a pack is there: the index is derived, and what is put nowhere for its sake must be somewhere."""
        if self._objects.is_far or name in self._trusted:  # of a far store all packs were listed
            return True
        try:
            self._objects.size(pack_object(name))
        except NotFound:
            return False
        self._trusted.add(name)
        return True

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
            raise UnsupportedFormat(f"{self.shown} has format {found}; this code reads {_FORMAT}")
        return True
