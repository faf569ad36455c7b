"""Moving a mount in use to a sealed tree: what the kernel has cached, mapped and made a working directory."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from chronicle.fuse.server.client import FuseWorkspace, open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.testing.workspace_contract import files_below
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.workspace.port import TreeRef

LINE = "import os, sys; sys.stdin.readline(); print(open('a', 'rb').read(4), sorted(os.listdir('.')))"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, transport: Transport) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("machine")
    launcher.start(
        directory / "zygote.sock", directory, directory / "log", os.getpid(), transport=transport, few_mounts=True
    )
    yield directory
    launcher.shut_down(directory / "zygote.sock")
    assert "Traceback" not in (directory / "log").read_text()


@pytest.fixture
def workspace(machine: Path, tmp_path: Path) -> Iterator[FuseWorkspace]:
    spec = LayerSpec("w", tmp_path, None, 1, 1)
    opened = open_fuse_workspace(
        machine / "zygote.sock", spec, f"file://{tmp_path}/blobs", machine / "m" / tmp_path.name
    )
    assert isinstance(opened.workspace, FuseWorkspace)
    yield opened.workspace
    opened.workspace.close()


def test_mappings_and_working_directories_go_on(workspace: FuseWorkspace) -> None:
    root = workspace.root
    (root / "dir").mkdir()
    (root / "dir" / "a").write_bytes(b"1" * 8192)
    workspace.adopt(workspace.seal())
    workspace.begin_turn(2)
    (root / "dir" / "a").write_bytes(b"2" * 9000)
    (root / "dir" / "b").write_bytes(b"new")
    (root / "dir").rename(root / "moved")
    (root / "made").mkdir()
    (root / "made" / "a").write_bytes(b"made")
    sealed = workspace.seal()
    workspace.rollback()
    (root / "made").mkdir()
    assert not (root / "dir" / "b").exists()
    with (root / "dir" / "a").open("r+b", buffering=0) as file, mmap.mmap(file.fileno(), 8192) as mapped:
        assert mapped[:4] == b"1111"
        inside = [
            subprocess.Popen([sys.executable, "-c", LINE], cwd=root / name, stdin=-1, stdout=-1, text=True)
            for name in ("dir", "made")
        ]
        workspace.move_to(sealed)
        said = [process.communicate("\n", timeout=60)[0] for process in inside]
        assert said == ["b'2222' ['a', 'b']\n", "b'made' ['a']\n"]
        assert mapped[:4] == b"2222"
        mapped[:4] = b"4444"
        mapped.flush()
        assert os.fstat(file.fileno()).st_size == 9000
    assert (root / "moved" / "a").read_bytes() == b"4444" + b"2" * 8996
    assert sorted(path.name for path in root.iterdir()) == ["made", "moved"]
    assert {entry.name: entry.inode() for entry in os.scandir(root)} == {
        name: (root / name).stat().st_ino for name in ("made", "moved")
    }


def test_readers_and_writers_at_work_hold_nothing_up(workspace: FuseWorkspace) -> None:
    root = workspace.root
    for number in range(50):
        (root / f"f{number}").write_bytes(b"1" * 50_000)
    workspace.adopt(workspace.seal())
    workspace.begin_turn(2)
    refs: list[TreeRef] = [workspace.base]
    for number in range(0, 50, 2):
        (root / f"f{number}").write_bytes(b"2" * 50_000)
        (root / f"g{number}").write_bytes(b"2")
    refs.append(workspace.seal())
    after = files_below(root)
    stop = threading.Event()
    troubles: list[BaseException] = []

    def work(own: int) -> None:
        try:
            while not stop.is_set():
                for number in range(50):
                    assert set((root / f"f{number}").read_bytes()) <= {ord("1"), ord("2")}
                (root / f"own{own}").write_bytes(b"x" * 10_000)
                list(root.iterdir())
        except FileNotFoundError:
            return  # it went between the look and the writing
        except BaseException as error:  # noqa: BLE001 - told in the test's thread
            troubles.append(error)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(3)]
    for thread in threads:
        thread.start()
    for count in range(20):
        workspace.move_to(refs[count % 2])
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not troubles
    workspace.move_to(refs[1])
    assert files_below(root) == after
    assert workspace.seal() == refs[1]
