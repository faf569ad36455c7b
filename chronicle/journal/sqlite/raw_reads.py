"""Reads of a journal's file outside of SQLite that do not drop SQLite's locks.

SQLite's locks are POSIX locks. When a process closes any descriptor of a file, the kernel drops all POSIX locks that
the process has on it. So a plain open, read and close of ``journal.db`` leaves each SQLite connection of this process
without its lock: another process then concludes that it is the last one, and removes the write-ahead log that this
process still writes to.

So a store registers its connections (`hold`), and every read outside of SQLite goes through `reading`, which closes no
descriptor while a connection of this process may be open: the descriptor is kept, reused, and closed when the last hold
is released. Both count by device and inode, so two stores on one file, by any paths, are covered. SQLite's own
connections need none of this: SQLite counts its descriptors.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Hold", "hold", "reading"]


@dataclass
class _File:
    """An open file of this process."""

    holders: int = 0
    readers: int = 0
    fds: list[int] = field(default_factory=list)


_Key = tuple[int, int]
_files: Final[dict[_Key, _File]] = {}
_guard = threading.Lock()


class Hold:
    """Registers, until `release`, that connections of this process to a file may be open."""

    def __init__(self, key: _Key | None) -> None:
        self._key = key

    def release(self) -> None:
        """Release the hold, after the connections are closed. Idempotent."""
        with _guard:
            if self._key is not None:
                _files[self._key].holders -= 1
                _close_unused(self._key)
                self._key = None


def hold(path: Path) -> Hold:
    """Register connections to a file, before the first one is opened.

    A file that does not exist or cannot be accessed is not held: SQLite cannot open it either.
    """
    with _guard:
        try:
            key = _key(path.stat())
        except OSError:
            return Hold(None)
        _files.setdefault(key, _File()).holders += 1
        return Hold(key)


@contextmanager
def reading(path: Path) -> Iterator[int]:
    """Open a file, or reuse an open descriptor; yield it for ``os.pread``.

    Raises:
        OSError: the file cannot be opened.
    """
    with _guard:
        key = _key(path.stat())
        if key not in _files or not _files[key].fds:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            key = _key(os.fstat(fd))  # another file, if the path was replaced meanwhile
            _files.setdefault(key, _File()).fds.append(fd)
        file = _files[key]
        file.readers += 1
    try:
        yield file.fds[0]
    finally:
        with _guard:
            file.readers -= 1
            _close_unused(key)


def _key(status: os.stat_result) -> _Key:
    return status.st_dev, status.st_ino


def _close_unused(key: _Key) -> None:
    file = _files[key]
    if not file.holders and not file.readers:
        for fd in file.fds:
            os.close(fd)
        del _files[key]


def _new_guard() -> None:
    """Replace the lock in a forked child: a thread of the parent may have held it. The counts stay."""
    global _guard
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_new_guard)
