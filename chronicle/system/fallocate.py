"""fallocate(2), of which Python offers only the POSIX subset."""

from __future__ import annotations

import ctypes
import os
from typing import Final

__all__ = ["KEEP_SIZE", "PUNCH_HOLE", "ZERO_RANGE", "fallocate"]

# linux/falloc.h
KEEP_SIZE: Final = 0x01
PUNCH_HOLE: Final = 0x02
ZERO_RANGE: Final = 0x10

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    """Allocate, zero or deallocate a range of a file.

    Raises:
        OSError: EOPNOTSUPP: the file system does not support the mode; ENOSPC; and others of fallocate(2).
    """
    if _libc.fallocate(fd, mode, offset, length) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
