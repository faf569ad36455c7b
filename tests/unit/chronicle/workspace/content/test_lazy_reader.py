"""Stored files read piece by piece: what is fetched, what is fetched ahead, and what is not."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.blobs import blob_id
from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.port import Pending
from chronicle.errors import Corrupt, NotFound, Unavailable
from chronicle.workspace.content import content
from chronicle.workspace.content.content import WHOLE_BYTES, Content
from chronicle.workspace.content.lazy_reader import _WORKERS, Chunks, LazyFile
from tests.unit.chronicle.workspace.content.counting_store import LARGE, CountingStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import BlobId

WINDOW = 4 * 1024 * 1024


def stored(store: MemoryBlobStore, data: bytes) -> tuple[Content, dict[BlobId, bytes]]:
    """Store a content; return it and its chunks."""
    buffer = BlobBuffer(store)
    kept = content.store_bytes(buffer, data)
    buffer.flush()
    if not kept.chunked:
        return kept, {kept.id: data}
    return kept, {chunk.id: data[chunk.start : chunk.end] for chunk in content.chunk_list(store, kept)}


@settings(max_examples=80)
@given(
    st.sampled_from([0, 1, WHOLE_BYTES, WHOLE_BYTES + 1, 2_000_000]),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 2_100_000), st.sampled_from([0, 1, 4_096, 131_072, 700_000]), st.booleans())),
)
def test_it_reads_what_is_there(size: int, is_far: bool, reads: list[tuple[int, int, bool]]) -> None:
    store = CountingStore(is_far=is_far)
    kept, _ = stored(store, LARGE[:size])
    chunks = Chunks.of_store(store, 300_000)
    file, at = LazyFile(store, chunks, kept), 0
    try:
        for offset, length, goes_on in reads:
            place = at if goes_on else offset
            assert file.read(place, length) == LARGE[:size][place : place + length]
            at = place + length
    finally:
        file.close()
        chunks.close()


@pytest.mark.parametrize("is_far", [False, True])
def test_a_few_bytes_of_a_large_file_fetch_a_chunk(is_far: bool) -> None:
    store = CountingStore(is_far=is_far)
    kept, known = stored(store, LARGE)
    chunks = Chunks.of_store(store)
    file = LazyFile(store, chunks, kept)
    store.fetched.clear()
    for number, offset in enumerate((6_000_000, 1_000_000, 11_000_000, 3_000_000), 1):
        assert file.read(offset, 4_096) == LARGE[offset : offset + 4_096]
        assert len([one for one in store.fetched if one in known]) <= 2 * number
        assert len([one for one in store.fetched if one not in known]) <= 4 * number, "the list, not all of it"
    chunks.close()


def test_reading_in_order_reads_ahead_and_no_further_than_the_window() -> None:
    store = CountingStore(is_far=True)
    kept, known = stored(store, LARGE)
    chunks = Chunks.of_store(store)
    file = LazyFile(store, chunks, kept)
    store.fetched.clear()
    at = 0
    while at < 5_000_000:
        assert file.read(at, 131_072) == LARGE[at : at + 131_072]
        at += 131_072
        assert store.bytes_of(known) <= at + WINDOW + 512 * 1024
    deadline = threading.Event()
    for _ in range(500):  # what is queued is being fetched
        if store.bytes_of(known) >= at + WINDOW // 2:
            break
        deadline.wait(0.01)
    assert store.bytes_of(known) >= at + WINDOW // 2
    while at < len(LARGE):
        assert file.read(at, 131_072) == LARGE[at : at + 131_072]
        at += 131_072
    assert sorted(one for one in store.fetched if one in known) == sorted(known), "each chunk once"
    chunks.close()


def test_reading_elsewhere_gives_up_what_is_queued() -> None:
    store = CountingStore(is_far=True)
    kept, _ = stored(store, LARGE)
    chunks = Chunks.of_store(store)
    file = LazyFile(store, chunks, kept)
    at = 0
    while at < 2_000_000:
        file.read(at, 131_072)
        at += 131_072
    while chunks._coming:
        threading.Event().wait(0.005)
    store.fetched.clear()
    store.begun = 0
    store.open.clear()  # from here on nothing that is fetched ahead arrives
    try:
        for _ in range(40):
            file._look_ahead(at, at + 131_072)
            at += 131_072
            while chunks._queue and store.begun < _WORKERS:  # until none of the threads takes any of it
                threading.Event().wait(0.005)
            if chunks._queue:
                break
        assert chunks._queue, "more is wanted than the threads fetch at a time"
        queued = [one for ahead in chunks._queue for one in ahead.chunks]
        file._look_ahead(500_000, 504_096)
        assert not chunks._queue
        assert not set(queued) & chunks._coming.keys()
    finally:
        store.open.set()
    while chunks._coming:
        threading.Event().wait(0.005)
    assert not set(queued) & set(store.fetched)
    chunks.close()


def test_readers_of_one_chunk_fetch_it_once() -> None:
    store = CountingStore(is_far=True)
    kept, known = stored(store, LARGE[:3_000_000])
    chunks = Chunks.of_store(store)
    ahead = chunks.fetch_ahead(list(known))
    assert ahead is not None
    results: list[bytes] = []

    def read() -> None:
        results.append(LazyFile(store, chunks, kept).read(0, 3_000_000))

    store.fetched.clear()
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [LARGE[:3_000_000]] * 4
    assert all(store.fetched.count(one) <= 1 for one in known)
    chunks.close()


def test_what_failed_in_the_background_is_tried_by_the_reader() -> None:
    store = CountingStore(is_far=True)
    kept, known = stored(store, LARGE[:1_000_000])
    chunks = Chunks.of_store(store)
    file = LazyFile(store, chunks, kept)
    store.open.clear()
    chunks.fetch_ahead(list(known))
    store.away = True
    store.open.set()
    while chunks._coming:
        threading.Event().wait(0.005)
    with pytest.raises(Unavailable):
        file.read(0, 10)
    store.away = False
    assert file.read(0, 1_000_000) == LARGE[:1_000_000]
    chunks.close()


def test_a_file_that_repeats_itself_is_read_ahead() -> None:
    store = CountingStore(is_far=True)
    data = LARGE[:1_000_000] + bytes(8_000_000) + LARGE[1_000_000:2_000_000]
    kept, known = stored(store, data)
    assert len(known) < len(list(content.chunk_list(store, kept))), "a chunk is there several times"
    chunks = Chunks.of_store(store, keep_bytes=1)
    file = LazyFile(store, chunks, kept)
    found: list[bytes] = []

    def read() -> None:
        found.extend(file.read(at, 131_072) for at in range(0, len(data), 131_072))
        file.read(0, 10)  # gives up what is queued

    reader = threading.Thread(target=read, daemon=True)  # it would wait for ever
    reader.start()
    reader.join(60)
    assert b"".join(found) == data
    assert all(worker.is_alive() for worker in chunks._workers)
    file.close()
    chunks.close()


@pytest.mark.parametrize("way", ["near", "far", "file"])
def test_a_store_that_was_away_for_a_moment_is_not_taken_for_damaged(way: str) -> None:
    """Whichever request fails: the next read begins where the one before did."""
    store = CountingStore()
    kept, _ = stored(store, LARGE)
    requests = failed = 0
    while requests >= failed:
        failed += 1
        store.requests, store.away_at = 0, failed
        chunks = Chunks.of_store(store, keep_bytes=1)
        chunks.reads_ahead = way == "far"
        lazy, file = LazyFile(store, chunks, kept), content.open(store, kept)

        def read(at: int, lazy: LazyFile = lazy, file: BinaryIO = file) -> bytes:
            file.seek(at)
            return file.read(500_000) if way == "file" else lazy.read(at, 500_000)

        for at in range(0, len(LARGE), 500_000):
            try:
                found = read(at)
            except Unavailable:
                found = read(at)
            assert found == LARGE[at : at + 500_000]
        requests = store.requests
        lazy.close()
        chunks.close()
    assert failed > 10


@pytest.mark.parametrize("is_far", [False, True])
def test_what_lies_before_a_damaged_chunk_can_be_read_in_order(is_far: bool) -> None:
    store = CountingStore(is_far=is_far)
    kept, chunks = stored(store, LARGE)
    places = {chunk.id: chunk for chunk in content.chunk_list(store, kept)}
    damaged = places[list(chunks)[len(chunks) // 2]]
    store.damaged = damaged.id
    shared = Chunks.of_store(store)
    lazy = LazyFile(store, shared, kept)
    step = 10_000
    for at in range(0, damaged.start - step, step):
        assert lazy.read(at, step) == LARGE[at : at + step]
    with pytest.raises(Corrupt):
        lazy.read(damaged.start, step)
    assert lazy.read(damaged.end, step) == LARGE[damaged.end : damaged.end + step]
    lazy.close()
    shared.close()


def test_memory_stays_bounded() -> None:
    store = CountingStore(is_far=True)
    kept, _ = stored(store, LARGE)
    chunks = Chunks.of_store(store, 1_000_000)
    file = LazyFile(store, chunks, kept)
    for at in range(0, len(LARGE), 65_536):
        file.read(at, 65_536)
        with chunks._changed:  # the threads that fetch ahead wait for it
            assert sum(map(len, chunks._cache.values())) <= 1_000_000 + 256 * 1024
    chunks.close()


def test_a_large_read_of_a_stored_file_fetches_a_few_chunks_at_a_time() -> None:
    class Batched(MemoryBlobStore):
        largest = 0

        def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
            found = super().get_many(blob_ids)
            self.largest = max(self.largest, sum(map(len, found.values())))
            return found

    store = Batched()
    kept, _ = stored(store, LARGE)
    file = content.open(store, kept)
    assert file.read(1_000_000) + file.read(len(LARGE)) == LARGE
    assert store.largest <= WINDOW + 2 * 256 * 1024


def test_a_parked_read_of_a_stored_file_fetches_each_chunk_once() -> None:
    class Parking(MemoryBlobStore):
        """Parks a request until the blobs that it lacks have been read; knows nothing when the next one begins."""

        def __init__(self) -> None:
            super().__init__()
            self.fetched: list[BlobId] = []
            self._found: dict[BlobId, bytes] | None = None
            self._lacking: list[BlobId] = []

        def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
            if self._found is None:
                return super().get_many(blob_ids)
            self._lacking = [blob_id for blob_id in blob_ids if blob_id not in self._found]
            if self._lacking:
                self.fetched += self._lacking
                raise Pending
            return {blob_id: self._found[blob_id] for blob_id in blob_ids}

        def read(self, file: BinaryIO, offset: int, size: int) -> bytes:
            self._found = {}
            while True:
                try:
                    file.seek(offset)
                    return file.read(size)
                except Pending:
                    self._found.update(super().get_many(self._lacking))

    store = Parking()
    kept, chunks = stored(store, LARGE)
    file = content.open(store, kept)
    assert b"".join(store.read(file, at, 131_072) for at in range(0, len(LARGE), 131_072)) == LARGE
    assert sorted(blob_id for blob_id in store.fetched if blob_id in chunks) == sorted(chunks)


def test_what_is_not_as_it_was_is_said() -> None:
    store = CountingStore()
    kept, known = stored(store, LARGE[:1_000_000])
    with pytest.raises(Corrupt, match="gap"):
        LazyFile(store, Chunks.of_store(store), Content(kept.id, 1_000_001, chunked=True)).read(999_999, 100)
    store.put({blob_id(b"four"): b"four"})
    with pytest.raises(Corrupt, match="4 bytes"):
        LazyFile(store, Chunks.of_store(store), Content(blob_id(b"four"), 5, chunked=False)).read(0, 5)
    del store._blobs[list(known)[3]]
    with pytest.raises(NotFound):
        LazyFile(store, Chunks.of_store(store), kept).read(0, 1_000_000)
