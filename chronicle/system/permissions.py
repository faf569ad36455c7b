"""Modes of directories and files that hold content of users' files, independent of the modes of those files.

A directory that its group may write is shared on purpose: there the umask decides who may read.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_private", "private_mode"]


def make_private(directory: Path) -> None:
    """Create a directory for this user only, and its parents with default modes; an existing one is not changed.

    Raises:
        OSError: the directory cannot be created.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o777 if _is_shared(directory.parent) else 0o700, exist_ok=True)


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
