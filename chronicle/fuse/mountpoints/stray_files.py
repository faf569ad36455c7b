"""Stray files: written to the directory below a mount while a server was being mounted there.

Users other than root have no guard for those milliseconds (`chronicle.fuse.mountpoints.guard`). Such files are moved
into the mount before it answers its first request, so a program that looks for them finds them.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from itertools import count
from typing import TYPE_CHECKING, Final

from chronicle.errors import ChronicleError

if TYPE_CHECKING:
    from chronicle.fuse.served.filesystem import Attributes, FileSystem

__all__ = ["move_stray_files"]

log = logging.getLogger(__name__)

_ROOT: Final = 1
_PIECE: Final = 1024 * 1024
_WRITER_DEADLINE_S: Final = 1.0
"""How long to wait for writers that have a stray file open."""
_WRITER_POLL_S: Final = 0.002


def move_stray_files(directory: str, filesystem: FileSystem) -> int:
    """Move everything in a directory below a mount to the root of the mount, which has had no request yet.

    A name that the workspace has already becomes ``<name>.below``. A file that cannot be moved stays where it is, and
    the log says so.

    Returns:
        how many names were moved.
    """
    moved = _move_entries(directory, filesystem, _ROOT)
    if moved:
        log.warning("%d names written during the mount were moved into it", moved)
    return moved


def _move_entries(directory: str, filesystem: FileSystem, parent: int) -> int:
    moved = 0
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        try:
            moved += _move(path, filesystem, parent, os.fsencode(name))
        except FileNotFoundError:
            continue  # its writer removed it in the meantime
        except (OSError, ChronicleError):
            log.exception("written during the mount and left below the mount: %s", name)
    return moved


def _move(path: str, filesystem: FileSystem, parent: int, name: bytes) -> int:
    """Move a name and everything below it; return the number of names."""
    found = os.lstat(path)
    there = _lookup(filesystem, parent, name)
    if stat.S_ISDIR(found.st_mode):
        if there is None or not stat.S_ISDIR(there.mode):
            name = _free_name(filesystem, parent, name)
            there = filesystem.make(parent, name, found.st_mode, found.st_uid, found.st_gid)
            filesystem.forget([(there.ino, 1)])
        inside = _move_entries(path, filesystem, there.ino)
        try:
            os.rmdir(path)
        except OSError as error:  # something could not be moved, or has just been created
            log.error(  # noqa: TRY400 - the cause is logged with the entry
                "written during the mount and left below the mount: %s (%s)", path, error.strerror
            )
            return inside
        return 1 + inside
    name = _free_name(filesystem, parent, name)
    if stat.S_ISREG(found.st_mode):
        made = _copy_file(path, filesystem, parent, name, found)
    elif stat.S_ISLNK(found.st_mode):
        made = filesystem.symlink(parent, name, os.fsencode(os.readlink(path)), found.st_uid, found.st_gid)
    else:
        made = filesystem.make(parent, name, found.st_mode, found.st_uid, found.st_gid)
    filesystem.forget([(made.ino, 1)])
    os.unlink(path)
    return 1


def _copy_file(path: str, filesystem: FileSystem, parent: int, name: bytes, found: os.stat_result) -> Attributes:
    with open(path, "rb", buffering=0) as file:
        _wait_for_writers(file.fileno(), path)
        made, handle, _ = filesystem.create(parent, name, found.st_mode, found.st_uid, found.st_gid)
        try:
            offset = 0
            while data := file.read(_PIECE):
                filesystem.write(handle, offset, data, kill_privileges=None)
                offset += len(data)
            filesystem.flush(handle)
        except BaseException:  # a full disk, a quota: the original stays below, and no partial copy may replace it
            filesystem.unlink(parent, name)
            raise
        finally:
            filesystem.release(handle)
    return made


def _wait_for_writers(fd: int, path: str) -> None:
    """Wait until no process has a file open for writing: only then does the kernel grant a read lease."""
    until = time.monotonic() + _WRITER_DEADLINE_S
    while True:
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            if time.monotonic() > until:
                log.error(  # noqa: TRY400 - the refused lease is expected
                    "still being written to below the mount; later writes are lost: %s", path
                )
                return
            time.sleep(_WRITER_POLL_S)
        except OSError as error:
            log.warning("the writers of a file below the mount are unknown (%s): %s", error.strerror, path)
            return
        else:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            return


def _lookup(filesystem: FileSystem, parent: int, name: bytes) -> Attributes | None:
    try:
        found = filesystem.lookup(parent, name)
    except FileNotFoundError:  # missing, and the kernel must not cache that
        return None
    if found is not None:
        filesystem.forget([(found.ino, 1)])
    return found


def _free_name(filesystem: FileSystem, parent: int, name: bytes) -> bytes:
    if _lookup(filesystem, parent, name) is None:
        return name
    others = (name + b".below" + (b"%d" % number if number else b"") for number in count())
    return next(other for other in others if _lookup(filesystem, parent, other) is None)
