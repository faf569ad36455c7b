"""The queue of writers: one lock that threads and processes wait on in turn.

SQLite lets one connection write at a time and makes the others poll: under load some of them starve and fail with
"database is locked". Here a writer first takes a lock on a file beside the database, where the kernel wakes the next
one, so that SQLite's own lock is always free.

``flock`` belongs to the open file, not to the process: it is let go when the holder dies, and two stores of one process
exclude each other too. A forked child inherits the open file, so it closes it (`forget`).
"""

from __future__ import annotations

import fcntl
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["WriterLock"]


class WriterLock:
    """A lock among threads and processes, to be used in a ``with`` statement.

    Raises:
        OSError: the file cannot be opened or made.
    """

    def __init__(self, path: Path) -> None:
        self._threads = threading.Lock()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def __enter__(self) -> None:
        """Wait for the lock."""
        self._threads.acquire()
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except BaseException:
            self._threads.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the next one in."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def forget(self) -> None:
        """Close the file, which lets the lock go if this object held it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
