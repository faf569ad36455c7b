"""Requests of the raw transport: from bytes to calls of a file system, and back.

A request lies in a buffer that is reused; nothing that is passed on may keep a view of it.

Requests without a handler are answered with ENOSYS. The kernel then does the operation itself or fails it with
EOPNOTSUPP, and does not send it again:

    LSEEK               ``SEEK_HOLE`` sees every file as all data; else pages that a mapping has stored and the kernel
                        has not yet sent would be taken for a hole, and be missing in copies
    COPY_FILE_RANGE     the kernel reads and writes, by way of its page cache
    STATX               the kernel sends GETATTR
    TMPFILE             EOPNOTSUPP: programs make a file and remove its name
    IOCTL, POLL, BMAP   ENOTTY; always ready; not supported
    GETLK, SETLK        never sent: locks are the kernel's own; nor is ACCESS
"""

from __future__ import annotations

import errno
import os
import stat
from struct import Struct
from typing import TYPE_CHECKING, ClassVar, Final

from chronicle.blobs.port import Pending
from chronicle.errors import ChronicleError
from chronicle.fuse.served.errnos import answer_errno
from chronicle.fuse.served.filesystem import Changes
from chronicle.fuse.transport import wire
from chronicle.fuse.transport.wire import Opcode, Setattr

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

    from chronicle.fuse.served.filesystem import FileSystem

__all__ = ["Header", "Requests"]

Header = tuple[int, int, int, int, int, int, int, int, int]
"""The fields of `wire.IN_HEADER`."""

_EMPTY: Final = b""
_U32: Final = Struct("=I")
_U64: Final = Struct("=Q")
_U64_U64: Final = Struct("=QQ")
_U64_U32: Final = Struct("=QI")
_U32_U32: Final = Struct("=II")
_OPENED: Final = Struct("=QII")
"""handle, flags, padding."""
_CREATE: Final = Struct("=IIII")
"""flags, mode, umask, open flags."""
_READ: Final = Struct("=QQI")
"""handle, offset, size; 16 bytes more."""
_WRITE: Final = Struct("=QQII")
"""handle, offset, size, flags; 16 bytes more."""
_SETATTR: Final = Struct("=IIQQQqqqIIIIIII")
"""valid, padding, handle, size, lock owner, atime, mtime, ctime, their nanoseconds, mode, unused, uid, gid."""
_STATFS: Final = Struct("=QQQQQIII28x")
"""blocks, free, available, files, free files, block size, longest name, fragment size."""
_FALLOCATE: Final = Struct("=QQQI")
"""handle, offset, length, mode."""
_WRITE_BYTES: Final = 40
_WRITE_CACHE: Final = 1 << 0
"""The kernel writes back a mapping: it checks whether that failed, and not how much was written."""
_WRITE_KILL_SUIDGID: Final = 1 << 2
_OPEN_KILL_SUIDGID: Final = 1 << 0
_BILLION: Final = 1_000_000_000
_NAME_MAX: Final = 255
_READ_ONLY: Final = frozenset(
    map(
        int,
        (
            Opcode.LOOKUP,
            Opcode.GETATTR,
            Opcode.READLINK,
            Opcode.STATFS,
            Opcode.GETXATTR,
            Opcode.LISTXATTR,
            Opcode.READ,
            Opcode.OPENDIR,
            Opcode.READDIR,
            Opcode.READDIRPLUS,
            Opcode.RELEASEDIR,
        ),
    )
)
"""Requests that change nothing, whatever their arguments."""
_CLOSING: Final = frozenset(map(int, (Opcode.FLUSH, Opcode.RELEASE)))


class Requests:
    """Executes requests, one at a time.

    Args:
        filesystem: executes the operations.
        buffer: holds the request.
        start: its offset in the buffer.
    """

    def __init__(self, filesystem: FileSystem, buffer: mmap.mmap, start: int) -> None:
        self._filesystem = filesystem
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start = start
        self._body = start + wire.IN_HEADER.size
        self._cache_s = filesystem.cache_s
        self._uncached_from = filesystem.uncached_from
        self._absent = wire.absent(filesystem.cache_s)

    def answer(self, header: Header) -> tuple[int, bytes]:
        """Execute a request.

        Returns:
            An errno or 0, and the reply's body.

        Raises:
            Pending: it waits for a blob and has changed nothing; it is to be parked and executed again.
        """
        handler = self._HANDLERS.get(header[1])
        if handler is None:
            return errno.ENOSYS, _EMPTY
        try:
            return 0, handler(self, header)
        except OSError as error:
            return error.errno or errno.EIO, _EMPTY
        except Pending:
            raise
        except Exception as error:  # noqa: BLE001 - logged there
            return answer_errno(error, handler.__name__.lstrip("_")), _EMPTY

    def is_read_only(self, header: Header) -> bool:
        """Say whether a request changes nothing, so that it may be answered during a command."""
        opcode = header[1]
        if opcode in _READ_ONLY:
            return True
        if opcode == Opcode.OPEN:
            flags, _ = _U32_U32.unpack_from(self._buffer, self._body)
            return not flags & os.O_TRUNC
        if opcode in _CLOSING:
            return not self._filesystem.wrote(*_U64.unpack_from(self._buffer, self._body))
        return opcode not in self._HANDLERS

    def interrupted(self) -> int:
        """Return the number of the request that an INTERRUPT names."""
        (number,) = _U64.unpack_from(self._buffer, self._body)
        return int(number)

    def forget(self, header: Header) -> None:
        """Execute FORGET or BATCH_FORGET, which have no answer."""
        if header[1] == Opcode.FORGET:
            (count,) = _U64.unpack_from(self._buffer, self._body)
            self._filesystem.forget([(header[3], count)])
            return
        (many,) = _U32.unpack_from(self._buffer, self._body)
        first = self._body + 8
        pairs = self._view[first : first + many * _U64_U64.size]
        self._filesystem.forget([(inode, count) for inode, count in _U64_U64.iter_unpack(pairs)])

    def close(self) -> None:
        """Release the buffer."""
        self._view.release()

    # -- names ----------------------------------------------------------------------------------------------------

    def _cache_seconds(self, inode: int) -> int:
        return self._cache_s if inode < self._uncached_from else 0

    def _rest(self, header: Header, skip: int) -> bytes:
        """Return the data after the fixed part of a request, without its final zero byte."""
        return self._buffer[self._body + skip : self._start + header[0] - 1]

    def _lookup(self, header: Header) -> bytes:
        name = self._buffer[self._body : self._start + header[0] - 1]
        found = self._filesystem.lookup(header[3], name, header[6])
        if found is None:
            return self._absent
        return wire.entry(found, self._cache_s if found.ino < self._uncached_from else 0)

    def _symlink(self, header: Header) -> bytes:
        name, target = self._rest(header, 0).split(b"\0", 1)
        return wire.entry(self._filesystem.symlink(header[3], name, target, header[4], header[5]), self._cache_s)

    def _mknod(self, header: Header) -> bytes:
        mode, device = _U32_U32.unpack_from(self._buffer, self._body)
        name = self._rest(header, 16)
        return wire.entry(self._filesystem.make(header[3], name, mode, header[4], header[5], device), self._cache_s)

    def _mkdir(self, header: Header) -> bytes:
        (mode,) = _U32.unpack_from(self._buffer, self._body)
        mode = stat.S_IFDIR | stat.S_IMODE(mode)
        return wire.entry(
            self._filesystem.make(header[3], self._rest(header, 8), mode, header[4], header[5]), self._cache_s
        )

    def _unlink(self, header: Header) -> bytes:
        self._filesystem.unlink(header[3], self._rest(header, 0))
        return _EMPTY

    def _rmdir(self, header: Header) -> bytes:
        self._filesystem.rmdir(header[3], self._rest(header, 0))
        return _EMPTY

    def _rename(self, header: Header) -> bytes:
        (directory,) = _U64.unpack_from(self._buffer, self._body)
        old, new = self._rest(header, 8).split(b"\0", 1)
        self._filesystem.rename(header[3], old, directory, new, 0)
        return _EMPTY

    def _rename2(self, header: Header) -> bytes:
        directory, flags = _U64_U32.unpack_from(self._buffer, self._body)
        old, new = self._rest(header, 16).split(b"\0", 1)
        self._filesystem.rename(header[3], old, directory, new, flags)
        return _EMPTY

    def _link(self, header: Header) -> bytes:
        (inode,) = _U64.unpack_from(self._buffer, self._body)
        return wire.entry(self._filesystem.link(inode, header[3], self._rest(header, 8)), self._cache_s)

    # -- attributes -----------------------------------------------------------------------------------------------

    def _getattr(self, header: Header) -> bytes:
        return wire.cached_attributes(self._filesystem.getattr(header[3]), self._cache_seconds(header[3]))

    def _setattr(self, header: Header) -> bytes:
        (valid, _, handle, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid) = _SETATTR.unpack_from(
            self._buffer, self._body
        )
        changes = Changes(kill_privileges=bool(valid & Setattr.KILL_SUIDGID), caller=header[4:7])
        if valid & Setattr.SIZE:
            changes.size = size
        if valid & Setattr.MODE:
            changes.mode = stat.S_IMODE(mode)
        if valid & Setattr.UID:
            changes.uid = uid
        if valid & Setattr.GID:
            changes.gid = gid
        # With ..._NOW the kernel sends its current time as well, which is the server's too.
        if valid & Setattr.ATIME:
            changes.atime_ns = atime * _BILLION + atime_ns
        if valid & Setattr.MTIME:
            changes.mtime_ns = mtime * _BILLION + mtime_ns
        found = self._filesystem.setattr(header[3], changes, handle if valid & Setattr.FH else None)
        return wire.cached_attributes(found, self._cache_s)

    def _readlink(self, header: Header) -> bytes:
        return self._filesystem.readlink(header[3])

    def _statfs(self, _: Header) -> bytes:
        figures = self._filesystem.statfs()
        return _STATFS.pack(
            figures.f_blocks,
            figures.f_bfree,
            figures.f_bavail,
            figures.f_files,
            figures.f_ffree,
            figures.f_bsize,
            _NAME_MAX,
            figures.f_frsize,
        )

    def _getxattr(self, header: Header) -> bytes:
        value = self._filesystem.getxattr(header[3], self._rest(header, 8))
        if value is None:
            raise OSError(errno.ENODATA, "no such attribute")
        return self._sized(value)

    def _listxattr(self, header: Header) -> bytes:
        return self._sized(b"".join(name + b"\0" for name in self._filesystem.listxattr(header[3])))

    def _sized(self, value: bytes) -> bytes:
        """Return a value, or its size if the caller asked for that."""
        (room,) = _U32.unpack_from(self._buffer, self._body)
        if room == 0:
            return _U32_U32.pack(len(value), 0)
        if len(value) > room:
            raise OSError(errno.ERANGE, "longer than the caller's buffer")
        return value

    def _setxattr(self, header: Header) -> bytes:
        size, flags = _U32_U32.unpack_from(self._buffer, self._body)
        name, value = self._buffer[self._body + 8 : self._start + header[0]].split(b"\0", 1)
        self._filesystem.setxattr(header[3], name, value[:size], flags)
        return _EMPTY

    def _removexattr(self, header: Header) -> bytes:
        self._filesystem.removexattr(header[3], self._rest(header, 0))
        return _EMPTY

    # -- files ----------------------------------------------------------------------------------------------------

    def _open(self, header: Header) -> bytes:
        flags, more = _U32_U32.unpack_from(self._buffer, self._body)
        handle, how = self._filesystem.open(
            header[3],
            flags,
            kill_privileges=header[4:7] if more & _OPEN_KILL_SUIDGID else None,
            pid=header[6],
        )
        return _OPENED.pack(handle, how, 0)

    def _create(self, header: Header) -> bytes:
        _, mode, _, _ = _CREATE.unpack_from(self._buffer, self._body)
        name = self._rest(header, _CREATE.size)
        made, handle, how = self._filesystem.create(header[3], name, stat.S_IMODE(mode), header[4], header[5])
        return wire.entry(made, self._cache_s) + _OPENED.pack(handle, how, 0)

    def _read(self, _: Header) -> bytes:
        return self._filesystem.read(*_READ.unpack_from(self._buffer, self._body))

    def _write(self, header: Header) -> bytes:
        handle, offset, size, flags = _WRITE.unpack_from(self._buffer, self._body)
        first = self._body + _WRITE_BYTES
        caller = header[4:7] if flags & _WRITE_KILL_SUIDGID else None
        data = self._view[first : first + size]
        of_mapping = bool(flags & _WRITE_CACHE)
        written = self._filesystem.write(handle, offset, data, report_partial=of_mapping, kill_privileges=caller)
        return _U32_U32.pack(written, 0)

    def _fallocate(self, _: Header) -> bytes:
        handle, offset, length, mode = _FALLOCATE.unpack_from(self._buffer, self._body)
        self._filesystem.allocate(handle, mode, offset, length)
        return _EMPTY

    def _flush(self, _: Header) -> bytes:
        self._filesystem.flush(*_U64.unpack_from(self._buffer, self._body))
        return _EMPTY

    def _release(self, _: Header) -> bytes:
        self._filesystem.release(*_U64.unpack_from(self._buffer, self._body))
        return _EMPTY

    def _fsync(self, _: Header) -> bytes:
        self._filesystem.fsync(*_U64.unpack_from(self._buffer, self._body))
        return _EMPTY

    # -- directories ----------------------------------------------------------------------------------------------

    def _opendir(self, header: Header) -> bytes:
        flags, _ = _U32_U32.unpack_from(self._buffer, self._body)
        return _OPENED.pack(self._filesystem.opendir(header[3], flags, header[6]), 0, 0)

    def _readdirplus(self, _: Header) -> bytes:
        handle, offset, room = _READ.unpack_from(self._buffer, self._body)
        parts: list[bytes] = []
        try:
            for name, found, following in self._filesystem.readdir(handle, offset):
                # A padded entry: 24 bytes and the name.
                room -= wire.ENTRY_BYTES + (31 + len(name) & ~7)
                if room < 0:
                    break
                inode = found.ino
                if name in (b".", b".."):
                    parts.append(wire.NO_ENTRY)  # not counted
                else:
                    parts.append(wire.entry(found, self._cache_s if inode < self._uncached_from else 0))
                parts.append(wire.dirent(inode, found.mode, name, following))
        except (ChronicleError, Pending):
            if not parts:  # entries that were sent are counted, and the kernel continues after them
                raise
        return b"".join(parts)

    def _readdir(self, _: Header) -> bytes:
        handle, offset, room = _READ.unpack_from(self._buffer, self._body)
        parts: list[bytes] = []
        for name, inode, mode, following in self._filesystem.list_names(handle, offset):
            room -= 31 + len(name) & ~7
            if room < 0:
                break
            parts.append(wire.dirent(inode, mode, name, following))
        return b"".join(parts)

    def _releasedir(self, _: Header) -> bytes:
        self._filesystem.releasedir(*_U64.unpack_from(self._buffer, self._body))
        return _EMPTY

    def _fsyncdir(self, _: Header) -> bytes:
        self._filesystem.fsyncdir(*_U64.unpack_from(self._buffer, self._body))
        return _EMPTY

    def _destroy(self, _: Header) -> bytes:
        return _EMPTY

    _HANDLERS: ClassVar[dict[int, Callable[[Requests, Header], bytes]]] = {
        int(Opcode.LOOKUP): _lookup,
        int(Opcode.GETATTR): _getattr,
        int(Opcode.SETATTR): _setattr,
        int(Opcode.READLINK): _readlink,
        int(Opcode.SYMLINK): _symlink,
        int(Opcode.MKNOD): _mknod,
        int(Opcode.MKDIR): _mkdir,
        int(Opcode.UNLINK): _unlink,
        int(Opcode.RMDIR): _rmdir,
        int(Opcode.RENAME): _rename,
        int(Opcode.RENAME2): _rename2,
        int(Opcode.LINK): _link,
        int(Opcode.OPEN): _open,
        int(Opcode.READ): _read,
        int(Opcode.WRITE): _write,
        int(Opcode.STATFS): _statfs,
        int(Opcode.RELEASE): _release,
        int(Opcode.FSYNC): _fsync,
        int(Opcode.SETXATTR): _setxattr,
        int(Opcode.GETXATTR): _getxattr,
        int(Opcode.LISTXATTR): _listxattr,
        int(Opcode.REMOVEXATTR): _removexattr,
        int(Opcode.FLUSH): _flush,
        int(Opcode.OPENDIR): _opendir,
        int(Opcode.READDIR): _readdir,
        int(Opcode.READDIRPLUS): _readdirplus,
        int(Opcode.RELEASEDIR): _releasedir,
        int(Opcode.FSYNCDIR): _fsyncdir,
        int(Opcode.CREATE): _create,
        int(Opcode.FALLOCATE): _fallocate,
        int(Opcode.DESTROY): _destroy,
    }
    """Plain numbers, made before servers are forked: both save them time and memory."""
