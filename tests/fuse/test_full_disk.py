"""A mount whose disk is full: what programs are told that was written is what the file has."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from chronicle.fuse import zygote
from chronicle.fuse.client import FuseWorkspace, open_fuse_workspace
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
    zygote.start(socket, tmp_path / "mounts", tmp_path / "log")
    pid = zygote.is_running(socket)
    assert pid is not None
    opened = open_fuse_workspace(socket, spec, f"file://{tmp_path}/blobs", tmp_path / "mounts" / "w").workspace
    assert isinstance(opened, FuseWorkspace)
    try:
        yield opened
    finally:
        opened.close()
        zygote.shut_down(socket)
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
