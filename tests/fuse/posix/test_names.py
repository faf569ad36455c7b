"""Names, links and times: the mount answers step by step as the native file system does."""

# ruff: noqa: PTH208 - by file descriptor

from __future__ import annotations

import os
import stat
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.fuse.mountpoints.availability import TRANSPORTS
from tests.fuse.posix.pair import Pair, User, pair_of

if TYPE_CHECKING:
    from collections.abc import Iterator

RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
DEEP = 1050
"""Directories inside each other: more than Python nests calls, and paths longer than PATH_MAX."""
CROWD = 3_000
KINDS = ["file", "hard", "empty", "full", "full/inside", "link", "dirlink", "fifo", "absent", "file/x", "absent/", "."]
"""Of what `make_all` makes."""


@pytest.fixture(scope="module", params=TRANSPORTS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with pair_of(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def user(pair: Pair) -> User:
    return pair.user(os.getuid(), os.getgid())


@pytest.fixture
def at(pair: Pair, user: User, request: pytest.FixtureRequest) -> str:
    path = f"@/{request.node.originalname}"
    pair.both(user, "mkdir", path)
    return path


def make_all(pair: Pair, user: User, at: str) -> list[str]:
    """Make one of each kind; return their names."""
    pair.both(user, "put", f"{at}/file", "text")
    pair.both(user, "put", f"{at}/other", "other")
    pair.both(user, "link", f"{at}/file", f"{at}/hard")
    pair.both(user, "mkdir", f"{at}/empty")
    pair.both(user, "mkdir", f"{at}/full")
    pair.both(user, "put", f"{at}/full/inside", "x")
    pair.both(user, "symlink", "file", f"{at}/link")
    pair.both(user, "symlink", "full", f"{at}/dirlink")
    pair.both(user, "symlink", "nowhere", f"{at}/dangling")
    pair.both(user, "symlink", "loop", f"{at}/loop")
    pair.both(user, "mknod", f"{at}/fifo", stat.S_IFIFO | 0o600)
    pair.both(user, "bind", f"{at}/sock")
    return [
        *("file", "other", "hard", "empty", "full", "full/inside", "link", "dirlink", "dirlink/inside"),
        *("dangling", "loop", "loop/x", "fifo", "sock", "absent", "absent/x", "file/x", "empty/", "file/", "link/"),
        *("dirlink/", "absent/", ".", "empty/.", "full/.."),
    ]


def test_every_call_on_every_kind(pair: Pair, user: User, at: str) -> None:
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("lstat", ()),
        ("stat", ()),
        ("listdir", ()),
        ("readlink", ()),
        ("open", (os.O_RDONLY | os.O_NONBLOCK,)),
        ("open", (os.O_RDWR | os.O_NONBLOCK,)),
        ("open", (os.O_RDONLY | os.O_DIRECTORY,)),
        ("open", (os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK,)),
        ("open", (os.O_RDWR | os.O_CREAT | os.O_EXCL,)),
        ("open", (os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK,)),
        ("truncate", (3,)),
        ("chmod", (0o644,)),
        ("setxattr", ("user.a", "1")),
        ("getxattr", ("user.a",)),
        ("listxattr", ()),
        ("removexattr", ("user.a",)),
        ("mkdir", ()),
        ("mknod", (stat.S_IFREG | 0o600,)),
        ("unlink", ()),
        ("rmdir", ()),
    ]
    names = make_all(pair, user, at)
    for (name, arguments), path in product(calls, names):
        pair.both(user, name, f"{at}/{path}", *arguments)
    pair.both(user, "listdir", at)


@pytest.mark.one_transport
@pytest.mark.parametrize("flags", [0, RENAME_NOREPLACE, RENAME_EXCHANGE])
def test_every_rename(pair: Pair, user: User, at: str, flags: int) -> None:
    at = f"{at}/{flags}"
    pair.both(user, "mkdir", at)
    for number, (old, new) in enumerate(product(KINDS, repeat=2)):
        here = f"{at}/{number}"
        pair.both(user, "mkdir", here)
        make_all(pair, user, here)
        pair.both(user, "rename", f"{here}/{old}", f"{here}/{new}", flags)
        pair.both(user, "listdir", here)
        for name in (old, new):
            pair.both(user, "lstat", f"{here}/{name}")


@pytest.mark.one_transport
def test_every_link(pair: Pair, user: User, at: str) -> None:
    for number, (old, new) in enumerate(product(KINDS, repeat=2)):
        here = f"{at}/{number}"
        pair.both(user, "mkdir", here)
        make_all(pair, user, here)
        pair.both(user, "link", f"{here}/{old}", f"{here}/{new}")
        pair.both(user, "lstat", f"{here}/{old}")
        pair.both(user, "unlink", f"{here}/{new}")
        pair.both(user, "lstat", f"{here}/{old}")


def test_flags_that_do_not_go_together(pair: Pair, user: User, at: str) -> None:
    make_all(pair, user, at)
    pair.both(user, "rename", f"{at}/file", f"{at}/other", RENAME_NOREPLACE | RENAME_EXCHANGE)
    pair.both(user, "rename", f"{at}/file", f"{at}/other", 8)
    pair.both(user, "rename", f"{at}/full", f"{at}/full/x")
    pair.both(user, "rename", f"{at}/full", f"{at}/full/inside", RENAME_EXCHANGE)
    pair.both(user, "rename", f"{at}/full/inside", f"{at}/full", RENAME_EXCHANGE)


def test_other_file_systems(pair: Pair, user: User, at: str) -> None:
    pair.both(user, "put", f"{at}/a", "a")
    for name in ("link", "rename"):
        assert pair.both(user, name, f"{at}/a", "/dev/shm/chronicle-posix") == "EXDEV"
        assert pair.both(user, name, "/proc/self/status", f"{at}/b") == "EXDEV"


def test_long_and_odd_names(pair: Pair, user: User, at: str) -> None:
    odd = ["x" * 255, "\udcff\udcfe", "new\nline", "-rf", " ", "...", "ä" * 127, "\udc80" * 255, "a\tb", "'\"\\"]
    for name in (*odd, "x" * 256, "ä" * 128, ".", ".."):
        pair.both(user, "put", f"{at}/{name}", "text")
        pair.both(user, "mkdir", f"{at}/{name}.d")
        pair.both(user, "link", f"{at}/{name}", f"{at}/{name[:-1]}l")
        pair.both(user, "symlink", name, f"{at}/{name[:-1]}s")
        pair.both(user, "readlink", f"{at}/{name[:-1]}s")
        pair.both(user, "rename", f"{at}/{name[:-1]}l", f"{at}/{name[:-1]}m")
        pair.both(user, "stat", f"{at}/{name}/x")
        pair.both(user, "unlink", f"{at}/{name}")
        pair.both(user, "listdir", at)
    for length in (4094, 4095, 4096):
        pair.both(user, "symlink", "t" * length, f"{at}/target{length}")
        pair.both(user, "lstat", f"{at}/target{length}")
    pair.both(user, "lstat", at + "/x" * 3000)


def test_chains_of_symlinks(pair: Pair, user: User, at: str) -> None:
    pair.both(user, "put", f"{at}/0", "text")
    for number in range(45):
        pair.both(user, "symlink", str(number), f"{at}/{number + 1}")
    answers = [pair.both(user, "read", f"{at}/{number}") for number in range(46)]
    assert answers[40] == "text"
    assert answers[41] == "ELOOP"
    pair.both(user, "put", f"{at}/made", "")
    pair.both(user, "symlink", "through", f"{at}/dangling")
    assert pair.both(user, "put", f"{at}/dangling", "through it") is None
    assert pair.both(user, "read", f"{at}/through") == "through it"


@pytest.mark.one_transport
def test_deep_directories(pair: Pair, user: User, at: str) -> None:
    pair.both(user, "chdir", at)
    assert pair.both(user, "dig", "deeper", DEEP) is None
    pair.both(user, "put", "file", "text")
    pair.both(user, "append", "file", "more")
    pair.both(user, "link", "file", "hard")
    pair.both(user, "rename", "hard", "moved")
    assert pair.both(user, "read", "moved") == "textmore"
    pair.workspace.seal()
    pair.both(user, "chmod", "file", 0o600)
    pair.both(user, "unlink", "moved")
    pair.both(user, "unlink", "file")
    assert pair.both(user, "climb", "deeper", DEEP) is None
    pair.workspace.seal()
    pair.both(user, "chdir", "/")


# -- what changes which times ------------------------------------------------------------------------------------------

LONG_AGO = 10**18


def changed_times(pair: Pair, user: User, paths: list[str], name: str, arguments: tuple[Any, ...]) -> list[list[bool]]:
    """Make a call on both sides; return, for each side, which mtimes and ctimes it changed."""
    for path in paths:
        pair.both(user, "utimens", path, LONG_AGO, LONG_AGO)
    before = [[pair.ask(side, user, "times", path)[1] for path in paths] for side in (0, 1)]
    pair.both(user, name, *arguments)
    found = []
    for side in (0, 1):
        after = [pair.ask(side, user, "times", path)[1] for path in paths]
        rows = zip(before[side], after, strict=True)
        found.append([old != new if isinstance(new, str) else old[i] != new[i] for old, new in rows for i in (1, 2)])
    return found


def test_which_times_change(pair: Pair, user: User, at: str) -> None:
    pair.both(user, "mkdir", f"{at}/to")
    steps: list[tuple[str, tuple[Any, ...]]] = [
        ("put", ("a/f", "again")),
        ("append", ("a/f", "more")),
        ("append", ("a/f", "")),
        ("open", ("a/f", os.O_RDONLY)),
        ("open", ("a/f", os.O_WRONLY | os.O_TRUNC)),
        ("open", ("a/f", os.O_WRONLY | os.O_TRUNC)),  # it is empty already
        ("truncate", ("a/f", 10)),
        ("truncate", ("a/f", 10)),
        ("truncate", ("a/f", 3)),
        ("chmod", ("a/f", 0o600)),
        ("chmod", ("a/f", 0o600)),
        ("chown", ("a/f", -1, -1)),
        ("chown", ("a/f", os.getuid(), os.getgid())),
        ("setxattr", ("a/f", "user.a", "1")),
        ("setxattr", ("a/f", "user.a", "1")),
        ("removexattr", ("a/f", "user.a")),
        ("removexattr", ("a/f", "user.a")),
        ("link", ("a/f", "a/to/hard")),
        ("unlink", ("a/to/hard",)),
        ("symlink", ("x", "a/to/s")),
        ("unlink", ("a/to/s",)),
        ("mkdir", ("a/to/d",)),
        ("rmdir", ("a/to/d",)),
        ("mknod", ("a/to/p", stat.S_IFIFO | 0o600)),
        ("unlink", ("a/to/p",)),
        ("open", ("a/to/new", os.O_CREAT | os.O_WRONLY)),
        ("rename", ("a/to/new", "a/to/renamed")),
        ("rename", ("a/to/renamed", "a/moved")),
        ("rename", ("a/moved", "a/f")),
        ("open", ("a/absent", os.O_RDONLY)),
        ("unlink", ("a/absent",)),
        ("mkdir", ("a/f",)),
        ("utimens", ("a/f", 5, 6)),
        ("chmod", ("a/to", 0o700)),
        ("listdir", ("a",)),
    ]
    pair.both(user, "put", f"{at}/f", "text")
    for number, (name, arguments) in enumerate(steps):
        given = tuple(at + value[1:] if isinstance(value, str) and value[:1] == "a" else value for value in arguments)
        watched = [f"{at}/f", at, f"{at}/to"]
        mounted, native = changed_times(pair, user, watched, name, given)
        assert mounted == native, f"step {number}, {name} {arguments}: [file, directory, to] × [mtime, ctime]"


def test_times_of_what_is_held(pair: Pair, user: User, at: str) -> None:
    for number, (name, arguments) in enumerate(
        [
            ("pwrite", ("f", "text", 0)),
            ("ftruncate", ("f", 2)),
            ("ftruncate", ("f", 2)),
            ("fchmod", ("f", 0o640)),
            ("pread", ("f", 10, 0)),
            ("fsync", ("f",)),
            ("unlink", (f"{at}/other",)),
        ]
    ):
        path = f"{at}/f"
        pair.both(user, "put", path, "text")
        pair.both(user, "link", path, f"{at}/other")
        pair.both(user, "hold", "f", path, os.O_RDWR)
        mounted, native = changed_times(pair, user, [path], name, arguments)
        assert mounted == native, f"step {number}, {name}: [mtime, ctime]"
        pair.both(user, "drop", "f")


def test_times_are_kept_to_the_nanosecond(pair: Pair, user: User, at: str) -> None:
    pair.both(user, "put", f"{at}/f", "text")
    for value in (0, 1, 999_999_999, 10**18 + 123_456_789, (2**31) * 10**9, (2**33) * 10**9 + 5, -1, -(10**9) - 7):
        pair.both(user, "utimens", f"{at}/f", value, value)
        for side in (0, 1):
            assert pair.ask(side, user, "times", f"{at}/f")[1][:2] == [value, value]


# -- directories that change while they are read -----------------------------------------------------------------------


def test_a_directory_changes_while_it_is_read(pair: Pair, user: User, at: str) -> None:
    """What is there from the first to the last entry read comes once; what comes or goes meanwhile at most once."""
    directory = pair.workspace.root / at[2:]
    names = {f"{number:05}" for number in range(CROWD)}
    for name in names:
        (directory / name).touch()
    pair.workspace.seal()
    seen: list[str] = []
    with os.scandir(directory) as entries:
        for count, entry in enumerate(entries):
            seen.append(entry.name)
            if count % 100 == 0:
                number = count // 100
                (directory / f"{CROWD - 1 - number:05}").unlink(missing_ok=True)
                (directory / f"new{number}").touch()
                (directory / f"{CROWD // 2 + number:05}").replace(directory / f"moved{number}")
    steady = {name for name in names if (directory / name).exists()}
    assert len(seen) == len(set(seen))
    assert steady <= set(seen)
    assert set(seen) <= names | {f"new{n}" for n in range(CROWD)} | {f"moved{n}" for n in range(CROWD)}
    assert set(os.listdir(directory)) == {entry.name for entry in os.scandir(directory)}


def test_a_directory_is_read_again_from_a_place_in_it(pair: Pair, user: User, at: str) -> None:
    """telldir, seekdir and rewinddir: by the raw offsets of the kernel."""
    directory = pair.workspace.root / at[2:]
    for number in range(1000):
        (directory / f"{number:04}").touch()
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        first = os.listdir(fd)
        (directory / "0500").unlink()
        (directory / "new").touch()
        os.lseek(fd, 0, os.SEEK_SET)
        second = os.listdir(fd)
    finally:
        os.close(fd)
    assert sorted(first) == [f"{number:04}" for number in range(1000)]
    assert set(second) == (set(first) - {"0500"}) | {"new"}


def test_inode_numbers_last(pair: Pair, user: User, at: str) -> None:
    make_all(pair, user, at)
    root = pair.workspace.root / at[2:]
    before = {path: path.lstat().st_ino for path in root.rglob("*")}
    assert len(set(before.values())) == len(before) - 1  # one is a hard link
    pair.workspace.adopt(pair.workspace.seal())
    (root / "file").write_text("changed")
    (root / "file").rename(root / "renamed")
    before[root / "renamed"] = before.pop(root / "file")
    assert {path: path.lstat().st_ino for path in root.rglob("*")} == before
