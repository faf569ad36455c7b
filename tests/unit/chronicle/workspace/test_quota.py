"""Quotas: what would make a workspace hold more than it may is refused, and what it holds is known exactly."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock, SystemClock
from chronicle.errors import OverQuota
from chronicle.testing.workspace_contract import files_in
from chronicle.workspace.dir.workspace import DirWorkspace, open_dir_workspace
from chronicle.workspace.history.oplog import read_root
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode, FileNode
from chronicle.workspace.port import LayerSpec, Quota, TreeRef

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.workspace.layer.layer import Layer


class Workspace:
    """A layer with a quota, and files written to it by path."""

    def __init__(self, directory: Path, quota: Quota | None) -> None:
        self.directory = directory
        self.quota = quota
        self.blobs = MemoryBlobStore()
        self.base: TreeRef | None = None
        self.layer = self.open()

    def open(self) -> Layer:
        spec = LayerSpec("w", self.directory, self.base, epoch=1, turn=1, quota=self.quota)
        layer, _ = open_layer(spec, self.blobs, ManualClock())
        return layer

    def reopen(self) -> None:
        self.layer.close()
        self.layer = self.open()

    def commit(self) -> None:
        self.base = self.layer.seal()
        self.layer.adopt(self.base)

    def place(self, path: str) -> tuple[DirNode, bytes]:
        directory, _, name = path.rpartition("/")
        parent = self.layer.resolve(directory.encode())
        assert isinstance(parent, DirNode)
        return parent, name.encode()

    def file(self, path: str) -> FileNode:
        node = self.layer.resolve(path.encode())
        assert isinstance(node, FileNode)
        return node

    def write(self, path: str, data: bytes, offset: int = 0) -> None:
        node = self.layer.resolve(path.encode())
        handle = (
            self.layer.open(node)
            if isinstance(node, FileNode)
            else self.layer.create(*self.place(path), 0o644, *self.layer.owner)
        )
        try:
            self.layer.write(handle, offset, data)
        finally:
            self.layer.release(handle)

    def mkdir(self, path: str) -> None:
        self.layer.make(*self.place(path), 0o40755, *self.layer.owner)

    def remove(self, path: str) -> None:
        self.layer.unlink(*self.place(path))


@pytest.fixture
def workspace(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Workspace]:
    opened = Workspace(tmp_path / "layers", request.param)
    yield opened
    opened.layer.close()


def limited(**limits: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("workspace", [Quota(**limits)], indirect=True)


def refused(code: int) -> pytest.RaisesExc[OSError]:
    return pytest.raises(OSError, check=lambda error: error.errno == code)


@limited(bytes=1000)
def test_bytes_are_counted_when_files_grow_shrink_and_go(workspace: Workspace) -> None:
    workspace.write("a", b"x" * 600)
    with refused(errno.EDQUOT):
        workspace.write("b", b"x" * 401)
    assert workspace.layer.usage == (600, 2)  # the file was made, and nothing is in it
    workspace.write("b", b"x" * 400)
    with refused(errno.EDQUOT):
        workspace.write("a", b"x", offset=600)
    workspace.write("a", b"y" * 600)  # over what is there: nothing grows
    with refused(errno.EDQUOT):
        workspace.layer.truncate(workspace.file("b"), 401)
    workspace.layer.truncate(workspace.file("b"), 100)
    workspace.write("a", b"x" * 300, offset=600)
    assert workspace.layer.usage == (1000, 2)
    workspace.remove("a")
    assert workspace.layer.usage == (100, 1)
    workspace.write("c", b"x" * 900)


@limited(bytes=1000)
def test_a_file_of_two_names_counts_once_and_until_its_last_name_goes(workspace: Workspace) -> None:
    workspace.write("a", b"x" * 800)
    workspace.layer.link(workspace.file("a"), *workspace.place("b"))
    assert workspace.layer.usage == (800, 1)
    workspace.commit()
    workspace.reopen()
    workspace.remove("a")
    assert workspace.layer.usage == (800, 1)
    workspace.write("c", b"x" * 200)
    workspace.layer.rename(*workspace.place("c"), *workspace.place("b"))
    assert workspace.layer.usage == (200, 1)


@limited(bytes=1000)
def test_a_removed_file_counts_while_it_is_open(workspace: Workspace) -> None:
    handle = workspace.layer.create(*workspace.place("a"), 0o644, *workspace.layer.owner)
    workspace.layer.write(handle, 0, b"x" * 700)
    workspace.remove("a")
    assert workspace.layer.usage == (0, 0)
    workspace.layer.write(handle, 700, b"x" * 200)
    with refused(errno.EDQUOT):
        workspace.write("b", b"x" * 101)
    workspace.layer.release(handle)
    workspace.write("b", b"x" * 1000)


@limited(files=3)
def test_files_directories_and_symlinks_are_counted(workspace: Workspace) -> None:
    workspace.mkdir("d")
    workspace.write("d/a", b"1")
    workspace.layer.make(*workspace.place("l"), 0o120777, *workspace.layer.owner, b"d/a")
    with refused(errno.EDQUOT):
        workspace.write("b", b"")
    with refused(errno.EDQUOT):
        workspace.mkdir("e")
    workspace.layer.link(workspace.file("d/a"), *workspace.place("h"))  # no file more
    workspace.remove("l")
    workspace.mkdir("e")
    assert workspace.layer.usage == (1, 3)


@limited(file_bytes=10)
def test_a_file_may_have_so_many_bytes(workspace: Workspace) -> None:
    workspace.write("a", b"x" * 10)
    with refused(errno.EFBIG):
        workspace.write("a", b"x", offset=10)
    with refused(errno.EFBIG):
        workspace.layer.truncate(workspace.file("a"), 11)
    workspace.write("b", b"x" * 10)


@limited(bytes=1000, files=10)
def test_usage_is_known_after_rollback_reopening_and_by_whom_the_tree_was_sealed(workspace: Workspace) -> None:
    workspace.write("a", b"x" * 500)
    workspace.commit()
    workspace.write("a", b"x" * 100, offset=500)
    workspace.write("b", b"x" * 300)
    workspace.reopen()
    assert workspace.layer.usage == (900, 2)
    with refused(errno.EDQUOT):
        workspace.write("c", b"x" * 101)
    workspace.remove("c")
    workspace.layer.seal()
    workspace.layer.rollback()
    assert workspace.layer.usage == (500, 1)
    workspace.reopen()
    assert workspace.layer.usage == (500, 1)


@limited(bytes=100)
def test_a_workspace_that_holds_more_than_its_quota_can_shrink(workspace: Workspace) -> None:
    workspace.layer.quota = None
    workspace.write("a", b"x" * 400)
    workspace.commit()
    workspace.reopen()
    with refused(errno.EDQUOT):
        workspace.write("b", b"x")
    workspace.layer.truncate(workspace.file("a"), 300)
    workspace.write("a", b"y" * 300)
    workspace.remove("a")
    workspace.write("b", b"x" * 100)


@limited(bytes=1 << 20, files=100)
def test_the_figures_of_the_file_system_are_the_quota_s(workspace: Workspace) -> None:
    workspace.write("a", b"x" * (1 << 19))
    figures = workspace.layer.statfs()
    assert figures.f_blocks * figures.f_frsize == 1 << 20
    assert figures.f_bavail * figures.f_frsize == 1 << 19
    assert (figures.f_files, figures.f_favail) == (100, 99)


# -- a full disk -------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", directory], check=False).returncode:
        pytest.skip("only root can mount a small file system to fill")
    yield directory
    subprocess.run(["umount", directory], check=True)


def test_nothing_is_lost_when_the_disk_is_full(small_disk: Path) -> None:
    workspace = Workspace(small_disk / "layers", None)
    (small_disk / "other").write_bytes(bytes(200_000))
    workspace.write("kept", b"k" * 100_000)
    workspace.commit()
    workspace.write("kept", b"l" * 4096)
    written = 0
    workspace.write("big", b"")
    with refused(errno.ENOSPC):
        while True:
            workspace.write("big", b"x" * 65_536, offset=written)
            written += 65_536
    held = workspace.layer.usage.bytes
    for number in range(20):
        with suppress(OSError):  # tmpfs may have room for a name and none for a byte
            workspace.write(f"f{number}", b"")
    with refused(errno.ENOSPC):
        workspace.write("kept", b"m" * 50_000)  # what it held would have to be kept first
    with refused(errno.ENOSPC):
        workspace.commit()
    assert workspace.layer.usage.bytes == held
    (small_disk / "other").unlink()
    workspace.reopen()
    assert workspace.layer.usage.bytes == held
    workspace.write("after", b"a" * 1000)
    workspace.write("kept", b"n" * 50_000)
    seconds = b"l" * 4096 + b"k" * (100_000 - 4096)
    with workspace.layer.at("kept", 2) as old:  # what was kept in part before the disk was full is no part of it
        assert old.read() == seconds
    workspace.commit()
    with workspace.layer.at("kept", 2) as old:
        assert old.read() == seconds
    assert workspace.base is not None
    files = files_in(workspace.blobs, workspace.base.tree_id)
    assert files["kept"] == b"n" * 50_000 + b"k" * 50_000
    assert files["after"] == b"a" * 1000
    workspace.layer.close()


# -- a plain directory -------------------------------------------------------------------------------------------------


def test_a_directory_over_its_quota_is_refused_and_kept(tmp_path: Path) -> None:
    blobs = MemoryBlobStore()
    root = tmp_path / "files"
    spec = LayerSpec("w", tmp_path / "layers", None, 1, 1, Quota(bytes=100, files=3, file_bytes=80))
    workspace = open_dir_workspace(spec, blobs, root, SystemClock()).workspace
    assert isinstance(workspace, DirWorkspace)
    (root / "a").write_bytes(b"x" * 60)
    os.link(root / "a", root / "b")
    workspace.adopt(workspace.seal())
    assert read_root(blobs, workspace.base.oplog_id).usage == (60, 1)
    for fill, reason in (
        (lambda: (root / "c").write_bytes(b"x" * 41), "101 bytes"),
        (lambda: subprocess.run(["mkdir", "d", "e", "f"], cwd=root, check=True), "4 files"),
        (lambda: (root / "a").write_bytes(b"x" * 81), "a has 81 bytes"),
    ):
        fill()
        for _ in range(2):  # as often as it is asked
            with pytest.raises(OverQuota, match=reason) as caught:
                workspace.seal()
        assert files_in(blobs, caught.value.kept.tree_id).keys() == {path.name for path in root.iterdir()}
        workspace.rollback()
    (root / "a").write_bytes(b"x" * 80)
    workspace.adopt(workspace.seal())
    workspace.close()
