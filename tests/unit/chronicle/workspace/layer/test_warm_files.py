"""Committed files are kept beside the blob store up to a number of bytes, and nothing is lost by what goes."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from chronicle.blobs.ident import blob_id
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import InvalidInput
from chronicle.settings import CACHE_BYTES, WARM_BYTES, read_settings
from chronicle.workspace.content.content import Content
from chronicle.workspace.layer.disk import files
from chronicle.workspace.layer.disk.trim import layer_bytes, trim_layers
from chronicle.workspace.layer.disk.warm_files import WarmFiles
from chronicle.workspace.layer.layer import Layer
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.workspace_home import lock_workspace, unlock_workspace
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.layers import abandon, file_at, place

LARGE = random.Random(1).randbytes(2_000_000)
SMALL = random.Random(2).randbytes(10_000)
LIMIT_BYTES = 400_000


class Here:
    """A workspace on a node, opened again and again."""

    def __init__(self, directory: Path) -> None:
        self.layers = directory / "layers"
        self.blobs = MemoryBlobStore()
        self.base: TreeRef | None = None
        self.layer = self.open()

    def open(self) -> Layer:
        self.layer, _ = open_layer(LayerSpec("w", self.layers, self.base, 1, 1), self.blobs, ManualClock())
        return self.layer

    def write(self, name: str, data: bytes, offset: int = 0) -> None:
        directory, key = place(self.layer, name)
        if self.layer.lookup(directory, key) is None:
            handle = self.layer.create(directory, key, 0o644, 0, 0)
        else:
            handle = self.layer.open(file_at(self.layer, name))
        self.layer.write(handle, offset, data)
        self.layer.release(handle)

    def read(self, name: str) -> bytes:
        handle = self.layer.open(file_at(self.layer, name))
        try:
            data = b""
            while part := self.layer.read(handle, len(data), 1 << 20):
                data += part
            return data
        finally:
            self.layer.release(handle)

    def commit(self) -> None:
        self.base = self.layer.seal()
        self.layer.adopt(self.base)

    def data_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.layers.glob("w/*/data/*"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.setenv("CHRONICLE_WARM_BYTES", str(LIMIT_BYTES))
    (tmp_path / "layers").mkdir()
    return Here(tmp_path)


def test_a_large_file_is_kept_once(here: Here) -> None:
    here.write("large", LARGE)
    here.write("small", SMALL)
    assert here.data_bytes() == len(LARGE) + len(SMALL)
    here.commit()
    assert here.data_bytes() == len(SMALL), "large ones go first"
    assert here.read("large") == LARGE
    assert here.data_bytes() == len(SMALL), "reading brings nothing back"
    here.layer.close()
    here.open()
    assert (here.read("large"), here.read("small")) == (LARGE, SMALL)


def test_small_files_go_by_when_they_were_used(here: Here) -> None:
    for number in range(30):
        here.write(f"{number}", bytes([number]) + SMALL)
    here.commit()
    assert here.data_bytes() <= LIMIT_BYTES
    for number in range(5):
        here.read(f"{number}")
    for number in range(30, 50):
        here.write(f"{number}", bytes([number]) + SMALL)
    here.commit()
    assert LIMIT_BYTES // 2 < here.data_bytes() <= LIMIT_BYTES
    kept = [number for number in range(50) if file_at(here.layer, f"{number}").data is not None]
    assert set(range(5)) < set(kept), "they were read"
    assert set(range(30, 50)) < set(kept), "they were written"
    assert len(kept) < 30
    assert all(here.read(f"{number}") == bytes([number]) + SMALL for number in range(50))


def test_what_is_open_stays_until_it_is_closed(here: Here) -> None:
    here.write("large", LARGE)
    handle = here.layer.open(file_at(here.layer, "large"))
    here.commit()
    assert here.data_bytes() == len(LARGE)
    here.layer.write(handle, 5, b"changed")
    assert here.layer.read(handle, 0, 20) == LARGE[:5] + b"changed" + LARGE[12:20]
    here.layer.flush(handle)
    here.commit()
    assert here.layer.read(handle, 0, 12) == LARGE[:5] + b"changed"
    here.layer.release(handle)
    assert here.data_bytes() == 0
    assert here.read("large") == LARGE[:5] + b"changed" + LARGE[12:]


def test_an_open_file_does_not_drive_out_the_others(here: Here) -> None:
    here.write("large", LARGE)
    here.write("small", SMALL)
    handle = here.layer.open(file_at(here.layer, "large"))
    for number in range(5):
        here.layer.write(handle, number * 100, b"again")
        here.commit()
    assert here.data_bytes() == len(LARGE) + len(SMALL)
    here.layer.release(handle)


def test_what_differs_from_what_is_stored_stays(here: Here) -> None:
    here.write("large", LARGE)
    sealed = here.layer.seal()
    here.write("other", LARGE[::-1])
    here.layer.trim()
    assert here.data_bytes() == len(LARGE)
    assert here.read("other") == LARGE[::-1]
    here.layer.adopt(sealed)
    here.base = sealed
    abandon(here.layer)
    here.open()
    assert here.read("other") == LARGE[::-1]
    assert here.read("large") == LARGE


def test_a_rollback_goes_back_to_what_was_dropped(here: Here) -> None:
    here.write("large", LARGE)
    here.commit()
    here.write("large", b"new", 1_000_000)
    here.layer.seal()
    here.layer.rollback()
    assert here.read("large") == LARGE
    assert [item.op for item in here.layer.history("large")] == ["write"]


def test_a_handle_of_before_a_rollback_takes_nothing_from_one_of_after_it(here: Here) -> None:
    here.write("large", LARGE)
    handle = here.layer.open(file_at(here.layer, "large"))
    here.commit()
    here.layer.rollback()
    after = here.layer.open(file_at(here.layer, "large"))
    here.layer.release(handle)
    here.layer.write(after, 3, b"new")
    assert here.layer.read(after, 0, 10) == LARGE[:3] + b"new" + LARGE[6:10]
    here.layer.release(after)
    assert here.read("large") == LARGE[:3] + b"new" + LARGE[6:]


@pytest.mark.parametrize("ends", ["trimmed", "closed", "reopened"])
def test_what_only_versions_need_stays(here: Here, ends: str) -> None:
    """Committed, changed in place, and removed: its data file is the only copy of what was not committed."""
    here.layer.warm_bytes = None
    here.write("large", LARGE)
    here.commit()
    here.write("large", b"changed", 100)
    node = file_at(here.layer, "large")
    here.layer.unlink(*place(here.layer, "large"))
    here.layer.forget(node.ino)
    here.layer.warm_bytes = 0
    here.layer.trim()
    if ends == "closed":
        here.layer.close()
        here.open()
    elif ends == "reopened":
        abandon(here.layer)
        here.open()
    here.layer.trim()
    with here.layer.at("large", 2) as version:
        assert version.read() == LARGE[:100] + b"changed" + LARGE[107:]
    here.commit()
    with here.layer.at("large", 2) as version:
        assert version.read() == LARGE[:100] + b"changed" + LARGE[107:]


def test_versions_of_dropped_files_can_be_read(here: Here) -> None:
    here.write("large", LARGE)
    here.commit()
    here.write("large", b"one", 10)
    here.write("large", b"two", 10)
    here.commit()
    with here.layer.at("large", 1) as first, here.layer.at("large", 2) as second:
        assert first.read() == LARGE
        assert second.read(20) == LARGE[:10] + b"one" + LARGE[13:20]
    assert here.read("large")[:13] == LARGE[:10] + b"two"


def test_a_version_that_is_being_read_is_read_on(here: Here) -> None:
    here.write("large", LARGE)
    with here.layer.at("large", 1) as version:
        assert version.read(10) == LARGE[:10]
        here.commit()
        assert version.read() == LARGE[10:]


def test_a_death_between_the_file_and_its_entry_loses_nothing(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write("large", LARGE)
    with monkeypatch.context() as patch:
        patch.setattr(files.LayerFiles, "drop_clean", lambda *_: None)
        here.commit()
    abandon(here.layer)
    for path in here.layers.glob("w/*/data/*"):
        path.unlink()
    here.open()
    assert here.read("large") == LARGE
    here.write("large", b"x", 7)
    assert here.read("large") == LARGE[:7] + b"x" + LARGE[8:]


def test_what_an_older_version_left_goes_when_it_is_opened(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHRONICLE_WARM_BYTES", str(10 * len(LARGE)))
    here.layer.close()
    here.open()
    here.write("large", LARGE)
    here.commit()
    here.layer.close()
    assert here.data_bytes() == len(LARGE)
    monkeypatch.setenv("CHRONICLE_WARM_BYTES", "0")
    here.open()
    assert here.data_bytes() == 0
    assert here.read("large") == LARGE


def test_layers_that_nobody_has_open_are_trimmed_where_they_are(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHRONICLE_WARM_BYTES", str(10 * len(LARGE)))
    here.layer.close()
    here.open()
    here.write("large", LARGE)
    here.commit()
    here.write("changed", SMALL)
    here.layer.close()
    home = here.layers / "w"

    def trim() -> None:
        lock = lock_workspace(home)
        try:
            trim_layers(home, 0)
        finally:
            unlock_workspace(lock)

    trim()
    assert here.data_bytes() == len(LARGE) + len(SMALL), "something is not committed"
    here.open()
    here.commit()
    here.layer.close()
    assert layer_bytes(here.layers) >= len(LARGE) + len(SMALL)
    trim()
    assert here.data_bytes() == 0
    assert layer_bytes(here.layers) < 100_000
    here.open()
    assert (here.read("large"), here.read("changed")) == (LARGE, SMALL)


def test_after_a_boot_nothing_stays_that_nobody_believes(here: Here) -> None:
    here.write("small", SMALL)
    here.commit()
    here.layer.close()
    (cache,) = here.layers.glob("w/*/cache")
    cache.unlink()  # as that of another boot
    here.open()
    assert here.data_bytes() == 0
    assert here.read("small") == SMALL


def test_a_disk_that_fails_while_files_go_fails_no_commit(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write("large", LARGE)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", full)
        here.commit()
    assert here.read("large") == LARGE
    here.layer.close()
    shutil.copytree(here.layers, here.layers.parent / "copy")
    here.open()
    assert here.read("large") == LARGE


def test_the_files_counted_are_those_that_are_there() -> None:
    warm = WarmFiles()
    content = Content(blob_id(b"x"), 10_000, chunked=False)
    warm.put(1, 11, content)
    warm.put(2, 12, Content(blob_id(b"y"), 10_000_000, chunked=True), on_disk=819_200)
    assert warm.taken_bytes == 12_288 + 819_200
    warm.put(1, 13, content)
    warm.put(3, 14, content)
    assert warm.taken_bytes == 2 * 12_288 + 819_200
    assert warm.surplus(2 * 12_288 + 819_200, ()) == []
    assert warm.surplus(100_000, ()) == [2], "a large one first"
    assert warm.surplus(100_000, {2}) == []
    assert warm.surplus(20_000, {2}) == [1], "the other was used later"
    assert warm.pop(3)
    assert warm.surplus(0, {1}) == [2]
    assert warm.surplus(0, {1, 2}) == []
    assert warm.pop(1)
    assert not warm.pop(1)
    warm.touch(1)
    assert warm.taken_bytes == 819_200
    assert len(warm) == 1


@pytest.mark.parametrize("given", ["-1", "lots", "1.5", ""])
def test_a_limit_that_is_no_number_is_refused(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHRONICLE_WARM_BYTES", given)
    with pytest.raises(InvalidInput, match="CHRONICLE_WARM_BYTES is .* give a number of bytes"):
        open_layer(LayerSpec("w", tmp_path, None, 1, 1), MemoryBlobStore(), ManualClock())


def test_the_limit_is_what_the_environment_says() -> None:
    assert read_settings({}).warm_bytes(is_far=False) == WARM_BYTES
    assert read_settings({}).warm_bytes(is_far=True) == CACHE_BYTES
    assert read_settings({"CHRONICLE_WARM_BYTES": "77"}).warm_bytes(is_far=True) == 77
