"""Random system calls on a mount and on the native file system: the same answers, errnos included."""

# ruff: noqa: PTH101, PTH102, PTH106, PTH108, PTH208, PTH211 - system calls are what is compared

from __future__ import annotations

import ctypes
import os
import random
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.fuse.mountpoints.availability import Transport
from chronicle.fuse.server.client import open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.testing.workspace_contract import files_below, files_in
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chronicle.workspace.port import Workspace

NAMES = ["a", "b", "c", "d"]
STEPS = 1500
AT_FDCWD = -100
libc = ctypes.CDLL(None, use_errno=True)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, transport: Transport) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("machine")
    launcher.start(
        directory / "zygote.sock", directory, directory / "log", os.getpid(), transport=transport, few_mounts=True
    )
    yield directory
    launcher.shut_down(directory / "zygote.sock")


@pytest.fixture
def workspace(machine: Path, tmp_path: Path) -> Iterator[Workspace]:
    spec = LayerSpec("w", tmp_path, None, 1, 1)
    mountpoint = machine / "m" / tmp_path.name
    opened = open_fuse_workspace(machine / "zygote.sock", spec, f"file://{tmp_path}/blobs", mountpoint)
    yield opened.workspace
    opened.workspace.close()


class Caller:
    """Makes the same calls in one of the two."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.files: list[int] = []

    def at(self, path: str) -> str:
        return f"{self.root}/{path}"

    def call(self, name: str, *arguments: Any) -> Any:
        """Make a call; return what it returned, or its errno."""
        try:
            return getattr(self, name)(*arguments)
        except OSError as error:
            return f"errno {error.errno}"

    def open(self, path: str, flags: int) -> str:
        self.files.append(os.open(self.at(path), flags, 0o644))
        return "open"

    def close(self, index: int) -> None:
        os.close(self.files.pop(index))

    def pwrite(self, index: int, data: bytes, offset: int) -> int:
        return os.pwrite(self.files[index], data, offset)

    def write(self, index: int, data: bytes) -> int:
        return os.write(self.files[index], data)

    def pread(self, index: int, size: int, offset: int) -> bytes:
        return os.pread(self.files[index], size, offset)

    def ftruncate(self, index: int, size: int) -> None:
        os.ftruncate(self.files[index], size)

    def fstat(self, index: int) -> Any:
        status = os.fstat(self.files[index])
        return status.st_mode, status.st_nlink, size_of(status)

    def truncate(self, path: str, size: int) -> None:
        os.truncate(self.at(path), size)

    def mkdir(self, path: str) -> None:
        os.mkdir(self.at(path), 0o755)

    def rmdir(self, path: str) -> None:
        os.rmdir(self.at(path))

    def unlink(self, path: str) -> None:
        os.unlink(self.at(path))

    def rename(self, old: str, new: str, flags: int) -> None:
        if libc.renameat2(AT_FDCWD, self.at(old).encode(), AT_FDCWD, self.at(new).encode(), flags) != 0:
            raise OSError(ctypes.get_errno(), "renameat2")

    def link(self, old: str, new: str) -> None:
        os.link(self.at(old), self.at(new), follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, self.at(path))

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self.at(path), mode)

    def utime(self, path: str, ns: int) -> None:
        os.utime(self.at(path), ns=(ns, ns), follow_symlinks=False)

    def mkfifo(self, path: str) -> None:
        os.mkfifo(self.at(path), 0o600)

    def setxattr(self, path: str, name: str, value: bytes) -> None:
        os.setxattr(self.at(path), name, value)

    def removexattr(self, path: str, name: str) -> None:
        os.removexattr(self.at(path), name)

    def xattrs(self, path: str) -> Any:
        return {name: os.getxattr(self.at(path), name) for name in os.listxattr(self.at(path))}

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(self.at(path)))

    def lstat(self, path: str) -> Any:
        status = os.lstat(self.at(path))
        set_time = status.st_mtime_ns if status.st_mtime_ns < 10**15 else 0
        if stat.S_ISFIFO(status.st_mode):  # the kernel does not tell the server that something went through it
            set_time = 0
        return status.st_mode, status.st_nlink, size_of(status), set_time


def size_of(status: os.stat_result) -> int:
    """Return the size of what has one that means something."""
    return 0 if stat.S_ISDIR(status.st_mode) else status.st_size


def steps(random_: random.Random, opened: Callable[[], int]) -> tuple[str, tuple[Any, ...]]:
    """Return a random call."""
    path = "/".join(random_.choices(NAMES, k=random_.choice([1, 1, 2, 2, 3])))
    other = "/".join(random_.choices(NAMES, k=random_.choice([1, 1, 2, 2, 3])))
    flags = random_.choice([os.O_RDONLY, os.O_RDWR, os.O_WRONLY]) | random_.choice(
        [
            0,
            os.O_CREAT,
            os.O_CREAT | os.O_EXCL,
            os.O_TRUNC,
            os.O_CREAT | os.O_TRUNC,
            os.O_APPEND,
            os.O_CREAT | os.O_APPEND,
        ]
    )
    data = random_.randbytes(random_.choice([1, 10, 5000, 70_000]))
    offset = random_.choice([0, 1, 4096, 10_000, 100_000])
    choices: list[tuple[str, tuple[Any, ...]]] = [
        ("open", (path, flags | os.O_NONBLOCK)),
        ("open", (path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)),
        ("truncate", (path, offset)),
        ("mkdir", (path,)),
        ("rmdir", (path,)),
        ("unlink", (path,)),
        ("rename", (path, other, 0)),
        ("rename", (path, other, random_.choice([0, 1, 2, 3]))),
        ("link", (path, other)),
        ("symlink", (random_.choice(NAMES), path)),
        ("chmod", (path, random_.choice([0o600, 0o644, 0o755, 0o4755]))),
        ("utime", (path, random_.randrange(10**15))),
        ("setxattr", (path, f"user.{random_.choice(NAMES)}", data[:10])),
        ("removexattr", (path, f"user.{random_.choice(NAMES)}")),
        ("xattrs", (path,)),
        ("listdir", (path,)),
        ("lstat", (path,)),
        ("mkfifo", (path,)),
    ]
    if opened():
        index = random_.randrange(opened())
        choices += [
            ("close", (index,)),
            ("close", (index,)),
            ("pwrite", (index, data, offset)),
            ("write", (index, data)),
            ("pread", (index, 100_000, offset)),
            ("ftruncate", (index, offset)),
            ("fstat", (index,)),
        ]
    return random_.choice(choices)


@pytest.mark.parametrize("seed", range(4))
def test_same_answers(workspace: Workspace, tmp_path: Path, seed: int) -> None:
    native = tmp_path / "native"
    native.mkdir()
    here, there = Caller(str(workspace.root)), Caller(str(native))
    random_ = random.Random(seed)
    done = []
    for step in range(STEPS):
        name, arguments = steps(random_, lambda: len(here.files))
        done.append((name, *(item if not isinstance(item, bytes) else len(item) for item in arguments)))
        answers = here.call(name, *arguments), there.call(name, *arguments)
        assert answers[0] == answers[1], f"step {step}: {done[-1]} after {done[-30:-1]}"
        if step == STEPS // 2:
            workspace.adopt(workspace.seal())
            workspace.begin_turn(2)
    while here.files:
        here.close(0)
        there.close(0)
    for caller in (here, there):
        open_directories(Path(caller.root))
    expected = files_below(native)
    for path in expected:
        assert here.call("lstat", path) == there.call("lstat", path)
        assert here.call("xattrs", path) == there.call("xattrs", path)
    assert files_below(workspace.root) == expected
    blobs = PackBlobStore(f"file://{tmp_path}/blobs")
    assert files_in(blobs, workspace.seal().tree_id) == expected
    blobs.close()


def open_directories(root: Path) -> None:
    """Let their owner, who need not be root, into directories."""
    for path in root.iterdir():
        if stat.S_ISDIR(path.lstat().st_mode):
            path.chmod(path.stat().st_mode | 0o700)
            open_directories(path)
