"""Return of free memory to the system."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress

__all__ = ["give_back", "give_back_all"]


def give_back() -> None:
    """Return free pages of the C library's heap to the system. Python returns its own, once nothing is left in them.

    By itself glibc returns only the free end of the heap. The call costs about a millisecond for 100 MB. Other C
    libraries lack it; there this does nothing.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def give_back_all() -> None:
    """Do what `give_back` does, after a full garbage collection.

    Call it after work that took much memory. Python returns an arena of 1 MiB only when all of it is free. Objects in
    Python's free lists (up to 2,000 tuples of each small length) and unreachable cycles are spread over the arenas, and
    each keeps a whole one. A full collection removes both. It takes about 1 µs for each live object.
    """
    gc.collect()
    give_back()
