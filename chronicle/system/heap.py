"""The C library's heap: free memory is returned to the system, or put out of the way of forks."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from typing import Final

__all__ = ["collect_and_trim", "pack_heap_before_fork", "trim"]

_SIZES: Final = (*range(65_536, 4_096, -2_048), *range(4_096, 1_024, -256), *range(1_024, 8, -16))
"""Of chunks that fill holes, in bytes: the largest first. glibc's chunks differ by 16 bytes."""
_MAX_FILLED: Final = 100_000
"""Chunks. Should an allocator work in another way, this ends the search; a heap after many imports has some 2,000."""


class _Usage(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def pack_heap_before_fork() -> int:
    """Occupy for good what is free in the heap below its top; return the number of chunks.

    Call it before this process forks often. What its children allocate then lies together, on fresh pages. Otherwise
    it fills holes all over the memory that they share, and each child copies the page around each hole: 0.5 MB of
    holes, spread by the imports of Ray, cost each of its workers 3 MB.

    It takes a few milliseconds. Without glibc 2.33 or later it does nothing. Threads must not allocate meanwhile.
    """
    library = ctypes.CDLL(None)
    try:
        allocate, free, break_, usage = library.malloc, library.free, library.sbrk, library.mallinfo2
    except AttributeError:
        return 0
    allocate.argtypes, allocate.restype = (ctypes.c_size_t,), ctypes.c_void_p
    free.argtypes, free.restype = (ctypes.c_void_p,), None
    break_.argtypes, break_.restype = (ctypes.c_ssize_t,), ctypes.c_void_p
    usage.argtypes, usage.restype = (), _Usage
    top = break_(0) - usage().keepcost
    filled = 0
    for size in _SIZES:
        while filled < _MAX_FILLED:
            chunk = allocate(size)
            if chunk is None or chunk >= top:
                free(chunk)
                break
            filled += 1
    return filled


def trim() -> None:
    """Return free pages of the C library's heap to the system. Python returns its own, once nothing is left in them.

    By itself glibc returns only the free end of the heap. The call costs about a millisecond for 100 MB. Other C
    libraries lack it; there this does nothing.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def collect_and_trim() -> None:
    """Do what `trim` does, after a full garbage collection.

    Call it after work that took much memory. Python returns an arena of 1 MiB only when all of it is free. Objects in
    Python's free lists (up to 2,000 tuples of each small length) and unreachable cycles are spread over the arenas, and
    each keeps a whole one. A full collection removes both. It takes about 1 µs for each live object.
    """
    gc.collect()
    trim()
