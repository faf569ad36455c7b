"""A `FileSystem` as operations of pyfuse3: coroutines that suspend at a gate or in a parked read only.

Features that pyfuse3 3.5 cannot express are left out: `NO_FLUSH`, and the dropping of set-user-id bits by the server,
which the kernel then does itself.
"""

# ruff: noqa: ARG002 - the signatures are pyfuse3's

from __future__ import annotations

import errno
import functools
import os
import stat
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError

from chronicle.blobs.port import Pending
from chronicle.errors import ChronicleError
from chronicle.fuse.deadlines import fetched_of
from chronicle.fuse.served.errnos import answer_errno
from chronicle.fuse.served.filesystem import DIRECT_IO, KEEP_CACHE, Changes
from chronicle.fuse.transport.pyfuse3_trio_shim import ParkedRead

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pyfuse3 import ReaddirToken, RequestContext, SetattrFields, StatvfsData

    from chronicle.fuse.deadlines import FetchedBlobs
    from chronicle.fuse.served.filesystem import Attributes, FileSystem
    from chronicle.fuse.transport.pyfuse3_trio_shim import Gate

__all__ = ["Pyfuse3Operations"]

_NAME_MAX: Final = 255
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _operation(method: Callable[_P, _R]) -> Callable[_P, Coroutine[Any, None, _R]]:
    """Make an operation of a method: a coroutine that raises nothing but ``FUSEError``."""
    return _change_if(_never)(method)


def _change_if(
    changes: Callable[..., bool],
) -> Callable[[Callable[_P, _R]], Callable[_P, Coroutine[Any, None, _R]]]:
    """Make an operation that waits at the gate if it changes something."""

    def change(method: Callable[_P, _R]) -> Callable[_P, Coroutine[Any, None, _R]]:
        @functools.wraps(method)
        async def operation(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            self = cast("Pyfuse3Operations", args[0])
            fetched = None
            while True:
                if self.gate.shut and changes(*args, **kwargs):
                    await self.gate
                self.begin(fetched)
                try:
                    return method(*args, **kwargs)
                except Pending as pending:  # a blob is not on this node: the operation is executed again later
                    fetched = fetched_of(pending)
                except FUSEError:
                    raise
                except Exception as error:  # noqa: BLE001 - logged there
                    raise FUSEError(answer_errno(error, method.__name__)) from None
                finally:
                    self.end()
                await ParkedRead(self.gate, fetched)
                fetched.collect()

        return operation

    return change


def _change(method: Callable[_P, _R]) -> Callable[_P, Coroutine[Any, None, _R]]:
    """Make an operation that waits at the gate."""
    return _change_if(_always)(method)


def _always(*_: object) -> bool:
    return True


def _never(*_: object, **__: object) -> bool:
    return False


class Pyfuse3Operations(pyfuse3.Operations):
    """Serves a file system.

    Args:
        filesystem: executes the operations.
        gate: suspends operations that change something while a command runs.
    """

    supports_dot_lookup = False
    enable_writeback_cache = False  # writes in it would be lost with the process
    enable_acl = False

    def __init__(self, filesystem: FileSystem, gate: Gate) -> None:
        super().__init__()
        self._filesystem = filesystem
        self.parking = filesystem.parking
        self.gate = gate
        self._absent = EntryAttributes()
        self._absent.st_ino = 0
        self._absent.entry_timeout = filesystem.cache_s

    def begin(self, fetched: FetchedBlobs | None) -> None:
        """Record the start of an attempt, with the blobs of the earlier ones."""
        if self.parking is not None:
            self.parking.begin(fetched)

    def end(self) -> None:
        """Record the end of an attempt."""
        if self.parking is not None:
            self.parking.end()

    def _entry(self, found: Attributes) -> EntryAttributes:
        entry = EntryAttributes()
        entry.st_ino = found.ino
        entry.st_mode = found.mode
        entry.st_nlink = found.nlink
        entry.st_uid = found.uid
        entry.st_gid = found.gid
        entry.st_rdev = found.device
        entry.st_size = found.size
        entry.st_blocks = found.blocks
        entry.st_atime_ns = found.atime_ns
        entry.st_mtime_ns = found.mtime_ns
        entry.st_ctime_ns = found.ctime_ns
        entry.entry_timeout = entry.attr_timeout = (
            self._filesystem.cache_s if found.ino < self._filesystem.uncached_from else 0
        )
        return entry

    @staticmethod
    def _file_info(handle: int, how: int) -> FileInfo:
        return FileInfo(fh=handle, direct_io=bool(how & DIRECT_IO), keep_cache=bool(how & KEEP_CACHE))

    # -- names ----------------------------------------------------------------------------------------------------

    @_operation
    def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        found = self._filesystem.lookup(parent_inode, name)
        return self._absent if found is None else self._entry(found)

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        self._filesystem.forget(inode_list)

    @_change
    def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        made, handle, how = self._filesystem.create(parent_inode, name, stat.S_IMODE(mode), ctx.uid, ctx.gid)
        return self._file_info(handle, how), self._entry(made)

    @_change
    def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        return self._entry(self._filesystem.make(parent_inode, name, mode, ctx.uid, ctx.gid, rdev))

    @_change
    def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        mode = stat.S_IFDIR | stat.S_IMODE(mode)
        return self._entry(self._filesystem.make(parent_inode, name, mode, ctx.uid, ctx.gid))

    @_change
    def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        return self._entry(self._filesystem.symlink(parent_inode, name, target, ctx.uid, ctx.gid))

    @_change
    def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        return self._entry(self._filesystem.link(inode, new_parent_inode, new_name))

    @_change
    def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        self._filesystem.unlink(parent_inode, name)

    @_change
    def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        self._filesystem.rmdir(parent_inode, name)

    @_change
    def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        self._filesystem.rename(parent_inode_old, name_old, parent_inode_new, name_new, flags)

    # -- attributes -----------------------------------------------------------------------------------------------

    @_operation
    def getattr(self, inode: int, ctx: RequestContext) -> EntryAttributes:
        return self._entry(self._filesystem.getattr(inode))

    @_change
    def setattr(
        self, inode: int, attr: EntryAttributes, fields: SetattrFields, fh: int | None, ctx: RequestContext
    ) -> EntryAttributes:
        changes = Changes(
            size=attr.st_size if fields.update_size else None,
            mode=stat.S_IMODE(attr.st_mode) if fields.update_mode else None,
            uid=attr.st_uid if fields.update_uid else None,
            gid=attr.st_gid if fields.update_gid else None,
            atime_ns=attr.st_atime_ns if fields.update_atime else None,
            mtime_ns=attr.st_mtime_ns if fields.update_mtime else None,
        )
        return self._entry(self._filesystem.setattr(inode, changes, fh))

    @_operation
    def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        return self._filesystem.readlink(inode)

    @_operation
    def statfs(self, ctx: RequestContext) -> StatvfsData:
        figures = self._filesystem.statfs()
        reply = pyfuse3.StatvfsData()
        for name in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"):
            setattr(reply, name, getattr(figures, name))
        reply.f_namemax = _NAME_MAX
        return reply

    @_operation
    def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        value = self._filesystem.getxattr(inode, name)
        if value is None:
            raise FUSEError(errno.ENODATA)
        return value

    @_operation
    def listxattr(self, inode: int, ctx: RequestContext) -> list[bytes]:
        return self._filesystem.listxattr(inode)

    @_change
    def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        self._filesystem.setxattr(inode, name, value, 0)

    @_change
    def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        self._filesystem.removexattr(inode, name)

    # -- files ----------------------------------------------------------------------------------------------------

    @_change_if(lambda *call: bool(call[2] & os.O_TRUNC))
    def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        # The kernel leaves the privileges of a file that is truncated by opening to the server.
        caller = (ctx.uid, ctx.gid, ctx.pid) if flags & os.O_TRUNC and ctx.uid != 0 else None
        return self._file_info(*self._filesystem.open(inode, flags, kill_privileges=caller))

    @_operation
    def read(self, fh: int, off: int, size: int) -> bytes:
        return self._filesystem.read(fh, off, size)

    @_change
    def write(self, fh: int, off: int, buf: bytes) -> int:
        return self._filesystem.write(fh, off, buf, report_partial=False, kill_privileges=None)

    @_change_if(lambda self, fh: self._filesystem.wrote(fh))
    def flush(self, fh: int) -> None:
        self._filesystem.flush(fh)

    @_change_if(lambda self, fh: self._filesystem.wrote(fh))
    def release(self, fh: int) -> None:
        self._filesystem.release(fh)

    @_change
    def fsync(self, fh: int, datasync: bool) -> None:
        self._filesystem.fsync(fh)

    # -- directories ----------------------------------------------------------------------------------------------

    @_operation
    def opendir(self, inode: int, ctx: RequestContext) -> int:
        return self._filesystem.opendir(inode)

    @_operation
    def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        some = False
        try:
            for name, found, following in self._filesystem.readdir(fh, start_id):
                if not pyfuse3.readdir_reply(token, name, self._entry(found), following):
                    return
                some = True
        except (ChronicleError, Pending):
            if not some:  # entries that were sent are counted, and the kernel continues after them
                raise

    @_operation
    def releasedir(self, fh: int) -> None:
        self._filesystem.releasedir(fh)

    @_change
    def fsyncdir(self, fh: int, datasync: bool) -> None:
        self._filesystem.fsyncdir(fh)
