"""The port of blob stores: immutable bytes, named by their BLAKE3, stored in packs.

A blob is a chunk of a file, a tree node or a large payload. Blobs that belong together (the new ones of a turn) are put
in one call and become one object in the store, a *pack*. A put is atomic: a partly written pack is never visible.
Several processes may use one store at once.

The contract in code is ``chronicle.testing.blob_contract``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from chronicle.ids import BlobId

__all__ = [
    "BatchReader",
    "BlobReader",
    "BlobStore",
    "CachedReader",
    "NearReader",
    "PatientReader",
    "Pending",
    "drop_cached",
    "get_many",
    "wait_for",
]


class Pending(Exception):
    """A reader has started an asynchronous read of the blob; the caller retries later.

    Raised only by readers whose callers can retry: `chronicle.fuse.deadlines`.
    """


class BlobReader(Protocol):
    """Reads blobs by id: all that reading trees and files needs."""

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes, checked against its id.

        Raises:
            NotFound: no such blob.
            Corrupt: the stored bytes do not have that id.
            Unavailable: the store could not be reached.
        """


@runtime_checkable
class BatchReader(BlobReader, Protocol):
    """A reader that can read several blobs at once."""

    def get_many(self, blob_ids: Sequence[BlobId]) -> Mapping[BlobId, bytes]:
        """Return the bytes of blobs, each as `get` does; adjacent blobs share a read.

        Raises:
            NotFound, Corrupt, Unavailable: as `get`; nothing is returned then.
        """


@runtime_checkable
class NearReader(Protocol):
    """A reader that can read only what is on this node."""

    def get_here(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the bytes of those blobs that are on this node."""


@runtime_checkable
class CachedReader(Protocol):
    """A reader with a cache in memory."""

    def drop_cached(self) -> None:
        """Remove from memory the blobs that can be read again."""


@runtime_checkable
class PatientReader(Protocol):
    """A reader that decides how its callers wait for a read in progress."""

    def wait_for(self, blob_id: BlobId, future: Future[bytes]) -> bytes:
        """Return the blob of a read in progress, or raise the read's error.

        Raises:
            CancelledError: the read was cancelled.
            Pending: the read takes longer.
        """


class BlobStore(BatchReader, Protocol):
    """Immutable bytes by id, durable when `put` returns."""

    @property
    def is_far(self) -> bool:
        """Whether reads cross a network: sequential readers then read ahead."""

    def put(self, blobs: Mapping[BlobId, bytes]) -> None:
        """Store blobs as one compressed pack, durable on return. Blobs that are stored already are skipped.

        Raises:
            InvalidInput: an id is not the BLAKE3 of its bytes.
            Unavailable: the store could not be reached; nothing of the pack is visible.
        """

    def missing(self, blob_ids: Iterable[BlobId]) -> set[BlobId]:
        """Return the ids that the store does not have."""

    def sizes(self, blob_ids: Iterable[BlobId]) -> dict[BlobId, int]:
        """Return the sizes, before compression, of those blobs that the store has."""

    def blob_ids(self) -> Iterator[BlobId]:
        """Yield all ids, unordered."""

    def close(self) -> None:
        """Release files and connections."""


def get_many(reader: BlobReader, blob_ids: Sequence[BlobId]) -> Mapping[BlobId, bytes]:
    """Return the bytes of blobs: in one batch if the reader supports it, else one after the other.

    Raises:
        NotFound, Corrupt, Unavailable: as `BlobReader.get`.
    """
    if _reads_batches(type(reader)):
        return cast("BatchReader", reader).get_many(blob_ids)
    return {blob_id: reader.get(blob_id) for blob_id in blob_ids}


@cache
def _reads_batches(reader_class: Any) -> bool:
    """Whether a class is a `BatchReader`: to look for its methods takes 15 µs, too long for each node of a tree."""
    return issubclass(reader_class, BatchReader)


def drop_cached(reader: BlobReader) -> None:
    """Drop a reader's cache, if it has one."""
    if isinstance(reader, CachedReader):
        reader.drop_cached()


def wait_for(reader: BlobReader, blob_id: BlobId, future: Future[bytes]) -> bytes:
    """Return the blob of a read in progress; see `PatientReader.wait_for`."""
    return reader.wait_for(blob_id, future) if isinstance(reader, PatientReader) else future.result()
