"""Advisory locks: flock(2) on whole files and directories, open file description locks of fcntl(2) on single bytes.

Both kinds belong to the open file description, not to the process:

* Two descriptors that one process opened separately exclude each other.
* The kernel releases a lock when the last descriptor of its description is closed, so also when the holder dies.
* A forked child inherits the descriptors and thereby the lock. Closing a descriptor leaves the lock to such a child, so
  a holder calls `unlock` before it closes.

POSIX record locks (``F_SETLK``) are not offered: the kernel drops all of them on a file when the process closes any
descriptor of it. SQLite takes such locks on its database; see `chronicle.journal.sqlite.raw_reads`.
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import Final

__all__ = ["is_byte_locked", "is_locked", "lock", "try_lock", "try_lock_byte", "unlock", "unlock_bytes"]

_FLOCK: Final = struct.Struct("@hhqqi4x")
"""``struct flock`` of fcntl(2), where ``off_t`` has 64 bits: type, whence, start, length, pid."""


def lock(fd: int, *, shared: bool = False) -> None:
    """Lock a file; blocks while another open file description holds a conflicting lock.

    Raises:
        OSError: the file system has no locks (ENOLCK, EOPNOTSUPP).
    """
    fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Lock a file unless another open file description holds a conflicting lock; return whether it is locked now.

    Raises:
        OSError: the file system has no locks (ENOLCK, EOPNOTSUPP).
    """
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(fd: int) -> None:
    """Release the lock of an open file description, also for forked children that share it."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def is_locked(fd: int) -> bool:
    """Return whether another open file description holds the exclusive lock of a file.

    flock(2) has no query: this takes a shared lock for a moment.
    """
    if not try_lock(fd, shared=True):
        return True
    unlock(fd)
    return False


def try_lock_byte(fd: int, offset: int) -> bool:
    """Lock one byte of a file, whether it exists or not; return whether it is locked now."""
    return _fcntl(fd, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, offset, 1) is not None


def is_byte_locked(fd: int, offset: int) -> bool:
    """Return whether another open file description has a byte locked."""
    return _fcntl(fd, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, offset, 1) != fcntl.F_UNLCK


def unlock_bytes(fd: int, offset: int = 0, length: int = 0) -> None:
    """Release the locks on some bytes, also for forked children that share them; a length of 0 means to the end."""
    _fcntl(fd, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, offset, length)


def _fcntl(fd: int, command: int, kind: int, offset: int, length: int) -> int | None:
    """Return the kind of lock in the kernel's answer; ``None`` if another holder conflicts."""
    try:
        answer = fcntl.fcntl(fd, command, _FLOCK.pack(kind, os.SEEK_SET, offset, length, 0))
    except (BlockingIOError, PermissionError):  # POSIX allows EAGAIN and EACCES
        return None
    return int(_FLOCK.unpack(answer)[0])
