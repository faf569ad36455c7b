"""Large files after a loss of power that left their log and not their bytes, and numbers whose files were removed."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from chronicle.system import boot as system_boot
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.layer.disk.log import position, read_frames
from tests.layers import abandon
from tests.unit.chronicle.workspace.layer.partial_node import CountingStore, Node, bytes_read, stored_elsewhere

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1024 * 1024


class Disk:
    """A node whose machine can lose power."""

    def __init__(self, node: Node, patch: pytest.MonkeyPatch) -> None:
        self.node = node
        self._patch = patch

    def lose_power(self, left: int) -> None:
        """Leave so many bytes of the large file's data file; the log and the undo files stay."""
        node = self.node
        data = node.file().data
        assert data is not None
        path = node.directory / "w" / str(node.epoch) / "data" / f"{data.number:x}"
        abandon(node.layer)
        os.truncate(path, left)
        boot = node.directory / "boot"
        boot.write_text("another boot")
        self._patch.setattr(system_boot, "_BOOT_ID", boot)
        node.open()

    def check(self, expected: list[bytes]) -> None:
        """Commit, and compare all versions, read back by another node."""
        ref = self.node.commit()
        TreeChecker(self.node.store).check(ref)
        other = Node(self.node.directory.with_name("other"), self.node.store, ref)
        assert other.versions() == expected
        assert other.read() == expected[-1]


@pytest.mark.parametrize("size", [MIB, 6 * MIB], ids=["synced before it is changed", "a copy"])
def test_appends_to_a_committed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    content = noise(size)
    disk = Disk(node_with(tmp_path, content), monkeypatch)
    disk.node.commit()
    disk.node.write(size, b"1" * 5000)
    disk.node.write(size + 5000, b"2" * 5000)
    disk.lose_power(size)
    disk.check([content, content + bytes(5000), content + bytes(10_000), content])


def test_an_append_to_a_file_that_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = noise(MIB)
    disk = Disk(node_with(tmp_path, content), monkeypatch)
    disk.node.write(MIB, noise(MIB))
    disk.lose_power(MIB)
    disk.check([content, content + bytes(MIB), content])


def test_a_change_of_what_was_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, more = noise(MIB), noise(2 * MIB)
    disk = Disk(node_with(tmp_path, content), monkeypatch)
    disk.node.write(MIB, more)
    disk.node.write(2 * MIB, b"in place")  # what was there goes to an undo file
    disk.lose_power(MIB)
    second = bytearray(3 * MIB)
    second[:MIB], second[2 * MIB : 2 * MIB + 4096] = content, more[MIB : MIB + 4096]
    disk.check([content, bytes(second), content + bytes(2 * MIB), content])


def test_an_append_to_a_file_that_is_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = noise(3 * MIB)
    store, base = stored_elsewhere(tmp_path / "there", content)
    disk = Disk(Node(tmp_path / "node", store, base), monkeypatch)
    disk.node.write(3 * MIB, noise(MIB))
    disk.lose_power(3 * MIB)
    disk.check([content, content + bytes(MIB), content])


@pytest.mark.parametrize("at", [0, MIB // 2, MIB, MIB + 6000], ids=["begin", "middle", "end", "behind"])
def test_what_is_written_after_the_loss_changes_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    content = noise(MIB)
    disk = Disk(node_with(tmp_path, content), monkeypatch)
    disk.node.write(MIB, b"1" * 5000)
    disk.lose_power(MIB)
    lost = content + bytes(5000)
    assert disk.node.versions() == [content, lost]
    disk.node.write(at, b"new")
    now = content[:at].ljust(at, b"\0") + b"new" + content[at + 3 :]
    assert disk.node.versions() == [content, lost, now]
    disk.node.die()
    disk.node.write(0, b"last")
    disk.check([content, lost, now, b"last" + now[4:]])


def test_nor_does_what_is_written_after_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = noise(70_000)
    disk = Disk(node_with(tmp_path, content), monkeypatch)
    disk.lose_power(30_000)
    expected = [content[:30_000] + bytes(40_000)]
    now = content[:30_000]
    for at in (0, 50_000, 40_000, 69_000, 80_000):
        if at == 40_000:
            disk.node.die()
        disk.node.write(at, b"new")
        now = now.ljust(at, b"\0")[:at] + b"new" + now[at + 3 :]
        expected.append(now)
        assert disk.node.versions() == expected
    disk.check(expected)


def test_a_cut_of_what_is_elsewhere_that_the_log_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = noise(3 * MIB)
    store, base = stored_elsewhere(tmp_path / "there", content)
    node = Node(tmp_path / "node", store, base)
    disk = Disk(node, monkeypatch)
    handle = node.handle()
    node.layer.write(handle, 0, b"x" * 4096)
    node.layer.flush(handle)
    node.layer.fsync(node.file())
    node.layer.release(handle)
    first = b"x" * 4096 + content[4096:]
    disk.lose_power(MIB)
    assert node.read() == first
    node.write(2 * MIB, b"new")
    disk.check([content, first, first[: 2 * MIB] + b"new" + first[2 * MIB + 3 :]])


@pytest.mark.parametrize("ends", ["closed", "killed"])
def test_numbers_of_files_that_are_gone_are_not_given_out_again(tmp_path: Path, ends: str) -> None:
    node = Node(tmp_path / "node", CountingStore(), None)
    for name in (b"temporary", b"kept", b"kept, too"):
        handle = node.layer.create(node.layer.root, name, 0o644, *node.layer.owner)
        node.layer.write(handle, 0, name)
        if name == b"temporary":
            node.layer.unlink(node.layer.root, name)
        node.close(handle)
        node.layer.fsync(None)
        if ends == "closed":
            node.layer.close()
            node.open()
        else:
            node.die()
    assert [node.read(name) for name in ("kept", "kept, too")] == [b"kept", b"kept, too"]


def test_numbers_of_undo_files_without_a_file_are_not_given_out_again(tmp_path: Path) -> None:
    content = noise(9000)
    node = node_with(tmp_path, content)
    expected = [content]
    for at in (9000, 9010, 0, 4096):
        node.write(at, b"0123456789")  # what is only appended to needs no undo file
        expected.append(expected[-1][:at] + b"0123456789" + expected[-1][at + 10 :])
        next_number = node.layer.next_number
        node.die()
        assert node.layer.next_number >= next_number
        assert node.versions() == expected


def test_what_is_mended_halfway_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = noise(6 * MIB)
    disk = Disk(node_with(tmp_path, content), monkeypatch)
    node = disk.node
    node.commit()
    node.write(6 * MIB, b"1" * 5000)
    disk.lose_power(6 * MIB)
    log = node.directory / "w" / str(node.epoch) / "log"
    frames, _ = read_frames(log.read_bytes())
    abandon(node.layer)
    os.truncate(log, position(frames[:-1]))  # it lost power again before all of it was on disk
    node.directory.joinpath("boot").write_text("a third boot")
    node.open()
    disk.check([content, content + bytes(5000), content])


def test_the_holes_of_a_version_are_not_read_where_nothing_of_it_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 16 * 1024 * MIB
    disk = Disk(node_with(tmp_path, noise(MIB)), monkeypatch)
    node = disk.node
    node.layer.truncate(node.file(), size)
    disk.lose_power(0)
    before = bytes_read()
    node.commit()
    assert bytes_read() - before < 10 * MIB
    assert [item.size for item in node.layer.history("large")] == [MIB, size, 0]


def test_a_version_is_read_whole_however_little_the_system_gives_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = noise(MIB)
    node = node_with(tmp_path, content)
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: pread(fd, min(size, 100_000), offset))
    with node.layer.at("large", 1) as file:
        assert file.read(MIB) == content


@pytest.mark.parametrize("ends", ["rolled back", "died and rolled back", "taken over"])
def test_what_is_written_to_a_removed_file_is_in_no_other(tmp_path: Path, ends: str) -> None:
    content = noise(MIB)
    node = node_with(tmp_path, content)
    node.commit()
    handle = node.handle()
    node.layer.unlink(node.layer.root, b"large")
    node.layer.write(handle, MIB // 2, b"?" * 8000)
    if ends == "died and rolled back":
        node.die()
    if ends == "taken over":
        abandon(node.layer)
        node.epoch += 1
        node.open()
        assert node.recovered is not None
    else:
        node.layer.rollback()
    assert node.read() == content
    node.write(0, b"new")
    assert node.read() == b"new" + content[3:]
    ref = node.commit()
    assert Node(tmp_path / "other", node.store, ref).read() == b"new" + content[3:]


def test_a_list_that_the_store_has_lost_is_stored_again(tmp_path: Path) -> None:
    content = noise(MIB)
    node = node_with(tmp_path, content)
    node.commit()
    stored = node.file().content
    assert stored is not None
    del node.store._blobs[stored.id]
    node.write(0, b"new")
    ref = node.commit()
    assert Node(tmp_path / "other", node.store, ref).read() == b"new" + content[3:]


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def node_with(tmp_path: Path, content: bytes) -> Node:
    node = Node(tmp_path / "node", CountingStore(), None)
    handle = node.layer.create(node.layer.root, b"large", 0o644, *node.layer.owner)
    node.layer.write(handle, 0, content)
    node.close(handle)
    return node
