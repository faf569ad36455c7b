"""Commits and steps of coroutines: direct, or grouped, so that all agents of a process share syncs to disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.journal.batching import Batches
from chronicle.journal.records import StepWrite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Commit, Head, StoredStep

__all__ = ["DirectCommitter", "GroupCommitter"]


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
    """Commits on one writer thread; see `chronicle.journal.batching`.

    Args:
        store: the journal; the caller closes it, after the committer.
    """

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._batches: Batches[Commit | StepWrite, Head | None] = Batches(self._write, "journal-writer")

    async def commit(self, commit: Commit) -> Head:
        """Commit, durably, and return the new head; any number of coroutines of any event loop may wait at once.

        When cancelled, the commit may still happen: look up its first event before anything else.

        Raises:
            Unavailable: the committer is closed, or as the store's commit, whose other errors are raised, too.
        """
        head = await self._batches.written(commit)
        assert head is not None
        return head

    async def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        """Store a step, durably; when cancelled, it may still be stored.

        Raises:
            Unavailable: the committer is closed, or as the store's `put_step`, whose other errors are raised, too.
        """
        await self._batches.written(StepWrite(session_id, step, epoch))

    def close(self) -> None:
        """Write what is queued and end the thread. Blocks until then."""
        self._batches.close()

    def _write(self, writes: Sequence[Commit | StepWrite]) -> Sequence[Head | Exception | None]:
        if len(writes) == 1:
            return [self._write_one(writes[0])]
        return self._store.commit_many(writes)

    def _write_one(self, write: Commit | StepWrite) -> Head | None:
        if isinstance(write, StepWrite):
            self._store.put_step(write.session_id, write.step, write.epoch)
            return None
        return self._store.commit(write)
