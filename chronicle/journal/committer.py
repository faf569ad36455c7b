"""Committing for coroutines: each by itself, or those of all agents of a process with shared syncs to disk.

In group commit one thread writes. While it waits for the disk, the commits that arrive gather, and it takes all of
them into the next transaction. A lone commit pays two hand-overs between threads, and none of it blocks the event loop:
a disk that stalls must not stall what runs there.
"""

from __future__ import annotations

import asyncio
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from chronicle.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Commit, Head

__all__ = ["DirectCommitter", "GroupCommitter"]

_MOST: Final = 256
"""Commits in one transaction: it bounds how long the first of them waits for the others to be written."""

_Entry: TypeAlias = "tuple[Commit, asyncio.Future[Head]]"


class DirectCommitter:
    """Commits where it is called: for a process with one agent, which can do nothing before its turn is durable.

    Going to a thread and back takes half as long as a commit to a local SQLite database. While a commit waits for the
    disk or for another process's commit, the event loop does.

    Args:
        store: where to commit; it stays the caller's to close.
    """

    def __init__(self, store: JournalStore) -> None:
        self._store = store

    async def commit(self, commit: Commit) -> Head:
        """Commit, durably, and return the new head; raises as the store's commit."""
        return self._store.commit(commit)


class GroupCommitter:
    """Commits for coroutines, on one writer thread. The queue holds no more than one entry for each waiting coroutine.

    Args:
        store: where to commit; it stays the caller's to close, after this was closed.
    """

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._queue: SimpleQueue[_Entry | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def commit(self, commit: Commit) -> Head:
        """Commit, durably, and return the new head; any number of coroutines of any event loop may wait at once.

        When cancelled, the commit may still happen: look its first event up before doing anything else.

        Raises:
            Unavailable: closed, or as for the store's commit, whose other errors come through, too.
        """
        future: asyncio.Future[Head] = asyncio.get_running_loop().create_future()
        with self._guard:
            if self._closed:
                raise Unavailable("the committer was closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)
                self._thread.start()
            self._queue.put((commit, future))
        return await future

    def close(self) -> None:
        """Write what was handed in, and end the thread. Blocks until then."""
        with self._guard:
            self._closed = True
            thread = self._thread
            self._queue.put(None)
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        last = False
        while not last:
            batch: list[_Entry] = []
            entry = self._queue.get()
            while entry is not None:
                batch.append(entry)
                if len(batch) == _MOST:
                    break
                try:
                    entry = self._queue.get_nowait()
                except Empty:
                    break
            last = entry is None
            # One whose caller was cancelled before its turn came is not begun.
            begun = [each for each in batch if not each[1].cancelled()]
            if begun:
                self._write(begun)

    def _write(self, batch: Sequence[_Entry]) -> None:
        outcomes: list[Head | Exception]
        try:
            if len(batch) == 1:
                outcomes = [self._store.commit(batch[0][0])]
            else:
                outcomes = self._store.commit_many([commit for commit, _ in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, each caller gets it
            outcomes = [error] * len(batch)
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Head], Head | Exception]]] = {}
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            by_loop.setdefault(future.get_loop(), []).append((future, outcome))
        for loop, answers in by_loop.items():
            try:
                loop.call_soon_threadsafe(_answer, answers)
            except RuntimeError:  # that loop was closed, and its waiters with it
                continue


def _answer(answers: Sequence[tuple[asyncio.Future[Head], Head | Exception]]) -> None:
    for future, outcome in answers:
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
