"""The queue of writers: one lock that threads and processes wait on in turn.

SQLite lets one connection write at a time and makes the others poll: under load some of them starve and fail with
"database is locked". Here a writer first takes a lock on a file beside the database, so SQLite's own lock is always
free.

The kernel does not say who gets a file lock next, and one who lets it go and takes it again at once would often win.
So there are two: a writer takes the *queue*, then the *gate*, then lets the queue go. Whoever leaves the gate has to
queue again, while the next one waits at the gate already: nobody passes twice while others wait.

``flock`` belongs to the open file, not to the process: it is let go when the holder dies, and two stores of one process
exclude each other too. A forked child inherits the open files, so it closes them (`forget`).
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

    Args:
        path: the journal's file; the lock's files have its name and ``-queue`` or ``-gate``.

    Raises:
        OSError: a file cannot be opened or made.
    """

    def __init__(self, path: Path) -> None:
        self._threads = threading.Lock()
        self._queue = self._gate = -1
        self._queue = _open(path.with_name(path.name + "-queue"))
        self._gate = _open(path.with_name(path.name + "-gate"))

    def __enter__(self) -> None:
        """Wait for the lock."""
        self._threads.acquire()
        try:
            fcntl.flock(self._queue, fcntl.LOCK_EX)
            try:
                fcntl.flock(self._gate, fcntl.LOCK_EX)
            finally:
                fcntl.flock(self._queue, fcntl.LOCK_UN)
        except BaseException:
            self._threads.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the next one in."""
        try:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def forget(self) -> None:
        """Close the files, which lets the lock go if this object held it."""
        for fd in (self._queue, self._gate):
            if fd >= 0:
                os.close(fd)
        self._queue = self._gate = -1


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
