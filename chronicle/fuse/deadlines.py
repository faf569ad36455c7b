"""A blob store whose reads end in time, and hold nobody up meanwhile.

A mount server has one thread. A read of a store beyond a network is therefore made by a helper thread. The request that
needs it is not kept in the server's thread: `Pending` is raised, and the session puts the request aside, serves others,
and carries it out again, from its beginning, when the blob is there (`chronicle.fuse.transport.parked_requests`). What
it has read is kept for it (`Supply`), so each attempt gets further than the one before. This works because an operation
reads what it needs before it changes anything: one that has logged a change waits in the server's thread, as what is no
request does, such as a seal.

After a deadline a read is given up: whoever asked gets EIO. The read itself cannot be ended; until it has, those that
wait in the server's thread are given little time, so that they do not each wait for the whole deadline.

A store on a local disk is read directly: another thread would cost more than the read, and a disk that hangs holds up
the layer as well. For that there is `chronicle.fuse.watchdog`.
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

__all__ = ["Supply", "TimedBlobStore", "Waiting", "supply_of"]

T = TypeVar("T")

_THREADS: Final = 16
"""Reads at a time. More wait in line, and their deadline runs."""
_IMPATIENT: Final = 0.05
"""The part of the deadline that reads in the server's thread get while an earlier one hangs."""
_GRACE_S: Final = 0.002
"""A read that is answered so soon is not worth putting a request aside."""
_MOST_ATTEMPTS: Final = 64
"""A request that still lacks blobs after so many attempts waits in the server's thread: each repeats what the ones
before have computed."""


class Supply:
    """What a request that was put aside has read, and what it waits for. Belongs to the server's thread."""

    def __init__(self) -> None:
        self.attempts = 1
        self._found: dict[BlobId, bytes] = {}
        self._failed: dict[BlobId, Exception] = {}
        self._future: Future[Mapping[BlobId, bytes]] | Future[bytes] | None = None
        self._wanted: Sequence[BlobId] = ()
        self._is_own = False
        self._until_s = 0.0
        self._deadline_s = 0.0

    def expect(
        self,
        future: Future[Mapping[BlobId, bytes]] | Future[bytes],
        wanted: Sequence[BlobId],
        deadline_s: float,
        *,
        is_own: bool,
    ) -> None:
        """Note the read that is waited for: of several blobs, or of the only one that is wanted.

        Args:
            future: the read.
            wanted: which blobs are taken of it.
            deadline_s: how long it is waited for, seconds.
            is_own: whether only this request waits for it: then it is cancelled when its deadline has come.
        """
        self._future, self._wanted, self._is_own = future, wanted, is_own
        self._deadline_s = deadline_s
        self._until_s = time.monotonic() + deadline_s

    def call_back(self, wake: Callable[[], None]) -> None:
        """Have something called when the read has ended, in any thread."""
        assert self._future is not None
        self._future.add_done_callback(lambda _: wake())

    def is_due(self, now_s: float) -> bool:
        """Whether the request is to be carried out again: the read has ended, or its deadline has come."""
        return self._future is None or self._future.done() or now_s >= self._until_s

    def take_in(self) -> None:
        """Take in what the read gave, or that it failed."""
        future, self._future = self._future, None
        self.attempts += 1
        if future is None:
            return
        if not future.done():
            if self._is_own:
                future.cancel()
            late = Unavailable(f"the blob store did not answer within {self._deadline_s:g} s")
            self._failed |= dict.fromkeys(self._wanted, late)
            return
        try:
            result = future.result()
        except CancelledError:
            return  # reading ahead was given up: it is asked for again
        except Exception as error:  # noqa: BLE001 - raised to who asks for it
            self._failed |= dict.fromkeys(self._wanted, error)
        else:
            self._found |= {self._wanted[0]: result} if isinstance(result, bytes) else result

    def have(self, wanted: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return those of some blobs that were read.

        Raises:
            Exception: reading one of them failed.
        """
        for blob_id in wanted:
            if blob_id in self._failed:
                raise self._failed[blob_id]
        return {blob_id: self._found[blob_id] for blob_id in wanted if blob_id in self._found}


def supply_of(pending: Pending) -> Supply:
    """Return what the request has read that is to be put aside."""
    supply = pending.args[0]
    assert isinstance(supply, Supply)
    return supply


class Waiting:
    """Which requests may be put aside, and what the one that is carried out has read already.

    What runs outside `begin` and `end` is no request, and waits in the server's thread: a command, or the dropping of
    inodes.

    Args:
        logged: returns how much the layer has logged; what has logged something since it began is not put aside.
    """

    def __init__(self, logged: Callable[[], object]) -> None:
        self._logged = logged
        self._thread = threading.get_ident()
        self._begun_at: object = None
        self._is_active = False
        """Whether a request is being carried out."""
        self.is_on = False
        """Whether the session puts requests aside."""
        self.supply: Supply | None = None
        """Of the request that is being carried out, unless this is its first attempt."""

    def begin(self, supply: Supply | None = None) -> None:
        """Note that a request begins, which has read so much if it is not its first attempt. By the transport."""
        self._begun_at = self._logged()
        self._is_active = True
        self.supply = supply

    def end(self) -> None:
        """Note that an attempt at a request has ended, however it did."""
        self._is_active = False
        self.supply = None

    @property
    def may(self) -> bool:
        """Whether what is being done may be put aside."""
        return (
            self.is_on
            and self._is_active
            and threading.get_ident() == self._thread
            and self._begun_at == self._logged()
            and (self.supply is None or self.supply.attempts < _MOST_ATTEMPTS)
        )


class TimedBlobStore:
    """A `chronicle.blobs.port.BlobStore` whose reads have a deadline. What writes has the caller's.

    Args:
        blobs: the store.
        deadline_s: how long one read may take, seconds.
        beat: called with each read that has ended in the thread that asked.
    """

    def __init__(self, blobs: BlobStore, deadline_s: float, beat: Callable[[], None]) -> None:
        self._blobs = blobs
        self._near = blobs if isinstance(blobs, NearReader) else None
        self._deadline_s = deadline_s
        self._beat = beat
        self._threads: ThreadPoolExecutor | None = None
        self._hung: list[Future[Any]] = []
        self.waiting: Waiting | None = None
        """Set when requests may be put aside."""

    @property
    def is_far(self) -> bool:
        """Whether reading crosses a network."""
        return self._blobs.is_far

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes; see `chronicle.blobs.port.BlobReader.get`.

        Raises:
            Pending: the request is to be put aside.
        """
        return self.get_many([blob_id])[blob_id]

    def get_many(self, blob_ids: Sequence[BlobId]) -> Mapping[BlobId, bytes]:
        """Return the bytes of blobs; see `chronicle.blobs.port.BatchReader.get_many`.

        Raises:
            Pending: the request is to be put aside.
        """
        waiting = self.waiting
        supply = waiting.supply if waiting is not None else None
        found = supply.have(blob_ids) if supply is not None else {}
        if self._near is not None:  # without another thread
            found |= self._near.get_here([blob_id for blob_id in blob_ids if blob_id not in found])
        lacking = [blob_id for blob_id in blob_ids if blob_id not in found]
        if not lacking:
            return found
        if waiting is None or not waiting.may:
            return {**found, **self._in_time(lambda: self._blobs.get_many(lacking))}
        read = self._submit(lambda: self._blobs.get_many(lacking))
        fetched = self._or_pending(read, lacking, supply, is_own=True)
        return {**found, **fetched}

    def wait_for(self, blob_id: BlobId, future: Future[bytes]) -> bytes:
        """Return a blob that is being read; see `chronicle.blobs.port.wait_for`.

        Others may wait for it too, so it is never cancelled here.

        Raises:
            CancelledError: it is not read any more.
            Pending: the request is to be put aside.
            Unavailable: it took longer than the deadline.
        """
        waiting = self.waiting
        if waiting is None or not waiting.may:
            return self._result(future, is_own=False)
        supply = waiting.supply
        found = supply.have([blob_id]) if supply is not None else {}
        return found[blob_id] if found else self._or_pending(future, [blob_id], supply, is_own=False)

    def put(self, blobs: Mapping[BlobId, bytes]) -> None:
        """Store blobs."""
        self._blobs.put(blobs)

    def missing(self, blob_ids: Iterable[BlobId]) -> set[BlobId]:
        """Return those of the ids that the store does not have."""
        return self._blobs.missing(blob_ids)

    def blob_ids(self) -> Iterator[BlobId]:
        """Yield all ids."""
        return self._blobs.blob_ids()

    def drop_cached(self) -> None:
        """Remove from memory what the store has cached."""
        drop_cached(self._blobs)

    def close(self) -> None:
        """Release what the store holds. Reads that hang are left to themselves: the process ends."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._blobs.close()

    def _submit(self, read: Callable[[], T]) -> Future[T]:
        if self._threads is None:  # not before it is needed: a thread costs memory
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="blobs")
        return self._threads.submit(read)

    def _or_pending(self, future: Future[T], wanted: Sequence[BlobId], supply: Supply | None, *, is_own: bool) -> T:
        try:
            return future.result(_GRACE_S)
        except concurrent.futures.TimeoutError:
            if future.done():  # it raised this by itself, or has just ended
                return future.result()
        supply = supply if supply is not None else Supply()
        supply.expect(
            future,  # type: ignore[arg-type]  # of one blob, or a map of several
            wanted,
            self._deadline_s,
            is_own=is_own,
        )
        raise Pending(supply)

    def _in_time(self, read: Callable[[], T]) -> T:
        return self._result(self._submit(read), is_own=True)

    def _result(self, future: Future[T], *, is_own: bool) -> T:
        """Return what a read gives within the deadline; one that only the caller waits for is cancelled then."""
        self._hung = [other for other in self._hung if not other.done()]
        deadline_s = self._deadline_s * (_IMPATIENT if self._hung else 1)
        try:
            return future.result(deadline_s)
        except concurrent.futures.TimeoutError as error:
            if future.done():  # it raised this by itself, or has just ended
                return future.result()
            if is_own and not future.cancel():
                self._hung.append(future)
            raise Unavailable(f"the blob store did not answer within {deadline_s:g} s") from error
        finally:
            self._beat()
