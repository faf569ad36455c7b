# ruff: noqa: PTH101, PTH102, PTH104, PTH106, PTH108, PTH115, PTH208, PTH211 - paths are bytes here
"""A minimal pyfuse3 file system that mirrors a directory: the peer that Chronicle's mount is measured against.

It runs on the same driver and does nothing that a mirror need not do: no history, no hashing, no log. What Chronicle
costs above it is the price of versioning; what it costs above the native file system is the price of FUSE.

    python -m tests.benchmarks.chronicle.loopback SOURCE MOUNTPOINT      serves until it is unmounted or gets SIGTERM
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError

from chronicle.fuse.mountpoints.mounts import unmount
from chronicle.fuse.transport.pyfuse3_session import Pyfuse3Session

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Loopback", "main"]

_TIMEOUT_S: Final = 300.0


class Loopback(pyfuse3.Operations):
    """Mirrors a directory; one path an inode, hard links and renames while open included as far as a mirror needs.

    Args:
        source: the directory.
    """

    supports_dot_lookup = False

    def __init__(self, source: Path) -> None:
        super().__init__()
        self._paths: dict[int, bytes] = {pyfuse3.ROOT_INODE: os.fsencode(source)}
        self._inodes: dict[bytes, int] = {os.fsencode(source): pyfuse3.ROOT_INODE}
        self._lookups: dict[int, int] = {pyfuse3.ROOT_INODE: 1}
        self._directories = {pyfuse3.ROOT_INODE}
        self._linked: dict[int, list[bytes]] = {}
        self._next = pyfuse3.ROOT_INODE + 1
        self._listings: dict[int, list[tuple[bytes, bytes]]] = {}

    def known_inodes(self) -> list[int]:
        """The inodes that the kernel may have pages of."""
        return list(self._paths)

    def _entry(self, path: bytes, status: os.stat_result, *, known: bool = False) -> EntryAttributes:
        inode = self._inodes.get(path)
        if inode is None:
            inode = self._next
            self._next += 1
            self._inodes[path] = inode
            self._paths[inode] = path
            self._lookups[inode] = 0
            if stat.S_ISDIR(status.st_mode):
                self._directories.add(inode)
        if not known:
            self._lookups[inode] += 1
        return _attributes(inode, status)

    def _child(self, parent: int, name: bytes) -> bytes:
        return self._paths[parent] + b"/" + name

    def _drop(self, path: bytes) -> None:
        inode = self._inodes.pop(path, None)
        if inode is None:
            return
        others = self._linked.get(inode)
        if others:
            others[:] = [name for name in others if name != path]
            if others and self._paths[inode] == path:
                self._paths[inode] = others[-1]
        elif self._lookups[inode] == 0:
            del self._paths[inode], self._lookups[inode]

    async def lookup(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> EntryAttributes:
        path = self._child(parent_inode, name)
        try:
            return self._entry(path, os.lstat(path))
        except FileNotFoundError:
            missing = EntryAttributes()
            missing.st_ino = 0
            missing.entry_timeout = _TIMEOUT_S
            return missing
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        for inode, count in inode_list:
            left = self._lookups.get(inode, 0) - count
            if left > 0:
                self._lookups[inode] = left
            elif inode in self._paths and inode != pyfuse3.ROOT_INODE:
                path = self._paths.pop(inode)
                del self._lookups[inode]
                self._directories.discard(inode)
                if self._inodes.get(path) == inode:
                    del self._inodes[path]

    async def getattr(self, inode: int, ctx: pyfuse3.RequestContext) -> EntryAttributes:
        try:
            return _attributes(inode, os.lstat(self._paths[inode]))
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None

    async def setattr(
        self,
        inode: int,
        attr: EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: int | None,
        ctx: pyfuse3.RequestContext,
    ) -> EntryAttributes:
        path = self._paths[inode]
        try:
            if fields.update_size:
                os.truncate(path if fh is None else fh, attr.st_size)
            if fields.update_mode:
                os.chmod(path, attr.st_mode & 0o7777)
            if fields.update_uid or fields.update_gid:
                uid, gid = attr.st_uid if fields.update_uid else -1, attr.st_gid if fields.update_gid else -1
                os.chown(path, uid, gid, follow_symlinks=False)
            if fields.update_atime or fields.update_mtime:
                now = os.lstat(path)
                atime = attr.st_atime_ns if fields.update_atime else now.st_atime_ns
                mtime = attr.st_mtime_ns if fields.update_mtime else now.st_mtime_ns
                os.utime(path, ns=(atime, mtime), follow_symlinks=False)
            return _attributes(inode, os.lstat(path))
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None

    async def readlink(self, inode: int, ctx: pyfuse3.RequestContext) -> bytes:
        return os.readlink(self._paths[inode])

    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: pyfuse3.RequestContext) -> EntryAttributes:
        path = self._child(parent_inode, name)
        try:
            os.mkdir(path, mode & ~ctx.umask & 0o7777)
            return self._entry(path, os.lstat(path))
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None

    async def symlink(
        self, parent_inode: int, name: bytes, target: bytes, ctx: pyfuse3.RequestContext
    ) -> EntryAttributes:
        path = self._child(parent_inode, name)
        try:
            os.symlink(target, path)
            return self._entry(path, os.lstat(path))
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None

    async def link(
        self, inode: int, new_parent_inode: int, new_name: bytes, ctx: pyfuse3.RequestContext
    ) -> EntryAttributes:
        path = self._child(new_parent_inode, new_name)
        try:
            os.link(self._paths[inode], path, follow_symlinks=False)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None
        self._lookups[inode] += 1
        self._inodes[path] = inode
        self._linked.setdefault(inode, [self._paths[inode]]).append(path)
        return _attributes(inode, os.lstat(path))

    async def unlink(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        path = self._child(parent_inode, name)
        try:
            os.unlink(path)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None
        self._drop(path)

    async def rmdir(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        path = self._child(parent_inode, name)
        try:
            os.rmdir(path)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None
        self._drop(path)

    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: pyfuse3.RequestContext,
    ) -> None:
        if flags:
            raise FUSEError(errno.EINVAL)
        old, new = self._child(parent_inode_old, name_old), self._child(parent_inode_new, name_new)
        try:
            os.rename(old, new)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None
        self._drop(new)
        moved = self._inodes.pop(old, None)
        if moved is not None:
            self._inodes[new] = moved
            self._paths[moved] = new
        if moved in self._directories:
            below = [(path, inode) for path, inode in self._inodes.items() if path.startswith(old + b"/")]
            for path, inode in below:
                del self._inodes[path]
                self._inodes[new + path[len(old) :]] = inode
                self._paths[inode] = new + path[len(old) :]

    async def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> FileInfo:
        try:
            return FileInfo(fh=os.open(self._paths[inode], flags & ~os.O_CREAT | os.O_CLOEXEC), keep_cache=True)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: pyfuse3.RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        path = self._child(parent_inode, name)
        try:
            fd = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, mode & ~ctx.umask & 0o7777)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None
        return FileInfo(fh=fd, keep_cache=True), self._entry(path, os.fstat(fd))

    async def read(self, fh: int, off: int, size: int) -> bytes:
        return os.pread(fh, size, off)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        try:
            return os.pwrite(fh, buf, off)
        except OSError as error:
            raise FUSEError(error.errno or errno.EIO) from None

    async def flush(self, fh: int) -> None:
        """Answered, not refused: Chronicle needs FLUSH, so the peer pays for it too."""

    async def release(self, fh: int) -> None:
        os.close(fh)

    async def fsync(self, fh: int, datasync: bool) -> None:
        if datasync:
            os.fdatasync(fh)
        else:
            os.fsync(fh)

    async def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        path = self._paths[inode]
        handle = inode
        while handle in self._listings:
            handle += 1 << 32
        self._listings[handle] = [(name, path + b"/" + name) for name in sorted(os.listdir(path))]
        return handle

    async def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        listing = self._listings[fh]
        for index in range(start_id, len(listing)):
            name, path = listing[index]
            try:
                entry = self._entry(path, os.lstat(path), known=True)
            except FileNotFoundError:
                continue
            if not pyfuse3.readdir_reply(token, name, entry, index + 1):
                break
            self._lookups[entry.st_ino] += 1

    async def releasedir(self, fh: int) -> None:
        del self._listings[fh]

    async def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        source = os.statvfs(self._paths[pyfuse3.ROOT_INODE])
        data = pyfuse3.StatvfsData()
        for field in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"):
            setattr(data, field, getattr(source, field))
        return data


def _attributes(inode: int, status: os.stat_result) -> EntryAttributes:
    entry = EntryAttributes()
    entry.st_ino = inode
    entry.st_mode = status.st_mode
    entry.st_nlink = status.st_nlink
    entry.st_uid = status.st_uid
    entry.st_gid = status.st_gid
    entry.st_rdev = status.st_rdev
    entry.st_size = status.st_size
    entry.st_blksize = status.st_blksize
    entry.st_blocks = status.st_blocks
    entry.st_atime_ns = status.st_atime_ns
    entry.st_mtime_ns = status.st_mtime_ns
    entry.st_ctime_ns = status.st_ctime_ns
    entry.entry_timeout = _TIMEOUT_S
    entry.attr_timeout = _TIMEOUT_S
    return entry


def main(arguments: list[str]) -> int:
    """Serve a mirror until it is unmounted or told to end."""
    source, mountpoint = Path(arguments[0]).absolute(), Path(arguments[1]).absolute()
    session = Pyfuse3Session(Loopback(source), mountpoint)
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGTERM, lambda *_: None)
    session.mount()
    session.watch(wake, session.stop)
    print("mounted", flush=True)
    try:
        session.run()
    finally:
        session.close()
        unmount(mountpoint)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
