"""Trees of files that a command has left: opened, and removed, whatever it made of them.

All by descriptors of directories, never through a link: while this works, another command may write in the same place.
Depth costs neither stack nor descriptors. Imports the standard library only: supervisors use it, too.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["opened", "remove"]

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def opened(name: str, at: int | None = None, *, anyhow: bool = False) -> Iterator[int]:
    """Open a directory in another one, and close it.

    Args:
        name: its name, or a path.
        at: the other one; the working directory by default.
        anyhow: let its owner in if its mode does not.

    Raises:
        FileNotFoundError: there is nothing of this name.
        NotADirectoryError: it is none, or a link.
    """
    found = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        mode = os.fstat(found).st_mode
        if anyhow and mode & 0o700 != 0o700:
            with suppress(PermissionError):  # of another owner: it is as it is
                os.chmod(f"/proc/self/fd/{found}", stat.S_IMODE(mode) | 0o700)  # noqa: PTH101
        reading = os.open(".", _DIRECTORY, dir_fd=found)
    finally:
        os.close(found)
    try:
        yield reading
    finally:
        os.close(reading)


def remove(name: str, at: int | None = None) -> None:
    """Remove a file, or a directory with all that is in it; nothing happens if it is not there.

    Raises:
        OSError: it cannot be removed, or another process goes on writing into it.
    """
    with suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=at)
        except IsADirectoryError:
            with opened(name, at, anyhow=True) as top:
                _empty(top)
            os.rmdir(name, dir_fd=at)


def _empty(top: int) -> None:
    """Remove all entries: a directory's own directories are moved up first, so that it has files only."""
    numbers = count()
    while names := os.listdir(top):
        for name in names:
            try:
                os.unlink(name, dir_fd=top)
            except IsADirectoryError:
                with opened(name, top, anyhow=True) as directory:
                    for inner in os.listdir(directory):  # noqa: PTH208
                        try:
                            os.unlink(inner, dir_fd=directory)
                        except IsADirectoryError:
                            with opened(inner, directory, anyhow=True):
                                pass  # to move it takes the right to write in it
                            _move(inner, directory, top, numbers)
                os.rmdir(name, dir_fd=top)


def _move(name: str, at: int, top: int, numbers: Iterator[int]) -> None:
    for number in numbers:
        try:
            os.rename(name, f".podium-{number}", src_dir_fd=at, dst_dir_fd=top)
        except OSError as error:
            if not os.path.lexists(f"/proc/self/fd/{top}/.podium-{number}"):
                raise error from None
        else:
            return
