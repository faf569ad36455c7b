"""Requests that are put aside for a far store and carried out again do what they would have done at once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.store import BlobStore, Pending
from chronicle.clock import ManualClock
from chronicle.errors import NotFound, Unavailable
from chronicle.fuse import deadlines
from chronicle.fuse.deadlines import Supply, TimedBlobStore, Waiting, supply_of
from chronicle.fuse.operations import ChronicleOperations
from chronicle.fuse.parked import Parked
from chronicle.fuse.pulse import COMMAND, REQUEST, unwatched
from chronicle.ids import BlobId
from chronicle.workspace import layer_content
from chronicle.workspace.layer_open import open_layer
from chronicle.workspace.oplog import ROOT_INO
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.unit.test_seal_meanwhile import World, shown

LONG_S = 60.0


class Far(MemoryBlobStore):
    """Memory that is read as if it were beyond a network, and counts."""

    is_far = True

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.answers = threading.Event()
        self.answers.set()

    def get(self, blob_id: BlobId) -> bytes:
        self.reads += 1
        assert self.answers.wait(LONG_S)
        return super().get(blob_id)

    def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        return {blob_id: self.get(blob_id) for blob_id in blob_ids}


class Again:
    """Carries operations out as a session does: once more, as long as they are to be put aside."""

    def __init__(self, operations: ChronicleOperations, waiting: Waiting) -> None:
        self._operations = operations
        self._waiting = waiting
        self.put_aside = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._operations, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            try:
                while True:
                    self._waiting.begin()
                    try:
                        result = found(*arguments, **options)
                        return list(result) if isinstance(result, Iterator) else result
                    except Pending as pending:
                        self.put_aside += 1
                        self._waiting.supply = settled(supply_of(pending))
            finally:
                self._waiting.supply = None

        return call


def settled(supply: Supply) -> Supply:
    """Wait for what a request waits for, and let it have it."""
    until_s = time.monotonic() + LONG_S
    while not supply.is_due(time.monotonic()):
        assert time.monotonic() < until_s
    supply.take_in()
    return supply


class Elsewhere(World):
    """The same on a node that has nothing of it yet."""

    def __init__(self, directory: Path, blobs: BlobStore, seed: int, base: TreeRef) -> None:
        directory.mkdir()
        self.directory, self.blobs = directory, blobs
        self.rng = random.Random(seed)
        self.layer, _ = open_layer(LayerSpec("w", directory, base, 2, 2), blobs, ManualClock())
        self.operations = ChronicleOperations(self.layer)
        self.open: list[int] = []


@pytest.fixture(autouse=True)
def never_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "_GRACE_S", 0)
    monkeypatch.setattr(layer_content, "_FETCHED_BYTES", 4096)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_put_aside_does_the_same_as_what_is_not(tmp_path: Path, seed: int) -> None:
    memory = Far()
    first = World(tmp_path / "first", memory, seed)
    first.turn(1)
    base = first.layer.seal()
    first.layer.adopt(base)

    plain = Elsewhere(tmp_path / "plain", memory, seed + 100, base)
    plain.turn(2)
    was = shown(plain.layer)

    pulse = unwatched()
    far = TimedBlobStore(memory, LONG_S, pulse.beat)
    world = Elsewhere(tmp_path / "far", far, seed + 100, base)
    waiting = far.waiting = Waiting(pulse, lambda: world.layer.logged)
    again = Again(world.operations, waiting)
    world.operations = again  # type: ignore[assignment]
    waiting.is_on = True
    pulse.cells[1] = REQUEST
    world.turn(2)
    assert again.put_aside > 0
    pulse.cells[1] = COMMAND
    assert shown(world.layer) == was
    assert world.layer.seal() == plain.layer.seal()
    far.close()


def opened(tmp_path: Path) -> tuple[Far, TimedBlobStore, Waiting, ChronicleOperations, Callable[[], None]]:
    """A file and a directory that are in the store only; and what ends it all."""
    memory = Far()
    (tmp_path / "first").mkdir()
    first, _ = open_layer(LayerSpec("w", tmp_path / "first", None, 1, 1), memory, ManualClock())
    first.release(first.create(first.names.root, b"empty", 0o644, 0, 0))
    handle = first.create(first.names.root, b"file", 0o644, 0, 0)
    first.write(handle, 0, random.Random(1).randbytes(100_000))
    first.flush(handle)
    base = first.seal()
    first.close()
    pulse = unwatched()
    far = TimedBlobStore(memory, LONG_S, pulse.beat)
    (tmp_path / "there").mkdir()
    layer, _ = open_layer(LayerSpec("w", tmp_path / "there", base, 1, 1), far, ManualClock())
    waiting = far.waiting = Waiting(pulse, lambda: layer.logged)
    waiting.is_on = True
    pulse.cells[1] = REQUEST
    waiting.begin()

    def end() -> None:
        memory.answers.set()
        layer.close()
        far.close()

    return memory, far, waiting, ChronicleOperations(layer), end


def test_an_operation_that_has_logged_something_is_not_put_aside(tmp_path: Path) -> None:
    memory, far, waiting, operations, end = opened(tmp_path)
    again = Again(operations, waiting)
    again.lookup(ROOT_INO, b"file")
    waiting.begin()
    operations.make(ROOT_INO, b"made", 0o040755, 0, 0)
    content = next(iter(set(memory.blob_ids())))
    assert far.get(content) == memory.get(content), "in this thread"
    end()


def test_a_read_that_is_too_late_fails_its_request_and_no_other(tmp_path: Path) -> None:
    memory, far, waiting, operations, end = opened(tmp_path)
    far._deadline_s = 0.05
    again = Again(operations, waiting)
    found = again.lookup(ROOT_INO, b"file")
    handle, _ = again.open(found.ino, 0, kill_privileges=None)
    memory.answers.clear()
    with pytest.raises(Unavailable, match=r"did not answer within 0\.05 s"):
        again.read(handle, 0, 4096)
    assert again.lookup(ROOT_INO, b"empty") is not None
    memory.answers.set()
    far._deadline_s = LONG_S
    assert again.read(handle, 0, 100) == random.Random(1).randbytes(100_000)[:100]
    end()


def test_what_the_store_lacks_is_said(tmp_path: Path) -> None:
    _, far, waiting, _, end = opened(tmp_path)
    absent = BlobId("b3:" + "0" * 64)
    with pytest.raises(Pending) as caught:
        far.get(absent)
    waiting.supply = settled(supply_of(caught.value))
    with pytest.raises(NotFound):
        far.get(absent)
    end()


def test_those_that_wait_are_told_when_one_is_due(tmp_path: Path) -> None:
    memory, far, _, _, end = opened(tmp_path)
    some = list(memory.blob_ids())[:2]
    memory.answers.clear()
    parked: Parked[str] = Parked()
    for blob_id in some:
        with pytest.raises(Pending) as caught:
            far.get(blob_id)
        parked.add(blob_id, supply_of(caught.value), 10)
    assert len(parked) == 2
    assert parked.take_due() == []
    memory.answers.set()
    due: list[str] = []
    until_s = time.monotonic() + LONG_S
    while len(due) < 2 and time.monotonic() < until_s:
        due += [request for request, _ in parked.take_due()]
    assert sorted(due) == sorted(some)
    assert not parked
    parked.close()
    end()
