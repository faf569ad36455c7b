"""The local log of a layer: what is too long for it, disks that fail, and who holds the lock."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Unavailable
from chronicle.workspace.history.oplog import Gap
from chronicle.workspace.layer.disk import log as layer_log
from chronicle.workspace.layer.disk import log_records
from chronicle.workspace.layer.disk.log import LayerLog
from chronicle.workspace.layer.disk.log_records import pack_floors
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.ids import BlobId


def read(path: Path) -> list[bytes]:
    log, payloads = LayerLog.open(path)
    log.close()
    return payloads


def test_a_record_that_is_too_long_is_refused_and_not_cut_off_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    log = LayerLog.create(path, [b"header"])
    log.append(b"long" * 100)
    monkeypatch.setattr(layer_log, "MAX_PAYLOAD_BYTES", 100)
    too_long = pytest.raises(OSError, check=lambda error: error.errno == errno.EFBIG)
    with too_long:
        log.append(bytes(101))
    with too_long:
        log.append_all([b"short", bytes(101)])
    with too_long:
        log.append_together([b"short", bytes(101)])
    with too_long:
        LayerLog.create(path, [b"header", bytes(101)])
    log.append(b"after")
    log.close()
    assert read(path) == [b"header", b"long" * 100, b"after"]  # what is there is read, however long it is
    assert [found.name for found in tmp_path.iterdir()] == ["log"]


def test_floors_are_in_records_that_the_log_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_records, "_FLOORS_BYTES", 2000)
    monkeypatch.setattr(layer_log, "MAX_PAYLOAD_BYTES", 4000)
    blobs = MemoryBlobStore()
    spec = LayerSpec("w", tmp_path, None, 1, 1)
    layer, _ = open_layer(spec, blobs, ManualClock())
    root = layer.root
    assert isinstance(root, DirNode)
    for number in range(100):
        layer.release(layer.create(root, b"%d" % number * 40, 0o644, *layer.owner))
    layer.rollback()
    floors = {b"%d" % number * 40: 1 for number in range(100)}
    assert layer.commits.reserved_numbers().floors == floors
    base = layer.base
    layer.close()
    layer, _ = open_layer(LayerSpec("w", tmp_path, base, 1, 1), blobs, ManualClock())
    assert layer.commits.reserved_numbers().floors == floors
    layer.close()
    gaps = [Gap(b"g" * 500, number, 1) for number in range(20)]
    packed = pack_floors(floors, gaps)
    assert max(map(len, packed)) < 4000
    assert pack_floors({}, []) == []


class LosingOs:
    """``os`` on a disk that fails to write what was synced, says so once, and has dropped it."""

    def __init__(self) -> None:
        self.failing = True
        self.synced: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fdatasync(self, fd: int) -> None:
        if self.failing:
            self.failing = False
            raise OSError(errno.EIO, "made to fail")
        self.synced.append(os.fstat(fd).st_ino)


def test_what_could_not_be_synced_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    log = LayerLog.create(path, [b"header"])
    log.append(b"first")
    before = path.stat().st_ino
    disk = LosingOs()
    monkeypatch.setattr(layer_log, "os", disk)
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
        log.sync()
    log.append(b"second")
    log.sync()
    assert disk.synced == [path.stat().st_ino]
    assert path.stat().st_ino != before
    log.append(b"third")
    log.close()
    assert read(path) == [b"header", b"first", b"second", b"third"]


def test_a_child_that_was_forked_holds_no_workspace(tmp_path: Path) -> None:
    blobs = MemoryBlobStore()
    layer, _ = open_layer(LayerSpec("w", tmp_path, None, 1, 1), blobs, ManualClock())
    base = layer.base
    inherited = os.dup(layer._lock_fd)  # as a child has it: of the same open file, which the lock belongs to
    try:
        layer.close()
        again, _ = open_layer(LayerSpec("w", tmp_path, base, 1, 1), blobs, ManualClock())
        again.close()
    finally:
        os.close(inherited)


class Forking(MemoryBlobStore):
    """A store that is away, and during whose first request another thread of the process forks."""

    def __init__(self, base: MemoryBlobStore) -> None:
        super().__init__()
        self._base = base
        self.children: list[int] = []
        self._holding, self.hold = os.pipe()

    def get(self, blob_id: BlobId) -> bytes:
        if not self.children:
            child = os.fork()
            if child == 0:
                os.close(self.hold)
                os.read(self._holding, 1)  # until the parent closes its end
                os._exit(0)
            self.children.append(child)
            raise Unavailable("made to fail")
        return self._base.get(blob_id)


def test_a_child_that_was_forked_holds_no_workspace_that_could_not_be_opened(tmp_path: Path) -> None:
    blobs = MemoryBlobStore()
    layer, _ = open_layer(LayerSpec("w", tmp_path / "first", None, 1, 1), blobs, ManualClock())
    base = layer.base
    layer.close()
    away = Forking(blobs)
    try:
        with pytest.raises(Unavailable, match="made to fail"):
            open_layer(LayerSpec("w", tmp_path / "other", base, 1, 1), away, ManualClock())
        assert away.children
        layer, _ = open_layer(LayerSpec("w", tmp_path / "other", base, 1, 1), away, ManualClock())
        layer.close()
    finally:
        os.close(away.hold)
        for child in away.children:
            os.waitpid(child, 0)


def test_versions_after_a_seal_are_of_the_turn_they_were_made_in(tmp_path: Path) -> None:
    blobs = MemoryBlobStore()
    layer, _ = open_layer(LayerSpec("w", tmp_path, None, 1, 1), blobs, ManualClock())
    base = layer.base
    layer.begin_turn(7)
    layer.release(layer.create(layer.root, b"before", 0o644, *layer.owner))
    layer.seal()
    layer.release(layer.create(layer.root, b"after", 0o644, *layer.owner))
    layer.close_unsynced()
    layer, _ = open_layer(LayerSpec("w", tmp_path, base, 1, 1), blobs, ManualClock())
    assert [layer.history(path)[0].turn for path in ("before", "after")] == [7, 7]
    layer.close()
