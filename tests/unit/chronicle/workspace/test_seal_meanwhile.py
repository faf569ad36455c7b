"""Readers of a layer that is being sealed see what it holds, and the seal is what it would be without them."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import ChronicleError, Unavailable
from chronicle.fuse.served.inodes import MAGIC
from chronicle.fuse.served.operations import ChronicleOperations
from chronicle.workspace.history.oplog import ROOT_INO
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode, FileNode, LinkNode
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.blobs.port import BlobStore
    from chronicle.workspace.layer.layer import Layer

T = TypeVar("T")
NAMES = [b"a", b"b", b"c", b"d", b"e"]
OWNER = (os.geteuid(), os.getegid())


class World:
    """A layer with its mount's operations, and someone who works in it at random."""

    def __init__(self, directory: Path, blobs: BlobStore, seed: int) -> None:
        directory.mkdir()
        self.directory, self.blobs = directory, blobs
        self.rng = random.Random(seed)
        self.layer, _ = open_layer(LayerSpec("w", directory, None, 1, 1), blobs, ManualClock())
        self.operations = ChronicleOperations(self.layer)
        self.open: list[int] = []

    def work(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self._step()
            except OSError:  # what cannot be done is as good as anything
                continue

    def _step(self) -> None:
        rng, operations = self.rng, self.operations
        parent = self._directory()
        name, other = rng.choice(NAMES), rng.choice(NAMES)
        match rng.randrange(11):
            case 0 | 1 | 2:
                _, handle, _ = operations.create(parent, name, 0o644, *OWNER)
                operations.write(handle, 0, rng.randbytes(rng.choice([0, 10, 3_000, 200_000])), kill_privileges=None)
                self._leave(handle)
            case 3:
                operations.make(parent, name, 0o040755, *OWNER)
            case 4:
                operations.symlink(parent, name, other, *OWNER)
            case 5:
                operations.rename(parent, name, self._directory(), other, 0)
            case 6:
                operations.unlink(parent, name)
            case 7:
                found = operations.lookup(parent, name)
                if found is not None:
                    operations.link(found.ino, self._directory(), other)
            case 8:
                found = operations.lookup(parent, name)
                if found is not None:
                    operations.setxattr(found.ino, b"user.x", rng.randbytes(3), 0)
            case 9:
                found = operations.lookup(parent, name)
                if found is not None:
                    handle, _ = operations.open(found.ino, os.O_RDWR, kill_privileges=None)
                    at = rng.randrange(1, 100_000)
                    operations.write(handle, at, rng.randbytes(5_000), kill_privileges=None)
                    self._leave(handle)
            case 10:
                operations.rmdir(parent, name)

    def _leave(self, handle: int) -> None:
        """Close a file, or keep it open, written or just opened."""
        if self.rng.random() < 0.7:
            self.operations.flush(handle)
        if self.rng.random() < 0.8:
            self.operations.release(handle)
        else:
            self.open.append(handle)

    def _directory(self) -> int:
        directories = [ino for ino, node in self.layer.names.by_ino.items() if isinstance(node, DirNode) and node.nlink]
        return self.rng.choice(sorted(directories))

    def turn(self, number: int) -> None:
        self.layer.begin_turn(number)
        self.work(60)


def shown(layer: Layer) -> dict[bytes, object]:
    """Everything that a mount would show, by path."""
    operations = ChronicleOperations(layer)
    found: dict[bytes, object] = {}
    pending = [(b"", ROOT_INO)]
    while pending:
        path, inode = pending.pop()
        handle = operations.opendir(inode)
        for name, entry, _ in list(operations.readdir(handle, 0))[2:]:
            child = path + b"/" + name
            node = layer.node(entry.ino)
            told: object = (entry.mode, entry.nlink, entry.size, entry.mtime_ns, dict(node.xattrs))
            if isinstance(node, FileNode):
                told = (told, content(operations, entry.ino))
            elif isinstance(node, LinkNode):
                told = (told, operations.readlink(entry.ino))
            found[child] = told
            if isinstance(node, DirNode):
                pending.append((child, entry.ino))
        operations.releasedir(handle)
    return found


def content(operations: ChronicleOperations, inode: int) -> bytes:
    handle, _ = operations.open(inode, os.O_RDONLY, kill_privileges=None)
    try:
        return operations.read(handle, 0, 1 << 20)
    finally:
        operations.release(handle)


class Looking:
    """Asks at random, whenever it may, for what a kernel asks that changes nothing; and compares what it is told.

    Args:
        fails_at: the how many-th thing that is done aside fails.
    """

    def __init__(self, world: World, seed: int, fails_at: int = 0) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.was = shown(world.layer)
        self.breaths = self.looks = 0
        self._fails_at = fails_at
        self._handles: list[tuple[int, bytes]] = []

    def yield_now(self) -> None:
        self.breaths += 1
        for _ in range(self.rng.randrange(4)):
            self._look()

    def run_in_thread(self, work: Callable[[], T]) -> T:
        done: list[T] = []
        failed: list[Exception] = []

        def run() -> None:
            try:
                done.append(work())
            except Exception as error:  # noqa: BLE001 - raised by who waits
                failed.append(error)

        self._fails_at -= 1
        if self._fails_at == 0:
            raise Unavailable("the store is away")
        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():
            self._look()
        thread.join()
        if failed:
            raise failed[0]
        return done[0]

    def _look(self) -> None:
        self.looks += 1
        rng, operations = self.rng, self.world.operations
        path = rng.choice(sorted(self.was)) if self.was else b""
        match rng.randrange(9):
            case 0:
                assert shown(self.world.layer) == self.was
            case 1 | 2:
                inode = self._walk(path)
                node = self.world.layer.node(inode)
                if isinstance(node, FileNode):
                    expected = self.was[path]
                    assert isinstance(expected, tuple)
                    handle, _ = operations.open(inode, rng.choice([os.O_RDONLY, os.O_RDWR]), kill_privileges=None)
                    self._handles.append((handle, expected[1]))
            case 3 | 4 if self._handles:
                handle, expected_bytes = rng.choice(self._handles)
                at, size = rng.randrange(200_000), rng.randrange(1, 200_000)
                assert operations.read(handle, at, size) == expected_bytes[at : at + size]
            case 5 if self._handles:
                handle, _ = self._handles.pop(rng.randrange(len(self._handles)))
                assert not operations.wrote(handle)
                operations.flush(handle)
                operations.release(handle)
            case 6:
                counts = operations._counts
                opened = {handle.node.ino for handle in operations._handles.values()}
                inode = rng.choice([ino for ino in counts if ino not in opened] or [ROOT_INO])
                if inode != ROOT_INO and not isinstance(self.world.layer.names.by_ino.get(inode), DirNode):
                    operations.forget([(inode, counts[inode])])
            case 7:
                self._read_history(path)
            case 8:
                for handle in [handle for handle in self.world.open if not operations.wrote(handle)]:
                    self.world.open.remove(handle)
                    operations.release(handle)
            case _:
                operations.statfs()

    def _walk(self, path: bytes) -> int:
        inode = ROOT_INO
        for name in path.strip(b"/").split(b"/"):
            found = self.world.operations.lookup(inode, name)
            assert found is not None, path
            inode = found.ino
        return inode

    def _read_history(self, path: bytes) -> None:
        operations = self.world.operations
        inode = operations.lookup(ROOT_INO, b".chronicle")
        for name in [b"query", *path.strip(b"/").split(b"/")]:
            assert inode is not None
            inode = operations.lookup(inode.ino, name)
        assert inode is not None
        assert inode.ino >= MAGIC
        if not inode.mode & 0o040000:
            handle, _ = operations.open(inode.ino, os.O_RDONLY, kill_privileges=None)
            assert operations.read(handle, 0, 1 << 20).startswith(b"[")
            operations.release(handle)

    def close_unsynced(self) -> None:
        for handle, _ in self._handles:
            self.world.operations.release(handle)


def store(kind: str, directory: Path) -> BlobStore:
    return MemoryBlobStore() if kind == "memory" else PackBlobStore(f"file://{directory}")


def versions(layer: Layer) -> dict[bytes, list[object]]:
    return {
        path: [(item.iteration, item.op, item.size, item.hash, item.turn) for item in layer.history(os.fsdecode(path))]
        for path in {operation.path for operation in layer.histories.operations()}
    }


@pytest.mark.parametrize("kind", ["memory", "file"])
@pytest.mark.parametrize("seed", range(4))
def test_readers_meanwhile_change_nothing(tmp_path: Path, seed: int, kind: str) -> None:
    watched = World(tmp_path / "watched", store(kind, tmp_path / "one"), seed)
    alone = World(tmp_path / "alone", store(kind, tmp_path / "two"), seed)
    looks = 0
    for turn in range(1, 5):
        watched.turn(turn)
        alone.turn(turn)
        looking = Looking(watched, seed, fails_at=turn % 2)
        if turn % 2:  # a seal that fails leaves everything as it is
            with pytest.raises(Unavailable):
                watched.layer.seal(looking)
            assert shown(watched.layer) == looking.was
        ref = watched.layer.seal(looking)
        assert ref == alone.layer.seal()
        assert looking.breaths > 0
        looks += looking.looks
        assert shown(watched.layer) == looking.was == shown(alone.layer)
        assert versions(watched.layer) == versions(alone.layer)
        looking.close_unsynced()
        watched.layer.adopt(ref)
        alone.layer.adopt(alone.layer.seal())
        for handle in alone.open:  # those that looking let go of, and all others: so both go on alike
            alone.operations.release(handle)
        for handle in watched.open:
            watched.operations.release(handle)
        watched.open, alone.open = [], []
    assert looks > 20
    last = watched.layer.seal()
    was = shown(watched.layer)
    watched.layer.adopt(last)
    watched.layer.close()
    again, recovered = open_layer(LayerSpec("w", watched.directory, last, 2, 9), watched.blobs, ManualClock())
    assert recovered is None
    assert {path: told[1] for path, told in shown(again).items() if isinstance(told, tuple) and len(told) == 2} == {
        path: told[1] for path, told in was.items() if isinstance(told, tuple) and len(told) == 2
    }
    again.close()
    alone.layer.close()


def test_what_takes_too_long_is_given_up_and_can_be_tried_again(tmp_path: Path) -> None:
    class Impatient:
        def yield_now(self) -> None:
            raise Unavailable("took too long")

        def run_in_thread(self, work: Callable[[], T]) -> T:
            return work()

    world = World(tmp_path / "w", MemoryBlobStore(), 3)
    world.turn(1)
    was = shown(world.layer)
    with pytest.raises(ChronicleError, match="took too long"):
        world.layer.seal(Impatient())
    assert shown(world.layer) == was
    world.layer.adopt(world.layer.seal())
    world.layer.close()
