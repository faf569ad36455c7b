"""Quotas on a real mount: programs get EDQUOT and EFBIG, df shows the limit, and a killed server forgets nothing."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from chronicle.fuse.server.client import FuseWorkspace, open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.workspace.port import LayerSpec, Quota
from tests.fuse.conftest import served, wait_for_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[FuseWorkspace]:
    socket = tmp_path / "zygote.sock"
    launcher.start(socket, tmp_path / "mounts", tmp_path / "log", few_mounts=True)
    pid = launcher.is_running(socket)
    spec = LayerSpec("w", tmp_path / "layers", None, 1, 1, Quota(bytes=4 * MIB, files=50, file_bytes=2 * MIB))
    opened = open_fuse_workspace(socket, spec, f"file://{tmp_path}/blobs", tmp_path / "mounts" / "w").workspace
    assert isinstance(opened, FuseWorkspace)
    yield opened
    opened.close()
    launcher.shut_down(socket)
    assert pid is not None
    wait_for_end(pid)


def code_of(call: object, *arguments: object) -> int | None:
    assert callable(call)
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return None


def test_programs_meet_the_quota_as_one_of_a_disk(workspace: FuseWorkspace) -> None:
    root = workspace.root
    assert shutil.disk_usage(root).total == 4 * MIB
    assert code_of((root / "large").write_bytes, bytes(2 * MIB + 1)) == errno.EFBIG
    assert code_of(os.truncate, root / "large", 2 * MIB + 1) == errno.EFBIG
    (root / "large").write_bytes(bytes(2 * MIB))
    (root / "more").write_bytes(bytes(2 * MIB))
    assert shutil.disk_usage(root).free == 0
    assert code_of((root / "third").write_bytes, b"x") == errno.EDQUOT
    done = subprocess.run(["cp", "more", "copy"], cwd=root, capture_output=True, text=True, check=False, timeout=60)
    assert "Disk quota exceeded" in done.stderr
    os.link(root / "large", root / "link")
    (root / "large").unlink()
    assert code_of((root / "third").write_bytes, b"x") == errno.EDQUOT
    (root / "more").rename(root / "link")
    (root / "third").write_bytes(bytes(2 * MIB))
    workspace.adopt(workspace.seal())
    assert code_of((root / "copy").write_bytes, b"x") == errno.EDQUOT
    workspace.rollback()
    assert shutil.disk_usage(root).free == 0
    (root / "third").unlink()
    assert shutil.disk_usage(root).free == 2 * MIB


def test_names_are_counted_and_a_new_server_knows_the_count(workspace: FuseWorkspace) -> None:
    root = workspace.root
    for number in range(25):
        (root / f"d{number}").mkdir()
        (root / f"d{number}" / "f").touch()
    assert code_of((root / "one-more").touch) == errno.EDQUOT
    assert code_of((root / "one-more").mkdir) == errno.EDQUOT
    assert code_of(os.symlink, "d0", root / "one-more") == errno.EDQUOT
    assert code_of(os.mkfifo, root / "one-more") == errno.EDQUOT
    figures = os.statvfs(root)
    assert (figures.f_files, figures.f_ffree) == (50, 0)
    (mount,) = served(root.parent.parent / "zygote.sock")
    os.kill(int(str(mount["pid"])), signal.SIGKILL)
    wait_for_end(int(str(mount["pid"])))
    workspace.seal()  # by the server that takes its place
    assert code_of((root / "one-more").touch) == errno.EDQUOT
    (root / "d0" / "f").unlink()
    (root / "one-more").touch()
    assert os.statvfs(root).f_ffree == 0
