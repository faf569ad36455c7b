"""A mount whose disk is full: what programs are told that was written is what the file has."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import ChronicleError
from chronicle.fuse.server.client import FuseWorkspace, open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.workspace.port import LayerSpec
from tests.fuse.conftest import wait_for_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PIECE = 300_000  # of several pages, and of no power of two


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[FuseWorkspace]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False).returncode:
        pytest.skip("only root can mount a small file system to fill")
    spec = LayerSpec("w", disk / "layers", None, 1, 1)
    socket = tmp_path / "zygote.sock"
    launcher.start(socket, tmp_path / "mounts", tmp_path / "log", few_mounts=True)
    pid = launcher.is_running(socket)
    assert pid is not None
    opened = open_fuse_workspace(socket, spec, f"file://{tmp_path}/blobs", tmp_path / "mounts" / "w").workspace
    assert isinstance(opened, FuseWorkspace)
    try:
        yield opened
    finally:
        opened.close()
        launcher.shut_down(socket)
        wait_for_end(pid)
        subprocess.run(["umount", disk], check=True)


def test_a_write_says_how_much_of_it_is_there(workspace: FuseWorkspace) -> None:
    path = workspace.root / "big"
    told = b""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        for letter in b"abcdefgh":
            data = bytes([letter]) * PIECE
            written = os.write(fd, data)
            told += data[:written]
            if written < PIECE:  # there was room for a part only
                break
        with pytest.raises(OSError, check=lambda error: error.errno == errno.ENOSPC):
            os.write(fd, bytes(PIECE))
        assert os.fstat(fd).st_size == len(told)
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
            assert mapped[:] == told
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(fd, len(told) + 1, 0) == told
    finally:
        os.close(fd)
    path.unlink()


def test_rolling_back_on_a_full_disk_is_tried_again(workspace: FuseWorkspace, tmp_path: Path) -> None:
    root = workspace.root
    other = tmp_path / "disk" / "other"
    other.write_bytes(bytes(100_000))
    (root / "kept").write_bytes(b"kept")
    workspace.adopt(workspace.seal())
    (root / "kept").write_bytes(b"changed")
    for number in range(300):  # numbers that the new log has to carry
        (root / f"{number:0200}").touch()
    fd = os.open(other, os.O_WRONLY | os.O_APPEND)
    with suppress(OSError):
        while True:
            os.write(fd, bytes(4096))
    os.close(fd)
    with pytest.raises(ChronicleError):
        workspace.rollback()
    other.unlink()
    workspace.rollback()
    assert [path.name for path in workspace.root.iterdir()] == ["kept"]
    assert (workspace.root / "kept").read_bytes() == b"kept"
    (workspace.root / "kept").write_bytes(b"and goes on")
    assert [version.iteration for version in workspace.history("kept")] == [1, 3]
