"""Going back under a mount that is in use: the kernel forgets what it knew, and open files still work."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import NotFound, StorageRefused
from chronicle.fuse.server.client import FuseWorkspace, open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.testing.workspace_contract import files_below
from chronicle.workspace.port import LayerSpec, Quota, TreeRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.fuse.mountpoints.availability import Transport


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, transport: Transport) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("machine")
    launcher.start(
        directory / "zygote.sock", directory, directory / "log", os.getpid(), transport=transport, few_mounts=True
    )
    yield directory
    launcher.shut_down(directory / "zygote.sock")


@pytest.fixture
def workspace(machine: Path, tmp_path: Path) -> Iterator[FuseWorkspace]:
    spec = LayerSpec("w", tmp_path, None, 1, 1, Quota(bytes=1 << 24))
    opened = open_fuse_workspace(
        machine / "zygote.sock", spec, f"file://{tmp_path}/blobs", machine / "m" / tmp_path.name
    )
    assert isinstance(opened.workspace, FuseWorkspace)
    yield opened.workspace
    opened.workspace.close()


def commit(workspace: FuseWorkspace) -> TreeRef:
    ref = workspace.seal()
    workspace.adopt(ref)
    return ref


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_what_the_kernel_keeps_is_forgotten(workspace: FuseWorkspace) -> None:
    root = workspace.root
    (root / "dir" / "below").mkdir(parents=True)
    (root / "dir" / "a").write_text("one")
    (root / "same").write_bytes(b"1" * 100_000)
    (root / "link").symlink_to("dir/a")
    before = files_below(root)
    first = commit(workspace)
    (root / "dir" / "a").write_text("three")
    (root / "same").write_bytes(b"2" * 100_000)
    (root / "new").write_text("new")
    (root / "dir" / "below").rmdir()
    (root / "dir" / "below").write_text("a file now")
    (root / "link").unlink()
    (root / "link").symlink_to("new")
    (root / "dir" / "a").chmod(0o600)
    after = files_below(root)  # and so all of it is cached
    second = commit(workspace)
    for ref, expected in ((first, before), (second, after), (first, before), (None, {}), (second, after)):
        workspace.restore(ref)
        assert files_below(root) == expected
        assert workspace.seal().tree_id == (ref.tree_id if ref is not None else workspace.seal().tree_id)
        assert (root / "new").exists() == ("new" in expected)
    assert (root / "dir" / "a").stat().st_mode & 0o777 == 0o600
    assert [item.op for item in workspace.history("dir/a")][-2:] == ["delete", "restore"]


def test_handles_mappings_and_working_directories_go_on(workspace: FuseWorkspace) -> None:
    root = workspace.root
    (root / "dir").mkdir()
    (root / "dir" / "a").write_bytes(b"1" * 8192)
    first = commit(workspace)
    (root / "dir" / "a").write_bytes(b"2" * 20_000)
    (root / "gone").write_bytes(b"3" * 10)
    commit(workspace)
    with (root / "dir" / "a").open("r+b", buffering=0) as file, (root / "gone").open("rb", buffering=0) as gone:
        assert file.read(4) == b"2222"
        with mmap.mmap(file.fileno(), 8192) as mapped:
            assert mapped[:4] == b"2222"
            code = "import os, sys; sys.stdin.readline(); print(open('a', 'rb').read(4), os.listdir('.'))"
            with subprocess.Popen(
                [sys.executable, "-c", code],
                cwd=root / "dir",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            ) as inside:
                workspace.restore(first)
                said, _ = inside.communicate("\n", timeout=60)
            assert said == "b'1111' ['a']\n"
            assert mapped[:4] == b"1111"
            assert os.fstat(file.fileno()).st_size == 8192
            assert file.read(4) == b"1111"
            mapped[:4] = b"4444"
            mapped.flush()
        file.seek(0, os.SEEK_END)
        file.write(b"end")
        assert gone.read() == b"3" * 10  # a removed file goes on as ever
    assert (root / "dir" / "a").read_bytes() == b"4444" + b"1" * 8188 + b"end"
    assert names(root) == ["dir"]


def test_one_path_and_what_is_refused(workspace: FuseWorkspace) -> None:
    root = workspace.root
    (root / "a").write_bytes(b"1" * (9 << 20))
    (root / "b").write_text("1")
    first = commit(workspace)
    (root / "b").write_text("2")
    (root / "a").unlink()
    commit(workspace)
    workspace.restore(first, b"b")
    assert ((root / "b").read_text(), names(root)) == ("1", ["b"])
    with pytest.raises(NotFound, match="was not there"):
        workspace.restore(first, b"c")
    (root / "big").write_bytes(bytes(9 << 20))
    with pytest.raises(StorageRefused, match="over its quota"):
        workspace.restore(first, b"a")
    assert names(root) == ["b", "big"]
    (root / "big").unlink()
    workspace.restore(first, b"a")
    with pytest.raises(OSError, check=lambda error: error.errno == errno.EDQUOT):
        (root / "big").write_bytes(bytes(9 << 20))


def test_readers_and_writers_at_work_hold_nothing_up(workspace: FuseWorkspace) -> None:
    """Dropping names and pages waits for the requests that use them; the server does not."""
    root = workspace.root
    for number in range(50):
        (root / f"f{number}").write_bytes(b"1" * 50_000)
    refs = [commit(workspace)]
    for number in range(0, 50, 2):
        (root / f"f{number}").write_bytes(b"2" * 50_000)
        (root / f"g{number}").write_bytes(b"2")
    refs.append(commit(workspace))
    stop = threading.Event()
    troubles: list[BaseException] = []

    def work(number: int) -> None:
        try:
            while not stop.is_set():
                for other in range(50):
                    found = (root / f"f{other}").read_bytes()
                    assert set(found) <= {ord("1"), ord("2")}
                (root / f"own{number}").write_bytes(b"x" * 10_000)
                names(root)
        except FileNotFoundError:
            return  # it went between the look and the writing
        except BaseException as error:  # noqa: BLE001 - told in the test's thread
            troubles.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(20):
        workspace.restore(refs[turn % 2])
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not troubles
    workspace.restore(refs[0])
    assert names(root) == sorted(f"f{number}" for number in range(50))
    assert {(root / f"f{number}").read_bytes() for number in range(50)} == {b"1" * 50_000}
    assert workspace.seal().tree_id == refs[0].tree_id
