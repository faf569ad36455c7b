"""A write buffer over a blob store: it collects the new blobs of a turn and puts them as one pack.

Its reads include pending blobs, so trees can be built on trees that are not stored yet. Pending blobs are in memory;
past a bound they are put early, so that a huge file is never held whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from chronicle.blobs import ident

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.ids import BlobId

__all__ = ["NODE_START", "SPILL_BYTES", "BlobBuffer", "Interleaving", "PassingBuffer", "ScratchBuffer"]

T = TypeVar("T")

SPILL_BYTES: Final = 32 * 1024 * 1024
"""The most pending bytes before an early put. A turn of ordinary size stays one pack; memory stays bounded."""


NODE_START: Final = b"\x01\x93"
"""The version of a node, and a MessagePack array of three."""


class Interleaving(Protocol):
    """Other work of the same thread, to which long work yields at points that it chooses."""

    def yield_now(self) -> None:
        """Yield to other work. Called often; nearly free if there is none.

        Raises:
            Unavailable: the long work has exceeded its deadline and must end.
        """

    def run_in_thread(self, work: Callable[[], T]) -> T:
        """Run a function that waits for a disk or a network, maybe in another thread, and do other work meanwhile.

        Raises:
            Exception: as raised by the function.
            Unavailable: as `yield_now`. The function may still complete: nothing may depend on its not being done.
        """


class BlobBuffer:
    """Collects new blobs for one `chronicle.blobs.port.BlobStore.put`. A `chronicle.blobs.port.BlobReader`.

    Belongs to one thread. Dropping it without `flush` loses the pending blobs, and only those.

    Args:
        store: takes the blobs, and answers reads of blobs that are not pending.
        spill_bytes: the number of pending bytes that causes an early put; see `SPILL_BYTES`.
        interleaving: other work to yield to, between two blobs and while they are put.
    """

    def __init__(
        self, store: BlobStore, spill_bytes: int = SPILL_BYTES, *, interleaving: Interleaving | None = None
    ) -> None:
        self._store = store
        self._spill_bytes = spill_bytes
        self._interleaving = interleaving
        self._pending: dict[BlobId, bytes] = {}
        self._pending_bytes = 0
        self._spilled: set[BlobId] = set()

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that wait for `flush`, before compression."""
        return self._pending_bytes

    def add(self, data: bytes) -> BlobId:
        """Add a blob; it is durable after the next `flush`, maybe earlier.

        Raises:
            Unavailable: the bound was exceeded and the store could not be reached, and the blob is pending all the
                same; or the work has exceeded its deadline (`Interleaving`).
        """
        if self._interleaving is not None:
            self._interleaving.yield_now()
        identifier = ident.blob_id(data)
        if identifier not in self._pending:
            self._pending[identifier] = data
            self._pending_bytes += len(data)
            if self._pending_bytes > self._spill_bytes:
                spilled = set(self._pending)
                self._put()
                self._spilled |= spilled
        return identifier

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes, pending or stored.

        Raises:
            NotFound: no such blob.
            Corrupt: the stored bytes do not have that id.
            Unavailable: the store could not be reached.
        """
        pending = self._pending.get(blob_id)
        return pending if pending is not None else self._store.get(blob_id)

    def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return the bytes of blobs, each as `get` does."""
        found = {blob_id: self._pending[blob_id] for blob_id in blob_ids if blob_id in self._pending}
        lacking = [blob_id for blob_id in blob_ids if blob_id not in found]
        return {**found, **self._store.get_many(lacking)} if lacking else found

    def flush(self) -> None:
        """Put the pending blobs as one pack, durable on return. Does nothing if there are none.

        Raises:
            Unavailable: the store could not be reached; blobs that were not put stay pending, so flushing again is
                safe.
        """
        if self._spilled:
            # gc may have condemned blobs that were put early, or were present then: they are put again.
            for identifier in self._run_in_thread(lambda: self._store.missing(self._spilled)):
                self._pending.setdefault(identifier, self._store.get(identifier))
        self._put()
        self._spilled = set()

    def _put(self) -> None:
        if self._pending:
            # Tree nodes come last and adjacent: listing directories of a far store reads many nodes in one request,
            # without contents. The blob added last is the root of the others, and stays the last one: it is the key of
            # their pack.
            *others, root = self._pending.items()
            ordered = dict([*sorted(others, key=_is_node), root])
            self._run_in_thread(lambda: self._store.put(ordered))
            self._pending = {}
            self._pending_bytes = 0

    def _run_in_thread(self, work: Callable[[], T]) -> T:
        return work() if self._interleaving is None else self._interleaving.run_in_thread(work)


class PassingBuffer(BlobBuffer):
    """Computes the ids of blobs without storing them; it holds no more than a `BlobBuffer` at a time.

    For files that will be replaced: their contents need no space in the store.
    """

    def _put(self) -> None:
        self._pending = {}
        self._pending_bytes = 0


class ScratchBuffer:
    """Keeps new blobs in memory and never stores them: for results that are computed only for display.

    Args:
        reader: answers reads of other blobs.
    """

    def __init__(self, reader: BlobReader) -> None:
        self._reader = reader
        self._made: dict[BlobId, bytes] = {}

    def add(self, data: bytes) -> BlobId:
        """Add a blob."""
        identifier = ident.blob_id(data)
        self._made[identifier] = data
        return identifier

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes; see `chronicle.blobs.port.BlobReader.get`."""
        made = self._made.get(blob_id)
        return made if made is not None else self._reader.get(blob_id)


def _is_node(item: tuple[BlobId, bytes]) -> bool:
    """Whether a blob begins like a map node. A file may, too: the result only affects the order in a pack."""
    return item[1].startswith(NODE_START)
