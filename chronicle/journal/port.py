"""The port to a journal store: what memory, SQLite and PostgreSQL do alike.

A store keeps what it is given and checks what must be checked in one transaction: the head (compare-and-swap), the
epoch (fence), the inbox (idempotency, order). It does not compute hashes and does not read payloads; sealing is
:mod:`chronicle.journal.chain`, checking is :mod:`chronicle.journal.verify`.

Every method may be called from any thread. Writes are durable when they return: they survive the loss of power. A
write that raises :class:`~chronicle.errors.Unavailable` may or may not have happened; look it up by the id of its
first event (:meth:`JournalStore.find_event`) before doing anything else.

The contract in code is ``chronicle.testing.journal_contract``: subclass it to test a store of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from chronicle.ids import BranchId, EventId, MessageId, SessionId
    from chronicle.journal.records import (
        Branch,
        CatalogueEntry,
        Commit,
        Event,
        Head,
        InboxMessage,
        Lease,
        MessageStatus,
        NewMessage,
        OutboxMessage,
        Receipt,
        Session,
        Snapshot,
        Tombstone,
    )

__all__ = ["EventRow", "JournalStore", "SessionAudit"]

EventRow: TypeAlias = (
    "tuple[int, str, str, int, int, str | None, str | None, str | None, bytes | None, bytes | None, bytes]"
)
"""An event as it lies in storage: ``seq, event_id, type, turn, ts, correlation_id, causation_id, payload_ref,
payload_sha256, payload, hash``. The hashes are 32 bytes; ``payload_sha256`` may be absent when the payload is there. A
damaged store may give other types than these."""


class SessionAudit(Protocol):
    """What is stored of a session, all of it as of one moment, for :mod:`chronicle.journal.verify`.

    It comes from the tables themselves: nothing cached, nothing left out, rows included that should not be there.
    """

    @property
    def session(self) -> Session:
        """The session."""
        ...

    @property
    def catalogue(self) -> Sequence[CatalogueEntry]:
        """The catalogue's entries, by number."""
        ...

    @property
    def catalogue_head(self) -> tuple[int, str]:
        """The number and hash of the catalogue's last entry, as the session has them."""
        ...

    @property
    def branches(self) -> Sequence[Branch]:
        """The branches that are there."""
        ...

    def branch(self, branch_id: BranchId) -> Branch | None:
        """Return a branch, of this session or another one, that a fork may continue."""
        ...

    def base_hash(self, branch_id: BranchId) -> str:
        """Return the hash before a branch's first own event, as its record has it."""
        ...

    def rows(self, branch_id: BranchId) -> Iterator[EventRow]:
        """Yield a branch's own events by seq, those after its head included.

        Raises:
            Corrupt: a row cannot be read.
        """
        ...


class JournalStore(Protocol):
    """Sessions, branches of events, inboxes, outboxes, leases and snapshots, kept durably."""

    # -- sessions and branches ------------------------------------------------------------------------------------

    def ensure_session(self, name: str, session_id: SessionId, branch_id: BranchId, now_ms: int) -> Session:
        """Return the session of that name; make it, with an empty main branch, when there is none.

        The ids are used only when it is made. Concurrent callers get the same session.
        """
        ...

    def session(self, name: str) -> Session:
        """Return the session of that name.

        Raises:
            NotFound: there is none.
        """
        ...

    def sessions(self, prefix: str = "") -> Sequence[Session]:
        """Return the sessions whose name starts with ``prefix``, by name."""
        ...

    def branch(self, branch_id: BranchId) -> Branch:
        """Return a branch with its head as it is now.

        Raises:
            NotFound: there is none.
        """
        ...

    def branches(self, session_id: SessionId) -> Sequence[Branch]:
        """Return a session's branches, oldest first."""
        ...

    def fork_branch(self, parent_branch_id: BranchId, parent_seq: int, branch_id: BranchId, now_ms: int) -> Branch:
        """Make a branch in the same session that continues another one after ``parent_seq``; O(1), nothing is copied.

        Nothing is written to the parent.

        Raises:
            NotFound: no such parent.
            InvalidInput: the parent does not reach ``parent_seq``.
            Conflict: there is a branch of that id.
        """
        ...

    def fork_session(
        self,
        parent_branch_id: BranchId,
        parent_seq: int,
        name: str,
        session_id: SessionId,
        branch_id: BranchId,
        now_ms: int,
    ) -> Session:
        """Make a session whose main branch continues a branch of another session after ``parent_seq``; O(1).

        Raises:
            NotFound: no such parent.
            InvalidInput: the parent does not reach ``parent_seq``.
            Conflict: there is a session of that name, or one of the ids is taken.
        """
        ...

    def adopt_session(self, name: str, session_id: SessionId, branch_id: BranchId, base: Head, now_ms: int) -> Session:
        """Make a session whose main branch begins after an event that this store never had: it was folded elsewhere.

        The branch is as if it had been folded here, up to and with that event, and has no events yet.

        Args:
            base: ``seq``, ``hash`` and ``turn`` are that event's.

        Raises:
            InvalidInput: ``base`` is no event's place.
            Conflict: there is a session of that name, or one of the ids is taken.
        """
        ...

    def delete_branch(self, branch_id: BranchId, now_ms: int) -> None:
        """Delete a branch, its events and snapshots; the session's catalogue keeps that it was there.

        Raises:
            NotFound: no such branch.
            InvalidInput: it is the session's main branch.
            BranchInUse: forks read from it.
        """
        ...

    def fold(self, branch_id: BranchId, before_seq: int, now_ms: int) -> Branch:
        """Drop what came before an event of the branch's own: its older events and snapshots, and a parent's.

        The chain verifies from there on, as the session's catalogue keeps the hash before it. The event should hold all
        that is needed of what came before; the store does not look. Folding to where it was folded is harmless.

        Raises:
            NotFound: no such branch.
            InvalidInput: the event is not one of the branch's own.
            BranchInUse: forks read what would be dropped.
        """
        ...

    def delete_session(self, session_id: SessionId, now_ms: int) -> Tombstone:
        """Delete a session, its branches, events, snapshots and inbox, so that their bytes are gone from the store.

        What it has sent stays in the outbox. Its name is free afterwards.

        Raises:
            NotFound: no such session.
            LeaseHeld: its lease is held.
            BranchInUse: forks in other sessions read from it.
        """
        ...

    def tombstones(self, prefix: str = "") -> Sequence[Tombstone]:
        """Return what is left of deleted sessions whose name starts with ``prefix``, in order of deletion."""
        ...

    def catalogue(self, session_id: SessionId) -> Sequence[CatalogueEntry]:
        """Return the chained list of a session's branches made, folded and deleted, by number.

        Raises:
            NotFound: no such session.
        """
        ...

    def audit(self, session_id: SessionId) -> AbstractContextManager[SessionAudit]:
        """Open what is stored of a session, as of one moment, for verification.

        Raises:
            NotFound: no such session.
        """
        ...

    # -- events ---------------------------------------------------------------------------------------------------

    def events(
        self,
        branch_id: BranchId,
        after_seq: int = 0,
        to_seq: int | None = None,
        types: Sequence[str] | None = None,
    ) -> Iterator[Event]:
        """Yield events ``after_seq + 1 … to_seq`` in order, crossing into parents; to the head without ``to_seq``.

        Events that were folded are left out.

        Args:
            types: only these types, when given.

        Raises:
            NotFound: no such branch.
        """
        ...

    def find_event(self, event_id: EventId) -> Event | None:
        """Return an event by its id, ``None`` if it was never committed."""
        ...

    def commit(self, commit: Commit) -> Head:
        """Append, settle messages, fill the outbox and keep the snapshot in one durable transaction.

        Returns:
            the branch's new head.

        Raises:
            BranchVersionConflict: the head is not ``commit.expected``; nothing was written.
            StaleEpoch: the epoch is not the one in force; nothing was written.
            NotFound: a settled message is not in this session's inbox, or is settled already; nothing was written.
            InvalidInput: the events were not sealed on top of ``commit.expected``, or an id was used before.
            Unavailable: not known whether it was written.
        """
        ...

    def commit_many(self, commits: Sequence[Commit]) -> list[Head | Exception]:
        """Do several commits with one sync to disk; each succeeds or fails by itself, with the errors of `commit`.

        Raises:
            Unavailable: not known whether any of them was written.
        """
        ...

    def erase(self, event_ids: Sequence[EventId]) -> None:
        """Erase the payloads of events, so that their bytes are gone from the store; the chain verifies as before.

        Payloads that are out of line are marked as erased: their blobs are not referred to any more. Snapshots are left
        as they are; `fold` drops those that lie before an event.

        Raises:
            NotFound: there is no event of one of the ids; nothing was erased.
        """
        ...

    # -- inbox ----------------------------------------------------------------------------------------------------

    def admit(self, session_id: SessionId, message: NewMessage, limit: int = 1000) -> Receipt:
        """Give a message its place, durably.

        A repeat of an idempotency key with the same body returns the first receipt, whatever became of the message.

        Raises:
            IdempotencyConflict: the key was used with another body.
            InboxFull: ``limit`` messages are pending.
            NotFound: no such session.
        """
        ...

    def pending(self, session_id: SessionId, limit: int = 100) -> Sequence[InboxMessage]:
        """Return the pending messages, in order of position."""
        ...

    def message(self, message_id: MessageId) -> InboxMessage:
        """Return one message, whatever its status.

        Raises:
            NotFound: never admitted, or its record was pruned.
        """
        ...

    def messages(self, session_id: SessionId, status: MessageStatus) -> Sequence[InboxMessage]:
        """Return a session's messages of one status, in order of position."""
        ...

    def waiting_before(self, message_id: MessageId) -> int:
        """Return how many pending messages of the same inbox come before a message, whatever its own status.

        Raises:
            NotFound: never admitted, or its record was pruned.
        """
        ...

    def retry_message(self, session_id: SessionId, message_id: MessageId) -> InboxMessage:
        """Put a parked message back into its place in the inbox, with no attempts counted.

        Raises:
            NotFound: no such message, or it is not parked.
        """
        ...

    def sessions_with_pending(self) -> Sequence[SessionId]:
        """Return the sessions that have pending messages."""
        ...

    # -- outbox ---------------------------------------------------------------------------------------------------

    def outbox(self, limit: int = 100) -> Sequence[OutboxMessage]:
        """Return messages that were committed and not yet delivered, oldest first."""
        ...

    def outbox_delivered(self, message_id: MessageId) -> None:
        """Drop a delivered message from the outbox; doing it twice is harmless."""
        ...

    # -- leases ---------------------------------------------------------------------------------------------------

    def acquire_lease(
        self, session_id: SessionId, holder: str, now_ms: int, ttl_ms: int, *, takeover: bool = False
    ) -> Lease:
        """Take the lease under a new epoch, one higher than the last.

        Args:
            takeover: take it although another holder's has not run out, because that holder is known to be dead.

        Raises:
            LeaseHeld: another holder's lease has not run out and ``takeover`` is false. The same holder's own lease
                is replaced.
            NotFound: no such session.
        """
        ...

    def renew_lease(self, session_id: SessionId, epoch: int, now_ms: int, ttl_ms: int) -> Lease:
        """Push the lease's end to ``now_ms + ttl_ms``.

        Raises:
            StaleEpoch: another holder has the lease now, or it was released.
        """
        ...

    def release_lease(self, session_id: SessionId, epoch: int) -> None:
        """Give the lease back; harmless when it is not held under that epoch any more."""
        ...

    def lease(self, session_id: SessionId) -> Lease | None:
        """Return the lease as it was last taken, whether it ran out or not; ``None`` when released or never taken."""
        ...

    # -- snapshots ------------------------------------------------------------------------------------------------

    def snapshot(self, branch_id: BranchId, at_seq: int | None = None) -> Snapshot | None:
        """Return the newest snapshot at or before ``at_seq`` (the head without it), crossing into parents."""
        ...

    def put_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot made outside of a commit; replaces one of the same branch and seq."""
        ...

    # -- life -----------------------------------------------------------------------------------------------------

    def head(self, branch_id: BranchId) -> Head:
        """Return a branch's head.

        Raises:
            NotFound: no such branch.
        """
        ...

    def close(self) -> None:
        """Release files and connections. Using the store afterwards raises ``Unavailable``."""
        ...
