"""The port of journal stores, implemented in memory, on SQLite and on PostgreSQL.

A store writes records as given. In the same transaction it checks the head (compare-and-swap), the epoch (fence) and
the inbox (idempotency, order). It does not compute hashes and does not read payloads: :mod:`chronicle.journal.chain`
seals, :mod:`chronicle.journal.verify` verifies.

Session names belong to a namespace: two sessions of one name are different sessions if their namespaces differ. Ids are
unique in the whole store. Methods that name a session take its namespace, which is `DEFAULT_NAMESPACE` by default;
methods that list sessions list those of all namespaces unless one is given.

Every method may be called from any thread. Writes are durable when they return: they survive a power loss. A write that
raises :class:`~chronicle.errors.Unavailable` may or may not have happened: before anything else, the caller looks it up
by the id of its first event (:meth:`JournalStore.find_event`).

The contract in code is ``chronicle.testing.journal_contract``: subclass it to test a store of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from chronicle.journal.object_port import ObjectRecords
from chronicle.journal.session_port import SessionRecords

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.ids import BranchId, EventId, MessageId, SessionId
    from chronicle.journal.records import (
        Backlog,
        Commit,
        Event,
        Head,
        InboxMessage,
        InboxWrite,
        Lease,
        MessageStatus,
        NewMessage,
        OutboxEnvelope,
        OutboxMessage,
        Receipt,
        Reminder,
        Session,
        Snapshot,
        StepWrite,
        StoredStep,
    )

__all__ = ["JournalStore"]


class JournalStore(SessionRecords, ObjectRecords, Protocol):
    """Durable sessions, branches of events, inboxes, outboxes, steps, reminders, leases, snapshots and objects."""

    # -- events ---------------------------------------------------------------------------------------------------

    def events(
        self,
        branch_id: BranchId,
        after_seq: int = 0,
        to_seq: int | None = None,
        types: Sequence[str] | None = None,
    ) -> Iterator[Event]:
        """Yield events ``after_seq + 1 … to_seq`` in order, crossing into parents; to the head without ``to_seq``.

        Folded events are left out.

        Args:
            types: yield only these types; by default all.

        Raises:
            NotFound: no such branch.
        """
        ...

    def find_event(self, event_id: EventId) -> Event | None:
        """Return an event by its id, ``None`` if it was never committed."""
        ...

    def commit(self, commit: Commit) -> Head:
        """Append events, settle messages, fill the outbox, change reminders and store the snapshot, durably.

        All of it is one transaction. The steps of messages that are consumed or cancelled are dropped in it.

        Returns:
            the branch's new head.

        Raises:
            BranchVersionConflict: the head is not ``commit.expected``; nothing was written.
            StaleEpoch: the epoch is not the one in force; nothing was written.
            NotFound: a message to settle is not in this session's inbox, or is settled already; nothing was written.
            InvalidInput: the events were not sealed on top of ``commit.expected``, or an id was used before.
            Unavailable: it is unknown whether the commit was written.
        """
        ...

    def commit_many(self, writes: Sequence[Commit | StepWrite]) -> list[Head | Exception | None]:
        """Apply several commits and steps with one sync to disk; each succeeds or fails by itself.

        Returns:
            for each, the result or the error of `commit` or `put_step`.

        Raises:
            Unavailable: it is unknown whether any of them was written.
        """
        ...

    def erase(self, event_ids: Sequence[EventId]) -> None:
        """Erase the payloads of events; their bytes are removed from the store, and the chain verifies as before.

        Out-of-line payloads are marked as erased: the events no longer reference their blobs. Snapshots are not
        changed; `fold` drops those before an event.

        Raises:
            NotFound: one of the events does not exist; nothing was erased.
        """
        ...

    # -- inbox ----------------------------------------------------------------------------------------------------

    def admit(self, session_id: SessionId, message: NewMessage, limit: int = 1000) -> Receipt:
        """Admit a message, durably.

        A repeat of an idempotency key with the same body returns the first receipt, whatever the message's status.

        Raises:
            IdempotencyConflict: the key was used with another body.
            InboxFull: ``limit`` messages are pending.
            NotFound: no such session.
        """
        ...

    def admit_many(self, admissions: Sequence[InboxWrite]) -> list[Receipt | Exception]:
        """Admit several messages with one sync to disk; each is admitted or refused by itself, as by `admit`.

        Those of one session get their positions in the given order.

        Returns:
            for each, in order, its receipt or the error that `admit` would raise.

        Raises:
            Unavailable: it is unknown whether any of them was admitted.
        """
        ...

    def pending(self, session_id: SessionId, limit: int = 100) -> Sequence[InboxMessage]:
        """Return the pending messages, in order of position."""
        ...

    def message(self, message_id: MessageId) -> InboxMessage:
        """Return one message, whatever its status.

        Raises:
            NotFound: it was never admitted, or its record was pruned.
        """
        ...

    def message_of_key(self, session_id: SessionId, idempotency_key: str) -> InboxMessage | None:
        """Return the message that was admitted to a session under an idempotency key, whatever its status.

        ``None`` if there is none, or its record was pruned.
        """
        ...

    def messages(self, session_id: SessionId, status: MessageStatus) -> Sequence[InboxMessage]:
        """Return a session's messages of one status, in order of position."""
        ...

    def waiting_before(self, message_id: MessageId) -> int:
        """Return the number of pending messages before a message in its inbox, whatever its own status.

        Raises:
            NotFound: it was never admitted, or its record was pruned.
        """
        ...

    def retry_message(self, session_id: SessionId, message_id: MessageId) -> InboxMessage:
        """Make a parked message pending again, at its old position and with its attempts reset.

        Raises:
            NotFound: no such message, or it is not parked.
        """
        ...

    def sessions_with_pending(self, prefix: str = "") -> Sequence[Session]:
        """Return the sessions that have pending messages and whose name starts with ``prefix``, the oldest first."""
        ...

    def backlog(self) -> Backlog:
        """Count what waits in all sessions. It reads an entry of each session, and those of waiting messages."""
        ...

    # -- steps ----------------------------------------------------------------------------------------------------

    def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        """Store the result of a part of the handling of a pending message, durably.

        Args:
            epoch: of the writer's lease, as in a `Commit`.

        Raises:
            StaleEpoch: the epoch is not the one in force.
            NotFound: the message is not pending in this session.
            Conflict: the message has a step of that number.
            Unavailable: it is unknown whether the step was stored; `steps` tells.
        """
        ...

    def steps(self, message_id: MessageId) -> Sequence[StoredStep]:
        """Return the steps of a message, by number."""
        ...

    def steps_of_session(self, session_id: SessionId) -> Sequence[StoredStep]:
        """Return the steps of all messages of a session, by the position of the message, then number."""
        ...

    def drop_steps(self, message_id: MessageId) -> None:
        """Drop the steps of a message, so that its next attempt begins anew; doing it twice is harmless."""
        ...

    # -- reminders ------------------------------------------------------------------------------------------------

    def reminders(self, session_id: SessionId) -> Sequence[Reminder]:
        """Return a session's reminders, by name."""
        ...

    def due_reminders(self, now_ms: int, limit: int) -> Sequence[Reminder]:
        """Return reminders of all sessions that are due at or before ``now_ms``, longest due first."""
        ...

    def next_reminder_ms(self, after_ms: int = -1) -> int | None:
        """Return the first time after ``after_ms`` at which a reminder of any session is due; ``None`` without one."""
        ...

    def cancel_reminder(self, session_id: SessionId, name: str) -> bool:
        """Drop a reminder outside of a commit, durably; return whether there was one."""
        ...

    def fire_reminder(
        self,
        session_id: SessionId,
        name: str,
        due_ms: int,
        message: NewMessage,
        next_due_ms: int | None,
        next_body: bytes | None = None,
    ) -> Receipt | None:
        """Admit the message of a due reminder, and move or drop the reminder, in one durable transaction.

        The message is admitted whatever the number of pending ones.

        Args:
            due_ms: the time at which it is due. If the reminder is due at another time, or does not exist, nothing
                happens: it was fired already, replaced or cancelled.
            next_due_ms: when it is due again; ``None`` to drop it.
            next_body: its new body; ``None`` to keep the old one.

        Returns:
            the receipt; ``None`` if nothing happened.

        Raises:
            IdempotencyConflict: the message's key was used with another body.
        """
        ...

    # -- outbox ---------------------------------------------------------------------------------------------------

    def outbox(self, limit: int = 100, among: Sequence[MessageId] | None = None) -> Sequence[OutboxMessage]:
        """Return messages that were committed and not yet delivered, oldest first.

        Args:
            among: only those of these ids, at most 1,000; ``None`` for all.
        """
        ...

    def outbox_envelopes(self) -> Sequence[OutboxEnvelope]:
        """Return the envelopes of all messages in the outbox, oldest first; their bodies are not read."""
        ...

    def outbox_delivered(self, message_id: MessageId) -> None:
        """Drop a delivered message from the outbox; doing it twice is harmless."""
        ...

    # -- leases ---------------------------------------------------------------------------------------------------

    def acquire_lease(
        self, session_id: SessionId, holder: str, now_ms: int, ttl_ms: int, *, takeover: bool = False
    ) -> Lease:
        """Acquire the lease under a new epoch, one higher than the last.

        Args:
            takeover: acquire it before another holder's lease has expired, because that holder is known to be dead.

        Raises:
            LeaseHeld: another holder's lease has not expired and ``takeover`` is false. A holder may replace its own
                lease.
            NotFound: no such session.
        """
        ...

    def renew_lease(self, session_id: SessionId, epoch: int, now_ms: int, ttl_ms: int) -> Lease:
        """Extend the lease to ``now_ms + ttl_ms``.

        Raises:
            StaleEpoch: the lease was acquired by another holder, or released.
        """
        ...

    def release_lease(self, session_id: SessionId, epoch: int) -> None:
        """Release the lease; does nothing if it is no longer held under that epoch."""
        ...

    def renew_leases(self, leases: Sequence[tuple[SessionId, int]], now_ms: int, ttl_ms: int) -> Sequence[SessionId]:
        """Extend leases, each given by its session and epoch, to ``now_ms + ttl_ms`` in one transaction.

        Returns:
            the sessions whose leases were acquired by another holder, or released, or that do not exist; the others'
            leases are extended all the same.
        """
        ...

    def release_leases(self, leases: Sequence[tuple[SessionId, int]]) -> None:
        """Release leases, each given by its session and epoch, in one transaction; each as `release_lease` does."""
        ...

    def lease(self, session_id: SessionId) -> Lease | None:
        """Return the lease as last acquired, expired or not; ``None`` if released or never acquired."""
        ...

    def held_sessions(self, holder_prefix: str) -> Sequence[tuple[Session, Lease]]:
        """Return the leases, expired or not, whose holder's name starts with ``holder_prefix``, with their sessions."""
        ...

    # -- snapshots ------------------------------------------------------------------------------------------------

    def snapshot(self, branch_id: BranchId, at_seq: int | None = None) -> Snapshot | None:
        """Return the newest snapshot at or before ``at_seq`` (by default the head), crossing into parents."""
        ...

    def put_snapshot(self, snapshot: Snapshot) -> None:
        """Store a snapshot taken outside of a commit; replaces one of the same branch and seq."""
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
