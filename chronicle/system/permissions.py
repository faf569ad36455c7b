"""Modes of directories and files that hold content of users' files, independent of the modes of those files.

A directory that its group may write is shared on purpose: there the umask decides who may read.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["let_group_connect", "make_private", "make_searchable", "private_mode"]


def make_private(directory: Path) -> None:
    """Create a directory for this user only, and its parents with default modes; an existing one is not changed.

    Raises:
        OSError: the directory cannot be created.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o777 if _is_shared(directory.parent) else 0o700, exist_ok=True)


def make_searchable(directory: Path, group: int | None) -> None:
    """Create a directory of this user, whose names a group may read as well; an existing one is checked.

    Args:
        group: to which this process belongs; ``None``: nobody else may enter the directory.

    Raises:
        PermissionError: it is another user's, or no directory.
        OSError: the directory cannot be created.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{directory} is not a directory of the user {os.geteuid()}, which uses it: remove it")
    if group is not None:
        os.chown(directory, -1, group, follow_symlinks=False)
        directory.chmod(0o750)


def let_group_connect(path: Path, group: int | None) -> None:
    """Let nobody connect to a socket but this user, and a group, if there is to be one.

    Raises:
        OSError: this process does not belong to the group.
    """
    if group is not None:
        os.chown(path, -1, group, follow_symlinks=False)
    path.chmod(0o600 if group is None else 0o660)


def private_mode(directory: Path) -> int:
    """Return the mode for a new file in a directory, before the umask is applied.

    Raises:
        OSError: the directory does not exist.
    """
    return 0o666 if _is_shared(directory) else 0o600


def _is_shared(directory: Path) -> bool:
    mode = directory.stat().st_mode
    return (
        bool(mode & stat.S_IWGRP) and not mode & stat.S_ISVTX
    )  # the sticky bit marks a place for all users, such as /tmp
