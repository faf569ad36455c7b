"""A blob store of packs on any medium that fsspec reaches: ``file://``, ``memory://``, ``s3://``, ``gs://``.

One `put` writes one pack (`chronicle.blobs.packs`); a catalog derived from the packs says where blobs lie. Local files
are written without fsspec, by `chronicle.blobs.objects.LocalObjects`, which syncs them. Several processes may use one
store; each opens its own `FsspecBlobStore`, after forking.

    format              {"format": 1}, written with the first pack
    packs/<shard>/<name>
    index/              derived, may be deleted at any time
    tmp/                packs being written; what a crash leaves here is swept by gc
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import fsspec

from chronicle.blobs import ident, packs
from chronicle.blobs.catalog import Catalog, ListedCatalog, pack_object
from chronicle.blobs.condemned import MarkWatch
from chronicle.blobs.local_catalog import LocalCatalog
from chronicle.blobs.objects import STAMP_S, LocalObjects, Objects
from chronicle.clock import Clock, SystemClock
from chronicle.errors import Corrupt, InvalidInput, NotFound, Unavailable, UnsupportedFormat
from chronicle.ids import BlobId, IdSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from chronicle.blobs.packs import PackEntry

__all__ = ["FsspecBlobStore", "open_medium"]

T = TypeVar("T")

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
_ATTEMPTS: Final = 5
_BACKOFF_S: Final = 0.1
"""Doubled for each further attempt, with jitter: 0.1, 0.2, 0.4, 0.8 s."""


class FsspecBlobStore:
    """A `chronicle.blobs.store.BlobStore` of packs. Safe to share between threads.

    Args:
        url: where the store is, such as ``file:///var/lib/podium/blobs``; it is made with the first put.
        clock: dates the packs.
        ids: names the packs.
        cache_bytes: how much of small blobs is kept in memory.
        options: what the fsspec file system takes, such as credentials.

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
    ) -> None:
        self.url = url
        self._clock = clock if clock is not None else SystemClock()
        self._ids = ids if ids is not None else IdSource()
        self._objects, self._catalog = open_medium(url, self._new_name, options)
        self._mark = MarkWatch(self._objects)
        self._lock = threading.RLock()
        self._cache = _Cache(cache_bytes)
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
            data = packs.unpack_blob(name, entry, stored)
            with self._lock:
                self._cache.put(raw, data)
            return data
        damaged = self._catalog.damaged
        if damaged:
            raise Corrupt(
                f"blob {blob_id} is not found; it may have been in what is damaged: {'; '.join(damaged.values())}"
            )
        raise NotFound(f"no blob {blob_id} in {self.url}")

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

    def close(self) -> None:
        """Let go of what is cached; files are open only while they are read or written."""
        with self._lock:
            self._cache.clear()

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
            raise Corrupt(f"{self.url}/{_FORMAT_OBJECT} is damaged: {error}") from error
        if found != _FORMAT:
            raise UnsupportedFormat(f"{self.url} has format {found}; this code reads {_FORMAT}: upgrade podium")
        return True

    def _translated(self, call: Callable[[], None]) -> None:
        try:
            call()
        except OSError as error:
            raise Unavailable(f"the index of {self.url} could not be used: {error.strerror}") from error


def open_medium(
    url: str, new_name: Callable[[], str], options: Mapping[str, Any] | None = None
) -> tuple[Objects, Catalog]:
    """Return the objects of a store and the catalog of its packs. For the store itself and for gc.

    Raises:
        InvalidInput: no such kind of URL.
    """
    if url.startswith(_LOCAL) and not options:
        return _local_medium(url.removeprefix(_LOCAL), new_name)
    try:
        filesystem, path = fsspec.core.url_to_fs(url, **(options or {}))
    except (ValueError, ImportError) as error:
        raise InvalidInput(f"{url!r} cannot be a blob store: {error}") from error
    protocols = filesystem.protocol if isinstance(filesystem.protocol, tuple) else (filesystem.protocol,)
    if "file" in protocols:
        return _local_medium(path, new_name)
    remote = _RemoteObjects(filesystem, path.rstrip("/"))
    return remote, ListedCatalog(remote, new_name)


def _local_medium(path: str, new_name: Callable[[], str]) -> tuple[Objects, Catalog]:
    """Return what a store on a local disk lies on; a relative path is one from the working directory."""
    local = LocalObjects(Path(path) if path.startswith("/") else Path(path).expanduser().absolute())
    return local, LocalCatalog(local, new_name)


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


class _RemoteObjects:
    """Objects through fsspec. Failed requests are repeated, for each of them can be: writing an object twice is fine.

    Args:
        filesystem: the fsspec file system.
        root: the path of the store in it.
        sleep: waits between attempts.
    """

    def __init__(
        self, filesystem: fsspec.AbstractFileSystem, root: str, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._filesystem = filesystem
        self._root = root
        self._sleep = sleep

    def write(self, name: str, parts: Sequence[bytes]) -> None:
        """Store an object; the medium makes it visible when it has it whole."""
        data = b"".join(parts)
        self._attempt(name, lambda: self._filesystem.pipe_file(self._path(name), data))

    def read(self, name: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return bytes of an object."""
        if size == 0:
            return b""
        end = None if size is None else offset + size
        start = offset if offset or end is not None else None
        return self._attempt(name, lambda: bytes(self._filesystem.cat_file(self._path(name), start=start, end=end)))

    def size(self, name: str) -> int:
        """Return an object's size in bytes."""
        return self._attempt(name, lambda: int(self._filesystem.size(self._path(name))))

    def names(self, folder: str) -> list[str]:
        """Return the names of all objects below a folder."""
        self._filesystem.invalidate_cache()
        try:
            found: list[str] = self._attempt(folder, lambda: self._filesystem.find(self._path(folder)))
        except NotFound:
            return []
        cut = len(self._root) + 1
        return [path[cut:] for path in found]

    def delete(self, name: str) -> None:
        """Remove an object."""
        try:
            self._attempt(name, lambda: self._filesystem.rm_file(self._path(name)))
        except NotFound:
            return

    def stamp(self, name: str) -> object:
        """Return the minute: a request for each put would cost as much as the put."""
        return name, int(time.monotonic() // STAMP_S)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _attempt(self, name: str, request: Callable[[], T]) -> T:
        """Make a request, again after a while if it fails, and tell what became of it in our errors."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return request()
            except FileNotFoundError as error:
                raise NotFound(f"no object {self._path(name)}") from error
            except Exception as error:  # each medium's client has errors of its own
                if attempt == _ATTEMPTS:
                    raise Unavailable(f"{self._path(name)} could not be reached {attempt} times: {error}") from error
            self._sleep(_BACKOFF_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))
        raise AssertionError
