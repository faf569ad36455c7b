"""Preparing mountpoints and unmounting, without touching a path *through* a mount.

A mount whose server hangs would hang the caller too, so what is mounted is read from
`chronicle.fuse.mountpoints.mountinfo`.
"""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Final

from chronicle.errors import InvalidInput, MountpointTaken, Unavailable
from chronicle.fuse.mountpoints.guard import reopen
from chronicle.fuse.mountpoints.mountinfo import KIND, fuse_mounts_under, is_mounted, mounts_at
from chronicle.fuse.mountpoints.syscalls import force_unmount

__all__ = ["abort", "check_mountpoint", "detach", "make_mountpoint", "unmount", "unmount_all_under"]

_CONNECTIONS: Final = Path("/sys/fs/fuse/connections")
"""One directory for each FUSE connection, named by its minor device number; its files belong to the mounting user."""
_FUSERMOUNT_DEADLINE_S: Final = 10


def make_mountpoint(mountpoint: Path) -> None:
    """Make the directory of a mountpoint if it is missing.

    Raises:
        InvalidInput: it cannot be made, or is not an empty directory (a mount would hide its content).
    """
    try:
        mountpoint.mkdir(parents=True, exist_ok=True)
        reopen(mountpoint)  # a kill of everything may have left it shut
        with os.scandir(mountpoint) as entries:
            has_entries = next(entries, None) is not None
    except OSError as error:
        raise InvalidInput(
            f"{mountpoint} cannot be a mountpoint: {error.strerror}; name a directory of your own"
        ) from error
    if has_entries:
        raise InvalidInput(f"{mountpoint} is not empty, and a mount would hide what is in it; name an empty directory")


def check_mountpoint(mountpoint: Path) -> None:
    """Check that a path can be a mountpoint, and make nothing.

    Raises:
        InvalidInput: it is no empty directory and none can be made there.
        Conflict: something is mounted there.
    """
    if is_mounted(mountpoint):
        raise MountpointTaken(f"something is mounted at {mountpoint} already; unmount it first", os.fspath(mountpoint))
    try:
        there = mountpoint.absolute()
        while not there.exists() and not there.is_symlink():
            there = there.parent
        if not there.is_dir():
            raise InvalidInput(
                f"{there} is not a directory, and so {mountpoint} cannot be a mountpoint; name another one"
            )
        if there != mountpoint.absolute():
            if not os.access(there, os.W_OK | os.X_OK):
                raise InvalidInput(f"{mountpoint} cannot be made: you may not write to {there}; name another directory")
            return
    except OSError as error:
        raise InvalidInput(f"{mountpoint} cannot be a mountpoint: {error.strerror}; name another directory") from error
    make_mountpoint(mountpoint)


def unmount(mountpoint: Path) -> None:
    """Unmount all of Chronicle's mounts at a path at once, even while they are in use; idempotent.

    The directory is left as it was before the mount, without a guard.

    Raises:
        Unavailable: it is still mounted; the message says why.
    """
    _unmount(mountpoint, guards=True)
    if os.geteuid() != 0 and not is_mounted(mountpoint):
        reopen(mountpoint)


def detach(mountpoint: Path) -> None:
    """Unmount the servers' mounts, as `unmount` does, and keep the guard."""
    _unmount(mountpoint, guards=False)


def _unmount(mountpoint: Path, *, guards: bool) -> None:
    """Unmount Chronicle's mounts from the top.

    The connection to the server is aborted first: requests in flight fail, so this never waits for a server that
    hangs. Root does both with one call. Other users write to the connection's control file, which they own; where the
    control file system is not mounted (in most containers) they cannot, and the connection ends with its server.
    """
    for mount in reversed(mounts_at(mountpoint)):
        if mount.kind != KIND or (mount.is_guard and not guards):
            return
        if os.geteuid() == 0:
            code = force_unmount(mountpoint)
            if code not in (0, errno.EINVAL, errno.ENOENT):  # EINVAL: another process has unmounted it
                raise Unavailable(f"could not unmount {mountpoint}: {os.strerror(code)}")
        else:
            abort(mountpoint)
            _run_fusermount(mountpoint)


def _run_fusermount(mountpoint: Path) -> None:
    """Detach a mount by fusermount3."""
    path = os.fspath(mountpoint)
    command = ["fusermount3", "-u", "-z", "-q", path]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FUSERMOUNT_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"could not unmount {path}: {error}; try: {' '.join(command)}") from error
    if done.returncode != 0 and is_mounted(mountpoint):
        reason = done.stderr.strip() or "only the user who mounted it, and root, can"
        raise Unavailable(f"could not unmount {path}: {reason}; try: {' '.join(command)}")


def unmount_all_under(directory: Path) -> list[Path]:
    """Unmount the stale mounts of earlier processes below a directory, and return their mountpoints."""
    stale = fuse_mounts_under(directory)
    for mountpoint in stale:
        unmount(mountpoint)
    return stale


def abort(mountpoint: Path) -> None:
    """Abort the connection of the topmost FUSE mount at a path: every request in flight fails.

    This needs the connection's control file. Where that file system is not mounted, root unmounts by force, and other
    users cannot. A guard has no connection.
    """
    for mount in mounts_at(mountpoint)[-1:]:
        if mount.kind.startswith("fuse") and not mount.is_guard:
            try:
                (_CONNECTIONS / mount.device.partition(":")[2] / "abort").write_bytes(b"1")
            except OSError:
                if os.geteuid() == 0:
                    force_unmount(mountpoint.absolute())
