"""What a disk may hold after a loss of power: every write, rename and sync of some modules recorded, states made of it.

`RecordingOs` takes the place of ``os`` in the modules under test. The calls really happen, below one directory, and
are noted besides. `Disk.lose_power` then says what may be left: of a file, what its last sync saw and any of the later
writes, whole, in part by sectors, or not at all; of a directory, the names that its last sync saw and the first few of
the changes since. Files and directories lose theirs independently, so writes are reordered between them. That is what
POSIX leaves open; real file systems are kinder.
"""

# ruff: noqa: PTH115, PTH116, PTH123, PTH208 - system calls are meant

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

SECTOR: Final = 512
"""What a disk writes whole."""


@dataclass
class Inode:
    """A file's bytes: those on disk for certain, and what was done to them since."""

    durable: bytes = b""
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)
    """Writes, offset and bytes, and truncations, in order."""

    def now(self) -> bytes:
        content = bytearray(self.durable)
        for change in self.pending:
            _apply(content, change)
        return bytes(content)

    def lose_power(self, generator: random.Random) -> bytes:
        """Return what may be left of it."""
        content = bytearray(self.durable)
        kept = generator.choice(["all", "none", "some", "some", "sectors", "first"])
        stop = generator.randrange(len(self.pending) + 1)
        for index, change in enumerate(self.pending):
            if kept == "none" or (kept == "first" and index >= stop):
                continue
            if kept == "some" and generator.random() < 0.4:
                if isinstance(change, tuple) and generator.random() < 0.5:
                    _grow(content, change[0] + len(change[1]))  # its size came to the disk, but not its bytes
                continue
            if kept == "sectors" and isinstance(change, tuple):
                for start, part in _sectors(*change):
                    if generator.random() < 0.6:
                        _apply(content, (start, part))
                    elif generator.random() < 0.5:
                        _grow(content, start + len(part))
                continue
            _apply(content, change)
        return bytes(content)


def _apply(content: bytearray, change: tuple[int, bytes] | int) -> None:
    if isinstance(change, int):
        _grow(content, change)
        del content[change:]
    else:
        offset, data = change
        _grow(content, offset + len(data))
        content[offset : offset + len(data)] = data


def _grow(content: bytearray, size: int) -> None:
    if len(content) < size:
        content.extend(bytes(size - len(content)))


def _sectors(offset: int, data: bytes) -> list[tuple[int, bytes]]:
    parts = []
    at = 0
    while at < len(data):
        stop = min(len(data), at + SECTOR - (offset + at) % SECTOR)
        parts.append((offset + at, data[at:stop]))
        at = stop
    return parts


Change = tuple[str, str, int] | tuple[str, str]
"""("put", name, what has it) or ("take", name)."""


@dataclass
class Names:
    """A directory: its names on disk for certain, and what was done to them since."""

    durable: dict[str, int] = field(default_factory=dict)
    pending: list[list[Change]] = field(default_factory=list)
    """Each with the changes that come together: a rename's two."""

    def now(self) -> dict[str, int]:
        return self.after(len(self.pending))

    def after(self, count: int) -> dict[str, int]:
        """Return the names after so many of the changes."""
        names = dict(self.durable)
        for changes in self.pending[:count]:
            for change in changes:
                if len(change) == 3:
                    names[change[1]] = change[2]
                else:
                    names.pop(change[1], None)
        return names


class Disk:
    """The files and directories below one directory.

    Args:
        root: an empty directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.things: dict[int, Inode | Names] = {0: Names()}
        """By a number of our own: inode numbers are used again."""
        self.directories: dict[Path, int] = {root: 0}
        """Where each directory is now."""
        self._numbers: dict[int, int] = {}
        """By inode number, what has it now."""

    def file(self, inode: int) -> Inode | None:
        """Return what is recorded of the file that has an inode number now."""
        thing = self.things.get(self._numbers.get(inode, -1))
        return thing if isinstance(thing, Inode) else None

    def directory(self, path: Path) -> Names:
        thing = self.things[self.directories[path]]
        assert isinstance(thing, Names)
        return thing

    def make(self, path: Path, thing: Inode | Names) -> None:
        number = len(self.things)
        self.things[number] = thing
        self._numbers[path.stat().st_ino] = number
        if isinstance(thing, Names):
            self.directories[path] = number
        self.directory(path.parent).pending.append([("put", path.name, number)])

    def take(self, path: Path) -> None:
        self.directory(path.parent).pending.append([("take", path.name)])

    def rename(self, old: Path, new: Path) -> None:
        number = self.directory(old.parent).now()[old.name]
        take: Change = ("take", old.name)
        put: Change = ("put", new.name, number)
        if old.parent == new.parent:
            self.directory(old.parent).pending.append([take, put])
        else:
            self.directory(old.parent).pending.append([take])
            self.directory(new.parent).pending.append([put])
        for path in [path for path in self.directories if path == old or old in path.parents]:
            self.directories[new / path.relative_to(old)] = self.directories.pop(path)

    def lose_power(self, generator: random.Random, target: Path) -> None:
        """Put what may be left below another directory."""
        self._put(0, target, generator)

    def _put(self, number: int, target: Path, generator: random.Random) -> None:
        thing = self.things[number]
        if isinstance(thing, Inode):
            target.write_bytes(thing.lose_power(generator))
            return
        target.mkdir(parents=True, exist_ok=True)
        every = len(thing.pending)
        for name, below in thing.after(generator.choice([0, every, generator.randrange(every + 1)])).items():
            self._put(below, target / name, generator)

    def check(self) -> None:
        """See that nothing was missed: what was recorded is what is there."""
        for path in self.directories:
            names = self.directory(path).now()
            assert set(os.listdir(path)) == set(names), path
            for name, number in names.items():
                thing = self.things[number]
                if isinstance(thing, Inode):
                    assert (path / name).read_bytes() == thing.now(), path / name


class RecordingOs:
    """``os``, with what changes a disk recorded. Made for the calls that the modules under test make."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.before_call: Callable[[], None] = lambda: None
        """Called before each call that changes something."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _path(self, path: Any, dir_fd: int | None = None) -> Path:
        text = os.fsdecode(path)
        if dir_fd is not None:
            return Path(os.readlink(f"/proc/self/fd/{dir_fd}")) / text
        return Path(text)

    def _inode(self, fd: int) -> Inode | None:
        return self._disk.file(os.fstat(fd).st_ino)

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & (os.O_CREAT | os.O_TRUNC):
            self.before_call()
        full = self._path(path, dir_fd)
        known = full.exists()
        fd = os.open(path, flags, mode, dir_fd=dir_fd)
        if self._disk.root in full.parents and full.is_file():
            if not known:
                self._disk.make(full, Inode())
            elif flags & os.O_TRUNC:
                inode = self._inode(fd)
                assert inode is not None
                inode.pending.append(0)
        return fd

    def write(self, fd: int, data: Any) -> int:
        self.before_call()
        inode = self._inode(fd)
        offset = os.lseek(fd, 0, os.SEEK_CUR)
        if inode is not None and self._appends(fd):
            offset = os.fstat(fd).st_size
        written = os.write(fd, data)
        if inode is not None:
            inode.pending.append((offset, bytes(data)[:written]))
        return written

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        self.before_call()
        written = os.pwrite(fd, data, offset)
        inode = self._inode(fd)
        if inode is not None:
            inode.pending.append((offset, bytes(data)[:written]))
        return written

    @staticmethod
    def _appends(fd: int) -> bool:
        info = Path(f"/proc/self/fdinfo/{fd}").read_text().split("flags:")[1].split()[0]
        return bool(int(info, 8) & os.O_APPEND)

    def ftruncate(self, fd: int, size: int) -> None:
        self.before_call()
        os.ftruncate(fd, size)
        inode = self._inode(fd)
        if inode is not None:
            inode.pending.append(size)

    def truncate(self, path: Any, size: int) -> None:
        self.before_call()
        os.truncate(path, size)
        inode = self._disk.file(os.stat(path).st_ino)
        assert inode is not None
        inode.pending.append(size)

    def fdatasync(self, fd: int) -> None:
        self._sync(fd)

    def fsync(self, fd: int) -> None:
        self._sync(fd)

    def _sync(self, fd: int) -> None:
        """No need to really sync: the disk that loses power is made of the record."""
        self.before_call()
        inode = self._inode(fd)
        if inode is not None:
            inode.durable, inode.pending = inode.now(), []
            return
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path in self._disk.directories:  # not those above it
            directory = self._disk.directory(path)
            directory.durable, directory.pending = directory.now(), []

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self.before_call()
        full = self._path(path, dir_fd)
        os.unlink(path, dir_fd=dir_fd)
        if self._disk.root in full.parents:
            self._disk.take(full)


class NoSyncOs:
    """``os`` without syncs, for looking at a disk that lost power: it loses it once."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fdatasync(self, fd: int) -> None:
        """Do nothing."""

    def fsync(self, fd: int) -> None:
        """Do nothing."""


class RecordingPath(type(Path())):  # type: ignore[misc]
    """A path whose renames and directories are recorded; `disk` is set on the class while a test runs."""

    disk: Disk | None = None

    def rename(self, target: Any) -> Any:
        done = super().rename(target)
        disk = type(self).disk
        if disk is not None:
            disk.rename(Path(self), Path(target))
        return done

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        known = self.exists()
        super().mkdir(mode, parents, exist_ok)
        disk = type(self).disk
        if disk is not None and not known:
            disk.make(Path(self), Names())


def opened(recorder: RecordingOs) -> Any:
    """Return what ``open`` is in a module that writes by file objects: unbuffered, through the recorder."""

    class Written:
        def __init__(self, fd: int, mode: str) -> None:
            assert mode == "wb"
            self._fd = fd

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            os.close(self._fd)

        def write(self, data: Any) -> int:
            return recorder.write(self._fd, data)

    return lambda file, mode="r", **keywords: (
        Written(file, mode) if isinstance(file, int) else open(file, mode, **keywords)
    )
