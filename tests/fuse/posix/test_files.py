"""Open files: what is unlinked, mapped, locked, sparse or appended to behaves as on the native file system."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.fuse.mountpoints.availability import TRANSPORTS
from tests.fuse.posix.pair import Pair, User, pair_of

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1024 * 1024
BLOCK = 512
"""The unit of st_blocks: stat(2)."""


@pytest.fixture(scope="module", params=TRANSPORTS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with pair_of(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def user(pair: Pair) -> User:
    return pair.user(os.getuid(), os.getgid())


@pytest.fixture(scope="module")
def other(pair: Pair) -> User:
    """Another process of the same user."""
    return pair.user(os.getuid(), os.getgid())


@pytest.fixture
def at(pair: Pair, user: User, request: pytest.FixtureRequest) -> str:
    path = f"@/{request.node.originalname}"
    pair.both(user, "mkdir", path)
    return path


@pytest.fixture
def root(pair: Pair, at: str) -> Path:
    """The same directory, for what needs no comparison."""
    return pair.workspace.root / at[2:]


# -- unlinked and replaced while open ----------------------------------------------------------------------------------


def test_an_unlinked_file_lives_on(pair: Pair, user: User, other: User, at: str) -> None:
    pair.both(user, "put", f"{at}/f", "text")
    pair.both(user, "hold", "f", f"{at}/f", os.O_RDWR)
    pair.both(other, "hold", "f", f"{at}/f", os.O_RDONLY)
    pair.both(user, "unlink", f"{at}/f")
    assert pair.both(user, "fstat", "f")["links"] == 0
    pair.both(user, "pwrite", "f", "more", 4)
    assert pair.both(other, "pread", "f", 100, 0) == "textmore"
    pair.both(user, "ftruncate", "f", 2)
    pair.both(user, "fchmod", "f", 0o600)
    pair.both(user, "fsync", "f")
    assert pair.both(other, "fstat", "f")["size"] == 2
    assert pair.both(user, "link_held", "f", f"{at}/again") == "ENOENT"
    pair.both(user, "put", f"{at}/f", "another")
    assert pair.both(user, "pread", "f", 100, 0) == "te"
    pair.workspace.seal()
    pair.both(user, "pwrite", "f", "TE", 0)
    assert pair.both(other, "pread", "f", 100, 0) == "TE"
    for who in (user, other):
        pair.both(who, "drop", "f")
    assert pair.both(user, "read", f"{at}/f") == "another"


def test_a_file_that_is_renamed_over_lives_on(pair: Pair, user: User, at: str) -> None:
    for flags in (0, 2):
        pair.both(user, "put", f"{at}/old", "old")
        pair.both(user, "put", f"{at}/new", "new")
        pair.both(user, "hold", "old", f"{at}/old", os.O_RDWR)
        pair.both(user, "hold", "new", f"{at}/new", os.O_RDWR)
        pair.both(user, "rename", f"{at}/new", f"{at}/old", flags)
        pair.both(user, "pwrite", "old", "OLD", 0)
        pair.both(user, "pwrite", "new", "NEW", 0)
        pair.both(user, "fstat", "old")
        pair.both(user, "fstat", "new")
        assert pair.both(user, "read", f"{at}/old") == "NEW"
        pair.both(user, "drop", "old")
        pair.both(user, "drop", "new")
        pair.both(user, "listdir", at)


def test_a_removed_directory_that_is_held(pair: Pair, user: User, at: str) -> None:
    pair.both(user, "mkdir", f"{at}/d")
    pair.both(user, "hold", "d", f"{at}/d", os.O_RDONLY | os.O_DIRECTORY)
    pair.both(user, "chdir", f"{at}/d")
    pair.both(user, "rmdir", f"{at}/d")
    assert pair.both(user, "fstat", "d")["links"] == 0
    assert pair.both(user, "put", "file", "x") == "ENOENT"
    assert pair.both(user, "mkdir", "dir") == "ENOENT"
    assert pair.both(user, "listdir", ".") == []
    pair.both(user, "stat", "..")
    pair.both(user, "chdir", "/")
    pair.both(user, "drop", "d")


def test_temporary_files(pair: Pair, user: User, at: str, root: Path) -> None:
    """Without O_TMPFILE, which pyfuse3 has no handler for, the C library's and Python's fallbacks work."""
    answer = pair.ask(0, user, "hold", "t", at, os.O_TMPFILE | os.O_RDWR)
    if answer[0] == "ok":
        pair.ask(0, user, "drop", "t")
    assert answer in (["ok", None], ["errno", "ENOTSUP"])
    with tempfile.TemporaryFile(dir=root) as file:
        file.write(b"text")
        file.seek(0)
        assert file.read() == b"text"
    assert list(root.iterdir()) == []


# -- appending and truncating ------------------------------------------------------------------------------------------


def test_appends_of_several_processes_are_all_there(pair: Pair, root: Path) -> None:
    path = root / "log"
    path.touch()
    writers = [pair.user(os.getuid(), os.getgid()) for _ in range(3)]

    def work(writer: User, number: int) -> None:
        for count in range(200):
            assert writer.ask(0, ["append", str(path), f"{number}:{count:04}\n"])[0] == "ok"

    threads = [threading.Thread(target=work, args=(writer, number)) for number, writer in enumerate(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for writer in writers:
        pair.dismiss(writer)
    lines = path.read_text().splitlines()
    assert sorted(lines) == sorted(f"{number}:{count:04}" for number in range(3) for count in range(200))
    for number in range(3):
        mine = [line for line in lines if line[0] == str(number)]
        assert mine == sorted(mine)


def test_append_and_truncate_by_different_handles(pair: Pair, user: User, other: User, at: str) -> None:
    pair.both(user, "put", f"{at}/f", "0123456789")
    pair.both(user, "hold", "a", f"{at}/f", os.O_RDWR | os.O_APPEND)
    pair.both(other, "hold", "f", f"{at}/f", os.O_RDWR)
    pair.both(other, "ftruncate", "f", 4)
    pair.both(user, "pwrite", "a", "x", 0)  # at the end all the same
    assert pair.both(other, "pread", "f", 100, 0) == "0123x"
    pair.both(other, "truncate", f"{at}/f", 8)
    pair.both(user, "pwrite", "a", "y", 0)
    assert pair.both(user, "read", f"{at}/f") == "0123x\0\0\0y"
    pair.both(user, "open", f"{at}/f", os.O_WRONLY | os.O_TRUNC)
    pair.both(user, "pwrite", "a", "z", 0)
    assert pair.both(other, "pread", "f", 100, 0) == "z"
    pair.both(user, "drop", "a")
    pair.both(other, "drop", "f")


# -- sparse files and ranges -------------------------------------------------------------------------------------------


def test_sparse_files_take_no_room(pair: Pair, user: User, at: str, root: Path) -> None:
    with (root / "sparse").open("wb") as file:
        file.truncate(256 * MIB)
        file.seek(100 * MIB)
        file.write(b"x" * 5000)
    status = (root / "sparse").stat()
    assert status.st_size == 256 * MIB
    assert status.st_blocks * BLOCK < MIB
    (root / "dense").write_bytes(os.urandom(100_000))
    status = (root / "dense").stat()
    assert 100_000 <= status.st_blocks * BLOCK <= 110_000
    assert pair.ask(0, user, "truncate", f"{at}/dense", 0) == ["ok", None]
    assert (root / "dense").stat().st_blocks == 0
    pair.both(user, "hold", "f", f"{at}/ends", os.O_RDWR | os.O_CREAT)
    pair.both(user, "pwrite", "f", "end", 10 * MIB)
    assert pair.both(user, "pread", "f", 4, 10 * MIB - 1) == "\0end"
    pair.both(user, "ftruncate", "f", 5000)
    pair.both(user, "ftruncate", "f", 10_000)
    assert pair.both(user, "pread", "f", 6000, 4500) == "\0" * 5500
    pair.both(user, "fstat", "f")
    pair.both(user, "drop", "f")


def test_seeking_data_and_holes(pair: Pair, user: User, at: str) -> None:
    """A file system may say that all of a file is data; what it says must be true."""
    for side in (0, 1):
        pair.ask(side, user, "hold", "f", f"{at}/f", os.O_RDWR | os.O_CREAT)
        pair.ask(side, user, "pwrite", "f", "x" * 4096, MIB)
        pair.ask(side, user, "ftruncate", "f", 3 * MIB)
    data = pair.ask(0, user, "seek", "f", 0, os.SEEK_DATA)[1]
    hole = pair.ask(0, user, "seek", "f", MIB, os.SEEK_HOLE)[1]
    assert 0 <= data <= MIB
    assert MIB + 4096 <= hole <= 3 * MIB
    for whence in (os.SEEK_DATA, os.SEEK_HOLE):
        assert pair.both(user, "seek", "f", 3 * MIB, whence) == "ENXIO"
    pair.both(user, "seek", "f", -1, os.SEEK_SET)
    pair.both(user, "seek", "f", -10, os.SEEK_END)
    pair.both(user, "drop", "f")


def test_allocating(pair: Pair, user: User, at: str) -> None:
    pair.both(user, "hold", "f", f"{at}/f", os.O_RDWR | os.O_CREAT)
    pair.both(user, "pwrite", "f", "text", 0)
    # fallocate(2) may be refused, cleanly; posix_fallocate(3) then writes, and the result is the same.
    answer = pair.ask(0, user, "fallocate", "f", 0, 0, 8192)
    assert answer in (["ok", None], ["errno", "ENOTSUP"])
    pair.ask(1, user, "fallocate", "f", 0, 0, 8192)
    pair.both(user, "posix_fallocate", "f", 0, 10_000)
    assert pair.both(user, "fstat", "f")["size"] == 10_000
    assert pair.both(user, "pread", "f", 10_000, 0) == "text" + "\0" * 9996
    pair.both(user, "drop", "f")


def test_copying_within_the_mount(pair: Pair, user: User, at: str, root: Path) -> None:
    data = os.urandom(3 * MIB)
    (root / "a").write_bytes(data)
    shutil.copyfile(root / "a", root / "b")  # sendfile
    assert (root / "b").read_bytes() == data
    with (root / "a").open("rb") as source, (root / "c").open("wb") as target:
        copied = 0
        while copied < len(data):
            copied += os.copy_file_range(source.fileno(), target.fileno(), len(data) - copied, copied, copied)
    assert (root / "c").read_bytes() == data


def test_limits_of_offsets(pair: Pair, user: User, at: str) -> None:
    pair.both(user, "hold", "f", f"{at}/f", os.O_RDWR | os.O_CREAT)
    for offset in (2**31 - 1, 2**31, 2**32, 2**40):
        assert pair.both(user, "pwrite", "f", "x", offset) == 1
        assert pair.both(user, "pread", "f", 2, offset) == "x"
    pair.both(user, "fstat", "f")
    assert pair.both(user, "truncate", f"{at}/f", 2**63 - 1) == "EFBIG"
    assert pair.both(user, "truncate", f"{at}/f", 0) is None
    pair.both(user, "drop", "f")


# -- mappings ----------------------------------------------------------------------------------------------------------


def test_mappings_are_shared(pair: Pair, user: User, other: User, at: str) -> None:
    pair.both(user, "put", f"{at}/f", "0" * 10_000)
    for who in (user, other):
        pair.both(who, "hold", "f", f"{at}/f", os.O_RDWR)
        pair.both(who, "map", "f", 10_000)
    pair.both(user, "map_write", "f", 5000, "mapped")
    assert pair.both(other, "map_read", "f", 4999, 8) == "0mapped0"
    assert pair.both(other, "pread", "f", 8, 4999) == "0mapped0"
    pair.both(other, "pwrite", "f", "written", 100)
    assert pair.both(user, "map_read", "f", 99, 9) == "0written0"
    pair.both(user, "map_sync", "f")
    pair.workspace.seal()
    pair.both(user, "map_write", "f", 0, "after")
    pair.both(user, "unlink", f"{at}/f")
    assert pair.both(other, "map_read", "f", 0, 6) == "after0"
    for who in (user, other):
        pair.both(who, "unmap", "f")
        pair.both(who, "drop", "f")


def test_what_a_mapping_wrote_is_kept(pair: Pair, user: User, at: str, root: Path) -> None:
    pair.both(user, "put", f"{at}/f", "0" * 8192)
    pair.both(user, "hold", "f", f"{at}/f", os.O_RDWR)
    pair.both(user, "map", "f", 8192)
    pair.both(user, "drop", "f")  # the mapping holds the file
    pair.both(user, "map_write", "f", 4096, "late")
    pair.both(user, "unmap", "f")
    assert pair.both(user, "read", f"{at}/f") == "0" * 4096 + "late" + "0" * 4092
    last = pair.workspace.history(f"{at[2:]}/f")[-1]
    with pair.workspace.at(f"{at[2:]}/f", last.iteration) as file:
        assert file.read() == b"0" * 4096 + b"late" + b"0" * 4092


# -- locks -------------------------------------------------------------------------------------------------------------


def test_whole_file_locks(pair: Pair, user: User, other: User, at: str) -> None:
    pair.both(user, "put", f"{at}/f", "text")
    for who in (user, other):
        pair.both(who, "hold", "f", f"{at}/f", os.O_RDWR)
    assert pair.both(user, "flock", "f", fcntl.LOCK_EX | fcntl.LOCK_NB) is None
    assert pair.both(other, "flock", "f", fcntl.LOCK_EX | fcntl.LOCK_NB) == "EAGAIN"
    assert pair.both(other, "flock", "f", fcntl.LOCK_SH | fcntl.LOCK_NB) == "EAGAIN"
    pair.both(user, "flock", "f", fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert pair.both(other, "flock", "f", fcntl.LOCK_SH | fcntl.LOCK_NB) is None
    assert pair.both(user, "flock", "f", fcntl.LOCK_EX | fcntl.LOCK_NB) == "EAGAIN"
    pair.both(other, "drop", "f")  # gives its lock up
    assert pair.both(user, "flock", "f", fcntl.LOCK_EX | fcntl.LOCK_NB) is None
    pair.both(user, "drop", "f")


def test_record_locks(pair: Pair, user: User, other: User, at: str) -> None:
    pair.both(user, "put", f"{at}/f", "0" * 100)
    for who in (user, other):
        pair.both(who, "hold", "f", f"{at}/f", os.O_RDWR)
    assert pair.both(user, "lock", "f", fcntl.F_WRLCK, 0, 50) is None
    assert pair.both(other, "lock", "f", fcntl.F_WRLCK, 40, 20) == "EAGAIN"
    assert pair.both(other, "lock", "f", fcntl.F_RDLCK, 40, 20) == "EAGAIN"
    assert pair.both(other, "lock", "f", fcntl.F_WRLCK, 50, 50) is None
    assert pair.both(user, "lock", "f", fcntl.F_RDLCK, 90, 5) == "EAGAIN"
    pair.both(user, "lock", "f", fcntl.F_UNLCK, 0, 45)
    assert pair.both(other, "lock", "f", fcntl.F_WRLCK, 0, 45) is None
    # By POSIX, closing any descriptor of the file gives all of a process's locks up.
    pair.both(other, "open", f"{at}/f", os.O_RDONLY)
    assert pair.both(user, "lock", "f", fcntl.F_WRLCK, 0, 100) is None
    for who in (user, other):
        pair.both(who, "drop", "f")


# -- FIFOs, sockets and extended attributes ----------------------------------------------------------------------------


def test_fifos_and_sockets_carry_data(root: Path) -> None:
    os.mkfifo(root / "fifo")
    sent = threading.Thread(target=lambda: (root / "fifo").write_bytes(b"through the fifo"))
    sent.start()
    assert (root / "fifo").read_bytes() == b"through the fifo"
    sent.join()
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        directory = os.open(root, os.O_PATH)
        try:
            server.bind(f"/proc/self/fd/{directory}/sock")
            server.listen()
            client.connect(f"/proc/self/fd/{directory}/sock")
        finally:
            os.close(directory)
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"through the socket")
            assert accepted.recv(100) == b"through the socket"
    assert stat.S_ISSOCK((root / "sock").lstat().st_mode)


def test_extended_attributes(pair: Pair, user: User, at: str) -> None:
    pair.both(user, "put", f"{at}/f", "text")
    pair.both(user, "mkdir", f"{at}/d")
    pair.both(user, "symlink", "f", f"{at}/s")
    pair.both(user, "mknod", f"{at}/p", stat.S_IFIFO | 0o600)
    names = ["user.a", "user." + "n" * 250, "user." + "n" * 251, "user.ä", "trusted.a", "security.a", "nothing.a"]
    for path in ("f", "d", "s", "p"):
        for name in names:
            for flags in (os.XATTR_REPLACE, os.XATTR_CREATE, os.XATTR_CREATE, os.XATTR_REPLACE, 0):
                pair.both(user, "setxattr", f"{at}/{path}", name, "value", flags)
            pair.both(user, "getxattr", f"{at}/{path}", name)
        pair.both(user, "listxattr", f"{at}/{path}")
        for name in names:
            pair.both(user, "removexattr", f"{at}/{path}", name)
            pair.both(user, "removexattr", f"{at}/{path}", name)
        pair.both(user, "listxattr", f"{at}/{path}")
    pair.both(user, "setxattr", f"{at}/f", "user.empty", "")
    assert pair.both(user, "getxattr", f"{at}/f", "user.empty") == ""
    pair.both(user, "setxattr", f"{at}/f", "user.large", "v" * 2000)
    assert pair.both(user, "getxattr", f"{at}/f", "user.large") == "v" * 2000
