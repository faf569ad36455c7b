"""Large files that are changed on a node that does not have their content: nothing is lost, and little is fetched."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
import pytest

from chronicle.errors import Corrupt, Unavailable, UnsupportedFormat
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.layer.disk import log_records
from chronicle.workspace.layer.disk.log import LayerLog
from tests.layers import abandon
from tests.unit.chronicle.workspace.layer.partial_node import Node, stored_elsewhere

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1024 * 1024
SIZE = 2 * MIB + 12_345
STORED = random.Random(7).randbytes(SIZE)


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
    node.layer.unlink(node.layer.root, b"large")
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
    node.layer.unlink(node.layer.root, b"large")
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
    abandon(fork.layer)
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
    abandon(node.layer)
    log = node.directory / "w" / "1" / "log"
    opened, payloads = LayerLog.open(log)
    opened.close()
    code, version, *fields = msgpack.unpackb(payloads[0])
    assert version == log_records.FORMAT
    node.open()
    node.write(0, b"x")
    abandon(node.layer)
    opened, found = LayerLog.open(log)
    opened.close()
    assert found[: len(payloads)] == payloads
    newer = log_records.pack((code, version + 1, *fields))
    LayerLog.create(log, [newer, *found[1:]]).close()
    with pytest.raises(UnsupportedFormat, match="this code reads"):
        node.open()
    LayerLog.create(log, [*found, log_records.pack((log_records.WRITTEN, 99, 0, 1))]).close()
    with pytest.raises(Corrupt, match="cannot be"):
        node.open()
    LayerLog.create(log, found).close()
    node.open()
    assert node.read() == b"x" + STORED[1:]
