"""An agent's branch and inbox, as the holder of its lease reads and writes them.

The ledger keeps the head that the next commit must name, runs the store's blocking calls off the event loop, and
settles the one hard case: a commit whose answer was lost is looked up by the id of its first event before anything
is answered or rolled back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from chronicle.errors import Conflict, StaleEpoch, Unavailable
from podium.errors import Evicted

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from chronicle.journal.records import Commit, Head, InboxMessage, Lease, Session
    from chronicle.journal.store import JournalStore
    from podium.blocking import BlockingRunner

    class Committer(Protocol):
        """Commits without blocking the event loop; several callers may share one sync to disk."""

        async def commit(self, commit: Commit) -> Head:
            """Do what `JournalStore.commit` does."""
            ...


__all__ = ["Ledger"]

_T = TypeVar("_T")
_RETRY_DELAYS_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Waits between look-ups of a commit whose answer was lost; the last one repeats until the store answers."""

_log = structlog.stdlib.get_logger("podium.ledger")


class Ledger:
    """The journal under one lease.

    Args:
        store: read for the inbox and for lost answers.
        committer: writes.
        session: the agent's.
        lease: under which all commits are made.
        head: the branch's head when the lease was taken.
        run_blocking: takes the store's blocking calls off the event loop.
    """

    def __init__(
        self,
        store: JournalStore,
        committer: Committer,
        session: Session,
        lease: Lease,
        head: Head,
        run_blocking: BlockingRunner = asyncio.to_thread,
    ) -> None:
        self._store = store
        self._committer = committer
        self._run_blocking = run_blocking
        self.session = session
        self.lease = lease
        self.head = head

    @property
    def epoch(self) -> int:
        """The lease's epoch."""
        return self.lease.epoch

    async def append(self, commit: Commit) -> Head:
        """Commit; durable when it returns.

        Cancelling the caller does not tell whether the commit happened: call it from a task that is not cancelled.

        Raises:
            Evicted: another epoch or another writer has the branch; nothing was written.
        """
        attempt = 0
        while True:
            try:
                self.head = await self._committer.commit(commit)
            except (StaleEpoch, Conflict) as error:
                found = await self._lookup(commit) if attempt else None
                if found is not None:
                    self.head = found
                    return found
                raise Evicted(f"{self.session.name}: {error}") from error
            except Unavailable as error:
                delay_s = _RETRY_DELAYS_S[min(attempt, len(_RETRY_DELAYS_S) - 1)]
                _log.warning("commit_outcome_unknown", session=self.session.name, error=str(error), retry_in_s=delay_s)
                await asyncio.sleep(delay_s)
                attempt += 1
                found = await self._lookup(commit)
                if found is not None:
                    self.head = found
                    return found
            else:
                return self.head

    async def next_message(self) -> InboxMessage | None:
        """Return the oldest pending message."""
        pending = await self.read(lambda: self._store.pending(self.session.session_id, limit=1))
        return pending[0] if pending else None

    async def read(self, call: Callable[[], _T]) -> _T:
        """Run a blocking read of the store off the event loop, again and again while the store is away."""
        attempt = 0
        while True:
            try:
                return await self._run_blocking(call)
            except Unavailable as error:
                delay_s = _RETRY_DELAYS_S[min(attempt, len(_RETRY_DELAYS_S) - 1)]
                _log.warning("store_unavailable", session=self.session.name, error=str(error), retry_in_s=delay_s)
                await asyncio.sleep(delay_s)
                attempt += 1

    async def _lookup(self, commit: Commit) -> Head | None:
        """Return the head after a commit if it happened, ``None`` if it did not."""
        first, last = commit.events[0], commit.events[-1]
        found = await self.read(lambda: self._store.find_event(first.event_id))
        if found is None:
            return None
        return type(commit.expected)(
            branch_id=last.branch_id, seq=last.seq, event_id=last.event_id, hash=last.hash, turn=last.turn
        )
