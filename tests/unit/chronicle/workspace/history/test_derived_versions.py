"""Histories of paths below directories that are renamed, exchanged, removed, and come back as something else."""

from __future__ import annotations

import json
import shutil
import stat
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock, SystemClock
from chronicle.fuse.served.inodes import UNCACHED
from chronicle.fuse.served.operations import ChronicleOperations
from chronicle.ids import BlobId
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.history.oplog import Operation, add_root, first_root, operations, store_operations
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import FileNode
from chronicle.workspace.port import LayerSpec
from tests.layers import place
from tests.stateful.walker import Walker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.workspace.layer.layer import Layer

ID = BlobId("ab" * 32)


class CountingStore(MemoryBlobStore):
    """A store that counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def get(self, blob_id: BlobId) -> bytes:
        self.reads += 1
        return super().get(blob_id)


@pytest.fixture
def blobs() -> MemoryBlobStore:
    return MemoryBlobStore()


@pytest.fixture
def layer(tmp_path: Path, blobs: MemoryBlobStore) -> Iterator[Layer]:
    opened, _ = open_layer(LayerSpec("w", tmp_path / "layers", None, 1, 1), blobs, ManualClock())
    opened.begin_turn(1)
    yield opened
    opened.close()


@pytest.fixture
def walker(layer: Layer) -> Walker:
    return Walker(ChronicleOperations(layer))


def mkdir(layer: Layer, path: str) -> None:
    layer.make(*place(layer, path), 0o40755, *layer.owner)


def write(layer: Layer, path: str, content: bytes) -> None:
    handle = layer.create(*place(layer, path), 0o640, *layer.owner)
    layer.write(handle, 0, content)
    layer.release(handle)


def move(layer: Layer, old: str, new: str, flags: int = 0) -> None:
    layer.rename(*place(layer, old), *place(layer, new), flags)


def commit(layer: Layer) -> None:
    layer.adopt(layer.seal())
    layer.begin_turn(layer.turn + 1)


def said(layer: Layer, path: str) -> list[tuple[int, str, str | None]]:
    return [(item.iteration, item.op, item.source) for item in layer.history(path)]


def logged(layer: Layer) -> list[tuple[int, str, bytes, int]]:
    return [(done.seq, done.op, done.path, done.iteration) for done in layer.histories.operations()]


def test_a_commit_renumbers_nothing_below_a_directory_that_moved_twice(layer: Layer) -> None:
    for path in ("A", "A/b", "A/b/c"):
        mkdir(layer, path)
    write(layer, "A/b/c/f", b"1")
    move(layer, "A", "X")
    move(layer, "X/b/c", "Y")
    before = said(layer, "X/b/c/f"), said(layer, "X/b/c"), logged(layer)
    assert before[0] == [(1, "rename", "A/b/c/f"), (2, "delete", None)]
    commit(layer)
    assert (said(layer, "X/b/c/f"), said(layer, "X/b/c"), logged(layer)) == before


def test_the_log_names_what_was_asked_for_and_a_commit_adds_nothing_to_it(layer: Layer) -> None:
    mkdir(layer, "a")
    write(layer, "a/f", b"1")
    commit(layer)
    move(layer, "a", "b")
    commit(layer)
    layer.unlink(*place(layer, "b/f"))
    before = logged(layer)
    assert [line[1:] for line in before] == [
        ("mkdir", b"a", 1),
        ("write", b"a/f", 1),
        ("rename", b"b", 1),
        ("delete", b"a", 2),
        ("delete", b"b/f", 2),
    ]
    commit(layer)
    assert logged(layer) == before


def test_what_older_code_added_to_the_log_is_left_out(blobs: MemoryBlobStore) -> None:
    buffer = BlobBuffer(blobs)

    def stored(previous: BlobId | None, turn: int, *done: tuple[int, str, bytes, bytes | None]) -> BlobId:
        lines = [Operation(seq, 1, op, turn, path, 1, 0, source) for seq, op, path, source in done]
        return add_root(
            buffer,
            replace(first_root(0), turn=turn, previous=previous, operations=store_operations(buffer, lines)),
        )

    first = stored(None, 1, (1, "create", b"a", None), (2, "write", b"a/d/f", None))
    second = stored(
        first,
        2,
        (5, "rename", b"x", b"a"),
        (5, "rename", b"x/d", b"a/d"),
        (5, "delete", b"a", None),
        (5, "delete", b"a/d", None),
        (6, "rename", b"y", b"x/d"),
        (6, "delete", b"x/d", None),
    )
    third = stored(
        second, 3, (5, "rename", b"x/d/f", b"a/d/f"), (6, "delete", b"x/d/f", None), (9, "write", b"z", None)
    )
    found = [(done.seq, done.op, done.path) for done in operations(buffer, third)]
    assert found == [
        (1, "create", b"a"),
        (2, "write", b"a/d/f"),
        (5, "rename", b"x"),
        (5, "delete", b"a"),
        (6, "rename", b"y"),
        (6, "delete", b"x/d"),
        (9, "write", b"z"),
    ]


def test_a_directory_that_is_renamed_to_and_fro_is_followed_in_linear_time(layer: Layer) -> None:
    """It took twice as long with every second rename: 30 of them stopped a mount for minutes."""
    mkdir(layer, "a")
    write(layer, "a/f", b"1")
    for number in range(3_000):
        move(layer, *("a", "b") if number % 2 == 0 else ("b", "a"))
    assert [op for _, op, _ in said(layer, "a/f")] == ["write", *["delete", "rename"] * 1_500]
    assert [op for _, op, _ in said(layer, "b/f")] == ["rename", "delete"] * 1_500
    before = said(layer, "a/f"), said(layer, "b/f")
    commit(layer)
    assert (said(layer, "a/f"), said(layer, "b/f")) == before


def test_what_was_below_a_directory_that_is_exchanged_with_a_file_is_gone(layer: Layer, walker: Walker) -> None:
    mkdir(layer, "d")
    write(layer, "d/f", b"1")
    write(layer, "e", b"2")
    move(layer, "d", "e", 2)
    for _ in range(2):
        assert said(layer, "d/f") == [(1, "write", None), (2, "delete", None)]
        assert said(layer, "e/f") == [(1, "rename", "d/f")]
        assert walker.read(".chronicle/at/1/d/f") == b"1"
        assert walker.read(".chronicle/at/1/e/f") == b"1"
        assert walker.read(".chronicle/at/1/e") == b"2"
        commit(layer)


def test_versions_are_reached_whatever_became_of_the_directories_above(layer: Layer, walker: Walker) -> None:
    mkdir(layer, "b")
    write(layer, "b/f", b"ONE")
    move(layer, "b", "c")
    move(layer, "c", "e")
    write(layer, "p", b"x")
    layer.unlink(*place(layer, "p"))
    mkdir(layer, "p")
    write(layer, "p/f", b"ONE")
    mkdir(layer, "q")
    write(layer, "q/f", b"TWO")
    layer.unlink(*place(layer, "q/f"))
    layer.rmdir(*place(layer, "q"))
    write(layer, "q", b"now a file")
    for _ in range(2):
        for path in ("b/f", "c/f", "e/f", "p/f"):
            assert walker.read(f".chronicle/at/1/{path}") == b"ONE", path
        assert walker.read(".chronicle/at/1/p") == b"x"
        assert walker.read(".chronicle/at/1/q/f") == b"TWO"
        assert walker.read(".chronicle/at/3/q") == b"now a file"
        for path in ("b/f", "c/f", "p", "p/f", "q", "q/f"):
            assert len(walker.read(f".chronicle/query/{path}").splitlines()) == 2 + len(said(layer, path)), path
        assert walker.names(".chronicle/query") == {"b", "c", "e", "p", "q"}
        assert walker.names(".chronicle/query/c") == {"f"}
        assert walker.names(".chronicle/query/q") == {"f"}
        commit(layer)


def test_a_directory_in_which_nothing_ever_was_is_not_there_when_it_was_deleted(layer: Layer, walker: Walker) -> None:
    mkdir(layer, "d")
    layer.rmdir(*place(layer, "d"))
    for _ in range(2):
        assert stat.S_ISDIR(walker.lstat(".chronicle/at/1/d").mode)
        for number in (0, 2, 3):
            with pytest.raises(FileNotFoundError):
                walker.lstat(f".chronicle/at/{number}/d")
        commit(layer)


def test_modes_are_part_of_versions(layer: Layer, walker: Walker) -> None:
    mkdir(layer, "d")
    write(layer, "d/f", b"1")
    node = layer.resolve(b"d/f")
    assert node is not None
    layer.set_mode(node, 0o751, *layer.owner)
    move(layer, "d", "e")
    for _ in range(2):
        assert [(item.op, item.mode) for item in layer.history("d")] == [("mkdir", 0o755), ("delete", None)]
        assert [(item.op, item.mode) for item in layer.history("d/f")] == [
            ("write", 0o640),
            ("mode", 0o751),
            ("delete", None),
        ]
        assert [(item.op, item.mode) for item in layer.history("e/f")] == [("rename", 0o751)]
        assert stat.S_IMODE(walker.lstat(".chronicle/at/1/d/f").mode) == 0o640
        assert stat.S_IMODE(walker.lstat(".chronicle/at/2/d/f").mode) == 0o751
        assert b'"mode": "0751"' in walker.read(".chronicle/query/d/f")
        commit(layer)


def test_a_plain_directory_that_removes_what_a_mount_has_moved(
    layer: Layer, blobs: MemoryBlobStore, tmp_path: Path
) -> None:
    """What is below a removed directory is deleted once."""
    mkdir(layer, "a")
    mkdir(layer, "a/d")
    write(layer, "a/d/f", b"1")
    move(layer, "a", "b")
    commit(layer)
    spec = LayerSpec("elsewhere", tmp_path / "others", layer.base, 1, 2)
    opened = open_dir_workspace(spec, blobs, tmp_path / "root", SystemClock()).workspace
    shutil.rmtree(tmp_path / "root" / "b")
    opened.seal()
    for path in ("b", "b/d", "b/d/f"):
        assert [(item.iteration, item.op) for item in opened.history(path)] == [(1, "rename"), (2, "delete")], path
    opened.close()


def test_the_kernel_may_keep_what_stays_as_it_is(layer: Layer, walker: Walker) -> None:
    mkdir(layer, "d")
    write(layer, "d/f", b"1")
    mkdir(layer, "empty")
    commit(layer)
    for lasting in (
        "",
        "/at/7",
        "/at/1/d",
        "/query",
        "/query/d",
        "/turn/1",
        "/turn/1/d",
        "/turn/1/d/f",
    ):
        assert walker.lstat(f".chronicle{lasting}").ino < UNCACHED, lasting
    for changes in ("/at/7/d", "/at/1/d/f", "/query/d/f", "/query/empty", "/log", "/diff/0..1"):
        assert walker.lstat(f".chronicle{changes}").ino >= UNCACHED, changes


def test_a_long_history_is_made_while_it_is_read(tmp_path: Path) -> None:
    blobs = CountingStore()
    first, _ = open_layer(LayerSpec("w", tmp_path / "one", None, 1, 1), blobs, ManualClock())
    write(first, "f", b"0")
    node = first.resolve(b"f")
    assert isinstance(node, FileNode)
    for number in range(1, 2_000):
        handle = first.open(node)
        first.write(handle, 0, b"%d" % number)
        first.release(handle)
    ref = first.seal()
    first.adopt(ref)
    first.close()
    layer, _ = open_layer(LayerSpec("elsewhere", tmp_path / "two", ref, 1, 2), blobs, ManualClock())
    operations = ChronicleOperations(layer)
    walker = Walker(operations)
    reads = blobs.reads
    assert walker.lstat(".chronicle/query/f").size == 0
    assert blobs.reads - reads < 20, "2,000 versions are in 124 blocks, of which none is read"
    rows = json.loads(walker.read(".chronicle/query/f"))
    assert [row["iteration"] for row in rows] == list(range(1, 2_001))
    assert rows == [item.as_json() for item in layer.history("f")]
    inode = 1
    for name in (b".chronicle", b"query", b"f"):
        found = operations.lookup(inode, name)
        assert found is not None
        inode = found.ino
    opened, _ = operations.open(inode, 0, kill_privileges=None)
    assert 0 < len(operations.read(opened, 0, 1 << 20)) <= 32 * 1024, "others wait for no more than that"
    operations.release(opened)
    layer.close()


def test_the_size_of_a_short_history_is_known(layer: Layer, walker: Walker) -> None:
    mkdir(layer, "d")
    write(layer, "d/f", b"1")
    assert walker.lstat(".chronicle/query/d/f").size == len(walker.read(".chronicle/query/d/f"))
    move(layer, "d", "e")
    for path in ("d/f", "e/f"):
        assert walker.lstat(f".chronicle/query/{path}").size == 0
    write(layer, "e/g", b"1")
    commit(layer)
    assert walker.lstat(".chronicle/query/e/g").size == len(walker.read(".chronicle/query/e/g"))
