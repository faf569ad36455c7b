"""How much memory the processes on this machine may use."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

__all__ = ["memory_limit"]

_UNIFIED: Final = Path("sys/fs/cgroup"), "memory.max"
_LEGACY: Final = Path("sys/fs/cgroup/memory"), "memory.limit_in_bytes"


def memory_limit(root: Path = Path("/")) -> int:
    """Return the memory that this process may use, bytes: the machine's, or less if a cgroup of it has a limit.

    Args:
        root: where the kernel's file systems are.
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        place, name = _LEGACY if controllers else _UNIFIED
        directory = root / place / group.lstrip("/")
        while directory.is_relative_to(root / place):
            with suppress(OSError, ValueError):  # the root has no limit; or it is "max"
                limits.append(int((directory / name).read_text(encoding="ascii")))
            directory = directory.parent
    return min(limits)
