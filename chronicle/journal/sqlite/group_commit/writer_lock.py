"""The writer lock: a fair lock among the threads and processes that write to one journal.

SQLite lets one connection write at a time and makes the others poll: under load some of them starve and fail with
"database is locked". A journal store takes this lock, on files beside the database, before SQLite's own lock,
which is therefore always free.

The kernel does not order the waiters of a file lock: a process that releases a lock and takes it again at once would
often win. So there are two locks. A writer locks the *queue*, then the *gate*, then unlocks the queue. A writer that
releases the gate must queue again, while the next one waits at the gate already: no writer passes twice while others
wait.

The previous writer may have done a waiter's work (`acquire` with ``unless``). A waiter checks this at each step, so
such waiters pass the queue quickly, and only the last one has to wait at the gate.

The locks belong to the open files (`chronicle.system.locks`): the kernel releases them when the holder dies, and two
stores of one process exclude each other. A forked child inherits the open files, so it closes them (`close`).
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
    """A lock among threads and processes; in a ``with`` statement, or by `acquire` and `release`.

    Args:
        path: the journal's file; the lock's files have its name and ``-queue`` or ``-gate``.

    Raises:
        OSError: a file cannot be opened or created.
    """

    def __init__(self, path: Path) -> None:
        self._threads = threading.Lock()
        self._queue = self._gate = -1
        self.queue_path = path.with_name(path.name + "-queue")
        self._queue = _open(self.queue_path)
        self._gate = _open(path.with_name(path.name + "-gate"))

    @property
    def queue_fd(self) -> int:
        """The descriptor of the queue's file. The waiting room owns its content and the locks on its bytes."""
        return self._queue

    def __enter__(self) -> None:
        """Wait for the lock."""
        self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock; the next waiter gets it."""
        self.release()

    def try_acquire(self) -> bool:
        """Take the lock if it is free and has no waiters; return whether it was taken."""
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

    def acquire(self, unless: Callable[[], bool] = lambda: False) -> bool:
        """Wait for the lock, and take it unless ``unless`` returns true meanwhile; return whether it was taken."""
        self._threads.acquire()
        try:
            taken = self._pass_queue(unless)
            if taken and unless():
                _unlock(self._gate)
                taken = False
        except BaseException:
            self.release()
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

    def release(self) -> None:
        """Release the lock; the next waiter gets it."""
        try:
            _unlock(self._gate)
        finally:
            self._threads.release()

    def close(self) -> None:
        """Close the files, which releases their locks. Afterwards this is a lock among threads only."""
        for fd in (self._queue, self._gate):
            if fd >= 0:
                os.close(fd)
        self._queue = self._gate = -1


def _try_lock(fd: int) -> bool:
    return fd < 0 or try_lock(fd)  # closed: a lock among threads only


def _lock(fd: int) -> None:
    if fd >= 0:
        lock(fd)


def _unlock(fd: int) -> None:
    if fd >= 0:
        unlock(fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, private_mode(path.parent))
