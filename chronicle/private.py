"""Directories that hold what was in people's files, whatever the modes of those files were."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_private"]


def make_private(directory: Path) -> None:
    """Make a directory for this user only; one that is there stays as it is. Those above it are made as usual.

    In a directory that its group may write, several users work together on purpose: there the umask says who may read.

    Raises:
        OSError: it cannot be made.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    above = directory.parent.stat().st_mode
    is_shared = above & stat.S_IWGRP and not above & stat.S_ISVTX  # with the sticky bit it is a place for everybody
    directory.mkdir(mode=0o777 if is_shared else 0o700, exist_ok=True)
