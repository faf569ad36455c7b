"""A huge file that is mostly holes, on a mount: committed and brought back at the cost of its data."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from chronicle.fuse.server.client import FuseWorkspace, open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.workspace.port import LayerSpec, TreeRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from chronicle.fuse.mountpoints.availability import Transport

MIB = 1024 * 1024
GIB = 1024 * MIB


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, transport: Transport) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("machine")
    launcher.start(
        directory / "zygote.sock", directory, directory / "log", os.getpid(), transport=transport, few_mounts=True
    )
    yield directory
    launcher.shut_down(directory / "zygote.sock")


@pytest.fixture
def mount(machine: Path, tmp_path: Path) -> Iterator[Callable[[str, TreeRef | None], FuseWorkspace]]:
    """Mounts a commit as a node does that has nothing of it."""
    opened: list[FuseWorkspace] = []

    def make(node: str, base: TreeRef | None) -> FuseWorkspace:
        spec = LayerSpec("w", tmp_path / node, base, 1, 1)
        made = open_fuse_workspace(machine / "zygote.sock", spec, f"file://{tmp_path}/blobs", machine / "m" / node)
        assert isinstance(made.workspace, FuseWorkspace)
        opened.append(made.workspace)
        return made.workspace

    yield make
    for workspace in opened:
        workspace.close()


def taken(directory: Path) -> int:
    """Return what is taken on the disk below a directory, bytes."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))


def test_a_huge_file_of_holes(mount: Callable[[str, TreeRef | None], FuseWorkspace], tmp_path: Path) -> None:
    workspace = mount("one", None)
    huge = workspace.root / "huge"
    with huge.open("wb", buffering=0) as file:
        file.truncate(100 * GIB)
        os.pwrite(file.fileno(), b"in the middle", 50 * GIB + 7)
    ref = workspace.seal()
    workspace.adopt(ref)
    assert taken(tmp_path) < 16 * MIB
    other = mount("two", ref).root / "huge"
    with other.open("r+b", buffering=0) as file:
        assert os.pread(file.fileno(), 32, 50 * GIB) == bytes(7) + b"in the middle" + bytes(12)
        assert os.pread(file.fileno(), 32, 100 * GIB - 5) == bytes(5)
        os.pwrite(file.fileno(), b"changed", 1)  # for which it is not fetched
        assert os.pread(file.fileno(), 32, 50 * GIB) == bytes(7) + b"in the middle" + bytes(12)
    assert other.stat().st_size == 100 * GIB
    assert taken(tmp_path) < 32 * MIB


def test_what_copies_it_leaves_the_holes_out(
    mount: Callable[[str, TreeRef | None], FuseWorkspace], tmp_path: Path
) -> None:
    workspace = mount("one", None)
    source = workspace.root / "source"
    with source.open("wb", buffering=0) as file:
        file.truncate(64 * MIB)
        os.pwrite(file.fileno(), b"data" * 1024, 32 * MIB)
    ref = workspace.seal()
    workspace.adopt(ref)
    stored = mount("two", ref).root / "source"
    copy = tmp_path / "copy"
    subprocess.run(["cp", "--sparse=always", stored, copy], check=True, timeout=60)
    assert copy.read_bytes() == bytes(32 * MIB) + b"data" * 1024 + bytes(32 * MIB - 4096)
    assert taken(copy.parent) < 8 * MIB
