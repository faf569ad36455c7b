"""Following a path through directories and symlinks, where no kernel does it: in a layer, and in a commit.

Symlinks lead where they say within the workspace. One that leads out of it (its target is absolute, or goes above the
root) leads nowhere: on another machine there would be something else.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["follow"]

T = TypeVar("T")
MAX_LINKS: Final = 40
"""As the kernel has it: path_resolution(7)."""


def follow(
    root: T,
    path: bytes,
    child: Callable[[T, bytes], T | None],
    target: Callable[[T], bytes | None],
    *,
    last: bool = True,
) -> tuple[bytes, T | None]:
    """Return where a path leads.

    Args:
        root: the root directory.
        path: relative to it, ``b""`` for itself.
        child: returns what a name in a directory is; raises ``NotADirectoryError`` for what is none.
        target: returns a symlink's target, ``None`` for anything else.
        last: whether the last component is followed if it is a symlink.

    Returns:
        the path without symlinks, and what is there; ``None`` if its directory is there and it is not.

    Raises:
        OSError: ENOENT, ENOTDIR or ELOOP: the directory that it is in is not there.
    """
    todo = [part for part in reversed(path.split(b"/")) if part]
    trail: list[tuple[bytes, T]] = []
    links = 0
    while todo:
        name = todo.pop()
        if name == b".":
            continue
        if name == b"..":
            if not trail:
                raise _nowhere(path)
            trail.pop()
            continue
        found = child(trail[-1][1] if trail else root, name)
        if found is None:
            if any(part != b"." for part in todo):
                raise _nowhere(path)
            return b"/".join([*(part for part, _ in trail), name]), None
        leads = target(found)
        if leads is not None and (todo or last):
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(path))
            if leads.startswith(b"/"):
                raise _nowhere(path)
            todo += [part for part in reversed(leads.split(b"/")) if part]
        else:
            trail.append((name, found))
    return b"/".join(part for part, _ in trail), trail[-1][1] if trail else root


def _nowhere(path: bytes) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "no such file or directory in the workspace", os.fsdecode(path))
