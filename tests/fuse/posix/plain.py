"""A file system for mounts that mirrors a directory: as little as the plumbing of mount servers needs to be tested.

One path an inode, no hard links, no renames: what `tests.fuse.mirror` serves.
"""

# ruff: noqa: PTH102, PTH106, PTH108, PTH115, PTH208, PTH211 - paths are bytes here

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from chronicle.fuse.deadlines import ParkingPolicy
from chronicle.fuse.served.filesystem import KEEP_CACHE, Attributes, Caller, Changes

ROOT = 1


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a path."""

    ino: int
    mode: int
    nlink: int
    uid: int
    gid: int
    device: int
    size: int
    blocks: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int


class PlainDirectory:
    """Mirrors a directory."""

    cache_s = 300
    uncached_from = 1 << 62

    def __init__(self, source: Path) -> None:
        self._paths: dict[int, bytes] = {ROOT: os.fsencode(source)}
        self._inodes: dict[bytes, int] = {os.fsencode(source): ROOT}
        self.parking: ParkingPolicy | None = None
        self.notify_attributes: Callable[[int], None] = lambda _: None

    def known_inodes(self) -> list[int]:
        return list(self._paths)

    def _shown(self, path: bytes) -> Shown:
        inode = self._inodes.setdefault(path, len(self._inodes) + 1)
        self._paths[inode] = path
        found = os.lstat(path)
        return Shown(
            inode,
            found.st_mode,
            found.st_nlink,
            found.st_uid,
            found.st_gid,
            found.st_rdev,
            found.st_size,
            found.st_blocks,
            found.st_atime_ns,
            found.st_mtime_ns,
            found.st_ctime_ns,
        )

    def _child(self, parent: int, name: bytes) -> bytes:
        return self._paths[parent] + b"/" + name

    def lookup(self, parent: int, name: bytes, pid: int = 0) -> Attributes | None:
        try:
            return self._shown(self._child(parent, name))
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "tests put files there by another way") from None

    def forget(self, forgotten: Iterable[tuple[int, int]]) -> None:
        """Numbers are kept for good."""

    def make(self, parent: int, name: bytes, mode: int, uid: int, gid: int, device: int = 0) -> Attributes:
        path = self._child(parent, name)
        if stat.S_ISDIR(mode):
            os.mkdir(path, stat.S_IMODE(mode))
        else:
            os.mknod(path, mode, device)
        return self._shown(path)

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int, gid: int) -> Attributes:
        os.symlink(target, self._child(parent, name))
        return self._shown(self._child(parent, name))

    def create(self, parent: int, name: bytes, mode: int, uid: int, gid: int) -> tuple[Attributes, int, int]:
        path = self._child(parent, name)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        return self._shown(path), fd, KEEP_CACHE

    def link(self, inode: int, parent: int, name: bytes) -> Attributes:
        raise OSError(errno.EPERM, "one path an inode")

    def unlink(self, parent: int, name: bytes) -> None:
        os.unlink(self._child(parent, name))

    def rmdir(self, parent: int, name: bytes) -> None:
        os.rmdir(self._child(parent, name))

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int) -> None:
        raise OSError(errno.EPERM, "one path an inode")

    def getattr(self, inode: int) -> Attributes:
        return self._shown(self._paths[inode])

    def setattr(self, inode: int, changes: Changes, handle: int | None) -> Attributes:
        if changes.size is not None:
            os.truncate(self._paths[inode], changes.size)
        return self.getattr(inode)

    def readlink(self, inode: int) -> bytes:
        return os.readlink(self._paths[inode])

    def statfs(self) -> os.statvfs_result:
        return os.statvfs(self._paths[ROOT])

    def getxattr(self, inode: int, name: bytes) -> bytes | None:
        return None

    def listxattr(self, inode: int) -> list[bytes]:
        return []

    def setxattr(self, inode: int, name: bytes, value: bytes, flags: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "none here")

    def removexattr(self, inode: int, name: bytes) -> None:
        raise OSError(errno.EOPNOTSUPP, "none here")

    def open(self, inode: int, flags: int, *, kill_privileges: Caller | None, pid: int = 0) -> tuple[int, int]:
        return os.open(self._paths[inode], flags & ~os.O_CREAT | os.O_CLOEXEC), KEEP_CACHE

    def read(self, handle: int, offset: int, size: int) -> bytes:
        return os.pread(handle, size, offset)

    def write(
        self,
        handle: int,
        offset: int,
        data: bytes | memoryview,
        *,
        kill_privileges: Caller | None,
        report_partial: bool = True,
    ) -> int:
        return os.pwrite(handle, data, offset)

    def allocate(self, handle: int, mode: int, offset: int, length: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "none here")

    def wrote(self, handle: int) -> bool:
        return True

    def flush(self, handle: int) -> None:
        """Nothing depends on it."""

    def release(self, handle: int) -> None:
        os.close(handle)

    def fsync(self, handle: int) -> None:
        os.fsync(handle)

    def opendir(self, inode: int, flags: int = os.O_DIRECTORY, pid: int = 0) -> int:
        return inode

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attributes, int]]:
        names = sorted(os.listdir(self._paths[handle]))
        for position in range(start, len(names)):
            yield names[position], self._shown(self._child(handle, names[position])), position + 1

    def list_names(self, handle: int, start: int) -> Iterator[tuple[bytes, int, int, int]]:
        for name, found, following in self.readdir(handle, start):
            yield name, found.ino, found.mode, following

    def releasedir(self, handle: int) -> None:
        """It is the inode's number."""

    def fsyncdir(self, handle: int) -> None:
        os.sync()
