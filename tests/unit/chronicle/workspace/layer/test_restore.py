"""Going back within a layer is one step, whatever fails in it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Unavailable
from chronicle.system import atomic_files
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.layer.disk import log as layer_log
from chronicle.workspace.layer.disk.log_records import TOGETHER, count_complete, pack
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode, FileNode
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.ids import BlobId
    from chronicle.workspace.layer.layer import Layer
    from chronicle.workspace.port import TreeRef

FILES = 20


@pytest.fixture
def blobs() -> MemoryBlobStore:
    return MemoryBlobStore()


@pytest.fixture
def layer(tmp_path: Path, blobs: MemoryBlobStore) -> Iterator[Layer]:
    opened, _ = open_layer(LayerSpec("w", tmp_path, None, 1, 1), blobs, ManualClock())
    yield opened
    opened.close()


def put(layer: Layer, parent: DirNode, name: bytes, data: bytes) -> None:
    node = layer.lookup(parent, name)
    if node is None:
        handle = layer.create(parent, name, 0o644, *layer.owner)
    else:
        assert isinstance(node, FileNode)
        handle = layer.open(node, truncate=True)
    layer.write(handle, 0, data)
    layer.flush(handle)
    layer.release(handle)


def commit(layer: Layer) -> TreeRef:
    ref = layer.seal()
    layer.adopt(ref)
    return ref


def two_commits(layer: Layer) -> tuple[TreeRef, TreeRef]:
    directory = layer.make(layer.root, b"d", 0o40755, *layer.owner)
    assert isinstance(directory, DirNode)
    for number in range(FILES):
        put(layer, directory, b"%d" % number, b"one %d" % number)
    layer.link(directory.children[b"0"] or directory, layer.root, b"linked")
    first = commit(layer)
    for number in range(0, FILES, 2):
        put(layer, directory, b"%d" % number, b"two %d" % number)
    layer.unlink(directory, b"1")
    layer.unlink(layer.root, b"linked")
    return first, commit(layer)


def test_a_full_disk_changes_nothing(layer: Layer, blobs: MemoryBlobStore) -> None:
    first, second = two_commits(layer)
    log = layer.directory / "log"
    was = log.read_bytes()
    node = layer.resolve(b"d/0")
    assert isinstance(node, FileNode)
    handle = layer.open(node)

    class Full:
        writes = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def write(self, fd: int, data: Any) -> int:
            if not log.samefile(f"/proc/self/fd/{fd}"):
                return os.write(fd, data)
            self.writes += 1
            if self.writes == 3:
                os.write(fd, bytes(data)[:5])
                raise OSError(errno.ENOSPC, "no space")
            return os.write(fd, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic_files, "os", Full())
        patch.setattr(layer_log, "_BATCH_FRAMES", 4)
        with pytest.raises(OSError, check=lambda error: error.errno == errno.ENOSPC):
            layer.restore(first)
    assert log.read_bytes() == was
    assert not layer.changed
    assert layer.read(handle, 0, 100) == b"two 0"
    assert layer.history("d/0")[-1].op == "write"
    layer.restore(first)
    assert layer.read(handle, 0, 100) == b"one 0"
    layer.release(handle)
    assert files_in(blobs, layer.seal().tree_id) == files_in(blobs, first.tree_id)
    assert layer.usage == (sum(map(len, (b"one %d" % number for number in range(FILES)))), FILES + 1)
    layer.restore(second)
    assert files_in(blobs, layer.seal().tree_id) == files_in(blobs, second.tree_id)


def test_all_that_it_needs_of_the_store_is_read_before(tmp_path: Path, blobs: MemoryBlobStore) -> None:
    """Whichever read fails, nothing was changed."""

    class Failing(MemoryBlobStore):
        left = 1 << 30

        def get(self, blob_id: BlobId) -> bytes:
            self.left -= 1
            if self.left < 0:
                raise Unavailable("the store is away")
            return super().get(blob_id)

    store = Failing()
    layer, _ = open_layer(LayerSpec("w", tmp_path, None, 1, 1), store, ManualClock())
    first, second = two_commits(layer)
    layer.close()
    succeeded = False
    for reads in range(200):
        store.left = 1 << 30
        # Another workspace each time, of which nothing is known yet.
        layer, _ = open_layer(LayerSpec(f"w{reads}", tmp_path, second, 1, 2), store, ManualClock())
        was = (layer.directory / "log").read_bytes()
        store.left = reads
        try:
            layer.restore(first)
        except Unavailable:
            assert (layer.directory / "log").read_bytes() == was
            assert not layer.changed
        else:
            succeeded = True
        store.left = 1 << 30
        tree_id = layer.seal().tree_id
        layer.close()
        assert files_in(store, tree_id) == files_in(store, (first if succeeded else second).tree_id)
        if succeeded:
            break
    assert succeeded
    assert reads > 3


def test_what_counts_together_counts_if_all_is_there() -> None:
    def log(*codes: int | tuple[int, int]) -> list[bytes]:
        return [pack(code) if isinstance(code, tuple) else pack((code, 0)) for code in codes]

    assert count_complete(log(0)) == 1
    assert count_complete(log(0, 3, (TOGETHER, 2), 3, 4)) == 5
    assert count_complete(log(0, 3, (TOGETHER, 2), 3)) == 2
    assert count_complete(log(0, 3, (TOGETHER, 2))) == 2
    assert count_complete(log(0, (TOGETHER, 1), 3, (TOGETHER, 1), 3, 4)) == 6
    assert count_complete(log(0, (TOGETHER, 1), 3, (TOGETHER, 3), 3, 4)) == 3
