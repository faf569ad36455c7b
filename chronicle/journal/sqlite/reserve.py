"""A reserve of disk space for essential writes on a full disk.

A journal on a full disk must still acquire a lease, record a failed attempt and drop a message.
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

__all__ = ["RESERVE_BYTES", "FileReserve"]

RESERVE_BYTES: Final = 4 * 1024 * 1024
"""Space for some hundred commits in the log, the log's index, and the log of a workspace's layer during a rollback."""
_ROOM: Final = 8
"""The reserve is created only if this many times its size are free, so that it does not fill a small disk."""
_FULL_BYTES: Final = 1024 * 1024
"""A disk with fewer free bytes counts as full."""


class FileReserve:
    """The reserve of one journal (:class:`~chronicle.journal.ports.reserve.Reserve`); several processes may use it.

    Args:
        journal: the journal's file.
    """

    def __init__(self, journal: Path) -> None:
        self._path = journal.with_name(journal.name + "-reserve")

    def restore(self) -> None:
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

        A retry may also succeed if there is space and no reserve: another process may just have freed it.
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
        """Whether the file is fully allocated: a killed process may have left it shorter."""
        try:
            return self._path.stat().st_size == RESERVE_BYTES
        except FileNotFoundError:
            return False

    def _free_bytes(self) -> int:
        found = os.statvfs(self._path.parent)
        return found.f_bavail * found.f_frsize
