"""mount(2) and umount2(2), by ctypes."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["MOUNT_FLAGS", "force_unmount", "mount"]

# The numbers are those of linux/mount.h and of umount2(2).
_MS_NOSUID: Final = 2
_MS_NODEV: Final = 4
MOUNT_FLAGS: Final = _MS_NOSUID | _MS_NODEV
"""Of every mount of Chronicle: the content of a workspace grants no privileges."""
_MNT_FORCE: Final = 1
_MNT_DETACH: Final = 2
_UMOUNT_NOFOLLOW: Final = 8

_libc: Final = ctypes.CDLL(None, use_errno=True)
# Resolved at import: a lookup after the fork would cost each mount server memory of its own.
_libc_mount: Final = _libc.mount
_libc_umount2: Final = _libc.umount2


def mount(source: bytes, mountpoint: bytes, kind: bytes, flags: int, options: bytes) -> int:
    """Mount a file system; return 0 or the errno."""
    return 0 if _libc_mount(source, mountpoint, kind, flags, options) == 0 else ctypes.get_errno()


def force_unmount(mountpoint: str | Path) -> int:
    """Abort the FUSE connection of the topmost mount and detach it; return 0 or the errno."""
    flags = _MNT_FORCE | _MNT_DETACH | _UMOUNT_NOFOLLOW
    return 0 if _libc_umount2(os.fsencode(mountpoint), flags) == 0 else ctypes.get_errno()
