"""Space that a journal keeps for the day on which its disk is full.

A full disk must not keep a journal from saying so: a lease has to be taken, a failed try recorded, a message
dropped. So a file of zeros lies beside a journal, ``journal.db-reserve``. A write that finds the disk full
removes it and is tried once more; opening the journal when there is room again makes it anew. Others can take what was
freed: it is a help, no promise.
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
"""It is made where so many times its size are free: a small disk is not filled by it."""
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
        """Put the space by, unless that is done or there is not much; what stands in the way is no error."""
        with suppress(OSError):
            if self._is_whole() or self._free() < _ROOM * RESERVE_BYTES:
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

    def give_up(self) -> bool:
        """Free the space if the disk is full; tell whether a write that found it full may find room now.

        It may, too, if there is room and no reserve: another process may just have given it up.
        """
        try:
            if self._free() >= _FULL_BYTES:
                return not self._path.exists()
            try:
                self._path.unlink()
            except FileNotFoundError:
                return self._free() >= _FULL_BYTES
        except OSError:
            return False
        return True

    def _is_whole(self) -> bool:
        """Whether it is there, and was not left without its space by a process that was killed while it made it."""
        try:
            return self._path.stat().st_size == RESERVE_BYTES
        except FileNotFoundError:
            return False

    def _free(self) -> int:
        found = os.statvfs(self._path.parent)
        return found.f_bavail * found.f_frsize
