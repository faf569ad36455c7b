"""Files with holes: the same content as read in full, at the cost of their data."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Corrupt
from chronicle.workspace.content import chunking, content
from chronicle.workspace.content.chunking import MAX_CHUNK_BYTES, MIN_CHUNK_BYTES
from chronicle.workspace.content.content import WHOLE_BYTES, Content
from chronicle.workspace.content.holes import SparseReader, extent
from chronicle.workspace.layer import file_data
from chronicle.workspace.layer.disk.data_file import DataFile
from chronicle.workspace.layer.disk.undo_file import UndoFile
from chronicle.workspace.layer.disk.version_file import VersionFile
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import FileNode
from chronicle.workspace.port import LayerSpec
from chronicle.workspace.trees import nodes
from tests.unit.chronicle.workspace.content.test_content import noise

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1024 * 1024
LIMITS = [0, 1, 4096, WHOLE_BYTES, MIN_CHUNK_BYTES, MAX_CHUNK_BYTES, 2 * MAX_CHUNK_BYTES, 4 * MIB, 9 * MIB]
near_limits = st.builds(lambda limit, off: max(0, limit + off), st.sampled_from(LIMITS), st.integers(-2, 2))
runs = st.tuples(st.booleans(), near_limits | st.integers(0, 600_000))
"""Whether it is a hole, and its bytes."""


def spread(layout: list[tuple[bool, int]]) -> bytes:
    return b"".join(bytes(size) if hole else noise(size, at) for at, (hole, size) in enumerate(layout))


def stored_plainly(data: bytes) -> tuple[Content, list[content.Chunk]]:
    """What storing is without knowing of holes: a stream tells nothing of them."""
    buffer = BlobBuffer(MemoryBlobStore())
    found = content.store_file(buffer, io.BytesIO(data))
    return found, list(content.chunk_list(buffer, found)) if found.chunked else []


def write_layout(path: Path, layout: list[tuple[bool, int]]) -> None:
    at = 0
    with path.open("wb") as file:
        for number, (hole, size) in enumerate(layout):
            if not hole:
                file.seek(at)
                file.write(noise(size, number))
            at += size
        file.truncate(at)


# -- cutting -----------------------------------------------------------------------------------------------------------


@given(st.lists(runs, max_size=7), st.sampled_from([MAX_CHUNK_BYTES, 2 * MAX_CHUNK_BYTES, 4 * MIB]))
@example([(False, 1), (True, MAX_CHUNK_BYTES - 1), (False, 1)], MAX_CHUNK_BYTES)
@example([(True, 4 * MAX_CHUNK_BYTES)], MAX_CHUNK_BYTES)
@example([(False, 5 * MIB), (True, 3 * MAX_CHUNK_BYTES), (True, 2 * MAX_CHUNK_BYTES + 1)], MAX_CHUNK_BYTES)
def test_zeros_that_are_only_counted_are_cut_as_zeros_that_are_read(
    layout: list[tuple[bool, int]], window: int
) -> None:
    data = spread(layout)
    pieces: list[bytes | int] = []
    for number, (hole, size) in enumerate(layout):
        if size:
            pieces.append(size if hole else noise(size, number))

    def read(size: int) -> bytes | int:
        if not pieces:
            return b""
        first = pieces.pop(0)
        if isinstance(first, bytes) and len(first) > size:
            pieces.insert(0, first[size:])
            first = first[:size]
        return first

    found: list[bytes] = []
    for chunk in chunking.chunks(read, window):
        found.extend([bytes(MAX_CHUNK_BYTES)] * chunk if isinstance(chunk, int) else [chunk])
    assert found == list(chunking.chunks(io.BytesIO(data).read))


# -- storing -----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(runs, max_size=7))
@example([(True, WHOLE_BYTES)])
@example([(True, WHOLE_BYTES + 1)])
@example([(True, 9 * MIB), (False, 1)])
@example([(False, 1), (True, 9 * MIB)])
def test_a_file_with_holes_is_the_same_content(tmp_path: Path, layout: list[tuple[bool, int]]) -> None:
    path = tmp_path / "file"
    write_layout(path, layout)
    data = spread(layout)
    assert path.read_bytes() == data
    buffer = BlobBuffer(MemoryBlobStore())
    with path.open("rb") as file:
        stored = content.store_file(buffer, file)
    plain, listed = stored_plainly(data)
    assert stored == plain
    assert (list(content.chunk_list(buffer, stored)) if stored.chunked else []) == listed
    assert content.read(buffer, stored) == data


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(runs, min_size=1, max_size=5),
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from([1, 4096, 300_000])), max_size=3),
    st.sampled_from([0, 0, -300_000, 1, 700_000]),
    st.sampled_from([1, 8, content._EDITS]),
)
def test_a_change_of_a_file_with_holes_is_the_same_content(
    tmp_path: Path, layout: list[tuple[bool, int]], writes: list[tuple[float, int]], growth: int, most_edits: int
) -> None:
    path = tmp_path / "file"
    write_layout(path, layout)
    buffer = BlobBuffer(MemoryBlobStore())
    with path.open("r+b") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "_EDITS", most_edits)
        stored = content.store_file(buffer, file)
        file.truncate(max(0, stored.size + growth))
        dirty = [(max(0, stored.size + growth), stored.size)]  # a write behind it leaves zeros where there was content
        for number, (place, length) in enumerate(writes):
            at = int(place * stored.size)
            os.pwrite(file.fileno(), noise(length, number), at)
            dirty.append((at, at + length))
        after = content.store_changes(buffer, stored, file, dirty)
    assert after == stored_plainly(path.read_bytes())[0]
    assert content.read(buffer, after) == path.read_bytes()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(runs, min_size=1, max_size=4),
    st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from([4096, 300_000, 3 * MIB]), st.booleans()), min_size=1, max_size=4
    ),
)
def test_a_version_with_holes_is_the_same_content(
    tmp_path: Path, layout: list[tuple[bool, int]], changes: list[tuple[float, int, bool]]
) -> None:
    """Each version is in the data file and the undo files of those after it."""
    path = tmp_path / "data"
    write_layout(path, layout)
    for old in tmp_path.glob("undo*"):
        old.unlink()
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    fd = os.open(path, os.O_RDWR)
    data = DataFile(1)
    expected = []
    try:
        for number, (place, length, cuts) in enumerate(changes, start=2):
            held = data.pin(os.fstat(fd).st_size)
            expected.append((held, path.read_bytes()))
            data.unpin(UndoFile(number, held.size, lambda number, _: os.open(tmp_path / f"undo{number}", flags)))
            at = int(place * held.size)
            if cuts:
                data.preserve(fd, at, held.size - at)
                os.ftruncate(fd, at)
                os.ftruncate(fd, at + length)  # a hole in the place of what was there
            else:
                data.preserve(fd, at, length)
                os.pwrite(fd, noise(length, number), at)
        for held, was in expected:
            opened = VersionFile(os.dup(fd), held, cast("Any", None))
            with cast("BinaryIO", io.BufferedReader(opened, MIB)) as file:
                assert content.store_file(BlobBuffer(MemoryBlobStore()), file) == stored_plainly(was)[0]
    finally:
        os.close(fd)


class Counted(io.FileIO):
    """A file that counts what is read of it."""

    taken = 0

    def readinto(self, into: Any) -> int:
        found = super().readinto(into) or 0
        self.taken += found
        return found


def test_holes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        for at in range(0, 4096 * MIB, 512 * MIB):
            file.seek(at + 123_456)
            file.write(noise(4096, at))
        file.truncate(4096 * MIB)
    raw = Counted(path)
    store = MemoryBlobStore()
    buffer = BlobBuffer(store)
    with io.BufferedReader(raw) as file:
        stored = content.store_file(buffer, file)
    assert stored.size == 4096 * MIB
    assert raw.taken < 2 * MIB
    buffer.flush()
    back = tmp_path / "back"
    with back.open("wb") as file:
        content.copy_to(store, stored, file)
    assert back.stat().st_size == stored.size
    assert back.stat().st_blocks * 512 < MIB
    with back.open("rb") as file:
        assert content.store_file(BlobBuffer(MemoryBlobStore()), file) == stored


def test_a_file_that_shrinks_or_grows_while_it_is_read_is_a_mixture(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.write(noise(MIB))
        file.truncate(64 * MIB)
    for change in (lambda: os.truncate(path, MIB), lambda: path.write_bytes(noise(128 * MIB))):
        buffer = BlobBuffer(MemoryBlobStore())

        class Changing(io.FileIO):
            reads = 0

            def readinto(self, into: Any) -> int:
                Changing.reads += 1
                if Changing.reads == 3:
                    change()  # noqa: B023 - called before the next
                return super().readinto(into) or 0

        with io.BufferedReader(Changing(path)) as reader:
            stored = content.store_file(buffer, reader)
        data = content.read(buffer, stored)
        assert len(data) == stored.size
        assert stored == stored_plainly(data)[0]


def test_where_nothing_is_known_of_holes_all_is_data(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"data")
    with path.open("rb") as file:
        file.seek(2)
        assert extent(file.fileno(), 0) == (4, False)
        assert extent(file.fileno(), 4)[1] is False
        assert file.read() == b"ta"
    assert SparseReader(io.BytesIO(bytes(MIB))).read(MIB) == bytes(MIB)
    reader, writer = os.pipe()
    os.write(writer, b"through a pipe")
    os.close(writer)
    with os.fdopen(reader, "rb") as end:
        assert content.store_file(BlobBuffer(MemoryBlobStore()), end).size == 14


# -- writing -----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(runs, max_size=7))
def test_content_is_written_back_with_holes(tmp_path: Path, layout: list[tuple[bool, int]]) -> None:
    data = spread(layout)
    buffer = BlobBuffer(MemoryBlobStore())
    stored = content.store_file(buffer, io.BytesIO(data))
    path = tmp_path / "file"
    reported: list[int] = []
    with path.open("wb") as file:
        content.copy_to(buffer, stored, file, reported.append)
    assert path.read_bytes() == data
    assert sum(reported) == len(data)


def test_a_list_with_a_gap_is_not_written_back(tmp_path: Path) -> None:
    buffer = BlobBuffer(MemoryBlobStore())
    stored = content.store_file(buffer, io.BytesIO(noise(MIB)))
    chunk = list(content.chunk_list(buffer, stored))[1]
    root = nodes.update(buffer, stored.id, {chunk.end.to_bytes(8, "big"): None})
    assert root is not None
    with (tmp_path / "file").open("wb") as file, pytest.raises(Corrupt, match="nothing for offset"):
        content.copy_to(buffer, Content(root, MIB, chunked=True), file)


@pytest.mark.parametrize("is_fetched", [False, True])
def test_a_huge_file_with_holes_is_sealed_and_fetched_at_the_cost_of_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fetched: bool
) -> None:
    if is_fetched:  # and not, as it is large, here only where it is written
        monkeypatch.setattr(file_data, "_FETCHED_BYTES", 1 << 60)
    store = MemoryBlobStore()
    layer, _ = open_layer(LayerSpec("one", tmp_path, None, 1, 1), store, ManualClock())
    handle = layer.create(layer.root, b"huge", 0o644, *layer.owner)
    layer.truncate(handle.node, 64 * 1024 * MIB, handle)
    layer.write(handle, 40 * 1024 * MIB + 5, b"data")
    layer.flush(handle)
    layer.write(handle, 20 * 1024 * MIB, b"in the next version")
    layer.release(handle)
    ref = layer.seal()
    layer.adopt(ref)
    layer.close()
    again, _ = open_layer(LayerSpec("two", tmp_path, ref, 1, 1), store, ManualClock())
    try:
        node = again.resolve(b"huge")
        assert isinstance(node, FileNode)
        handle = again.open(node)
        assert again.read(handle, 40 * 1024 * MIB, 16) == bytes(5) + b"data" + bytes(7)
        again.write(handle, 64 * 1024 * MIB - 1, b"!")
        assert os.fstat(node.fd).st_size == node.size == 64 * 1024 * MIB
        assert os.fstat(node.fd).st_blocks < 2048
        assert not is_fetched or node.blocks == os.fstat(node.fd).st_blocks
        assert again.read(handle, 20 * 1024 * MIB, 7) == b"in the "
        first, *_ = again.history_view().records(b"huge")
        with again.histories.open_version(first) as file:
            file.seek(20 * 1024 * MIB)
            assert file.read(7) == bytes(7)
        again.release(handle)
    finally:
        again.close()


# -- long lists --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 3000), st.integers(0, 100))
def test_a_map_that_is_made_in_order_is_the_one_that_is_made_by_edits(count: int, salt: int) -> None:
    pairs = [(b"%d:%08d" % (salt, number), b"value %d" % number) for number in range(count)]
    buffer = BlobBuffer(MemoryBlobStore())
    root = nodes.build(buffer, iter(pairs))
    assert list(nodes.items(buffer, root)) == pairs
    edited = None
    for start in range(0, count, 700):
        edited = nodes.update(buffer, edited, dict(pairs[start : start + 700]))
    assert edited == root


def test_a_long_list_is_made_without_being_held() -> None:
    class Discarding(BlobBuffer):
        largest = 0

        def add(self, data: bytes) -> Any:
            self.largest = max(self.largest, self.pending_bytes)
            return super().add(data)

    def pairs() -> Iterator[tuple[bytes, bytes]]:
        for number in range(200_000):
            yield number.to_bytes(8, "big"), bytes(36)

    buffer = Discarding(MemoryBlobStore(), spill_bytes=MIB)
    assert nodes.build(buffer, pairs()) is not None
    assert buffer.largest <= MIB
