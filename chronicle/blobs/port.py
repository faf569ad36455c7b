"""The port to a blob store: immutable bytes, named by their BLAKE3, kept in packs.

A blob is a chunk of a file, a tree node or a large payload. Blobs that belong together (all that is new in one turn)
are put in one call and become one object in the store, a *pack*. Putting is all or nothing; a pack that was only
partly written is never visible. Several processes may use one store at once.

The contract in code is ``chronicle.testing.blob_contract``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

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
    """A reader has begun to read what was asked for, and will have it later: do what needs it again then.

    Raised by readers whose callers can do that: `chronicle.fuse.deadlines`.
    """


class BlobReader(Protocol):
    """What reading trees and files needs."""

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes, checked against its id.

        Raises:
            NotFound: no such blob.
            Corrupt: the stored bytes do not have that id.
            Unavailable: the store could not be reached.
        """
        ...


@runtime_checkable
class BatchReader(BlobReader, Protocol):
    """A reader that can read several blobs at once."""

    def get_many(self, blob_ids: Sequence[BlobId]) -> Mapping[BlobId, bytes]:
        """Return the bytes of blobs, each as `get` does, in fewer reads where they lie together.

        Raises:
            NotFound, Corrupt, Unavailable: as `get`; nothing is returned then.
        """
        ...


@runtime_checkable
class NearReader(Protocol):
    """A reader that can tell what it need not cross a network for."""

    def get_here(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the bytes of those of some blobs that are on this node."""
        ...


@runtime_checkable
class CachedReader(Protocol):
    """A reader that keeps blobs in memory that it can read again."""

    def drop_cached(self) -> None:
        """Remove from memory the blobs that can be read again."""
        ...


@runtime_checkable
class PatientReader(Protocol):
    """A reader that decides how its callers wait for what others read."""

    def wait_for(self, blob_id: BlobId, future: Future[bytes]) -> bytes:
        """Return a blob that is being read, or raise what reading it did.

        Raises:
            CancelledError: it is not read any more.
            Pending: it takes longer.
        """
        ...


class BlobStore(BatchReader, Protocol):
    """Immutable bytes by id, durable when `put` returns."""

    @property
    def is_far(self) -> bool:
        """Whether reading crosses a network: sequential readers read ahead then."""
        ...

    def put(self, blobs: Mapping[BlobId, bytes]) -> None:
        """Store blobs as one pack, compressed, durable on return. Blobs that are there already are not stored again.

        Raises:
            InvalidInput: an id is not the BLAKE3 of its bytes.
            Unavailable: the store could not be reached; nothing of the pack is visible.
        """
        ...

    def missing(self, blob_ids: Iterable[BlobId]) -> set[BlobId]:
        """Return those of the ids that the store does not have."""
        ...

    def blob_ids(self) -> Iterator[BlobId]:
        """Yield all ids, in no order."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


def get_many(reader: BlobReader, blob_ids: Sequence[BlobId]) -> Mapping[BlobId, bytes]:
    """Return the bytes of blobs: at once if the reader can, else one after the other.

    Raises:
        NotFound, Corrupt, Unavailable: as `BlobReader.get`.
    """
    if isinstance(reader, BatchReader):
        return reader.get_many(blob_ids)
    return {blob_id: reader.get(blob_id) for blob_id in blob_ids}


def drop_cached(reader: BlobReader) -> None:
    """Have a reader remove from memory what it has cached, if it caches anything."""
    if isinstance(reader, CachedReader):
        reader.drop_cached()


def wait_for(reader: BlobReader, blob_id: BlobId, future: Future[bytes]) -> bytes:
    """Return a blob that is being read; see `PatientReader.wait_for`."""
    return reader.wait_for(blob_id, future) if isinstance(reader, PatientReader) else future.result()
