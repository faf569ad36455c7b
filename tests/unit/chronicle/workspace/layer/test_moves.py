"""Moving to a tree on the base is one step, whatever fails in it, and costs what differs."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Unavailable
from chronicle.system import atomic_files
from chronicle.workspace.layer.layer import Layer
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode
from chronicle.workspace.port import LayerSpec
from tests.layers import contents, directory_at, file_at, place, read

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.ids import BlobId
    from chronicle.workspace.port import TreeRef

FILES = 2000
FOLDERS = 20


class CountingStore(MemoryBlobStore):
    """Counts reads, and fails after some."""

    reads = 0
    left = 1 << 30

    def get(self, blob_id: BlobId) -> bytes:
        self.reads += 1
        self.left -= 1
        if self.left < 0:
            raise Unavailable("the store is away")
        return super().get(blob_id)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


def opened(directory: Path, store: CountingStore, base: TreeRef | None = None, *, name: str = "w") -> Layer:
    layer, _ = open_layer(LayerSpec(name, directory, base, 1, 1), store, ManualClock())
    return layer


def put(layer: Layer, path: str, data: bytes) -> None:
    parent, name = place(layer, path)
    handle = layer.open(file_at(layer, path), truncate=True) if layer.lookup(parent, name) else None
    handle = handle or layer.create(parent, name, 0o644, *layer.owner)
    layer.write(handle, 0, data)
    layer.flush(handle)
    layer.release(handle)


def lost_attempt(layer: Layer, *, files: int = 40) -> tuple[TreeRef, TreeRef]:
    """Return a base, and what an attempt sealed on top of it; the layer is at the base."""
    for folder in range(FOLDERS):
        layer.make(layer.root, b"d%d" % folder, 0o40755, *layer.owner)
    for number in range(files):
        put(layer, f"d{number % FOLDERS}/f{number}", b"one")
    base = layer.seal()
    layer.adopt(base)
    layer.begin_turn(2)
    put(layer, "d1/f1", b"two!")
    layer.rename(*place(layer, "d2"), *place(layer, "d3/moved"))
    put(layer, "d3/moved/f2", b"changed")
    sealed = layer.seal()
    layer.rollback()
    return base, sealed


def test_all_that_it_needs_of_the_store_is_read_before(tmp_path: Path, store: CountingStore) -> None:
    first = opened(tmp_path, store)
    base, sealed = lost_attempt(first)
    first.close()
    succeeded = False
    for reads in range(100):
        store.left = 1 << 30
        layer = opened(tmp_path, store, base, name=f"w{reads}")  # of which nothing is known yet
        directory_at(layer, "d2")
        handle = layer.open(file_at(layer, "d2/f2"))
        log = (layer.directory / "log").read_bytes()
        store.left = reads
        try:
            layer.move_to(sealed)
            succeeded = True
        except Unavailable:
            assert (layer.directory / "log").read_bytes() == log
            assert layer.sealed == base
        store.left = 1 << 30
        assert read(layer, file_at(layer, "d1/f1")) == (b"two!" if succeeded else b"one")
        assert layer.read(handle, 0, 10) == (b"changed" if succeeded else b"one")
        assert layer.seal() == (sealed if succeeded else base)
        layer.close()
        if succeeded:
            break
    assert succeeded


def test_a_full_disk_changes_nothing(tmp_path: Path, store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = opened(tmp_path, store)
    _, sealed = lost_attempt(layer)
    put(layer, "own", b"own")
    before = contents(layer)
    log = (layer.directory / "log").read_bytes()

    class Full:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def write(self, fd: int, data: Any) -> int:
            os.write(fd, bytes(data)[:5])
            raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "os", Full())
        with pytest.raises(OSError, check=lambda error: error.errno == errno.ENOSPC):
            layer.move_to(sealed)
    assert (layer.directory / "log").read_bytes() == log
    assert contents(layer) == before
    layer.move_to(sealed)
    assert layer.seal() == sealed
    layer.close()


def test_a_move_reads_what_differs(tmp_path: Path, store: CountingStore) -> None:
    layer = opened(tmp_path, store)
    lost_attempt(layer, files=FILES)
    put(layer, "d7/f7", b"in a small difference")
    sealed = layer.seal()
    base = layer.base
    layer.close()
    fresh = opened(tmp_path, store, base, name="fresh")
    store.reads = 0
    fresh.move_to(sealed)
    assert store.reads < 40
    assert len(fresh.names.by_ino) == 1
    assert read(fresh, file_at(fresh, "d7/f7")) == b"in a small difference"
    fresh.close()


def test_a_file_that_was_made_again_has_two_numbers_while_it_may_be_open(tmp_path: Path, store: CountingStore) -> None:
    layer = opened(tmp_path, store)
    layer.begin_turn(1)
    put(layer, "log", b"first line")
    sealed = layer.seal()
    stored = file_at(layer, "log").ino
    layer.rollback()
    handle = layer.create(*place(layer, "log"), 0o644, *layer.owner)
    layer.move_to(sealed)
    number = handle.node.ino
    assert number != stored
    assert file_at(layer, "log") is handle.node
    assert [(name, ino) for name, ino, _ in layer.dirents(layer.root)] == [(b"log", number)]
    assert layer.names.renumbered.stored(number) == stored
    layer.write(handle, 10, b", second line")
    layer.release(handle)
    assert read(layer, file_at(layer, "log")) == b"first line, second line"
    layer.adopt(layer.seal())
    assert (file_at(layer, "log").ino, layer.names.renumbered.stored(number)) == (number, stored)
    layer.close()
    again = opened(tmp_path, store, layer.base)
    assert file_at(again, "log").ino == stored
    assert read(again, file_at(again, "log")) == b"first line, second line"
    assert isinstance(again.root, DirNode)
    again.close()


def test_a_number_that_another_file_has_is_not_given_to_a_second_one(tmp_path: Path, store: CountingStore) -> None:
    """On a node without the lost attempt's layer, this attempt may have given its numbers to other files."""
    lost = opened(tmp_path / "lost", store)
    base = lost.base
    lost.begin_turn(1)
    put(lost, "a", b"of a")
    put(lost, "b", b"of b")
    sealed = lost.seal()
    lost.close()
    layer = opened(tmp_path / "other", store, base)
    layer.begin_turn(1)
    other, b = (layer.create(*place(layer, name), 0o644, *layer.owner) for name in ("other", "b"))
    layer.write(other, 0, b"given up")
    layer.move_to(sealed)
    assert contents(layer) == {"a": b"of a", "b": b"of b"}
    assert len({file_at(layer, "a").ino, b.node.ino, other.node.ino}) == 3
    assert file_at(layer, "b") is b.node
    assert layer.read(other, 0, 10) == b"given up"
    assert layer.seal() == sealed
    layer.release(other)
    layer.release(b)
    layer.close()
