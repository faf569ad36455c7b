"""Paths where no kernel resolves them: in a layer and in a commit.

Symlinks are followed within the workspace. One that leads out of it (its target is absolute, or goes above the root)
is dangling: on another machine its target would be something else.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["above", "follow"]

T = TypeVar("T")
MAX_LINKS: Final = 40
"""The kernel's limit: path_resolution(7)."""


def follow(
    root: T,
    path: bytes,
    child: Callable[[T, bytes], T | None],
    target: Callable[[T], bytes | None],
    *,
    last: bool = True,
) -> tuple[bytes, T | None]:
    """Resolve a path.

    Args:
        root: the root directory.
        path: relative to the root, ``b""`` for the root itself.
        child: looks up a name in a directory; raises ``NotADirectoryError`` for anything but a directory.
        target: returns a symlink's target, ``None`` for anything else.
        last: whether the last component is followed if it is a symlink.

    Returns:
        the path without symlinks, and the node there; ``None`` if its directory exists and the path does not.

    Raises:
        OSError: ENOENT, ENOTDIR or ELOOP: its directory does not exist.
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


def above(path: bytes) -> Iterator[bytes]:
    """Yield the directories above a path without the root, the topmost first."""
    cut = path.find(b"/")
    while cut > 0:
        yield path[:cut]
        cut = path.find(b"/", cut + 1)


def _nowhere(path: bytes) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "no such file or directory in the workspace", os.fsdecode(path))
