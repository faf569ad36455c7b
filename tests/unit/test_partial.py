"""Large files that are changed on a node that does not have their content: nothing is lost, and little is fetched."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Corrupt, Unavailable, UnsupportedFormat
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace import layer_content, layer_records
from chronicle.workspace.fallocate import KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE
from chronicle.workspace.layer_log import LayerLog
from chronicle.workspace.layer_node import DirNode, FileNode
from chronicle.workspace.layer_open import open_layer
from chronicle.workspace.partial import Ranges
from chronicle.workspace.port import LayerSpec, TreeRef

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.ids import BlobId
    from chronicle.workspace.layer import Handle

MIB = 1024 * 1024
SIZE = 2 * MIB + 12_345
STORED = random.Random(7).randbytes(SIZE)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9))), st.integers(0, 70))
def test_ranges_are_a_set_of_offsets(added: list[tuple[int, int]], offset: int) -> None:
    ranges, offsets = Ranges(), set()
    for start, length in added:
        ranges.add(start, start + length)
        offsets |= set(range(start, start + length))
    pairs = list(ranges)
    assert {one for start, end in pairs for one in range(start, end)} == offsets
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(pairs)), "none touch"
    stop, inside = ranges.run(offset)
    assert inside == (offset in offsets)
    assert all((one in offsets) == inside for one in range(offset, min(stop, 100)))
    assert stop > 100 or (stop in offsets) != inside
    assert list(Ranges(ranges)) == pairs


class CountingStore(MemoryBlobStore):
    """Says how many bytes were read, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0
        self.away = False

    def get(self, blob_id: BlobId) -> bytes:
        return self.get_many([blob_id])[blob_id]

    def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        if self.away:
            raise Unavailable("away")
        found = {blob_id: MemoryBlobStore.get(self, blob_id) for blob_id in blob_ids}
        self.bytes_read += sum(map(len, found.values()))
        return found


class Node:
    """A node that a workspace is opened on, with nothing of its contents."""

    def __init__(self, directory: Path, store: CountingStore, base: TreeRef | None) -> None:
        self.directory, self.store, self.base = directory, store, base
        self.epoch = 1
        self.recovered: TreeRef | None = None
        self.open()

    def open(self) -> None:
        spec = LayerSpec("w", self.directory, self.base, self.epoch, 1)
        self.layer, self.recovered = open_layer(spec, self.store, ManualClock())

    def file(self, path: str = "large") -> FileNode:
        node = self.layer.resolve(path.encode())
        assert isinstance(node, FileNode)
        return node

    def handle(self, path: str = "large") -> Handle:
        return self.layer.open(self.file(path))

    def close(self, handle: Handle) -> None:
        self.layer.flush(handle)
        self.layer.release(handle)

    def write(self, offset: int, data: bytes, path: str = "large") -> None:
        """Open, write and close."""
        handle = self.handle(path)
        assert self.layer.write(handle, offset, data) == len(data)
        self.close(handle)

    def read(self, path: str = "large") -> bytes:
        handle = self.handle(path)
        try:
            return self.layer.read(handle, 0, 1 << 30)
        finally:
            self.layer.release(handle)

    def versions(self, path: str = "large") -> list[bytes]:
        found = []
        for item in self.layer.history(path):
            if item.op != "delete":
                with self.layer.at(path, item.iteration) as file:
                    found.append(file.read())
        return found

    def commit(self) -> TreeRef:
        self.base = self.layer.seal()
        self.layer.adopt(self.base)
        return self.base

    def kill(self) -> None:
        """Let go of the layer as kill -9 does."""
        layer = self.layer
        for fd in {handle.node.fd for handle in layer._handles} - {-1}:
            os.close(fd)
        layer._log.close()
        layer._files.close()
        os.close(layer._lock_fd)

    def die(self) -> None:
        self.kill()
        self.open()
        assert self.recovered is None

    def data_files(self) -> int:
        return len(list((self.directory / "w" / str(self.epoch) / "data").iterdir()))

    def blocks(self) -> int:
        """What the data files take on the disk, bytes."""
        data = self.directory / "w" / str(self.epoch) / "data"
        return sum(path.stat().st_blocks * 512 for path in data.iterdir())


def stored_elsewhere(directory: Path, content: bytes) -> tuple[CountingStore, TreeRef]:
    store = CountingStore()
    node = Node(directory, store, None)
    root = node.layer.resolve(b"")
    assert isinstance(root, DirNode)
    for name in (b"large", b"other"):
        handle = node.layer.create(root, name, 0o644, *node.layer._owner)
        node.layer.write(handle, 0, content if name == b"large" else b"other")
        node.close(handle)
    ref = node.commit()
    node.layer.close()
    return store, ref


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    store, base = stored_elsewhere(tmp_path / "there", STORED)
    store.bytes_read = 0
    node = Node(tmp_path / "here", store, base)
    yield node
    node.layer.close()


def test_four_kilobytes_written_into_a_large_file_cost_a_few_chunks(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(MIB) * 64
    store, base = stored_elsewhere(tmp_path / "there", content)
    store.bytes_read = 0
    node = Node(tmp_path / "here", store, base)
    handle = node.handle()
    store.bytes_read = 0
    node.layer.write(handle, 30 * MIB + 100, b"x" * 4096)
    assert store.bytes_read == 0, "what is written is not fetched"
    assert node.blocks() <= 64 * 1024
    node.close(handle)
    node.write(30 * MIB + 2000, b"y" * 4096)
    node.write(len(content) - 10, b"z" * 4096)
    node.layer.truncate(node.file(), len(content) - 4096)
    assert store.bytes_read < MIB, "what old versions need"
    ref = node.commit()
    assert store.bytes_read < 5 * MIB, "what is around the changes, for each version"
    assert node.data_files() == 0
    expected = bytearray(content)
    expected[30 * MIB + 100 : 30 * MIB + 4196] = b"x" * 4096
    expected[30 * MIB + 2000 : 30 * MIB + 6096] = b"y" * 4096
    assert node.read() == expected[: len(content) - 4096]
    assert files_in(store, ref.tree_id)["large"] == bytes(expected[: len(content) - 4096])
    node.layer.close()


def test_writing_needs_no_store_and_reading_what_was_written_neither(node: Node) -> None:
    handle = node.handle()
    node.store.away = True
    node.layer.write(handle, 500_000, b"new" * 1000)
    assert node.layer.read(handle, 500_000, 3000) == b"new" * 1000
    node.layer.write(handle, SIZE + 5, b"end")
    assert node.layer.read(handle, SIZE, 100) == b"\0\0\0\0\0end"
    node.layer.truncate(handle.node, 600_000)
    with pytest.raises(Unavailable):
        node.layer.read(handle, 499_999, 2)
    node.layer.flush(handle)
    with pytest.raises(Unavailable):
        node.layer.write(handle, 10, b"a version has something there")
    node.store.away = False
    assert node.layer.read(handle, 0, 100) == STORED[:100]
    node.layer.write(handle, 10, b"now")
    node.close(handle)
    expected = STORED[:500_000] + b"new" * 1000 + STORED[503_000:600_000]
    assert node.versions() == [STORED, expected, expected[:10] + b"now" + expected[13:]]


def test_small_files_are_fetched_and_stay(node: Node) -> None:
    node.write(0, b"O", "other")
    assert node.file("other").data is not None
    node.commit()
    node.store.away = True
    assert node.read("other") == b"Other"


def test_a_file_that_is_written_over_from_end_to_end_is_here_from_then_on(node: Node) -> None:
    handle = node.handle()
    for at in range(0, SIZE, 100_000):
        node.layer.write(handle, at, b"%05d" % (at // 1000) * 20_000)
    data = handle.node.data
    assert data is not None
    assert data.partial is None
    expected = node.layer.read(handle, 0, 1 << 30)
    node.close(handle)
    node.die()
    assert node.read() == expected
    node.commit()
    node.store.away = True
    assert node.read() == expected


def test_it_takes_as_much_of_the_disk_as_it_says(node: Node) -> None:
    node.write(1_000_000, b"x")
    assert node.file().blocks * 512 >= SIZE
    assert node.file().size == SIZE


def test_a_shorter_file_that_grows_again_has_zeros(node: Node) -> None:
    for death in (False, True):
        node.layer.truncate(node.file(), 100_000)
        if death:
            node.die()
            assert node.read() == STORED[:100_000]
        node.layer.truncate(node.file(), 300_000)
        if death:
            node.die()
        assert node.read() == STORED[:100_000].ljust(300_000, b"\0")
        node.write(400_000, b"x")
        if death:
            node.die()
        assert node.read() == STORED[:100_000].ljust(400_000, b"\0") + b"x"
        node.layer.rollback()
        node.layer.close()
        node.open()
        assert node.read() == STORED


def test_a_death_between_bytes_and_their_record_leaves_the_old_ones(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = node.handle()
    node.layer.write(handle, 0, b"first")

    def full(_: bytes) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(node.layer._log, "append", full)
        with pytest.raises(OSError, match="space"):
            node.layer.write(handle, 1_000_000, b"second")
        assert node.layer.read(handle, 1_000_000, 6) == STORED[1_000_000:1_000_006]
        with pytest.raises(OSError, match="space"):
            node.layer.truncate(handle.node, SIZE + 100)  # its size would be all that is new
    node.die()
    assert node.read()[1_000_000:1_000_006] == STORED[1_000_000:1_000_006]


def test_rolling_back_gives_what_was_committed(node: Node) -> None:
    handle = node.handle()
    node.layer.write(handle, 5, b"given up")
    node.layer.flush(handle)
    node.layer.write(handle, 7, b"given up")
    node.layer.rollback()
    with pytest.raises(OSError, match="rolled back"):
        node.layer.write(handle, 5, b"x")
    node.layer.release(handle)
    assert node.read() == STORED
    assert node.data_files() == 0


def test_a_removed_file_that_is_open_goes_on(node: Node) -> None:
    handle, late = node.handle(), node.handle()
    node.layer.write(handle, 5, b"here")
    node.layer.flush(handle)
    root = node.layer.resolve(b"")
    assert isinstance(root, DirNode)
    node.layer.unlink(root, b"large")
    node.layer.write(handle, 1_000_000, b"after")
    node.layer.fsync(handle.node)
    node.layer.truncate(handle.node, 1_500_000, handle)
    node.layer.write(handle, 1_600_000, b"more")
    expected = (STORED[:5] + b"here" + STORED[9:1_000_000] + b"after" + STORED[1_000_005:1_500_000]).ljust(
        1_600_000, b"\0"
    ) + b"more"
    assert node.layer.read(handle, 0, 1 << 30) == expected
    node.layer.seal()
    node.layer.write(late, 0, b"x")
    assert node.layer.read(handle, 0, 1 << 30) == b"x" + expected[1:]
    node.layer.release(handle)
    node.layer.release(late)
    node.die()
    assert [item.op for item in node.layer.history("large")] == ["write", "write", "delete"]
    assert node.versions() == [STORED, STORED[:5] + b"here" + STORED[9:]]


def test_a_file_that_is_removed_before_it_is_written(node: Node) -> None:
    handle = node.handle()
    root = node.layer.resolve(b"")
    assert isinstance(root, DirNode)
    node.layer.unlink(root, b"large")
    node.layer.write(handle, 1_000_000, b"after")
    node.layer.fsync(handle.node)
    assert node.layer.read(handle, 999_999, 7) == STORED[999_999:1_000_000] + b"after" + STORED[1_000_005:1_000_006]
    node.die()
    assert node.versions() == [STORED]


def test_restoring_and_opening_elsewhere(node: Node, tmp_path: Path) -> None:
    first = node.base
    handle = node.handle()
    node.layer.write(handle, 5, b"here")
    node.layer.flush(handle)
    second = node.commit()
    fork = Node(tmp_path / "fork", node.store, second)
    node.layer.write(handle, 50, b"there")
    node.layer.restore(first, b"large")  # while it is open, and partial
    assert node.layer.read(handle, 0, 100) == STORED[:100]
    node.layer.write(handle, 7, b"again")
    assert node.layer.read(handle, 0, 20) == STORED[:7] + b"again" + STORED[12:20]
    node.close(handle)
    node.die()
    assert node.read() == STORED[:7] + b"again" + STORED[12:]
    assert fork.read() == STORED[:5] + b"here" + STORED[9:]
    fork.write(6, b"fork")
    fork.epoch += 1
    fork.kill()
    fork.open()
    assert fork.recovered is not None
    assert files_in(node.store, fork.recovered.tree_id)["large"] == STORED[:5] + b"hfork" + STORED[10:]
    fork.layer.close()


def test_a_commit_while_it_is_open_goes_on_by_the_same_handle(node: Node) -> None:
    handle = node.handle()
    expected = bytearray(STORED)
    for number in range(3):
        at = 300_000 * number
        node.layer.write(handle, at, b"turn %d" % number)
        expected[at : at + 6] = b"turn %d" % number
        ref = node.commit()
        assert node.data_files() == 0
        assert node.layer.read(handle, 0, 1 << 30) == expected
        assert files_in(node.store, ref.tree_id)["large"] == bytes(expected)
    node.close(handle)


def test_a_log_says_which_format_it_is_before_anything_of_that_is_in_it(node: Node) -> None:
    node.write(0, b"x", "other")
    node.kill()
    log = node.directory / "w" / "1" / "log"
    opened, payloads = LayerLog.open(log)
    opened.close()
    older = bytearray(payloads[0])
    assert older[2] == layer_records.FORMAT
    older[2] = 2
    LayerLog.create(log, [bytes(older), *payloads[1:]]).close()
    node.open()
    node.write(0, b"x")
    node.kill()
    opened, found = LayerLog.open(log)
    opened.close()
    assert found[: len(payloads)] == payloads
    newer = bytearray(payloads[0])
    newer[2] += 1
    LayerLog.create(log, [bytes(newer), *found[1:]]).close()
    with pytest.raises(UnsupportedFormat, match="upgrade"):
        node.open()
    LayerLog.create(log, [*found, layer_records.pack((layer_records.WRITTEN, 99, 0, 1))]).close()
    with pytest.raises(Corrupt, match="cannot be"):
        node.open()
    LayerLog.create(log, found).close()
    node.open()
    assert node.read() == b"x" + STORED[1:]


SMALL = random.Random(3).randbytes(300_000)
BEGINS = st.sampled_from([0, 1, 4096, 50_000, 70_001, 131_072, 299_990, 300_000, 310_000])
LENGTHS = st.sampled_from([1, 10, 4096, 5000, 40_000, 200_000])
ACTS = st.one_of(
    st.tuples(st.just("write"), BEGINS, LENGTHS),
    st.tuples(st.just("write"), BEGINS, LENGTHS),
    st.tuples(st.just("truncate"), st.sampled_from([1, 5000, 80_000, 299_999, 300_001, 400_000]), st.just(0)),
    st.tuples(st.sampled_from(["punch", "zero", "zero and keep", "allocate"]), BEGINS, LENGTHS),
    st.tuples(
        st.sampled_from(["flush", "flush", "die", "close", "sync", "commit", "seal", "elsewhere"]),
        st.just(0),
        st.just(0),
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ACTS, min_size=3, max_size=25))
def test_whatever_is_done_every_version_is_what_it_was(acts: list[tuple[str, int, int]]) -> None:
    with TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_content, "_FETCHED_BYTES", 100_000)
        store, base = stored_elsewhere(Path(home, "there"), SMALL)
        story = _Story(Node(Path(home, "node 0"), store, base), Path(home))
        for number, (act, offset, length) in enumerate(acts):
            story.do(act, offset, bytes([1 + number]) * length)
            story.look()
        story.do("flush", 0, b"")
        ref = story.node.commit()
        assert files_in(store, ref.tree_id)["large"] == story.content
        story.look()
        story.node.layer.close()


class _Story:
    def __init__(self, node: Node, home: Path) -> None:
        self.node, self.home = node, home
        self.content = SMALL
        self.versions = [SMALL]
        self.unversioned = False
        self.nodes = 1
        self.handle = node.handle()

    def look(self) -> None:
        layer, handle = self.node.layer, self.handle
        assert layer.read(handle, 0, 1 << 20) == self.content
        assert layer.read(handle, 60_000, 100_000) == self.content[60_000:160_000]
        assert handle.node.size == len(self.content)
        assert self.node.versions() == self.versions

    def settle(self) -> None:
        if self.unversioned:
            self.versions.append(self.content)
            self.unversioned = False

    def put(self, offset: int, data: bytes) -> None:
        before = self.content.ljust(offset, b"\0")
        self.content = before[:offset] + data + before[offset + len(data) :]
        self.unversioned = True

    def do(self, act: str, offset: int, data: bytes) -> None:
        node, layer = self.node, self.node.layer
        match act:
            case "write":
                layer.write(self.handle, offset, data)
                self.put(offset, data)
            case "truncate":
                layer.truncate(self.handle.node, offset, self.handle)
                if offset != len(self.content):
                    self.content = self.content[:offset].ljust(offset, b"\0")
                    self.unversioned = True
            case "punch" | "zero and keep":
                mode = KEEP_SIZE | (PUNCH_HOLE if act == "punch" else ZERO_RANGE)
                layer.allocate(self.handle, mode, offset, len(data))
                if offset < len(self.content):
                    self.put(offset, bytes(min(len(data), len(self.content) - offset)))
            case "zero" | "allocate":
                layer.allocate(self.handle, ZERO_RANGE if act == "zero" else 0, offset, len(data))
                if act == "zero" and offset < len(self.content):
                    self.put(offset, bytes(len(data)))
                elif offset + len(data) > len(self.content):
                    self.put(offset + len(data), b"")
            case "flush":
                layer.flush(self.handle)
                self.settle()
            case "sync":
                layer.fsync(self.handle.node)
            case "close":
                node.close(self.handle)
                self.settle()
                layer.close()
                node.open()
                self.handle = node.handle()
            case "die":
                node.die()
                self.handle = node.handle()
                # What was written and not closed is a version of its own from then on.
                self.handle.wrote = self.unversioned
            case "commit" | "seal" | "elsewhere":
                ref = layer.seal()
                self.settle()
                assert files_in(node.store, ref.tree_id)["large"] == self.content
                if act != "seal":
                    node.base = ref
                    layer.adopt(ref)
                if act == "elsewhere":
                    node.close(self.handle)
                    layer.close()
                    self.node = Node(self.home / f"node {self.nodes}", node.store, ref)
                    self.nodes += 1
                    self.handle = self.node.handle()
