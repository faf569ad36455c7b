"""A reserve of disk space, for the writes that a journal must still make on a full disk.

A full disk must not keep a journal from recording it: a lease is taken, a failed attempt recorded, a message dropped.
So an allocated file lies beside a journal, ``journal.db-reserve``. A write that finds the disk full removes the file
and is retried once; opening the journal when there is space again creates the file again. Other programs can take the
freed space: the reserve is best effort.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from chronicle.system.permissions import private_mode

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["RESERVE_BYTES", "Reserve"]

RESERVE_BYTES: Final = 4 * 1024 * 1024
"""Room for some hundred commits in the log, the log's index, and the log of a workspace's layer that is rolled back."""
_ROOM: Final = 8
"""It is created where so many times its size are free, so that it fills no small disk."""
_FULL_BYTES: Final = 1024 * 1024
"""With less than that a disk counts as full."""


class Reserve:
    """The reserve of one journal; several processes may use it.

    Args:
        journal: the journal's file.
    """

    def __init__(self, journal: Path) -> None:
        self._path = journal.with_name(journal.name + "-reserve")

    def make(self) -> None:
        """Create the file, unless it exists or little space is free; a failure is ignored."""
        with suppress(OSError):
            if self._is_whole() or self._free_bytes() < _ROOM * RESERVE_BYTES:
                return
            fd = os.open(
                self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, private_mode(self._path.parent)
            )
            try:
                os.posix_fallocate(fd, 0, RESERVE_BYTES)
            except OSError:
                self._path.unlink()
                raise
            finally:
                os.close(fd)

    def free(self) -> bool:
        """Free the space if the disk is full; return whether a retry of a write may succeed now.

        It may also if there is space and no reserve: another process may just have freed it.
        """
        try:
            if self._free_bytes() >= _FULL_BYTES:
                return not self._path.exists()
            try:
                self._path.unlink()
            except FileNotFoundError:
                return self._free_bytes() >= _FULL_BYTES
        except OSError:
            return False
        return True

    def _is_whole(self) -> bool:
        """Whether the file has all its space: a killed process may have left less."""
        try:
            return self._path.stat().st_size == RESERVE_BYTES
        except FileNotFoundError:
            return False

    def _free_bytes(self) -> int:
        found = os.statvfs(self._path.parent)
        return found.f_bavail * found.f_frsize
