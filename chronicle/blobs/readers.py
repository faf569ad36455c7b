"""Readers that wrap another reader: to cache blobs, to record their ids, and to report progress."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from chronicle.blobs.port import drop_cached, get_many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId

__all__ = ["CachingReader", "ProgressReader", "RecordingReader"]

_CACHED_BYTES: Final = 2 * 1024 * 1024
"""The cache's size: tree nodes have about 3 KB each."""
_LARGEST_CACHED_BYTES: Final = 32 * 1024
"""Larger blobs are file contents, which go to data files."""


class CachingReader:
    """Caches the small blobs that were read last: 2 MiB of blobs up to 32 KiB. Safe to share between threads.

    The versions that a workspace opens are read from it without the lock of the workspace.
    """

    def __init__(self, blobs: BlobReader) -> None:
        self._blobs = blobs
        self._lock = threading.Lock()  # a cache of cachetools that two threads change at once may fail for good
        self._cache: LRUCache[BlobId, bytes] = LRUCache(_CACHED_BYTES, len)

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes; see `chronicle.blobs.port.BlobReader.get`."""
        with self._lock:
            data = self._cache.get(blob_id)
        if data is None:
            data = self._blobs.get(blob_id)
            self._put(blob_id, data)
        return data

    def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the bytes of blobs; see `chronicle.blobs.port.BatchReader.get_many`."""
        with self._lock:
            found = {blob_id: self._cache[blob_id] for blob_id in blob_ids if blob_id in self._cache}
        lacking = [blob_id for blob_id in blob_ids if blob_id not in found]
        if lacking:
            for blob_id, data in get_many(self._blobs, lacking).items():
                found[blob_id] = data
                self._put(blob_id, data)
        return found

    def drop_cached(self) -> None:
        """Remove all cached blobs from memory, also in the wrapped reader."""
        with self._lock:
            self._cache.clear()
        drop_cached(self._blobs)

    def _put(self, blob_id: BlobId, data: bytes) -> None:
        if len(data) <= _LARGEST_CACHED_BYTES:
            with self._lock:
                if blob_id not in self._cache:
                    self._cache[blob_id] = data


class RecordingReader:
    """Records the ids of the blobs that are read."""

    def __init__(self, reader: BlobReader) -> None:
        self._reader = reader
        self.seen: set[BlobId] = set()

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes; see `chronicle.blobs.port.BlobReader.get`."""
        data = self._reader.get(blob_id)
        self.seen.add(blob_id)
        return data


class ProgressReader:
    """Reports progress before each blob is read.

    Args:
        reader: reads the blobs.
        progress: called before each.
    """

    def __init__(self, reader: BlobReader, progress: Callable[[], None]) -> None:
        self._reader = reader
        self._progress = progress

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes; see `chronicle.blobs.port.BlobReader.get`."""
        self._progress()
        return self._reader.get(blob_id)
