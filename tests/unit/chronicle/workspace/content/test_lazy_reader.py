"""Stored files read piece by piece: what is fetched, what is fetched ahead, and what is not."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.blobs import blob_id
from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.port import Pending
from chronicle.clock import SystemClock
from chronicle.errors import Corrupt, NotFound, Unavailable
from chronicle.workspace.content import content
from chronicle.workspace.content.content import WHOLE_BYTES, Content
from chronicle.workspace.content.lazy_reader import _WORKERS, Chunks, LazyFile
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode, FileNode
from chronicle.workspace.port import LayerSpec, TreeRef

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chronicle.ids import BlobId
    from chronicle.workspace.layer.layer import Layer

WINDOW = 4 * 1024 * 1024
LARGE = random.Random(5).randbytes(12_000_000)


class CountingStore(MemoryBlobStore):
    """Says which blobs were read, and waits or fails when told to."""

    def __init__(self, *, is_far: bool = False) -> None:
        super().__init__()
        self.is_far = is_far
        self.fetched: list[BlobId] = []
        self.open = threading.Event()
        self.open.set()
        self.away = False
        self.requests = 0
        self.begun = 0
        self.damaged: BlobId | None = None
        self.away_at = 0
        """The request that fails, counted from 1."""
        self._count = threading.Lock()

    def get(self, blob_id: BlobId) -> bytes:
        return self.get_many([blob_id])[blob_id]

    def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        with self._count:
            self.fetched.extend(blob_ids)
            self.begun += 1
        assert self.open.wait(20)
        self.requests += 1
        if self.away or self.requests == self.away_at:
            raise Unavailable("away")
        if self.damaged in blob_ids:
            raise Corrupt(f"blob {self.damaged} has other bytes")
        return {blob_id: MemoryBlobStore.get(self, blob_id) for blob_id in blob_ids}

    def bytes_of(self, chunks: dict[BlobId, bytes]) -> int:
        """How many bytes of these were fetched."""
        with self._count:
            return sum(len(chunks[blob_id]) for blob_id in self.fetched if blob_id in chunks)


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
        assert sum(map(len, list(chunks._cache.values()))) <= 1_000_000 + 256 * 1024
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


# -- in a layer --------------------------------------------------------------------------------------------------------


def spec(directory: Path, base: TreeRef | None) -> LayerSpec:
    return LayerSpec(workspace_id="w", layers=directory, base=base, epoch=1, turn=1)


def file_at(layer: Layer, path: bytes) -> FileNode:
    node = layer.resolve(path)
    assert isinstance(node, FileNode)
    return node


def put(layer: Layer, directory: DirNode, name: bytes, data: bytes) -> None:
    handle = layer.create(directory, name, 0o644, *layer.owner)
    layer.write(handle, 0, data)
    layer.flush(handle)
    layer.release(handle)


@pytest.fixture
def made(tmp_path: Path) -> tuple[CountingStore, TreeRef, dict[BlobId, bytes]]:
    """A workspace that was stored from another node; its contents' blobs."""
    store = CountingStore()
    layer, _ = open_layer(spec(tmp_path / "there", None), store, SystemClock())
    root = layer.resolve(b"")
    assert isinstance(root, DirNode)
    before = set(store.blob_ids())
    contents = {}
    for number in range(300):
        data = b"%d\n" % number * 20
        contents[blob_id(data)] = data
        put(layer, root, b"file %d" % number, data)
    put(layer, root, b"large", LARGE)
    ref = layer.seal()
    layer.adopt(ref)
    large = file_at(layer, b"large").content
    assert large is not None
    for chunk in content.chunk_list(store, large):
        contents[chunk.id] = LARGE[chunk.start : chunk.end]
    layer.close()
    assert contents.keys() <= set(store.blob_ids()) - before
    store.fetched.clear()
    return store, ref, contents


def test_names_and_sizes_are_there_at_once_and_no_content_is_fetched(
    made: tuple[CountingStore, TreeRef, dict[BlobId, bytes]], tmp_path: Path
) -> None:
    store, ref, contents = made
    layer, _ = open_layer(spec(tmp_path / "here", ref), store, SystemClock())
    root = layer.resolve(b"")
    assert isinstance(root, DirNode)
    sizes = {name: node.size for name, node in layer.entries(root)}
    assert len(sizes) == 301
    assert (sizes[b"large"], sizes[b"file 7"]) == (len(LARGE), 40)
    assert not set(store.fetched) & contents.keys()
    handle = layer.open(file_at(layer, b"large"))
    assert not set(store.fetched) & contents.keys(), "opening fetches nothing either"
    assert layer.read(handle, 8_000_000, 4_096) == LARGE[8_000_000:8_004_096]
    assert 1 <= len([one for one in store.fetched if one in contents]) <= 2
    layer.release(handle)
    store.fetched.clear()
    handle = layer.open(file_at(layer, b"file 7"), truncate=True)
    layer.write(handle, 0, b"new")
    layer.release(handle)
    assert not set(store.fetched) & contents.keys(), "what is emptied need not be had"
    assert list((tmp_path / "here" / "w" / "1" / "data").iterdir()), "that one, and no other"
    layer.close()


def test_a_file_that_is_read_and_changed_at_once(
    made: tuple[CountingStore, TreeRef, dict[BlobId, bytes]], tmp_path: Path
) -> None:
    store, ref, _ = made
    layer, _ = open_layer(spec(tmp_path / "here", ref), store, SystemClock())
    node = file_at(layer, b"large")
    reader, writer = layer.open(node), layer.open(node)
    expected = bytearray(LARGE)
    assert layer.read(reader, 0, 100) == expected[:100]
    layer.write(writer, 5_000_000, b"changed")
    expected[5_000_000:5_000_007] = b"changed"
    assert layer.read(reader, 4_999_999, 20) == expected[4_999_999:5_000_019]
    layer.flush(writer)
    layer.truncate(node, 9_000_000)
    del expected[9_000_000:]
    assert layer.read(reader, 8_999_990, 20) == expected[8_999_990:]
    layer.release(writer)
    layer.release(reader)
    with layer.at("large", 1) as old:
        assert old.read() == LARGE
    sealed = layer.seal()
    layer.adopt(sealed)
    layer.close()
    again, _ = open_layer(spec(tmp_path / "elsewhere", sealed), store, SystemClock())
    handle = again.open(file_at(again, b"large"))
    assert again.read(handle, 0, len(LARGE)) == expected
    again.truncate(handle.node, 100)  # without a handle, while it is open and nothing of it is here
    assert again.read(handle, 0, 1_000) == expected[:100]
    again.release(handle)
    node = file_at(again, b"file 3")
    handle = again.open(node)
    assert again.read(handle, 0, 4) == b"3\n3\n"
    other = again.open(node, truncate=True)
    assert again.read(handle, 0, 4) == b""
    again.release(other)
    again.release(handle)
    again.close()


def test_a_change_that_cannot_have_the_old_bytes_leaves_nothing(
    made: tuple[CountingStore, TreeRef, dict[BlobId, bytes]], tmp_path: Path
) -> None:
    store, ref, _ = made
    layer, _ = open_layer(spec(tmp_path / "here", ref), store, SystemClock())
    node = file_at(layer, b"large")
    handle = layer.open(node)
    small = layer.open(file_at(layer, b"file 7"))
    store.away = True
    for action in (
        lambda: layer.write(small, 5, b"x"),
        lambda: layer.truncate(small.node, 1),
        lambda: layer.read(small, 0, 10),
        lambda: layer.read(handle, 0, 10),
    ):
        with pytest.raises(Unavailable):
            action()
    assert list((tmp_path / "here" / "w" / "1" / "data").iterdir()) == []
    assert layer.seal() == ref
    layer.write(handle, 5, b"x")  # of a large file nothing is needed
    layer.flush(handle)
    for action in (
        lambda: layer.write(handle, 6, b"y"),  # what the version has there
        lambda: layer.truncate(node, 100),
        lambda: layer.read(handle, 0, 10),
    ):
        with pytest.raises(Unavailable):
            action()
    store.away = False
    assert layer.read(handle, 0, 10) == LARGE[:5] + b"x" + LARGE[6:10]
    layer.write(handle, 6, b"y")
    assert layer.read(handle, 0, 10) == LARGE[:5] + b"xy" + LARGE[7:10]
    layer.release(small)
    layer.release(handle)
    layer.close()


def test_a_reader_of_what_was_rolled_back(
    made: tuple[CountingStore, TreeRef, dict[BlobId, bytes]], tmp_path: Path
) -> None:
    store, ref, _ = made
    layer, _ = open_layer(spec(tmp_path / "here", ref), store, SystemClock())
    handle = layer.open(file_at(layer, b"large"))
    layer.read(handle, 0, 10)
    layer.rollback()
    with pytest.raises(OSError, match="rolled back"):
        layer.read(handle, 0, 10)
    layer.release(handle)
    layer.close()
