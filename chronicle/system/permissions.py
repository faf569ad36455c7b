"""Directories and files that hold what was in people's files, whatever the modes of those files were.

In a directory that its group may write, several users work together on purpose: there the umask says who may read.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_private", "private_mode"]


def make_private(directory: Path) -> None:
    """Make a directory for this user only; one that is there stays as it is. Those above it are made as usual.

    Raises:
        OSError: it cannot be made.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o777 if _is_shared(directory.parent) else 0o700, exist_ok=True)


def private_mode(directory: Path) -> int:
    """Return the mode with which a file is to be made in a directory, before the umask is applied.

    Raises:
        OSError: there is no such directory.
    """
    return 0o666 if _is_shared(directory) else 0o600


def _is_shared(directory: Path) -> bool:
    mode = directory.stat().st_mode
    return bool(mode & stat.S_IWGRP) and not mode & stat.S_ISVTX  # with the sticky bit it is a place for everybody
