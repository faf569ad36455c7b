"""The FUSE protocol in bytes: the part of linux/fuse.h that a workspace needs.

Numbers are in native byte order and structures padded to 8 bytes, as kernel and server share a machine. Version 7.31
(Linux 5.4) is the oldest supported one; newer fields are used where the kernel offers them.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from chronicle.fuse.served.filesystem import Attributes

__all__ = [
    "ENTRY_BYTES",
    "FLAGS",
    "INIT_IN",
    "INIT_OUT",
    "IN_HEADER",
    "MAJOR",
    "MINOR",
    "NOTIFY_ENTRY",
    "NOTIFY_INODE",
    "NO_ENTRY",
    "OLDEST_MINOR",
    "OUT_HEADER",
    "Init",
    "Notify",
    "Opcode",
    "Setattr",
    "absent",
    "attributes",
    "cached_attributes",
    "dirent",
    "entry",
]

MAJOR: Final = 7
MINOR: Final = 45
"""The newest version known here: Linux 6.18."""
OLDEST_MINOR: Final = 31

IN_HEADER: Final = Struct("=IIQQIIIHH")
"""length, opcode, unique, inode, uid, gid, pid, length of extensions / 8, padding."""
OUT_HEADER: Final = Struct("=IiQ")
"""length, minus errno, unique."""
_ENTRY: Final = Struct("=QQQQII")
"""inode, generation, cache time of the name and of the attributes: seconds, then nanoseconds."""
_CACHE_TIMES: Final = Struct("=QII")
"""cache time of attributes (seconds, nanoseconds), padding."""
_ATTRIBUTES: Final = Struct("=QQQqqqIIIIIIIIII")
"""inode, size, blocks, atime, mtime, ctime, their nanoseconds, mode, nlink, uid, gid, rdev, blksize, flags."""
ENTRY_BYTES: Final = _ENTRY.size + _ATTRIBUTES.size
NO_ENTRY: Final = bytes(ENTRY_BYTES)
"""For listed names without attributes."""
INIT_IN: Final = Struct("=IIII")
"""major, minor, longest read-ahead, flags; from 7.36 on 48 bytes more, of which the first four are more flags."""
FLAGS: Final = Struct("=I")
INIT_OUT: Final = Struct("=IIIIHHIIHHIIH22x")
"""major, minor, longest read-ahead, flags, most background requests, congestion threshold of these, longest write,
granularity of times in nanoseconds, most pages in a request, alignment of mappings, more flags, depth of stacking,
seconds after which the kernel aborts the connection because a request was not answered."""
NOTIFY_INODE: Final = Struct("=Qqq")
"""inode, offset (negative: only the attributes), length."""
NOTIFY_ENTRY: Final = Struct("=QII")
"""inode of the directory, length of the name, flags; the name and a zero byte follow."""
_DIRENT: Final = Struct("=QQII")
"""inode, offset of the next entry, length of the name, kind."""

_BLOCK_BYTES: Final = 512
"""The unit of st_blocks: stat(2)."""
_IO_BYTES: Final = 4096
_BILLION: Final = 1_000_000_000
_KIND_SHIFT: Final = 12
"""From the kind in st_mode to that of a directory entry: DT_DIR is S_IFDIR >> 12."""


class Opcode(IntEnum):
    """The operation of a request."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45


class Init(IntFlag):
    """Features that kernel and server negotiate by INIT."""

    ASYNC_READ = 1 << 0
    ATOMIC_O_TRUNC = 1 << 3
    BIG_WRITES = 1 << 5
    DO_READDIRPLUS = 1 << 13
    READDIRPLUS_AUTO = 1 << 14
    PARALLEL_DIROPS = 1 << 18
    MAX_PAGES = 1 << 22
    CACHE_SYMLINKS = 1 << 23
    EXPLICIT_INVAL_DATA = 1 << 25
    HANDLE_KILLPRIV_V2 = 1 << 28
    INIT_EXT = 1 << 30
    REQUEST_TIMEOUT = 1 << 42


class Setattr(IntFlag):
    """The fields that a SETATTR sets."""

    MODE = 1 << 0
    UID = 1 << 1
    GID = 1 << 2
    SIZE = 1 << 3
    ATIME = 1 << 4
    MTIME = 1 << 5
    FH = 1 << 6
    ATIME_NOW = 1 << 7
    MTIME_NOW = 1 << 8
    KILL_SUIDGID = 1 << 11


class Notify(IntEnum):
    """Notifications from the server to the kernel."""

    INVAL_INODE = 2
    INVAL_ENTRY = 3


def attributes(found: Attributes) -> bytes:
    """Return the attributes that ``stat`` shows."""
    atime, atime_ns = divmod(found.atime_ns, _BILLION)
    mtime, mtime_ns = divmod(found.mtime_ns, _BILLION)
    ctime, ctime_ns = divmod(found.ctime_ns, _BILLION)
    return _ATTRIBUTES.pack(
        found.ino,
        found.size,
        found.blocks,
        atime,
        mtime,
        ctime,
        atime_ns,
        mtime_ns,
        ctime_ns,
        found.mode,
        found.nlink,
        found.uid,
        found.gid,
        found.device,
        _IO_BYTES,
        0,
    )


def entry(found: Attributes, cache_s: int) -> bytes:
    """Return a name's entry in a reply: its attributes, and for how long the kernel may cache both."""
    return _ENTRY.pack(found.ino, 0, cache_s, cache_s, 0, 0) + attributes(found)


def absent(cache_s: int) -> bytes:
    """Return the reply for a name that does not exist."""
    return _ENTRY.pack(0, 0, cache_s, 0, 0, 0) + bytes(_ATTRIBUTES.size)


def cached_attributes(found: Attributes, cache_s: int) -> bytes:
    """Return attributes and for how long the kernel may cache them."""
    return _CACHE_TIMES.pack(cache_s, 0, 0) + attributes(found)


def dirent(inode: int, mode: int, name: bytes, following: int) -> bytes:
    """Return a directory entry, padded; ``following`` is the offset of the next one."""
    length = len(name)
    return _DIRENT.pack(inode, following, length, mode >> _KIND_SHIFT & 0xF) + name + bytes(-length % 8)
