"""Commits and steps of coroutines: direct, or grouped, so that all agents of a process share syncs to disk.

In group commit one thread writes. What arrives while it waits for the disk is queued, and it writes all of it in the
next transaction. A lone commit costs two thread switches. None of it blocks the event loop: a stalled disk must
not stall other coroutines.
"""

from __future__ import annotations

import asyncio
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from chronicle.errors import Unavailable
from chronicle.journal.records import StepWrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Commit, Head, StoredStep

__all__ = ["DirectCommitter", "GroupCommitter"]

_MOST: Final = 256
"""Most writes in one transaction. It bounds the time that the first of them waits for the others."""

_Entry: TypeAlias = "tuple[Commit | StepWrite, asyncio.Future[Head | None]]"
_Answer: TypeAlias = "tuple[asyncio.Future[Head | None], Head | Exception | None]"


class DirectCommitter:
    """Commits in the calling thread: for a process with one agent, which can do nothing before its turn is durable.

    A round trip to another thread takes half as long as a commit to a local SQLite database. While a commit waits for
    the disk or for another process's commit, the event loop is blocked.

    Args:
        store: the journal; the caller closes it.
    """

    def __init__(self, store: JournalStore) -> None:
        self._store = store

    async def commit(self, commit: Commit) -> Head:
        """Commit, durably, and return the new head; raises as the store's commit."""
        return self._store.commit(commit)

    async def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        """Store a step, durably; raises as the store's `put_step`."""
        self._store.put_step(session_id, step, epoch)


class GroupCommitter:
    """Commits on one writer thread. The queue holds at most one entry for each waiting coroutine.

    Args:
        store: the journal; the caller closes it, after the committer.
    """

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._queue: SimpleQueue[_Entry | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def commit(self, commit: Commit) -> Head:
        """Commit, durably, and return the new head; any number of coroutines of any event loop may wait at once.

        When cancelled, the commit may still happen: look up its first event before anything else.

        Raises:
            Unavailable: the committer is closed, or as the store's commit, whose other errors are raised, too.
        """
        head = await self._written(commit)
        assert head is not None
        return head

    async def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        """Store a step, durably; when cancelled, it may still be stored.

        Raises:
            Unavailable: the committer is closed, or as the store's `put_step`, whose other errors are raised, too.
        """
        await self._written(StepWrite(session_id, step, epoch))

    async def _written(self, write: Commit | StepWrite) -> Head | None:
        future: asyncio.Future[Head | None] = asyncio.get_running_loop().create_future()
        with self._guard:
            if self._closed:
                raise Unavailable("the committer was closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="journal-writer", daemon=True)
                self._thread.start()
            self._queue.put((write, future))
        return await future

    def close(self) -> None:
        """Write what is queued and end the thread. Blocks until then."""
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
            # A write whose caller was cancelled while it was queued is skipped.
            begun = [each for each in batch if not each[1].cancelled()]
            if begun:
                self._write(begun)

    def _write(self, batch: Sequence[_Entry]) -> None:
        outcomes: list[Head | Exception | None]
        try:
            if len(batch) == 1:
                outcomes = [self._write_one(batch[0][0])]
            else:
                outcomes = self._store.commit_many([write for write, _ in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, each caller gets it
            outcomes = [error] * len(batch)
        by_loop: dict[asyncio.AbstractEventLoop, list[_Answer]] = {}
        for (_, future), outcome in zip(batch, outcomes, strict=True):
            by_loop.setdefault(future.get_loop(), []).append((future, outcome))
        for loop, answers in by_loop.items():
            try:
                loop.call_soon_threadsafe(_answer, answers)
            except RuntimeError:  # the loop was closed, so no coroutine waits there
                continue

    def _write_one(self, write: Commit | StepWrite) -> Head | None:
        if isinstance(write, StepWrite):
            self._store.put_step(write.session_id, write.step, write.epoch)
            return None
        return self._store.commit(write)


def _answer(answers: Sequence[_Answer]) -> None:
    for future, outcome in answers:
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
