"""Random access to stored content with read-ahead: only requested chunks are fetched, and the next ones in order.

A `LazyFile` is one reader's view of a content that is not on this node as a file. The readers of one process share
`Chunks`: a cache of the chunks read last, bounded by bytes, and, for a store beyond a network, threads that fetch
ahead. Read-ahead starts with the second sequential read, grows with each further one, and is cancelled by a read
elsewhere: queued chunks are not fetched then.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from chronicle.blobs.port import Pending, get_many, wait_for
from chronicle.errors import ChronicleError, Corrupt
from chronicle.workspace.content.chunk_list import Chunk, chunk_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.ids import BlobId
    from chronicle.workspace.content.chunk_list import Content

__all__ = ["Chunks", "LazyFile"]

_NEAR_BYTES: Final = 2 * 1024 * 1024
"""Cache size for a store on this node: so chunks that are larger than the kernel's requests are read once."""
_FAR_BYTES: Final = 16 * 1024 * 1024
"""Cache size for a store beyond a network: a few readers' windows."""
_FIRST_WINDOW_BYTES: Final = 256 * 1024
_WINDOW_BYTES: Final = 4 * 1024 * 1024
"""The largest read-ahead: 40 MB/s at 100 ms a request."""
_NEAR_AHEAD_BYTES: Final = 512 * 1024
"""The largest read-ahead of a store on this node, fetched together with the request."""
_BATCH_BYTES: Final = 512 * 1024
"""Fetched by one thread at a time."""
_WORKERS: Final = 3
"""A mount server has one more thread for the current request (`chronicle.fuse.deadlines`)."""
_SLACK_BYTES: Final = 256 * 1024
"""The kernel's own read-ahead requests slightly out of order."""
_KNOWN_CHUNKS: Final = 512
"""Positions of chunks that are remembered for a reader: 32 MiB of file."""


@dataclass(slots=True)
class _Ahead:
    """Chunks to prefetch."""

    chunks: list[BlobId]
    is_over: bool = False
    """Fetched, failed or cancelled."""


class Chunks:
    """The chunks that the readers of one process share. Safe to share between threads.

    Args:
        blobs: where they are fetched.
        keep_bytes: how many bytes are cached.
        window_bytes: how far ahead is read at most.
        reads_ahead: whether threads fetch ahead. Without them, what is read ahead is fetched together with what is
            asked for.
    """

    def __init__(self, blobs: BlobReader, keep_bytes: int, window_bytes: int, *, reads_ahead: bool) -> None:
        self._blobs = blobs
        self.window_bytes = window_bytes
        self.reads_ahead = reads_ahead
        self._cache: LRUCache[BlobId, bytes] = LRUCache(keep_bytes, len)
        self._coming: dict[BlobId, Future[bytes]] = {}
        self._queue: deque[_Ahead] = deque()
        self._changed = threading.Condition()
        self._workers: list[threading.Thread] = []
        self._closed = False

    @classmethod
    def of_store(cls, blobs: BlobStore, keep_bytes: int | None = None) -> Chunks:
        """Return what suits a store on this node, or one beyond a network; ``keep_bytes`` if given."""
        if blobs.is_far:
            return cls(blobs, keep_bytes or _FAR_BYTES, _WINDOW_BYTES, reads_ahead=True)
        return cls(blobs, keep_bytes or _NEAR_BYTES, _NEAR_AHEAD_BYTES, reads_ahead=False)

    def get(self, wanted: Sequence[BlobId]) -> dict[BlobId, bytes]:
        """Return chunks; those being fetched already are waited for.

        Raises:
            NotFound, Corrupt, Unavailable: as `chronicle.blobs.port.BlobReader.get`.
        """
        found: dict[BlobId, bytes] = {}
        coming: dict[BlobId, Future[bytes]] = {}
        lacking = []
        with self._changed:
            for chunk in dict.fromkeys(wanted):
                cached = self._cache.get(chunk)
                if cached is not None:
                    found[chunk] = cached
                elif chunk in self._coming:
                    coming[chunk] = self._coming[chunk]
                else:
                    lacking.append(chunk)
        if lacking:
            fetched = get_many(self._blobs, lacking)
            self._keep(fetched)
            found.update(fetched)
        failed = []
        for chunk, future in coming.items():
            try:
                found[chunk] = wait_for(self._blobs, chunk, future)
            except CancelledError:  # cancelled, or it failed in the background
                failed.append(chunk)
        if failed:
            fetched = get_many(self._blobs, failed)
            self._keep(fetched)
            found.update(fetched)
        return found

    def fetch_ahead(self, wanted: Sequence[BlobId]) -> _Ahead | None:
        """Prefetch chunks in the background unless they are cached or being fetched; return a handle for `give_up`."""
        with self._changed:
            new = [chunk for chunk in dict.fromkeys(wanted) if chunk not in self._cache and chunk not in self._coming]
            if not new or self._closed:
                return None
            ahead = _Ahead(new)
            for chunk in new:
                self._coming[chunk] = Future()
            self._queue.append(ahead)
            if len(self._workers) < _WORKERS:
                worker = threading.Thread(target=self._work, name="chronicle-ahead", daemon=True)
                self._workers.append(worker)
                worker.start()
            self._changed.notify()
            return ahead

    def give_up(self, aheads: Sequence[_Ahead]) -> None:
        """Cancel those of these prefetches that have not started."""
        with self._changed:
            for ahead in aheads:
                if ahead in self._queue:
                    self._queue.remove(ahead)
                    self._drop(ahead)

    def close(self) -> None:
        """End the threads, without waiting for requests in progress."""
        with self._changed:
            self._closed = True
            for ahead in self._queue:
                self._drop(ahead)
            self._queue.clear()
            self._cache.clear()
            self._changed.notify_all()

    def _drop(self, ahead: _Ahead) -> None:
        """Cancel a prefetch: its waiters fetch the chunks themselves; the lock is held."""
        ahead.is_over = True
        for chunk in ahead.chunks:
            self._coming.pop(chunk).cancel()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                ahead = self._queue.popleft()
            try:
                read = get_many(self._blobs, ahead.chunks)
                fetched = {chunk: read[chunk] for chunk in ahead.chunks}
            except Exception:  # noqa: BLE001 - the waiters retry themselves and get the error
                with self._changed:
                    self._drop(ahead)
                continue
            self._keep(fetched)
            with self._changed:
                ahead.is_over = True
                for chunk in ahead.chunks:
                    future = self._coming.pop(chunk)
                    if future.set_running_or_notify_cancel():
                        future.set_result(fetched[chunk])

    def _keep(self, fetched: Mapping[BlobId, bytes]) -> None:
        with self._changed:
            if self._closed:
                return
            for chunk, data in fetched.items():
                if chunk not in self._cache and len(data) <= self._cache.maxsize:
                    self._cache[chunk] = data


class LazyFile:
    """A stored content, read at any offset by one reader. Belongs to one thread.

    Args:
        reader: reads the content's chunk list.
        chunks: fetches and caches the chunks.
        content: the content.
        ahead: whether sequential reads fetch ahead.
    """

    def __init__(self, reader: BlobReader, chunks: Chunks, content: Content, *, ahead: bool = True) -> None:
        self._reader = reader
        self._chunks = chunks
        self._content = content
        self._ahead = ahead
        self._known: list[Chunk] = []
        self._rest: Iterator[Chunk] = iter(())
        self._next = -1
        """The offset at which a sequential read continues."""
        self._window_bytes = 0
        self._ahead_to = 0
        self._aheads: list[_Ahead] = []

    @property
    def content(self) -> Content:
        """The content."""
        return self._content

    def read(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes, fewer at the end of the content only.

        Raises:
            NotFound: a blob is missing.
            Corrupt: a blob, or the chunk list, is damaged.
            Unavailable: the store could not be reached.
        """
        end = min(offset + size, self._content.size)
        if offset >= end:
            return b""
        covering = self._covering(offset, end)
        if self._ahead:
            before = self._next, self._window_bytes
            try:
                self._look_ahead(offset, end)
            except ChronicleError:
                pass  # a prefetch may fail; a read of these bytes reports it
            except Pending:
                if not self._chunks.reads_ahead:  # parked with what it prefetches, which would be fetched again if lost
                    self._next, self._window_bytes = before
                    raise
        got = self._chunks.get([chunk.id for chunk in covering])
        parts = []
        for chunk in covering:
            data = got[chunk.id]
            if len(data) != chunk.end - chunk.start:
                raise Corrupt(
                    f"chunk {chunk.id} of {self._content.id} has {len(data)} bytes, its list says "
                    f"{chunk.end - chunk.start}"
                )
            parts.append(data[max(0, offset - chunk.start) : end - chunk.start])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Cancel prefetches."""
        self._chunks.give_up(self._aheads)
        self._aheads = []

    def _covering(self, offset: int, end: int) -> list[Chunk]:
        """Return the chunks that cover a range."""
        if not self._content.chunked:
            return [Chunk(0, self._content.size, self._content.id)]
        known = self._known
        if not known or not known[0].start <= offset <= known[-1].end:
            known.clear()
            self._rest = chunk_list(self._reader, self._content, offset)
        while not known or known[-1].end < end:
            try:
                chunk = next(self._rest, None)
            except BaseException:
                known.clear()  # the generator is exhausted: the next call starts a new one
                raise
            if chunk is None or (known and chunk.start != known[-1].end) or (not known and chunk.start > offset):
                raise Corrupt(f"the chunk list {self._content.id} has a gap before {end} of {self._content.size}")
            known.append(chunk)
        first = bisect_right(known, offset, key=_end)
        last = first
        while known[last].end < end:
            last += 1
        covering = known[first : last + 1]
        if len(known) > _KNOWN_CHUNKS:
            del known[: max(0, first - _KNOWN_CHUNKS // 8)]
        return covering

    def _look_ahead(self, offset: int, end: int) -> None:
        """Fetch ahead if the reads are sequential, more with each; cancel prefetches if they are not."""
        in_order = -_SLACK_BYTES <= offset - self._next <= _SLACK_BYTES
        if not in_order or self._next < 0:
            self.close()
            self._window_bytes = 0
            self._next = end
            self._ahead_to = end
            return
        self._next = max(self._next, end)
        if not self._content.chunked:
            return
        if not self._chunks.reads_ahead:
            if end > self._ahead_to:  # one request for neighbours costs less than several
                self._grow_window()
                batch = self._covering(offset, min(end + self._window_bytes, self._content.size))
                self._chunks.get([chunk.id for chunk in batch])
                self._ahead_to = batch[-1].end
            return
        self._grow_window()
        until = min(self._next + self._window_bytes, self._content.size)
        if until - self._ahead_to < min(_BATCH_BYTES, self._window_bytes // 2) and until < self._content.size:
            return  # too little for a request
        self._aheads = [ahead for ahead in self._aheads if not ahead.is_over]
        while self._ahead_to < until:
            batch = self._covering(self._ahead_to, min(self._ahead_to + _BATCH_BYTES, until))
            ahead = self._chunks.fetch_ahead([chunk.id for chunk in batch])
            if ahead is not None:
                self._aheads.append(ahead)
            self._ahead_to = batch[-1].end

    def _grow_window(self) -> None:
        self._window_bytes = min(max(2 * self._window_bytes, _FIRST_WINDOW_BYTES), self._chunks.window_bytes)


def _end(chunk: Chunk) -> int:
    return chunk.end
