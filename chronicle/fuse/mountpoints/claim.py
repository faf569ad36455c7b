"""The claim: an exclusive lock on a mountpoint, whatever store the mount belongs to.

It is an abstract socket bound to a hash of the mountpoint's path and the mount namespace. The kernel releases it when
its holder dies. A file lock would not do: the directory below a mount cannot be reached to be locked.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
from pathlib import Path
from typing import Final

from chronicle.errors import Conflict
from chronicle.fuse.mountpoints.mountinfo import real_path

__all__ = ["claim_mountpoint"]

_PREFIX: Final = "\0chronicle-mountpoint-"
"""Of an abstract socket's name: unix(7)."""


def claim_mountpoint(mountpoint: Path) -> socket.socket:
    """Lock a mountpoint against every other process that mounts or unmounts there.

    The holder keeps it from before its first look at the mountpoint until after the last unmount. Claims exclude each
    other within one network namespace, and any user of the machine can take any of them.

    Returns:
        the claim; it is released when it is closed, or the process ends.

    Raises:
        Conflict: another process holds it.
    """
    namespace = Path("/proc/self/ns/mnt").stat().st_ino  # in another one the path is another directory
    name = hashlib.sha256(f"{namespace}:".encode() + os.fsencode(real_path(mountpoint))).hexdigest()
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        held.bind(_PREFIX + name)
    except OSError as error:
        held.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise Conflict(
            f"another process has mounted something at {mountpoint}, or is mounting or unmounting it; unmount that "
            "first, or name another directory"
        ) from None
    return held
