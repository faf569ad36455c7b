"""What of a layer is in memory: what changed, and of the rest no more than a fixed number of nodes."""

from __future__ import annotations

import os
import stat
import weakref
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.blobs.readers import CachingReader
from chronicle.clock import ManualClock
from chronicle.fuse.deadlines import TimedBlobStore
from chronicle.fuse.served.operations import ChronicleOperations
from chronicle.system.heap import collect_and_trim
from chronicle.workspace.history.oplog import ROOT_INO
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.port import LayerSpec
from tests.layers import abandon, directory_at, file_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.workspace.layer.layer import Layer

FILES = 300
KEPT = 20
NAMES = [b"file-%03d" % number for number in range(FILES)]


@pytest.fixture
def blobs() -> MemoryBlobStore:
    return MemoryBlobStore()


@pytest.fixture
def layer(tmp_path: Path, blobs: MemoryBlobStore) -> Iterator[Layer]:
    opened, _ = open_layer(LayerSpec("w", tmp_path, None, 1, 1), blobs, ManualClock())
    opened.names.max_clean_nodes = KEPT
    yield opened
    opened.close()


class Kernel:
    """Asks for files as the kernel does, and remembers their numbers."""

    def __init__(self, layer: Layer) -> None:
        self.operations = ChronicleOperations(layer)
        self.known: dict[int, int] = {}

    def look_up(self, parent: int, name: bytes) -> int:
        found = self.operations.lookup(parent, name)
        assert found is not None
        return self._seen(found.ino)

    def make_directory(self, parent: int, name: bytes) -> int:
        return self._seen(self.operations.make(parent, name, stat.S_IFDIR | 0o755, 0, 0).ino)

    def create(self, parent: int, name: bytes, data: bytes) -> int:
        entry, handle, _ = self.operations.create(parent, name, 0o644, 0, 0)
        self.operations.write(handle, 0, data, kill_privileges=None)
        self.operations.flush(handle)
        self.operations.release(handle)
        return self._seen(entry.ino)

    def read(self, inode: int) -> bytes:
        handle, _ = self.operations.open(inode, os.O_RDONLY, kill_privileges=None)
        data = self.operations.read(handle, 0, 100)
        self.operations.release(handle)
        return data

    def list_all(self, inode: int) -> list[bytes]:
        """List with attributes, in parts, as long listings are."""
        handle = self.operations.opendir(inode)
        names: list[bytes] = []
        offset = 0
        while True:
            taken = 0
            for name, entry, following in self.operations.readdir(handle, offset):
                if taken == 10:
                    break
                taken, offset = taken + 1, following
                if name not in {b".", b".."}:
                    names.append(name)
                    self._seen(entry.ino)
            if not taken:
                break
        self.operations.releasedir(handle)
        return names

    def forget(self, *inodes: int) -> None:
        self.operations.forget([(inode, self.known.pop(inode)) for inode in inodes])

    def _seen(self, inode: int) -> int:
        self.known[inode] = self.known.get(inode, 0) + 1
        return inode


def filled(layer: Layer) -> tuple[Kernel, int, list[int]]:
    """Make a directory of files."""
    kernel = Kernel(layer)
    directory = kernel.make_directory(ROOT_INO, b"d")
    return kernel, directory, [kernel.create(directory, name, b"of " + name) for name in NAMES]


def commit(layer: Layer) -> None:
    layer.adopt(layer.seal())
    layer.begin_turn(layer.turn + 1)


def test_what_was_sealed_leaves_memory_and_is_found_by_its_number(layer: Layer) -> None:
    kernel, directory, inodes = filled(layer)
    before = [(node.ino, node.mode, node.size, node.mtime_ns, node.nlink) for node in map(layer.node, inodes)]
    assert len(layer.names.by_ino) > FILES
    commit(layer)
    assert len(layer.names.by_ino) <= KEPT
    after = [(node.ino, node.mode, node.size, node.mtime_ns, node.nlink) for node in map(layer.node, inodes)]
    assert after == before
    assert [kernel.read(inode) for inode in inodes] == [b"of " + name for name in NAMES]
    assert kernel.look_up(ROOT_INO, b"d") == directory
    assert kernel.look_up(directory, NAMES[5]) == inodes[5]


@pytest.mark.parametrize("wrapped", [False, True], ids=["near", "with deadlines"])
def test_after_a_large_commit_no_cached_blobs_keep_the_memory_around_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, wrapped: bool
) -> None:
    monkeypatch.setattr("chronicle.workspace.layer.commit_cycle.MAX_CLEAN_NODES", KEPT)
    store = PackBlobStore(f"file://{tmp_path}/blobs")
    blobs = TimedBlobStore(store, 60, lambda: None) if wrapped else store
    layer, _ = open_layer(LayerSpec("w", tmp_path / "layers", None, 1, 1), blobs, ManualClock())
    kernel, directory, inodes = filled(layer)
    commit(layer)
    kernel.list_all(directory)
    assert cached(layer, store) > 0
    layer.set_mode(layer.node(inodes[0]), 0o600, 0, 0)
    commit(layer)
    assert cached(layer, store) > 0  # of a small commit they stay
    for inode in inodes:
        layer.set_mode(layer.node(inode), 0o600, 0, 0)
    commit(layer)
    assert cached(layer, store) == 0
    assert [kernel.read(inode) for inode in inodes] == [b"of " + name for name in NAMES]
    layer.close()
    blobs.close()


def cached(layer: Layer, store: PackBlobStore) -> int:
    """Return how many blobs a layer and its store have in memory."""
    assert isinstance(layer.reader, CachingReader)
    return len(layer.reader._cache) + len(store._reader._cache._blobs)


def test_all_memory_is_given_back_after_a_full_collection() -> None:
    class Cycle:
        def __init__(self) -> None:
            self.own = self

    gone = weakref.ref(Cycle())
    collect_and_trim()
    assert gone() is None


def test_a_walk_keeps_no_more_than_a_fixed_number_of_nodes(layer: Layer) -> None:
    kernel, directory, _ = filled(layer)
    commit(layer)
    for _ in range(3):
        assert kernel.list_all(directory) == NAMES
        for name in NAMES:
            kernel.look_up(directory, name)
        assert len(layer.names.by_ino) <= 3 * KEPT


def test_opening_and_reading_everything_keeps_no_more_either(layer: Layer) -> None:
    kernel, _, inodes = filled(layer)
    commit(layer)
    for inode in inodes:
        assert kernel.operations.getattr(inode).ino == inode
    assert len(layer.names.by_ino) <= 3 * KEPT
    for inode in inodes:
        kernel.read(inode)
    assert len(layer.names.by_ino) <= 3 * KEPT


def test_nothing_is_kept_of_what_the_kernel_forgot(layer: Layer) -> None:
    kernel, directory, inodes = filled(layer)
    commit(layer)
    assert len(layer.names.evicted) >= FILES
    kernel.forget(directory)  # the kernel may forget a directory before what was looked up in it
    assert layer.node(inodes[0]).ino == inodes[0]
    kernel.forget(*inodes)
    assert len(layer.names.evicted) == 0
    assert set(layer.names.by_ino) == {ROOT_INO}
    with pytest.raises(OSError, match="inode number"):
        layer.node(inodes[3])
    assert kernel.list_all(kernel.look_up(ROOT_INO, b"d")) == NAMES


def test_what_differs_or_is_open_stays(layer: Layer) -> None:
    kernel, directory, inodes = filled(layer)
    handle, _ = kernel.operations.open(inodes[0], os.O_RDWR, kill_privileges=None)
    commit(layer)
    opened = layer.node(inodes[0])
    layer.set_mode(layer.node(inodes[1]), 0o600, 0, 0)
    for _ in range(2):
        for name in NAMES:
            kernel.look_up(directory, name)
    assert layer.node(inodes[0]) is opened
    assert layer.node(inodes[1]).mode & 0o777 == 0o600
    kernel.operations.write(handle, 0, b"anew", kill_privileges=None)
    kernel.operations.flush(handle)
    assert kernel.read(inodes[0])[:4] == b"anew"
    kernel.operations.release(handle)
    commit(layer)
    assert kernel.read(inodes[0])[:4] == b"anew"
    assert layer.node(inodes[1]).mode & 0o777 == 0o600


def test_names_change_although_nobody_had_them_in_memory(layer: Layer) -> None:
    kernel, directory, inodes = filled(layer)
    below = kernel.make_directory(directory, b"below")
    inner = kernel.create(below, b"inner", b"within")
    kernel.operations.link(inodes[7], below, b"linked")
    commit(layer)
    kernel.operations.rename(ROOT_INO, b"d", ROOT_INO, b"moved", 0)
    kernel.operations.unlink(directory, NAMES[3])
    assert kernel.read(inner) == b"within"
    assert layer.names.path_of(layer.node(inner)) == b"moved/below/inner"
    commit(layer)
    kernel.operations.rename(directory, b"below", ROOT_INO, b"out", 0)
    assert layer.node(inodes[7]).nlink == 2
    kernel.operations.unlink(below, b"linked")
    commit(layer)
    assert layer.node(inodes[7]).nlink == 1
    assert layer.names.path_of(layer.node(inner)) == b"out/inner"
    assert [name for name, _ in layer.entries(directory_at(layer, "moved"))] == NAMES[:3] + NAMES[4:]
    assert layer.node(inodes[3]).nlink == 0
    kernel.forget(inodes[3])
    with pytest.raises(OSError, match="inode number"):
        layer.node(inodes[3])


def test_the_log_is_read_back_to_the_same(tmp_path: Path, blobs: MemoryBlobStore) -> None:
    layer, _ = open_layer(LayerSpec("w", tmp_path, None, 1, 1), blobs, ManualClock())
    layer.names.max_clean_nodes = KEPT
    kernel, directory, inodes = filled(layer)
    commit(layer)
    for number, inode in enumerate(inodes):
        if number % 3 == 0:
            layer.set_mode(layer.node(inode), 0o600, 0, 0)
        elif number % 3 == 1:
            kernel.operations.unlink(directory, NAMES[number])
    layer.seal()  # not adopted
    kernel.operations.rename(directory, NAMES[2], directory, b"renamed", 0)
    base = layer.base
    abandon(layer)
    again, _ = open_layer(LayerSpec("w", tmp_path, base, 1, 2), blobs, ManualClock())
    expected = [name for number, name in enumerate(NAMES) if number % 3 != 1 and number != 2]
    assert [name for name, _ in again.entries(directory_at(again, "d"))] == sorted([*expected, b"renamed"])
    assert file_at(again, "d/renamed").ino == inodes[2]
    assert file_at(again, "d/file-006").mode & 0o777 == 0o600
    assert [version.op for version in again.history("d/file-006")] == ["write", "mode"]
    again.close()
