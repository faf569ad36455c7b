"""``.chronicle`` on a real mount, and what a mount must be able to do that a plain model does not say."""

# ruff: noqa: PTH115, PTH208 - as programs do

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import SystemClock
from chronicle.fuse.mountpoints.availability import Transport
from chronicle.fuse.served.inodes import MAGIC
from chronicle.fuse.served.operations import ChronicleOperations
from chronicle.fuse.server.client import FuseWorkspace, open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.port import LayerSpec
from tests.fuse.conftest import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


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
    spec = LayerSpec("w", tmp_path, None, 1, 0)
    opened = open_fuse_workspace(
        machine / "zygote.sock", spec, f"file://{tmp_path}/blobs", machine / "m" / tmp_path.name
    )
    assert isinstance(opened.workspace, FuseWorkspace)
    opened.workspace.begin_turn(1)
    yield opened.workspace
    opened.workspace.close()


@pytest.fixture
def root(workspace: FuseWorkspace) -> Path:
    return workspace.root


def commit(workspace: FuseWorkspace, turn: int) -> None:
    workspace.adopt(workspace.seal())
    workspace.begin_turn(turn + 1)


def refused(code: int, call: object, *arguments: object) -> None:
    with pytest.raises(OSError) as caught:
        call(*arguments)  # type: ignore[operator]
    assert caught.value.errno == code, errno.errorcode[caught.value.errno or 0]


# -- .chronicle --------------------------------------------------------------------------------------------------------


# S3.27, S3.28
def test_query(root: Path) -> None:
    (root / "d").mkdir()
    before = time.time_ns() // 1_000_000
    (root / "d" / "out.txt").write_text("one")
    (root / "d" / "out.txt").write_text("two, longer")
    rows = json.loads((root / ".chronicle" / "query" / "d" / "out.txt").read_text())
    assert [list(row) for row in rows] == [["iteration", "timestamp", "size", "hash", "op", "turn", "mode"]] * 2
    assert [(row["iteration"], row["size"], row["op"], row["turn"]) for row in rows] == [
        (1, 3, "write", 1),
        (2, 11, "write", 1),
    ]
    assert before <= rows[0]["timestamp"] <= rows[1]["timestamp"] <= time.time_ns() // 1_000_000
    with (root / ".chronicle" / "query" / "d" / "out.txt").open() as file:
        assert json.load(file) == rows
    assert (root / ".chronicle/query/d/out.txt").stat().st_size == len(
        (root / ".chronicle/query/d/out.txt").read_bytes()
    )
    assert sorted(os.listdir(root / ".chronicle" / "query")) == ["d"]
    assert os.listdir(root / ".chronicle" / "query" / "d") == ["out.txt"]


# S3.27
def test_each_kind_of_operation_makes_a_version(root: Path) -> None:
    a, b, c, link = root / "a", root / "b", root / "c", root / "link"
    operations: list[tuple[Callable[[], object], Path, str, bytes | None]] = [
        (a.touch, a, "create", b""),
        (lambda: a.write_bytes(b"one"), a, "write", b"one"),
        (lambda: patch(a, 3, b", two"), a, "write", b"one, two"),
        (lambda: patch(a, 0, b"O"), a, "write", b"One, two"),
        (lambda: os.truncate(a, 3), a, "write", b"One"),
        (lambda: a.chmod(0o600), a, "mode", b"One"),
        (lambda: os.setxattr(a, "user.mark", b"1"), a, "xattr", b"One"),
        (lambda: os.removexattr(a, "user.mark"), a, "xattr", b"One"),
        (lambda: a.rename(b), b, "rename", b"One"),
        (lambda: os.link(b, c), c, "link", b"One"),
        (lambda: patch(c, 0, b"o"), c, "write", b"one"),
        (b.unlink, b, "delete", None),
        (lambda: link.symlink_to("c"), link, "symlink", None),
    ]
    seen: dict[Path, int] = {}
    for operate, path, op, content in operations:
        operate()
        rows = json.loads((root / ".chronicle" / "query" / path.name).read_text())
        assert (len(rows) > seen.get(path, 0), rows[-1]["op"]) == (True, op)
        seen[path] = len(rows)
        if content is not None:
            assert (root / ".chronicle" / "at" / str(rows[-1]["iteration"]) / path.name).read_bytes() == content


def patch(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_query_of_what_is_gone(root: Path) -> None:
    (root / "a").write_text("one")
    (root / "a").unlink()
    assert [row["op"] for row in json.loads((root / ".chronicle/query/a").read_text())] == ["write", "delete"]
    assert (root / ".chronicle/at/1/a").read_text() == "one"
    refused(errno.ENOENT, os.stat, root / ".chronicle/at/2/a")
    (root / "a").mkdir()
    (root / "a" / "b").write_text("two")
    assert [row["size"] for row in json.loads((root / ".chronicle/query/a/b").read_text())] == [3]


# S3.29
def test_at(root: Path) -> None:
    contents = [os.urandom(size) for size in (0, 1, 5000, 300_000)]
    for data in contents:
        (root / "a").write_bytes(data)
    (root / "link").symlink_to("a")
    at = root / ".chronicle" / "at"
    for number, data in enumerate(contents, 1):
        assert (at / str(number) / "a").read_bytes() == data
        assert (at / str(number) / "a").stat().st_size == len(data)
    assert os.readlink(at / "1" / "link") == "a"
    for wrong in ("5/a", "0/a", "-1/a", "x/a", "01/a", "1/b", "99999999999999999999/a"):
        refused(errno.ENOENT, os.stat, at / wrong)


def test_turns(workspace: FuseWorkspace, root: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "a").write_text("one")
    (root / "d" / "a").chmod(0o750)
    os.utime(root / "d" / "a", ns=(1, 10**18 + 5))
    (root / "s").symlink_to("d/a")
    (root / "d" / "epoch").touch()
    os.mkfifo(root / "d" / "pipe")
    os.utime(root / "d" / "epoch", ns=(0, 0))
    commit(workspace, 1)
    (root / "d" / "a").write_text("two")
    (root / "s").unlink()
    commit(workspace, 2)
    commit(workspace, 3)  # nothing changed in it
    turns = root / ".chronicle" / "turn"
    assert os.listdir(turns / "0") == []
    assert sorted(os.listdir(turns / "1")) == ["d", "s"]
    assert (turns / "1" / "d" / "a").read_text() == "one"
    assert (turns / "1" / "s").read_text() == "one"
    status = (turns / "1" / "d" / "a").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_mtime_ns) == (0o550, 10**18 + 5)
    assert (turns / "1" / "d" / "epoch").stat().st_mtime_ns == 0
    assert (turns / "1" / "d" / "pipe").read_bytes() == b""  # it blocks nobody: docs/internals/posix.md
    assert (turns / "2" / "d" / "a").read_text() == "two"
    assert os.listdir(turns / "2") == ["d"]
    assert (turns / "3" / "d" / "a").read_text() == "two"
    refused(errno.ENOENT, os.stat, turns / "4")
    refused(errno.ENOENT, os.stat, turns / "1" / "none")
    copied = subprocess.run(["tar", "-C", turns, "-cf", "-", "1"], capture_output=True, check=True).stdout
    assert b"one" in copied


def test_diff(workspace: FuseWorkspace, root: Path) -> None:
    (root / "a").write_text("one\ntwo\nthree\n")
    (root / "gone").write_text("x\n")
    (root / "bin").write_bytes(b"\0\1")
    commit(workspace, 1)
    (root / "a").write_text("one\nTWO\nthree\n")
    (root / "gone").unlink()
    (root / "bin").write_bytes(b"\0\2")
    commit(workspace, 2)
    text = (root / ".chronicle" / "diff" / "1..2").read_text()
    assert "-two\n+TWO\n" in text
    assert "-x\n" in text
    assert "inary" in text
    assert (root / ".chronicle" / "diff" / "1..1").read_text() == ""
    for wrong in ("1", "1..", "..2", "1..9", "a..b", "1...2"):
        refused(errno.ENOENT, os.stat, root / ".chronicle" / "diff" / wrong)


def test_numbers_are_kept_only_of_what_the_kernel_knows(tmp_path: Path) -> None:
    layer, _ = open_layer(LayerSpec("w", tmp_path, None, 1, 1), MemoryBlobStore(), SystemClock())
    operations = ChronicleOperations(layer)
    try:
        directory = operations.opendir(MAGIC)
        assert len(list(operations.list_names(directory, 0))) == 5
        assert set(operations._magic._id_of) == {MAGIC}
        entries = operations.readdir(directory, 0)
        shown = [next(entries)[1].ino, next(entries)[1].ino]
        del entries  # the second did not fit into the reply
        assert set(operations._magic._id_of) == {MAGIC, shown[0]}
        operations.forget([(shown[0], 1)])
        assert set(operations._magic._id_of) == {MAGIC}
    finally:
        layer.close()


def test_log(workspace: FuseWorkspace, root: Path) -> None:
    (root / "a").write_text("one")
    commit(workspace, 1)
    (root / "a").rename(root / "b")
    lines = [json.loads(line) for line in (root / ".chronicle" / "log").read_text().splitlines()]
    assert sorted((line["op"], line["path"], line["turn"], line.get("source")) for line in lines[1:]) == [
        ("delete", "a", 2, None),
        ("rename", "b", 2, "a"),
    ]
    assert (lines[0]["op"], lines[0]["path"], lines[0]["turn"], lines[0]["iteration"]) == ("write", "a", 1, 1)
    assert (
        subprocess.run(["cat", root / ".chronicle" / "log"], capture_output=True, check=True).stdout.count(b"\n") == 3
    )


def test_it_is_not_listed_and_cannot_be_changed(root: Path) -> None:
    (root / "a").write_text("one")
    hidden = root / ".chronicle"
    assert os.listdir(root) == ["a"]
    assert stat.S_ISDIR(hidden.stat().st_mode)
    refused(errno.EEXIST, os.mkdir, hidden)
    refused(errno.EROFS, os.rmdir, hidden)
    refused(errno.EROFS, os.rename, hidden, root / "mine")
    (root / "d").mkdir()
    refused(errno.EROFS, os.rename, root / "d", hidden)
    # Below it everything is read-only by its mode, which the kernel checks for everybody but root.
    read_only = errno.EROFS if os.geteuid() == 0 else errno.EACCES
    refused(read_only, os.mkdir, hidden / "x")
    refused(read_only, os.symlink, "a", hidden / "at" / "x")
    refused(read_only, os.link, root / "a", hidden / "x")
    refused(read_only, os.unlink, hidden / "log")
    refused(read_only, os.open, hidden / "log", os.O_WRONLY)
    refused(read_only, os.open, hidden / "query" / "a", os.O_RDWR)
    refused(read_only, os.open, hidden / "at" / "1" / "new", os.O_WRONLY | os.O_CREAT)
    refused(errno.EROFS, os.chmod, hidden / "at" / "1" / "a", 0o777)
    refused(read_only, os.truncate, hidden / "at" / "1" / "a", 0)
    (root / "d" / ".chronicle").mkdir()  # only the root's is special
    assert os.listdir(root / "d") == [".chronicle"]


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_shell_makes_one_version(root: Path) -> None:
    subprocess.run("echo one > a; echo two >> a; : > b; sh -c 'echo three' >> a", shell=True, cwd=root, check=True)
    assert [row["size"] for row in json.loads((root / ".chronicle/query/a").read_text())] == [4, 8, 14]
    assert [row["op"] for row in json.loads((root / ".chronicle/query/b").read_text())] == ["create"]


def test_open_flags(root: Path) -> None:
    (root / "a").write_bytes(b"one")
    refused(errno.EEXIST, os.open, root / "a", os.O_CREAT | os.O_EXCL)
    fd = os.open(root / "a", os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"+1")
    os.lseek(fd, 0, os.SEEK_SET)
    os.write(fd, b"+2")
    refused(errno.EBADF, os.read, fd, 1)
    os.close(fd)
    assert (root / "a").read_bytes() == b"one+1+2"
    os.close(os.open(root / "a", os.O_RDWR | os.O_TRUNC))
    assert (root / "a").read_bytes() == b""
    refused(errno.ENAMETOOLONG, os.open, root / ("x" * 256), os.O_CREAT)
    refused(errno.ENOTDIR, os.stat, root / "a" / "b")


def test_removed_and_renamed_while_open(root: Path) -> None:
    (root / "a").write_bytes(b"one")
    with (root / "a").open("r+b", buffering=0) as file:
        (root / "a").unlink()
        file.seek(0)
        file.write(b"two")
        file.seek(0)
        assert file.read() == b"two"
        assert os.fstat(file.fileno()).st_nlink == 0
    (root / "b").write_bytes(b"b")
    with (root / "b").open("r+b", buffering=0) as file:
        (root / "c").write_bytes(b"c")
        (root / "b").rename(root / "c")
        file.write(b"B+")
    assert (root / "c").read_bytes() == b"B+"
    assert not (root / "b").exists()


def test_mappings(root: Path) -> None:
    (root / "a").write_bytes(b"0" * 8192)
    with (root / "a").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        mapping[4096:4100] = b"abcd"
        mapping.flush()
        assert (root / "a").read_bytes()[4096:4100] == b"abcd"
        mapping[0:4] = b"wxyz"
    assert (root / "a").read_bytes()[:5] == b"wxyz0"
    versions = json.loads((root / ".chronicle/query/a").read_text())
    assert (root / ".chronicle/at/1/a").read_bytes() == b"0" * 8192
    assert (root / f".chronicle/at/{len(versions)}/a").read_bytes()[4096:4100] == b"abcd"


def test_sparse_and_truncated(root: Path) -> None:
    with (root / "a").open("wb") as file:
        file.seek(1_000_000)
        file.write(b"end")
    assert (root / "a").stat().st_size == 1_000_003
    os.truncate(root / "a", 10)
    os.truncate(root / "a", 5000)
    assert (root / "a").read_bytes() == b"\0" * 5000
    assert [row["size"] for row in json.loads((root / ".chronicle/query/a").read_text())] == [1_000_003, 10, 5000]
    assert (root / ".chronicle/at/1/a").read_bytes()[-5:] == b"\0\0end"


def test_kinds_modes_and_links(root: Path) -> None:
    os.mkfifo(root / "fifo", 0o600)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(root / "sock"))
    assert stat.S_ISFIFO((root / "fifo").stat().st_mode)
    assert stat.S_ISSOCK((root / "sock").stat().st_mode)
    (root / "d").mkdir()
    (root / "d").chmod(0o2755)
    (root / "d" / "e").mkdir()
    assert stat.S_IMODE((root / "d" / "e").stat().st_mode) & stat.S_ISGID
    assert (root / "d").stat().st_nlink == 3
    (root / "a").write_bytes(b"a")
    os.link(root / "a", root / "d" / "b")
    assert (root / "a").stat().st_nlink == 2
    (root / "a").unlink()
    assert (root / "d" / "b").stat().st_nlink == 1
    refused(errno.ENOTEMPTY, os.rmdir, root / "d")
    refused(errno.EINVAL, os.rename, root / "d", root / "d" / "e" / "f")
    before = (root / "d" / "b").stat()
    os.utime(root / "d" / "b", ns=(123_456_789_012, 10**18 + 123))
    after = (root / "d" / "b").stat()
    assert (after.st_atime_ns, after.st_mtime_ns, after.st_ino) == (123_456_789_012, 10**18 + 123, before.st_ino)


def test_fifos_and_devices_are_empty_files_in_history(workspace: FuseWorkspace) -> None:
    """Reading what was must not block."""
    root = workspace.root
    os.mkfifo(root / "fifo", 0o600)
    os.mknod(root / "whiteout", stat.S_IFCHR | 0o600, os.makedev(0, 0))
    commit(workspace, 1)
    for name in ("fifo", "whiteout"):
        for path in (root / ".chronicle/turn/1" / name, root / ".chronicle/at/1" / name):
            assert stat.S_ISREG(path.stat().st_mode)
            assert path.read_bytes() == b""


def test_extended_attributes(root: Path) -> None:
    (root / "a").write_bytes(b"")
    os.setxattr(root / "a", "user.one", b"1", os.XATTR_CREATE)
    refused(errno.EEXIST, os.setxattr, root / "a", "user.one", b"2", os.XATTR_CREATE)
    refused(errno.ENODATA, os.setxattr, root / "a", "user.two", b"2", os.XATTR_REPLACE)
    refused(errno.ENODATA, os.getxattr, root / "a", "user.two")
    os.setxattr(root / "a", "user.two", b"")
    assert sorted(os.listxattr(root / "a")) == ["user.one", "user.two"]
    os.removexattr(root / "a", "user.one")
    refused(errno.ENODATA, os.removexattr, root / "a", "user.one")
    assert os.getxattr(root / "a", "user.two") == b""


def test_locks_exclude_each_other(root: Path) -> None:
    (root / "a").write_bytes(b"")
    code = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with (root / "a").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        assert subprocess.run(
            [sys.executable, "-c", code, root / "a"], check=False, stderr=subprocess.DEVNULL
        ).returncode
    assert subprocess.run([sys.executable, "-c", code, root / "a"], check=False).returncode == 0


def test_a_directory_that_changes_while_it_is_read(root: Path) -> None:
    for number in range(1000):
        (root / f"{number:04}").touch()
    seen = []
    with os.scandir(root) as entries:
        for position, entry in enumerate(entries):
            seen.append(entry.name)
            if position == 200:
                for number in range(0, 1000, 2):
                    (root / f"{number:04}").unlink()
                for number in range(200):
                    (root / f"new{number}").touch()
    assert len(seen) == len(set(seen))
    assert set(seen) >= {f"{number:04}" for number in range(1, 1000, 2)}
    assert len(os.listdir(root)) == 700


# -- deaths ------------------------------------------------------------------------------------------------------------


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(machine: Path, workspace: FuseWorkspace) -> None:
    root = workspace.root
    inodes = {}
    for number in range(50):
        (root / f"f{number}").write_bytes(b"%d" % number * 1000)
        inodes[f"f{number}"] = (root / f"f{number}").stat().st_ino
    (root / "f0").write_bytes(b"second")
    (root / "f1").rename(root / "moved")
    held = (root / "open").open("wb", buffering=0)
    held.write(b"never closed")
    (mount,) = served(machine / "zygote.sock")
    pid = mount["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    history = workspace.history("f0")  # waits until there is another server
    assert [item.size for item in history] == [1000, 6]
    for number in range(2, 50):
        assert (root / f"f{number}").read_bytes() == b"%d" % number * 1000
        assert (root / f"f{number}").stat().st_ino == inodes[f"f{number}"]
    assert (root / "moved").read_bytes() == b"1" * 1000
    assert (root / "open").read_bytes() == b"never closed"
    assert (root / ".chronicle/at/1/f0").read_bytes() == b"0" * 1000
    assert len(os.listdir(root)) == 51
    try:
        held.close()
    except OSError:
        pass  # its mount is gone
    ref = workspace.seal()
    assert workspace.seal() == ref
