"""The queue of writers: one lock that threads and processes wait on in turn.

SQLite lets one connection write at a time and makes the others poll: under load some of them starve and fail with
"database is locked". Here a writer first takes a lock on a file beside the database, so SQLite's own lock is always
free.

The kernel does not say who gets a file lock next, and one who lets it go and takes it again at once would often win.
So there are two: a writer takes the *queue*, then the *gate*, then lets the queue go. Whoever leaves the gate has to
queue again, while the next one waits at the gate already: nobody passes twice while others wait.

One who waits may find that it need not write any more, as the writer before did its work (`enter` with ``unless``). It
asks at each step, so a row of such waiters passes the queue on quickly, and only the last one has to wait at the gate.

``flock`` belongs to the open file, not to the process: it is let go when the holder dies, and two stores of one process
exclude each other too. A forked child inherits the open files, so it closes them (`forget`).
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from chronicle.system.locks import lock, try_lock, unlock
from chronicle.system.permissions import private_mode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

__all__ = ["WriterLock"]


class WriterLock:
    """A lock among threads and processes; in a ``with`` statement, or by `enter` and `leave`.

    Args:
        path: the journal's file; the lock's files have its name and ``-queue`` or ``-gate``.

    Raises:
        OSError: a file cannot be opened or made.
    """

    def __init__(self, path: Path) -> None:
        self._threads = threading.Lock()
        self._queue = self._gate = -1
        self.queue_path = path.with_name(path.name + "-queue")
        self._queue = _open(self.queue_path)
        self._gate = _open(path.with_name(path.name + "-gate"))

    @property
    def queue_fd(self) -> int:
        """The queue's file, open; what is in it, and other locks on it, are for those who wait."""
        return self._queue

    def __enter__(self) -> None:
        """Wait for the lock."""
        self.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the next one in."""
        self.leave()

    def enter_at_once(self) -> bool:
        """Take the lock if nobody has it or waits for it; tell whether it was taken."""
        if not self._threads.acquire(blocking=False):
            return False
        taken = False
        try:
            if _try_lock(self._queue):
                try:
                    taken = _try_lock(self._gate)
                finally:
                    _unlock(self._queue)
        finally:
            if not taken:
                self._threads.release()
        return taken

    def enter(self, unless: Callable[[], bool] = lambda: False) -> bool:
        """Wait for the lock, and take it unless there is nothing to do any more; tell whether it was taken."""
        self._threads.acquire()
        try:
            taken = self._pass_queue(unless)
            if taken and unless():
                _unlock(self._gate)
                taken = False
        except BaseException:
            self.leave()
            raise
        if not taken:
            self._threads.release()
        return taken

    def _pass_queue(self, unless: Callable[[], bool]) -> bool:
        if unless():
            return False
        _lock(self._queue)
        try:
            if unless():
                return False
            _lock(self._gate)
            return True
        finally:
            _unlock(self._queue)

    def leave(self) -> None:
        """Let the next one in."""
        try:
            _unlock(self._gate)
        finally:
            self._threads.release()

    def forget(self) -> None:
        """Close the files, which lets the lock go if this object held it. From then on it is one among threads only."""
        for fd in (self._queue, self._gate):
            if fd >= 0:
                os.close(fd)
        self._queue = self._gate = -1


def _try_lock(fd: int) -> bool:
    return fd < 0 or try_lock(fd)  # a closed file stands in nobody's way


def _lock(fd: int) -> None:
    if fd >= 0:
        lock(fd)


def _unlock(fd: int) -> None:
    if fd >= 0:
        unlock(fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, private_mode(path.parent))
