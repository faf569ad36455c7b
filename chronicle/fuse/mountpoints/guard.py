"""The guard of a mountpoint: writes by path fail while no server is mounted.

A server that died is replaced in some ten milliseconds, and one that has failed for good is not replaced at all. A
write into the directory below the mount would be acknowledged, and then be hidden by the next mount. So a mountpoint is
*guarded* for as long as a zygote holds it.

Root's guard is a FUSE mount whose device is closed at once: every request to it fails with ENOTCONN. Servers mount on
top of it and are unmounted down to it, and the directory itself is never visible. It needs no process. After a kill of
everything both mounts remain, and the cleanup unmounts both.

Other users cannot stack mounts: ``fusermount3`` has no access to the mount that it would cover. For them the directory
is *shut*: its owner has no permissions, so every access fails with EACCES. ``fusermount3`` requires that the user may
write to the mountpoint, so it is opened while that runs, for some milliseconds. Files written in that window are moved
into the workspace before the mount answers its first request (`chronicle.fuse.mountpoints.stray_files`).
Nothing can be mounted on a directory that its owner may not write to, so the mode before the guard is known without a
record, and `reopen` works after a kill of everything.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from chronicle.errors import Unavailable
from chronicle.fuse.mountpoints import syscalls
from chronicle.fuse.mountpoints.mountinfo import KIND, is_mounted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["guard_mountpoint", "opened", "reopen", "shut"]

log = logging.getLogger(__name__)

_DEVICE: Final = "/dev/fuse"
_OWNER: Final = stat.S_IRWXU
_MAX_CLEARINGS: Final = 10
"""After the first of an opening. Only a process that creates names below the mount without end needs more."""


def guard_mountpoint(mountpoint: Path, source: str) -> None:
    """Guard a mountpoint; idempotent. `chronicle.fuse.mountpoints.mounts.unmount` removes the guard.

    Args:
        mountpoint: a directory on which nothing is mounted, but for a guard.
        source: the mount's device, as the system shows it.

    Raises:
        Unavailable: the kernel refused.
    """
    if os.geteuid() != 0:
        shut(mountpoint)
    elif not is_mounted(mountpoint):
        try:
            device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"could not mount at {mountpoint}: {error}") from error
        try:
            options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
            code = syscalls.mount(
                source.encode(), os.fsencode(mountpoint), KIND.encode(), syscalls.MOUNT_FLAGS, options.encode()
            )
        finally:
            os.close(device)  # from here on every request fails with ENOTCONN
        if code != 0:
            raise Unavailable(f"could not mount at {mountpoint}: {os.strerror(code)}")


def shut(mountpoint: Path) -> None:
    """Remove the owner's permissions of a directory on which nothing is mounted. They do not bind root.

    A directory of another user stays as it is: only its owner can change its mode.
    """
    with suppress(OSError):
        _set_owner_bits(os.fspath(mountpoint), 0)


def reopen(mountpoint: Path) -> None:
    """Restore the permissions that `shut` removed. Does nothing if the directory is missing or not shut."""
    with suppress(OSError):
        if _is_shut(os.fspath(mountpoint)):
            _set_owner_bits(os.fspath(mountpoint), _OWNER)


@contextmanager
def opened(mountpoint: Path, clear: Callable[[str], int]) -> Iterator[None]:
    """Open a shut directory for a mount; at the end have it cleared, and shut it again.

    Args:
        clear: moves everything out of the directory that it gets the path of, the one below the mount, and returns how
            many names it moved. What it leaves stays there.
    """
    fd = os.open(mountpoint, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    directory = f"/proc/self/fd/{fd}"  # the directory itself, whatever is mounted on it by then
    try:
        if not _is_shut(directory):  # it belongs to another user
            yield
            clear(directory)
            return
        with _owner_bits(directory):
            yield
            clear(directory)
            listing = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _clear_again(mountpoint, directory, listing, clear)
        finally:
            os.close(listing)
    finally:
        os.close(fd)


def _clear_again(mountpoint: Path, directory: str, listing: int, clear: Callable[[str], int]) -> None:
    """Clear a directory of what its owner created between its clearing and its shutting.

    A path that was looked up before the mount leads below it, however late the call creates something there. The kernel
    checks the permissions of a directory with the lock under which it changes them and creates entries, so none of the
    owner's comes while the directory is shut.

    Args:
        listing: a descriptor of the directory from when it was open.
    """
    left = _names(listing)
    for _ in range(_MAX_CLEARINGS):
        if not left:
            return
        with _owner_bits(directory):
            moved = clear(directory)
        before, left = left, _names(listing)
        if not moved and left == before:
            break
    log.error("left below the mount at %s: %s", mountpoint, sorted(left))


def _names(listing: int) -> set[str]:
    os.lseek(listing, 0, os.SEEK_SET)  # else btrfs lists only what was there when it was opened
    return set(os.listdir(listing))


@contextmanager
def _owner_bits(directory: str) -> Iterator[None]:
    _set_owner_bits(directory, _OWNER)
    try:
        yield
    finally:
        _set_owner_bits(directory, 0)


def _is_shut(directory: str) -> bool:
    found = os.stat(directory)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OWNER


def _set_owner_bits(directory: str, bits: int) -> None:
    os.chmod(directory, stat.S_IMODE(os.stat(directory).st_mode) & ~_OWNER | bits)
