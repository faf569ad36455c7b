"""The directory below a mount: nobody writes into it while no server is there.

A server that died is replaced in some ten milliseconds, and one that was given up is not replaced at all. Who writes
by path meanwhile must hear of it: a write into the directory below would be acknowledged, and then be hidden by the
next mount. So a mountpoint is *guarded* for as long as a zygote has it.

Root's guard is a mount whose server is dead from the beginning, below those that are served: whatever is asked of it
fails with ENOTCONN. The servers' mounts come and go above it, and the directory itself is never seen.
(`chronicle.fuse.mountpoints.mounts.guard`; a kill of everything leaves both mounted, and who cleans up unmounts both.)

Other users cannot stack mounts: ``fusermount3`` has no access to what it would mount over. For them the directory is
*shut* here: its owner has no rights to it, so that whatever is asked of it fails with EACCES. ``fusermount3`` wants to
see that the user may write there, so it is opened while that runs, for some milliseconds. What is written to it just
then is carried into the workspace before the mount answers its first request: whoever asks for it finds it there. The
mode says by itself what it was, since nothing can be mounted where the owner may not write: after a kill of everything
`reopen` needs no memory.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Final

from chronicle.errors import ChronicleError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.fuse.served.filesystem import Attributes, FileSystem

__all__ = ["carry", "opened", "reopen", "shut"]

log = logging.getLogger(__name__)

_OWNER: Final = stat.S_IRWXU
_ROOT: Final = 1
_PIECE: Final = 1024 * 1024
_WRITER_DEADLINE_S: Final = 1.0
"""For who has a file open for writing that is to be carried."""
_LOOK_S: Final = 0.002


def shut(mountpoint: Path) -> None:
    """Take from its owner the rights to a directory on which nothing is mounted. Root is not kept out by that.

    A directory that is not this user's stays as it is: only its owner can change its mode.
    """
    with suppress(OSError):
        _set(os.fspath(mountpoint), 0)


def reopen(mountpoint: Path) -> None:
    """Give back what `shut` took; nothing to do if the directory is not shut or not there."""
    with suppress(OSError):
        if _is_shut(os.fspath(mountpoint)):
            _set(os.fspath(mountpoint), _OWNER)


@contextmanager
def opened(mountpoint: Path) -> Iterator[str]:
    """Open a directory that is shut, to be mounted on, and shut it again at the end; yield a path that leads below."""
    fd = os.open(mountpoint, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    directory = f"/proc/self/fd/{fd}"  # itself, whatever is mounted on it by then
    try:
        if not _is_shut(directory):  # someone else's
            yield directory
            return
        _set(directory, _OWNER)
        try:
            yield directory
        finally:
            _set(directory, 0)
    finally:
        os.close(fd)


def carry(directory: str, filesystem: FileSystem) -> None:
    """Move all that is in a directory below a mount to the mount's root, of which nothing was asked yet.

    A name that the workspace has already is carried as ``<name>.below``. What cannot be carried stays where it is, and
    is in the log.
    """
    carried = _carry(directory, filesystem, _ROOT)
    if carried:
        log.warning("%d names written while it was being mounted were carried into the mount", carried)


def _carry(directory: str, filesystem: FileSystem, parent: int) -> int:
    carried = 0
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        try:
            carried += _carry_one(path, filesystem, parent, os.fsencode(name))
        except FileNotFoundError:
            continue  # its writer removed it meanwhile
        except (OSError, ChronicleError):
            log.exception("written while it was being mounted, and left below the mount: %s", name)
    return carried


def _carry_one(path: str, filesystem: FileSystem, parent: int, name: bytes) -> int:
    """Move a name and all below it; return how many that were."""
    found = os.lstat(path)
    there = _lookup(filesystem, parent, name)
    if stat.S_ISDIR(found.st_mode):
        if there is None or not stat.S_ISDIR(there.mode):
            name = _free_name(filesystem, parent, name)
            there = filesystem.make(parent, name, found.st_mode, found.st_uid, found.st_gid)
            filesystem.forget([(there.ino, 1)])
        inside = _carry(path, filesystem, there.ino)
        os.rmdir(path)
        return 1 + inside
    name = _free_name(filesystem, parent, name)
    if stat.S_ISREG(found.st_mode):
        made = _carry_file(path, filesystem, parent, name, found)
    elif stat.S_ISLNK(found.st_mode):
        made = filesystem.symlink(parent, name, os.fsencode(os.readlink(path)), found.st_uid, found.st_gid)
    else:
        made = filesystem.make(parent, name, found.st_mode, found.st_uid, found.st_gid)
    filesystem.forget([(made.ino, 1)])
    os.unlink(path)
    return 1


def _carry_file(path: str, filesystem: FileSystem, parent: int, name: bytes, found: os.stat_result) -> Attributes:
    with open(path, "rb", buffering=0) as file:
        _wait_for_writers(file.fileno(), path)
        made, handle, _ = filesystem.create(parent, name, found.st_mode, found.st_uid, found.st_gid)
        try:
            offset = 0
            while data := file.read(_PIECE):
                filesystem.write(handle, offset, data, kill_privileges=None)
                offset += len(data)
            filesystem.flush(handle)
        except (
            BaseException
        ):  # a full disk, a quota: the whole one stays below, and a part of it is not to look like it
            filesystem.unlink(parent, name)
            raise
        finally:
            filesystem.release(handle)
    return made


def _wait_for_writers(fd: int, path: str) -> None:
    """Wait until nobody has a file open for writing: then, and only then, is a lease for reading given."""
    until = time.monotonic() + _WRITER_DEADLINE_S
    while True:
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            if time.monotonic() > until:
                log.error(  # noqa: TRY400 - that there is no lease is no news
                    "still being written to below the mount; what follows is lost: %s", path
                )
                return
            time.sleep(_LOOK_S)
        except OSError as error:
            log.warning("who writes to it below the mount cannot be known here (%s): %s", error.strerror, path)
            return
        else:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            return


def _lookup(filesystem: FileSystem, parent: int, name: bytes) -> Attributes | None:
    try:
        found = filesystem.lookup(parent, name)
    except FileNotFoundError:  # nothing, and the kernel is not to keep that in mind
        return None
    if found is not None:
        filesystem.forget([(found.ino, 1)])
    return found


def _free_name(filesystem: FileSystem, parent: int, name: bytes) -> bytes:
    if _lookup(filesystem, parent, name) is None:
        return name
    others = (name + b".below" + (b"%d" % number if number else b"") for number in count())
    return next(other for other in others if _lookup(filesystem, parent, other) is None)


def _is_shut(directory: str) -> bool:
    found = os.stat(directory)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OWNER


def _set(directory: str, owner: int) -> None:
    os.chmod(directory, stat.S_IMODE(os.stat(directory).st_mode) & ~_OWNER | owner)
