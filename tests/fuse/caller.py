"""A process that makes system calls as some user, on a mount and on the native file system.

    python -m tests.fuse.caller UID GID [GROUP ...]

It becomes that user after its imports, reads a call a line as JSON, ``[name, arguments …]``, and answers with a line:
``["ok", value]`` or ``["errno", name]``. Names that are not UTF-8 travel as surrogates.
"""

# ruff: noqa: PTH101, PTH102, PTH106, PTH108, PTH115, PTH116, PTH119, PTH120, PTH123, PTH208, PTH211 - system calls are meant

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import socket
import stat
import struct
import sys
from typing import Any

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
UTIME_NOW = (1 << 30) - 1
UTIME_OMIT = (1 << 30) - 2
libc = ctypes.CDLL(None, use_errno=True)


class Timespec(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


def told(status: os.stat_result) -> dict[str, int]:
    """What two file systems must say alike; sizes and blocks of directories are their own affair."""
    size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    return {
        "mode": status.st_mode,
        "links": status.st_nlink,
        "uid": status.st_uid,
        "gid": status.st_gid,
        "size": size,
        "device": status.st_rdev,
    }


class Calls:
    """The calls; each returns something that JSON has."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self.mapped: dict[str, mmap.mmap] = {}

    def open(self, path: str, flags: int, mode: int = 0o644) -> None:
        os.close(os.open(path, flags, mode))

    def hold(self, name: str, path: str, flags: int, mode: int = 0o644) -> None:
        self.held[name] = os.open(path, flags, mode)

    def drop(self, name: str) -> None:
        os.close(self.held.pop(name))

    def put(self, path: str, text: str) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def append(self, path: str, text: str) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def read(self, path: str) -> str:
        with open(path, encoding="utf-8") as file:
            return file.read()

    def pwrite(self, name: str, text: str, offset: int) -> int:
        return os.pwrite(self.held[name], text.encode(), offset)

    def pread(self, name: str, size: int, offset: int) -> str:
        return os.pread(self.held[name], size, offset).decode("latin-1")

    def fstat(self, name: str) -> dict[str, int]:
        return told(os.fstat(self.held[name]))

    def ftruncate(self, name: str, size: int) -> None:
        os.ftruncate(self.held[name], size)

    def fchmod(self, name: str, mode: int) -> None:
        os.fchmod(self.held[name], mode)

    def fsync(self, name: str) -> None:
        os.fsync(self.held[name])

    def link_held(self, name: str, path: str) -> None:
        """What an O_TMPFILE user does."""
        flags = 0x400  # AT_SYMLINK_FOLLOW
        source = f"/proc/self/fd/{self.held[name]}".encode()
        self._check(libc.linkat(AT_FDCWD, source, AT_FDCWD, os.fsencode(path), flags))

    def seek(self, name: str, offset: int, whence: int) -> int:
        return os.lseek(self.held[name], offset, whence)

    def copy_range(self, source: str, target: str, size: int) -> int:
        return os.copy_file_range(self.held[source], self.held[target], size, 0, 0)

    def fallocate(self, name: str, mode: int, offset: int, size: int) -> None:
        self._check(libc.fallocate(self.held[name], mode, ctypes.c_long(offset), ctypes.c_long(size)))

    def posix_fallocate(self, name: str, offset: int, size: int) -> None:
        os.posix_fallocate(self.held[name], offset, size)

    def map(self, name: str, size: int) -> None:
        self.mapped[name] = mmap.mmap(self.held[name], size)

    def map_write(self, name: str, offset: int, text: str) -> None:
        self.mapped[name][offset : offset + len(text)] = text.encode()

    def map_read(self, name: str, offset: int, size: int) -> str:
        return self.mapped[name][offset : offset + size].decode("latin-1")

    def map_sync(self, name: str) -> None:
        self.mapped[name].flush()

    def unmap(self, name: str) -> None:
        self.mapped.pop(name).close()

    def flock(self, name: str, operation: int) -> None:
        fcntl.flock(self.held[name], operation)

    def lock(self, name: str, kind: int, start: int, size: int) -> None:
        """A POSIX record lock, not waited for."""
        fcntl.fcntl(self.held[name], fcntl.F_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, start, size, 0))

    def truncate(self, path: str, size: int) -> None:
        os.truncate(path, size)

    def mkdir(self, path: str, mode: int = 0o755) -> None:
        os.mkdir(path, mode)

    def dig(self, name: str, count: int) -> None:
        """Make directories inside each other, and go into the last."""
        for _ in range(count):
            os.mkdir(name)
            os.chdir(name)

    def climb(self, name: str, count: int) -> None:
        """Come out of them again, removing each."""
        for _ in range(count):
            os.chdir("..")
            os.rmdir(name)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rename(self, old: str, new: str, flags: int = 0) -> None:
        self._check(libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))

    def link(self, old: str, new: str) -> None:
        os.link(old, new, follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, path)

    def readlink(self, path: str) -> str:
        return os.readlink(path)

    def mknod(self, path: str, mode: int, device: int = 0) -> None:
        os.mknod(path, mode, device)

    def bind(self, path: str) -> None:
        """Make a socket; a long path goes through a descriptor of its directory."""
        directory = os.open(os.path.dirname(path), os.O_PATH)
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
        finally:
            os.close(directory)

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(path, mode)

    def chown(self, path: str, uid: int, gid: int) -> None:
        os.chown(path, uid, gid, follow_symlinks=False)

    def utimens(self, path: str, atime_ns: int, mtime_ns: int) -> None:
        """Set times; `UTIME_NOW` and `UTIME_OMIT` are themselves."""
        pair = (Timespec * 2)()
        for index, value in enumerate((atime_ns, mtime_ns)):
            special = value in {UTIME_NOW, UTIME_OMIT}
            seconds, nanoseconds = (0, value) if special else divmod(value, 10**9)
            pair[index].tv_sec, pair[index].tv_nsec = seconds, nanoseconds
        self._check(libc.utimensat(AT_FDCWD, os.fsencode(path), pair, AT_SYMLINK_NOFOLLOW))

    def times(self, path: str) -> tuple[int, int, int]:
        status = os.lstat(path)
        return status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns

    def access(self, path: str, mode: int) -> bool:
        return os.access(path, mode, effective_ids=True)

    def lstat(self, path: str) -> dict[str, int]:
        return told(os.lstat(path))

    def stat(self, path: str) -> dict[str, int]:
        return told(os.stat(path))

    def inode(self, path: str) -> int:
        return os.lstat(path).st_ino

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def chdir(self, path: str) -> None:
        os.chdir(path)

    def umask(self, mask: int) -> int:
        return os.umask(mask)

    def setxattr(self, path: str, name: str, value: str, flags: int = 0) -> None:
        os.setxattr(path, name, value.encode(), flags, follow_symlinks=False)

    def getxattr(self, path: str, name: str) -> str:
        return os.getxattr(path, name, follow_symlinks=False).decode()

    def listxattr(self, path: str) -> list[str]:
        return sorted(os.listxattr(path, follow_symlinks=False))

    def removexattr(self, path: str, name: str) -> None:
        os.removexattr(path, name, follow_symlinks=False)

    @staticmethod
    def _check(result: int) -> None:
        if result != 0:
            raise OSError(ctypes.get_errno(), "a call failed")


def main(arguments: list[str]) -> None:
    uid, gid, *groups = map(int, arguments)
    if os.geteuid() == 0:
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)
    os.umask(0o022)
    calls = Calls()
    print(json.dumps(["ready", os.getuid()]), flush=True)
    for line in sys.stdin:
        name, *values = json.loads(line)
        answer: Any
        try:
            answer = ["ok", getattr(calls, name)(*values)]
        except OSError as error:
            answer = ["errno", errno.errorcode[error.errno or 0]]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
