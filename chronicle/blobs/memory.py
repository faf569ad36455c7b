"""A blob store in memory: for tests, simulators and scratch work. It has the lifetime of the object."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from chronicle.blobs import ident
from chronicle.errors import Corrupt, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from chronicle.ids import BlobId

__all__ = ["MemoryBlobStore"]


class MemoryBlobStore:
    """A `chronicle.blobs.port.BlobStore` in a dict; safe to share between threads."""

    is_far = False

    def __init__(self) -> None:
        self._blobs: dict[BlobId, bytes] = {}
        self._lock = threading.Lock()

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes, checked against its id.

        Raises:
            NotFound: no such blob.
            Corrupt: the bytes no longer have that id.
        """
        try:
            data = self._blobs[blob_id]
        except KeyError:
            raise NotFound(f"no blob {blob_id}") from None
        if ident.blob_id(data) != blob_id:
            raise Corrupt(f"blob {blob_id} in memory has other bytes than when it was put")
        return data

    def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the bytes of blobs, each as `get` does."""
        return {identifier: self.get(identifier) for identifier in blob_ids}

    def put(self, blobs: Mapping[BlobId, bytes]) -> None:
        """Store blobs, all or none.

        Raises:
            InvalidInput: an id is not the BLAKE3 of its bytes.
        """
        own = {identifier: bytes(data) for identifier, data in blobs.items()}
        ident.check_ids(own)
        with self._lock:
            for identifier, data in own.items():
                self._blobs.setdefault(identifier, data)

    def missing(self, blob_ids: Iterable[BlobId]) -> set[BlobId]:
        """Return the ids without a blob."""
        return {identifier for identifier in blob_ids if identifier not in self._blobs}

    def sizes(self, blob_ids: Iterable[BlobId]) -> dict[BlobId, int]:
        """Return the sizes of those blobs that are there."""
        return {identifier: len(self._blobs[identifier]) for identifier in blob_ids if identifier in self._blobs}

    def blob_ids(self) -> Iterator[BlobId]:
        """Yield all ids, unordered."""
        with self._lock:
            known = list(self._blobs)
        yield from known

    def close(self) -> None:
        """Do nothing: the blobs have the lifetime of the object."""
