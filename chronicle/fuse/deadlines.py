"""Deadlines for reads of a remote blob store, and the parking of requests that wait for one.

A mount server has one thread, so a helper thread reads a store beyond a network. The request that needs the blob does
not block the server's thread: `Pending` is raised, and the session parks the request, serves others, and executes it
again, from its beginning, when the blob is there (`chronicle.fuse.transport.parked_requests`). The blobs that it has
read are kept for it (`FetchedBlobs`), so each attempt gets further than the one before. This works because an operation
reads everything it needs before it changes anything. An operation that has logged a change blocks the server's thread
instead, and so does work that is no request, such as a seal.

After a deadline a read fails, and the caller gets EIO. The read itself cannot be cancelled; until it ends, reads in the
server's thread get a short deadline, so that they do not each wait for the whole one.

A store on a local disk is read directly: another thread would cost more than the read, and a disk that hangs blocks the
layer as well. `chronicle.fuse.watchdog` covers that.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chronicle.blobs.port import NearReader, Pending, drop_cached
from chronicle.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from chronicle.blobs.port import BlobStore
    from chronicle.ids import BlobId

__all__ = ["FetchedBlobs", "ParkingPolicy", "TimedBlobStore", "fetched_of"]

T = TypeVar("T")

_THREADS: Final = 16
"""Concurrent reads. Further ones queue, and their deadline runs."""
_IMPATIENT: Final = 0.05
"""The share of the deadline that reads in the server's thread get while an earlier one hangs."""
_GRACE_S: Final = 0.002
"""A read that is answered within this time is not worth parking its request."""
_MAX_ATTEMPTS: Final = 64
"""A request that still lacks blobs after so many attempts blocks the server's thread: each attempt repeats the work of
those before it."""


class FetchedBlobs:
    """The blobs that a parked request has read, and the read that it waits for. Belongs to the server's thread."""

    def __init__(self) -> None:
        self.attempts = 1
        self._found: dict[BlobId, bytes] = {}
        self._failed: dict[BlobId, Exception] = {}
        self._future: Future[Mapping[BlobId, bytes]] | Future[bytes] | None = None
        self._wanted: Sequence[BlobId] = ()
        self._is_exclusive = False
        self._until_s = 0.0
        self._deadline_s = 0.0

    def wait_for_read(
        self,
        future: Future[Mapping[BlobId, bytes]] | Future[bytes],
        wanted: Sequence[BlobId],
        deadline_s: float,
        *,
        is_exclusive: bool,
    ) -> None:
        """Set the read to wait for: of several blobs, or of a single one.

        Args:
            future: the read.
            wanted: the blobs to take from it.
            deadline_s: time limit, seconds.
            is_exclusive: whether only this request waits for it: then it is cancelled at the deadline.
        """
        self._future, self._wanted, self._is_exclusive = future, wanted, is_exclusive
        self._deadline_s = deadline_s
        self._until_s = time.monotonic() + deadline_s

    def on_done(self, wake: Callable[[], None]) -> None:
        """Call back when the read has ended, in any thread."""
        assert self._future is not None
        self._future.add_done_callback(lambda _: wake())

    def is_due(self, now_s: float) -> bool:
        """Whether the request is to be executed again: the read has ended, or its deadline has expired."""
        return self._future is None or self._future.done() or now_s >= self._until_s

    def collect(self) -> None:
        """Store the read's blobs, or its failure."""
        future, self._future = self._future, None
        self.attempts += 1
        if future is None:
            return
        if not future.done():
            if self._is_exclusive:
                future.cancel()
            late = Unavailable(f"the blob store did not answer within {self._deadline_s:g} s")
            self._failed |= dict.fromkeys(self._wanted, late)
            return
        try:
            result = future.result()
        except CancelledError:
            return  # a cancelled read-ahead: it is read again
        except Exception as error:  # noqa: BLE001 - raised by `found`
            self._failed |= dict.fromkeys(self._wanted, error)
        else:
            self._found |= {self._wanted[0]: result} if isinstance(result, bytes) else result

    def found(self, wanted: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return those of the blobs that were read.

        Raises:
            Exception: reading one of them failed.
        """
        for blob_id in wanted:
            if blob_id in self._failed:
                raise self._failed[blob_id]
        return {blob_id: self._found[blob_id] for blob_id in wanted if blob_id in self._found}


def fetched_of(pending: Pending) -> FetchedBlobs:
    """Return the blobs that the request to be parked has read."""
    fetched = pending.args[0]
    assert isinstance(fetched, FetchedBlobs)
    return fetched


class ParkingPolicy:
    """Decides which requests may be parked, and holds the blobs that the current one has read.

    Work outside `begin` and `end` is no request and blocks the server's thread: commands, and the dropping of inodes.

    Args:
        logged: returns the layer's log position; an operation that has logged something since it began is not parked.
    """

    def __init__(self, logged: Callable[[], object]) -> None:
        self._logged = logged
        self._thread = threading.get_ident()
        self._begun_at: object = None
        self._is_active = False
        """Whether a request is being executed."""
        self.enabled = False
        """Whether the session parks requests."""
        self.fetched: FetchedBlobs | None = None
        """Of the current request, unless this is its first attempt."""

    def begin(self, fetched: FetchedBlobs | None = None) -> None:
        """Record the start of an attempt at a request, with the blobs of the earlier ones. For transports."""
        self._begun_at = self._logged()
        self._is_active = True
        self.fetched = fetched

    def end(self) -> None:
        """Record the end of an attempt, however it ended."""
        self._is_active = False
        self.fetched = None

    @property
    def may_park(self) -> bool:
        """Whether the current work may be parked."""
        return (
            self.enabled
            and self._is_active
            and threading.get_ident() == self._thread
            and self._begun_at == self._logged()
            and (self.fetched is None or self.fetched.attempts < _MAX_ATTEMPTS)
        )


class TimedBlobStore:
    """A `chronicle.blobs.port.BlobStore` whose reads have a deadline. Writes have their caller's.

    Args:
        blobs: the store.
        deadline_s: time limit of one read, seconds.
        beat: called after each read that ended in the calling thread.
    """

    def __init__(self, blobs: BlobStore, deadline_s: float, beat: Callable[[], None]) -> None:
        self._blobs = blobs
        self._near = blobs if isinstance(blobs, NearReader) else None
        self._deadline_s = deadline_s
        self._beat = beat
        self._threads: ThreadPoolExecutor | None = None
        self._hung: list[Future[Any]] = []
        self.parking: ParkingPolicy | None = None
        """Set when requests may be parked."""

    @property
    def is_far(self) -> bool:
        """Whether reading crosses a network."""
        return self._blobs.is_far

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes; see `chronicle.blobs.port.BlobReader.get`.

        Raises:
            Pending: the request is to be parked.
        """
        return self.get_many([blob_id])[blob_id]

    def get_many(self, blob_ids: Sequence[BlobId]) -> Mapping[BlobId, bytes]:
        """Return the bytes of blobs; see `chronicle.blobs.port.BatchReader.get_many`.

        Raises:
            Pending: the request is to be parked.
        """
        parking = self.parking
        fetched = parking.fetched if parking is not None else None
        found = fetched.found(blob_ids) if fetched is not None else {}
        if self._near is not None:  # without another thread
            found |= self._near.get_here([blob_id for blob_id in blob_ids if blob_id not in found])
        lacking = [blob_id for blob_id in blob_ids if blob_id not in found]
        if not lacking:
            return found
        if parking is None or not parking.may_park:
            return {**found, **self._in_time(lambda: self._blobs.get_many(lacking))}
        read = self._submit(lambda: self._blobs.get_many(lacking))
        read_now: Mapping[BlobId, bytes] = self._or_pending(read, lacking, fetched, is_exclusive=True)
        return {**found, **read_now}

    def wait_for(self, blob_id: BlobId, future: Future[bytes]) -> bytes:
        """Return a blob that is being read; see `chronicle.blobs.port.wait_for`.

        Other requests may wait for it too, so it is never cancelled here.

        Raises:
            CancelledError: the read was cancelled.
            Pending: the request is to be parked.
            Unavailable: the deadline expired.
        """
        parking = self.parking
        if parking is None or not parking.may_park:
            return self._result(future, is_exclusive=False)
        fetched = parking.fetched
        found = fetched.found([blob_id]) if fetched is not None else {}
        return found[blob_id] if found else self._or_pending(future, [blob_id], fetched, is_exclusive=False)

    def put(self, blobs: Mapping[BlobId, bytes]) -> None:
        """Store blobs."""
        self._blobs.put(blobs)

    def missing(self, blob_ids: Iterable[BlobId]) -> set[BlobId]:
        """Return those of the ids that the store lacks."""
        return self._blobs.missing(blob_ids)

    def sizes(self, blob_ids: Iterable[BlobId]) -> dict[BlobId, int]:
        """Return the sizes of those blobs that the store has."""
        return self._blobs.sizes(blob_ids)

    def blob_ids(self) -> Iterator[BlobId]:
        """Yield the ids of all blobs."""
        return self._blobs.blob_ids()

    def drop_cached(self) -> None:
        """Drop the store's caches in memory."""
        drop_cached(self._blobs)

    def close(self) -> None:
        """Close the store. Reads that hang are abandoned: the process ends."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._blobs.close()

    def _submit(self, read: Callable[[], T]) -> Future[T]:
        if self._threads is None:  # on first use: a thread costs memory
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="blobs")
        return self._threads.submit(read)

    def _or_pending(
        self, future: Future[T], wanted: Sequence[BlobId], fetched: FetchedBlobs | None, *, is_exclusive: bool
    ) -> T:
        try:
            return future.result(_GRACE_S)
        except concurrent.futures.TimeoutError:
            if future.done():  # the read itself raised this, or has just ended
                return future.result()
        fetched = fetched if fetched is not None else FetchedBlobs()
        fetched.wait_for_read(
            future,  # type: ignore[arg-type]  # of one blob, or a map of several
            wanted,
            self._deadline_s,
            is_exclusive=is_exclusive,
        )
        raise Pending(fetched)

    def _in_time(self, read: Callable[[], T]) -> T:
        return self._result(self._submit(read), is_exclusive=True)

    def _result(self, future: Future[T], *, is_exclusive: bool) -> T:
        """Return a read's result within the deadline; an exclusive read is cancelled when that expires."""
        self._hung = [other for other in self._hung if not other.done()]
        deadline_s = self._deadline_s * (_IMPATIENT if self._hung else 1)
        try:
            return future.result(deadline_s)
        except concurrent.futures.TimeoutError as error:
            if future.done():  # the read itself raised this, or has just ended
                return future.result()
            if is_exclusive and not future.cancel():
                self._hung.append(future)
            raise Unavailable(f"the blob store did not answer within {deadline_s:g} s") from error
        finally:
            self._beat()
