"""futex(2), which Python does not offer: waits on a word of shared memory."""

from __future__ import annotations

import ctypes
import platform
from typing import Final

__all__ = ["is_supported", "wait", "wake"]

_NUMBERS: Final = {"x86_64": 202, "aarch64": 98}
"""The system call's number, from the kernel's tables of 64-bit machines."""
_WAIT: Final = 0
_WAKE: Final = 1
_libc: Final = ctypes.CDLL(None)
_number: Final = _NUMBERS.get(platform.machine())


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def is_supported() -> bool:
    """Whether the system call's number is known for this machine."""
    return _number is not None


def wait(word: ctypes.c_uint32, value: int, timeout_s: float) -> None:
    """Block until a wake-up of the word or the timeout; return at once if the word is not ``value``.

    Spurious wake-ups are possible. The GIL is released meanwhile.
    """
    time = _Time(int(timeout_s), int(timeout_s % 1 * 1e9))
    _libc.syscall(
        ctypes.c_long(_number or 0),
        ctypes.byref(word),
        ctypes.c_int(_WAIT),
        ctypes.c_uint32(value),
        ctypes.byref(time),
        None,
        ctypes.c_int(0),
    )


def wake(word: ctypes.c_uint32) -> None:
    """Wake all waiters of the word, in all processes."""
    _libc.syscall(
        ctypes.c_long(_number or 0),
        ctypes.byref(word),
        ctypes.c_int(_WAKE),
        ctypes.c_int(1),
        None,
        None,
        ctypes.c_int(0),
    )
