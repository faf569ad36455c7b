"""A blob store whose reads end in time, whatever the store behind it does.

A mount server has one thread: while it waits for a blob, every other request of its mount waits too. Each read of a
store beyond a network is therefore made by a helper thread, and given up after a deadline: whoever asked gets EIO. The
read itself cannot be ended; until it has, the store counts as away, and further reads are given little time, so that
requests that have queued up meanwhile do not each wait for the whole deadline.

A store on a local disk is read directly: another thread would cost more than the read, and a disk that hangs holds up
the layer as well. For that there is `chronicle.fuse.pulse`.
"""

from __future__ import annotations

import concurrent.futures
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chronicle.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from chronicle.blobs.store import BlobStore
    from chronicle.ids import BlobId

__all__ = ["TimedBlobStore"]

T = TypeVar("T")

_THREADS: Final = 4
_IMPATIENT: Final = 0.05
"""The part of the deadline that reads get while an earlier one hangs."""


class TimedBlobStore:
    """A `chronicle.blobs.store.BlobStore` whose reads have a deadline. What writes has the caller's.

    Args:
        blobs: the store.
        deadline_s: how long one read may take, seconds.
        beat: called with each read that has ended.
    """

    def __init__(self, blobs: BlobStore, deadline_s: float, beat: Callable[[], None]) -> None:
        self._blobs = blobs
        self._deadline_s = deadline_s
        self._beat = beat
        self._threads: ThreadPoolExecutor | None = None
        self._hung: list[Future[Any]] = []

    @property
    def is_far(self) -> bool:
        """Whether reading crosses a network."""
        return self._blobs.is_far

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes; see `chronicle.blobs.store.BlobReader.get`."""
        return self._in_time(lambda: self._blobs.get(blob_id))

    def get_many(self, blob_ids: Sequence[BlobId]) -> Mapping[BlobId, bytes]:
        """Return the bytes of blobs; see `chronicle.blobs.store.BatchReader.get_many`."""
        return self._in_time(lambda: self._blobs.get_many(blob_ids))

    def put(self, blobs: Mapping[BlobId, bytes]) -> None:
        """Store blobs."""
        self._blobs.put(blobs)

    def missing(self, blob_ids: Iterable[BlobId]) -> set[BlobId]:
        """Return those of the ids that the store does not have."""
        return self._blobs.missing(blob_ids)

    def blob_ids(self) -> Iterator[BlobId]:
        """Yield all ids."""
        return self._blobs.blob_ids()

    def close(self) -> None:
        """Release what the store holds. Reads that hang are left to themselves: the process ends."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._blobs.close()

    def _in_time(self, read: Callable[[], T]) -> T:
        if self._threads is None:  # not before it is needed: a thread costs memory
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="blobs")
        self._hung = [other for other in self._hung if not other.done()]
        deadline_s = self._deadline_s * (_IMPATIENT if self._hung else 1)
        future = self._threads.submit(read)
        try:
            return future.result(deadline_s)
        except concurrent.futures.TimeoutError as error:
            if future.done():  # it raised this by itself
                raise
            if not future.cancel():
                self._hung.append(future)
            raise Unavailable(f"the blob store did not answer within {deadline_s:g} s") from error
        finally:
            self._beat()
