"""Requests that are put aside for a far store and carried out again do what they would have done at once."""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.port import BlobStore, Pending
from chronicle.clock import ManualClock
from chronicle.errors import NotFound, Unavailable
from chronicle.fuse import deadlines
from chronicle.fuse.deadlines import FetchedBlobs, ParkingPolicy, TimedBlobStore, fetched_of
from chronicle.fuse.served.operations import ChronicleOperations
from chronicle.fuse.transport import raw_session, wire
from chronicle.fuse.transport.parked_requests import ParkedQueue
from chronicle.fuse.transport.wire import Opcode
from chronicle.fuse.watchdog import COMMAND, REQUEST, unwatched_heartbeat
from chronicle.ids import BlobId
from chronicle.workspace.content.lazy_reader import _WORKERS, Chunks
from chronicle.workspace.history.oplog import ROOT_INO
from chronicle.workspace.layer import file_data
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.unit.chronicle.workspace.test_seal_meanwhile import World, shown
from tests.waiting import wait_until

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
        return {name: self.get(name) for name in blob_ids}


class Again:
    """Carries operations out as a session does: once more, as long as they are to be put aside."""

    def __init__(self, operations: ChronicleOperations, parking: ParkingPolicy) -> None:
        self._operations = operations
        self._parking = parking
        self.put_aside = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._operations, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            fetched = None
            while True:
                self._parking.begin(fetched)
                try:
                    result = found(*arguments, **options)
                    return list(result) if isinstance(result, Iterator) else result
                except Pending as pending:
                    self.put_aside += 1
                    fetched = settled(fetched_of(pending))
                finally:
                    self._parking.end()

        return call


def settled(fetched: FetchedBlobs) -> FetchedBlobs:
    """Wait for what a request waits for, and let it have it."""
    until_s = time.monotonic() + LONG_S
    while not fetched.is_due(time.monotonic()):
        assert time.monotonic() < until_s
    fetched.collect()
    return fetched


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
    monkeypatch.setattr(file_data, "_FETCHED_BYTES", 4096)


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

    heartbeat = unwatched_heartbeat()
    far = TimedBlobStore(memory, LONG_S, heartbeat.beat)
    world = Elsewhere(tmp_path / "far", far, seed + 100, base)
    parking = far.parking = ParkingPolicy(lambda: world.layer.log_end)
    again = Again(world.operations, parking)
    world.operations = again  # type: ignore[assignment]
    parking.enabled = True
    world.turn(2)
    assert again.put_aside > 0
    assert shown(world.layer) == was
    assert world.layer.seal() == plain.layer.seal()
    far.close()


def opened(tmp_path: Path) -> tuple[Far, TimedBlobStore, ParkingPolicy, ChronicleOperations, Callable[[], None]]:
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
    heartbeat = unwatched_heartbeat()
    far = TimedBlobStore(memory, LONG_S, heartbeat.beat)
    (tmp_path / "there").mkdir()
    layer, _ = open_layer(LayerSpec("w", tmp_path / "there", base, 1, 1), far, ManualClock())
    parking = far.parking = ParkingPolicy(lambda: layer.log_end)
    parking.enabled = True
    heartbeat.cells[1] = REQUEST
    parking.begin()

    def end() -> None:
        memory.answers.set()
        layer.close()
        far.close()

    return memory, far, parking, ChronicleOperations(layer), end


def test_an_operation_that_has_logged_something_is_not_put_aside(tmp_path: Path) -> None:
    memory, far, parking, operations, end = opened(tmp_path)
    again = Again(operations, parking)
    again.lookup(ROOT_INO, b"file")
    parking.begin()
    operations.make(ROOT_INO, b"made", 0o040755, 0, 0)
    content = next(iter(set(memory.blob_ids())))
    assert far.get(content) == memory.get(content), "in this thread"
    end()


def test_a_read_that_is_too_late_fails_its_request_and_no_other(tmp_path: Path) -> None:
    memory, far, parking, operations, end = opened(tmp_path)
    far._deadline_s = 0.05
    again = Again(operations, parking)
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
    _, far, parking, _, end = opened(tmp_path)
    absent = BlobId("b3:" + "0" * 64)
    with pytest.raises(Pending) as caught:
        far.get(absent)
    parking.fetched = settled(fetched_of(caught.value))
    with pytest.raises(NotFound):
        far.get(absent)
    end()


def test_those_that_wait_are_told_when_one_is_due(tmp_path: Path) -> None:
    memory, far, _, _, end = opened(tmp_path)
    some = list(memory.blob_ids())[:2]
    memory.answers.clear()
    parked: ParkedQueue[str] = ParkedQueue()
    for name in some:
        with pytest.raises(Pending) as caught:
            far.get(name)
        parked.add(name, fetched_of(caught.value), 10)
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


def test_a_seal_in_which_a_parked_request_is_carried_out_is_not_put_aside(tmp_path: Path) -> None:
    memory = Far()
    (tmp_path / "first").mkdir()
    first, _ = open_layer(LayerSpec("w", tmp_path / "first", None, 1, 1), memory, ManualClock())
    for name in (b"d", b"e"):
        directory = first.make(first.names.root, name, 0o040755, 0, 0)
        assert isinstance(directory, DirNode)
        for number in range(3):
            first.release(first.create(directory, b"f%d" % number, 0o644, 0, 0))
    base = first.seal()
    first.close()
    heartbeat = unwatched_heartbeat()
    far = TimedBlobStore(memory, LONG_S, heartbeat.beat)
    (tmp_path / "there").mkdir()
    layer, _ = open_layer(LayerSpec("w", tmp_path / "there", base, 1, 2), far, ManualClock())
    far.parking = parking = ParkingPolicy(lambda: layer.log_end)
    operations = ChronicleOperations(layer, parking)
    session = raw_session.RawSession(operations, tmp_path, heartbeat, source="x", allow_other=False)
    kernel, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.setblocking(False)
    session._device = session._poll._device = os.dup(server.fileno())
    parking.enabled = True

    heartbeat.cells[1] = COMMAND
    changed = layer.lookup(layer.names.root, b"d")
    assert isinstance(changed, DirNode)
    layer.release(layer.create(changed, b"new", 0o644, 0, 0))
    looked_at = operations.lookup(ROOT_INO, b"e")
    assert looked_at is not None

    memory.answers.clear()
    heartbeat.cells[1] = REQUEST
    body = b"f1\0"
    length = wire.IN_HEADER.size + len(body)
    request = wire.IN_HEADER.pack(length, Opcode.LOOKUP, 7, looked_at.ino, 0, 0, 0, 0, 0) + body
    session._buffer[raw_session._FIRST : raw_session._FIRST + len(request)] = request
    session._execute(wire.IN_HEADER.unpack_from(request), len(request))
    assert session._parked
    memory.answers.set()
    wait_until(lambda: all(fetched.is_due(0.0) for _, fetched, _ in session._parked._requests))

    heartbeat.cells[1] = COMMAND  # in this round a seal is heard first
    reader: Any = layer.reader
    reader._cache.clear()
    interleaving = session.interleave()
    interleaving._next_slice_s = 0
    assert layer.seal(interleaving) != base
    assert heartbeat.cells[1] == COMMAND
    assert not session._parked, "it was carried out meanwhile"
    length, code, number = wire.OUT_HEADER.unpack_from(kernel.recv(4096))
    assert (code, number, length > wire.OUT_HEADER.size) == (0, 7, True)
    session.close()
    kernel.close()
    server.close()
    layer.close()
    far.close()


def test_a_command_is_not_put_aside_whatever_the_pulse_says(tmp_path: Path) -> None:
    memory, far, parking, operations, end = opened(tmp_path)
    again = Again(operations, parking)
    again.lookup(ROOT_INO, b"file")
    content = next(iter(set(memory.blob_ids())))
    assert far.get(content) == memory.get(content), "no request is carried out"
    end()


class Background:
    """Chunks that are fetched ahead through a store with a deadline: some are on their way, the others queued."""

    def __init__(self, deadline_s: float) -> None:
        self.memory = Far()
        self.blobs = [b"%d" % number * 100 for number in range(3 * _WORKERS)]
        self.ids = [blob_id(data) for data in self.blobs]
        self.memory.put(dict(zip(self.ids, self.blobs, strict=True)))
        self.memory.answers.clear()
        self.far = TimedBlobStore(self.memory, LONG_S, unwatched_heartbeat().beat)
        self.parking = self.far.parking = ParkingPolicy(lambda: 0)
        self.parking.enabled = True
        self.chunks = Chunks.of_store(self.far, keep_bytes=1)
        for chunk in self.ids[: 2 * _WORKERS]:
            self.chunks.fetch_ahead([chunk])
        wait_until(lambda: self.memory.reads == _WORKERS)
        self.far._deadline_s = deadline_s  # of what is asked for from now on
        self.queued = self.ids[_WORKERS : 2 * _WORKERS]

    def end(self) -> None:
        self.memory.answers.set()
        self.chunks.close()
        self.far.close()


def test_what_waited_too_long_for_chunks_that_are_fetched_ahead_takes_them_from_nobody() -> None:
    background = Background(deadline_s=0.05)
    parking, chunks = background.parking, background.chunks
    supplies = []
    for chunk in background.queued:
        parking.begin()
        with pytest.raises(Pending) as caught:
            chunks.get([chunk])
        supplies.append(fetched_of(caught.value))
    for chunk, fetched in zip(background.queued, supplies, strict=True):
        parking.begin(settled(fetched))
        with pytest.raises(Unavailable, match=r"did not answer within 0\.05 s"):
            chunks.get([chunk])
    parking.end()
    assert not any(future.cancelled() for future in chunks._coming.values())
    background.memory.answers.set()
    wait_until(lambda: not chunks._coming)
    background.far._deadline_s = LONG_S
    last = background.ids[-1]
    chunks.fetch_ahead([last])
    wait_until(lambda: not chunks._coming)
    assert all(worker.is_alive() for worker in chunks._workers)
    background.end()


def test_what_waits_in_the_servers_thread_for_a_chunk_that_is_fetched_ahead_has_a_deadline() -> None:
    background = Background(deadline_s=0.05)
    background.parking.enabled = False
    failed: list[BaseException] = []

    def read() -> None:
        try:
            background.chunks.get(background.queued[:1])
        except BaseException as error:  # noqa: BLE001 - looked at below
            failed.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(LONG_S)
    assert not reader.is_alive()
    assert isinstance(failed[0], Unavailable)
    background.memory.answers.set()
    wait_until(lambda: not background.chunks._coming)
    background.far._deadline_s = LONG_S
    assert background.chunks.get(background.queued[:1]) == {background.ids[_WORKERS]: background.blobs[_WORKERS]}
    background.end()
