"""File contents as blobs: small whole, large in chunks, equal bytes equal ids."""

from __future__ import annotations

import hashlib
import io
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.blobs import blob_id
from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import Corrupt, NotFound
from chronicle.ids import BlobId
from chronicle.workspace.content import chunking, content
from chronicle.workspace.content.content import WHOLE_BYTES, Content
from chronicle.workspace.trees import nodes


def buffered() -> BlobBuffer:
    return BlobBuffer(MemoryBlobStore())


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def reader_of(data: bytes, step: int) -> io.BytesIO:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(step if size is None or size < 0 else min(size, step))

    return Slow(data)


# -- cuts --------------------------------------------------------------------------------------------------------------


def test_golden_cuts() -> None:
    """The gear table and the sizes are part of every large file's id: a change here is a new format."""
    data = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(32_768))
    sizes = [len(chunk) for chunk in chunking.chunks(io.BytesIO(data).read)]
    assert sizes == [
        57382,
        54731,
        46247,
        82949,
        44525,
        26092,
        60266,
        79902,
        111714,
        64755,
        117315,
        31051,
        98545,
        70135,
        69927,
        33040,
    ]


def test_golden_cuts_of_zeros() -> None:
    sizes = [len(chunk) for chunk in chunking.chunks(io.BytesIO(bytes(600_000)).read)]
    assert sizes == [262_144, 262_144, 75_712]


@pytest.mark.parametrize("size", [0, 1, 16_384, 65_537, 262_144, 5_000_000])
@pytest.mark.parametrize(
    ("step", "window"), [(4_194_304, chunking.WINDOW_BYTES), (50_000, 300_000), (262_144, 262_144)]
)
def test_cuts_do_not_depend_on_how_it_is_read(size: int, step: int, window: int) -> None:
    data = noise(size)
    whole = list(chunking.chunks(io.BytesIO(data).read))
    assert list(chunking.chunks(reader_of(data, step).read, window)) == whole
    assert b"".join(whole) == data
    assert all(chunking.MIN_CHUNK_BYTES <= len(chunk) <= chunking.MAX_CHUNK_BYTES for chunk in whole[:-1])


def test_an_insertion_moves_few_cuts() -> None:
    data = noise(5_000_000)
    before = {blob_id(chunk) for chunk in chunking.chunks(io.BytesIO(data).read)}
    after = {
        blob_id(chunk) for chunk in chunking.chunks(io.BytesIO(data[:2_000_000] + b"inserted" + data[2_000_000:]).read)
    }
    assert len(after - before) <= 3


# -- store and read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, WHOLE_BYTES - 1, WHOLE_BYTES])
def test_small_content_is_one_blob_with_the_id_of_its_bytes(size: int) -> None:
    buffer = buffered()
    data = noise(size)
    assert content.store_bytes(buffer, data) == Content(blob_id(data), size, chunked=False)
    assert content.store_file(buffer, io.BytesIO(data)) == Content(blob_id(data), size, chunked=False)
    assert buffer.get(blob_id(data)) == data


@pytest.mark.parametrize("size", [WHOLE_BYTES + 1, 300_000, 9_000_000])
def test_large_content_is_chunked(size: int) -> None:
    buffer = buffered()
    data = noise(size)
    stored = content.store_bytes(buffer, data)
    assert stored == content.store_file(buffer, reader_of(data, 10_001))
    assert (stored.size, stored.chunked) == (size, True)
    listed = list(content.chunk_list(buffer, stored))
    assert [chunk.start for chunk in listed] == [0, *(chunk.end for chunk in listed[:-1])]
    assert listed[-1].end == size
    assert [buffer.get(chunk.id) for chunk in listed] == [data[chunk.start : chunk.end] for chunk in listed]
    assert next(content.chunk_list(buffer, stored, size // 2)).start <= size // 2


def test_golden_content() -> None:
    data = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(32_768))
    assert content.store_bytes(buffered(), data) == Content(
        BlobId("6680cf5382758d5c826e117264cfb8096136cfb4514927e02844c319907f272e"), 1_048_576, chunked=True
    )


@given(
    st.sampled_from([0, 10, WHOLE_BYTES, WHOLE_BYTES + 1, 700_000]),
    st.integers(0, 800_000),
    st.none() | st.integers(0, 800_000),
)
def test_reading_a_part(size: int, offset: int, length: int | None) -> None:
    buffer = buffered()
    data = noise(size)
    stored = content.store_bytes(buffer, data)
    assert content.read(buffer, stored, offset, length) == (
        data[offset:] if length is None else data[offset : offset + length]
    )


@given(
    st.sampled_from([0, 100, 700_000]),
    st.lists(st.tuples(st.integers(0, 750_000), st.integers(-1, 200_000)), max_size=8),
)
def test_reading_as_a_file(size: int, reads: list[tuple[int, int]]) -> None:
    buffer = buffered()
    data = noise(size)
    with content.open(buffer, content.store_bytes(buffer, data)) as file:
        plain = io.BytesIO(data)
        for offset, length in reads:
            assert file.seek(offset) == plain.seek(offset)
            assert file.read(length) == plain.read(length)
            assert file.tell() == plain.tell()
        assert file.seek(0, io.SEEK_END) == size
        with pytest.raises(OSError, match="seek"):
            file.seek(-size - 1, io.SEEK_CUR)


def test_memory_stays_bounded() -> None:
    store = MemoryBlobStore()
    buffer = BlobBuffer(store, spill_bytes=1_000_000)
    stored = content.store_file(buffer, io.BytesIO(noise(20_000_000)))
    assert buffer.pending_bytes <= 1_000_000
    buffer.flush()
    assert content.read(store, stored) == noise(20_000_000)


def test_what_does_not_fit_its_reference_is_corrupt() -> None:
    buffer = buffered()
    with pytest.raises(Corrupt, match="4 bytes"):
        content.read(buffer, Content(buffer.add(b"four"), 5, chunked=False))
    long = content.store_bytes(buffer, noise(300_000))
    with pytest.raises(Corrupt, match="nothing for offset 300000"):
        content.read(buffer, Content(long.id, 300_001, chunked=True))
    chunk = next(content.chunk_list(buffer, long))
    lying = nodes.update(buffer, None, {(5).to_bytes(8, "big"): (5).to_bytes(4, "big") + bytes.fromhex(chunk.id)})
    assert lying is not None
    with pytest.raises(Corrupt, match="its list says 5"):
        content.read(buffer, Content(lying, 5, chunked=True))
    with pytest.raises(Corrupt, match="its list says 5"):
        content.open(buffer, Content(lying, 5, chunked=True)).read()
    with pytest.raises(NotFound):
        content.read(buffer, Content(blob_id(b"nowhere"), 5, chunked=False))


# -- changes -----------------------------------------------------------------------------------------------------------

edits = st.tuples(st.floats(0, 1), st.sampled_from([1, 4_096, 100_000]), st.booleans())
resizes = st.one_of(st.just(0), st.integers(-400_000, 400_000))


@settings(max_examples=60)
@given(
    st.sampled_from([100, WHOLE_BYTES + 1, 300_000, 2_000_000]),
    st.booleans(),
    st.lists(st.tuples(st.lists(edits, max_size=3), resizes), min_size=1, max_size=3),
)
def test_storing_changes_gives_what_storing_all_does(
    size: int, zeros: bool, steps: list[tuple[list[tuple[float, int, bool]], int]]
) -> None:
    buffer = buffered()
    data = bytearray(size) if zeros else bytearray(noise(size))
    stored = content.store_bytes(buffer, bytes(data))
    for number, (writes, resize) in enumerate(steps):
        dirty = []
        for place, length, blank in writes:
            start = int(place * len(data))
            end = min(len(data), start + length)
            data[start:end] = bytes(end - start) if blank else noise(end - start, number)
            dirty.append((start, end))
        if resize < 0:
            del data[resize:]
        else:
            data += noise(resize, 1)
        after = content.store_changes(buffer, stored, io.BytesIO(bytes(data)), dirty)
        assert after == content.store_bytes(buffer, bytes(data))
        assert content.read(buffer, after) == data
        stored = after


def test_a_small_change_reads_and_writes_little() -> None:
    class Counted(io.BytesIO):
        taken = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.taken += len(data)
            return data

    buffer = buffered()
    data = bytearray(noise(20_000_000))
    stored = content.store_bytes(buffer, bytes(data))
    buffer.flush()
    data[7_000_000:7_004_096] = noise(4_096, 9)
    file = Counted(bytes(data))
    content.store_changes(buffer, stored, file, [(7_000_000, 7_004_096)])
    assert file.taken <= 2 * 1024 * 1024
    assert buffer.pending_bytes <= 600_000
