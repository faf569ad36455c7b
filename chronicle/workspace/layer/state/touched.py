"""Changes that a command made below a mount in use, for the invalidation of the kernel's caches."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Touched"]


class Touched(NamedTuple):
    """The names and inodes that a command changed."""

    names: list[tuple[int, bytes]]
    """Inode number of a directory, and a name in it whose node changed."""
    inodes: list[int]
    """The inodes at those names before and after, and the directories."""
    open_files: tuple[bytes, ...] = ()
    """Paths of open files that have another content. The kernel appends to one where it believes its end to be, until
    somebody has asked for its size."""
