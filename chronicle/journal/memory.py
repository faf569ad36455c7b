"""A journal in memory: for tests and simulations. It promises all that the port does but durability.

Every method holds one lock, and a commit checks everything before it changes anything.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from chronicle.errors import (
    BranchInUse,
    BranchVersionConflict,
    ChronicleError,
    Conflict,
    IdempotencyConflict,
    InboxFull,
    InvalidInput,
    LeaseHeld,
    NotFound,
    StaleEpoch,
    Unavailable,
)
from chronicle.journal.chain import catalogue_genesis, check_base, empty_head, head_after, seal_entry
from chronicle.journal.records import (
    Branch,
    BranchChange,
    CatalogueEntry,
    Head,
    InboxMessage,
    Lease,
    MessageStatus,
    Outcome,
    Receipt,
    Session,
    Snapshot,
    Tombstone,
)
from chronicle.journal.snapshots import kept_seqs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.ids import BranchId, EventId, MessageId, SessionId
    from chronicle.journal.records import Commit, Event, NewMessage, OutboxMessage
    from chronicle.journal.store import EventRow

__all__ = ["MemoryJournalStore"]


@dataclass(slots=True)
class _Session:
    record: Session
    catalogue: list[CatalogueEntry] = field(default_factory=list)
    inbox: dict[int, InboxMessage] = field(default_factory=dict)
    keys: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """Idempotency key to position and SHA-256 of the body."""
    last_position: int = 0
    epoch: int = 0
    lease: Lease | None = None


@dataclass(slots=True)
class _Branch:
    record: Branch
    base_hash: str
    """The hash before its first own event."""
    events: list[Event] = field(default_factory=list)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)

    @property
    def base_seq(self) -> int:
        """The seq before its first own event."""
        return max(self.record.parent_seq, self.record.folded_seq)

    def parent_id(self) -> BranchId | None:
        """The branch that it reads from, if any."""
        return self.record.parent_branch_id if not self.record.folded_seq else None


class MemoryJournalStore:
    """A :class:`~chronicle.journal.store.JournalStore` that lasts as long as the object."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._closed = False
        self._sessions: dict[SessionId, _Session] = {}
        self._names: dict[str, SessionId] = {}
        self._branches: dict[BranchId, _Branch] = {}
        self._events: dict[EventId, Event] = {}
        self._messages: dict[MessageId, tuple[SessionId, int]] = {}
        self._outbox: dict[MessageId, OutboxMessage] = {}
        self._tombstones: list[Tombstone] = []

    # -- sessions and branches ------------------------------------------------------------------------------------

    def ensure_session(self, name: str, session_id: SessionId, branch_id: BranchId, now_ms: int) -> Session:
        """Return the session of that name; make it when there is none."""
        with self._open():
            if name in self._names:
                return self._sessions[self._names[name]].record
            return self._make_session(name, session_id, branch_id, None, empty_head(branch_id), now_ms)

    def session(self, name: str) -> Session:
        """Return the session of that name."""
        with self._open():
            if name not in self._names:
                raise NotFound(f"no session named {name!r}")
            return self._sessions[self._names[name]].record

    def sessions(self, prefix: str = "") -> Sequence[Session]:
        """Return the sessions whose name starts with ``prefix``, by name."""
        with self._open():
            return [self._sessions[self._names[name]].record for name in sorted(self._names) if name.startswith(prefix)]

    def branch(self, branch_id: BranchId) -> Branch:
        """Return a branch with its head as it is now."""
        with self._open():
            return self._branch(branch_id).record

    def branches(self, session_id: SessionId) -> Sequence[Branch]:
        """Return a session's branches, oldest first."""
        with self._open():
            return [branch.record for branch in self._branches.values() if branch.record.session_id == session_id]

    def head(self, branch_id: BranchId) -> Head:
        """Return a branch's head."""
        return self.branch(branch_id).head

    def fork_branch(self, parent_branch_id: BranchId, parent_seq: int, branch_id: BranchId, now_ms: int) -> Branch:
        """Make a branch in the same session that continues another one after ``parent_seq``."""
        with self._open():
            parent = self._branch(parent_branch_id).record
            head = self._fork_head(parent, parent_seq, branch_id)
            self._make_branch(self._sessions[parent.session_id], branch_id, parent_branch_id, head, now_ms)
            return self._branches[branch_id].record

    def fork_session(
        self,
        parent_branch_id: BranchId,
        parent_seq: int,
        name: str,
        session_id: SessionId,
        branch_id: BranchId,
        now_ms: int,
    ) -> Session:
        """Make a session whose main branch continues a branch of another session after ``parent_seq``."""
        with self._open():
            head = self._fork_head(self._branch(parent_branch_id).record, parent_seq, branch_id)
            if name in self._names:
                raise Conflict(f"there is a session named {name!r} already")
            return self._make_session(name, session_id, branch_id, parent_branch_id, head, now_ms)

    def adopt_session(self, name: str, session_id: SessionId, branch_id: BranchId, base: Head, now_ms: int) -> Session:
        """Make a session whose main branch begins after an event that was folded elsewhere."""
        check_base(base)
        with self._open():
            if name in self._names:
                raise Conflict(f"there is a session named {name!r} already")
            made = self._make_session(name, session_id, branch_id, None, empty_head(branch_id), now_ms)
            self._catalogue(self._sessions[session_id], BranchChange.FOLDED, branch_id, None, base, now_ms)
            branch = self._branches[branch_id]
            branch.base_hash = base.hash
            head = replace(base, branch_id=branch_id, event_id=None)
            branch.record = replace(branch.record, head=head, folded_seq=base.seq)
            return made

    def delete_branch(self, branch_id: BranchId, now_ms: int) -> None:
        """Delete a branch, its events and snapshots."""
        with self._open():
            branch = self._branch(branch_id)
            session = self._sessions[branch.record.session_id]
            if session.record.main_branch_id == branch_id:
                raise InvalidInput(f"branch {branch_id} is the main branch of session {session.record.name!r}")
            self._refuse_if_read(branch_id)
            head = branch.record.head
            self._catalogue(session, BranchChange.DELETED, branch_id, branch.record.parent_branch_id, head, now_ms)
            for event in branch.events:
                del self._events[event.event_id]
            del self._branches[branch_id]

    def fold(self, branch_id: BranchId, before_seq: int, now_ms: int) -> Branch:
        """Drop what came before an event of the branch's own."""
        with self._open():
            branch = self._branch(branch_id)
            if not branch.base_seq < before_seq <= branch.record.head.seq:
                raise InvalidInput(f"event {before_seq} is not one of branch {branch_id}'s own")
            first = branch.events[before_seq - branch.base_seq - 1]
            folded_seq = before_seq - 1
            if folded_seq > branch.record.folded_seq:
                self._refuse_if_read(branch_id)
                head = replace(branch.record.head, seq=folded_seq, hash=first.prev_hash)
                session = self._sessions[branch.record.session_id]
                self._catalogue(session, BranchChange.FOLDED, branch_id, branch.record.parent_branch_id, head, now_ms)
                dropped = folded_seq - branch.base_seq
                for event in branch.events[:dropped]:
                    del self._events[event.event_id]
                branch.events = branch.events[dropped:]
                branch.snapshots = {seq: body for seq, body in branch.snapshots.items() if seq >= before_seq}
                branch.base_hash = first.prev_hash
                branch.record = replace(branch.record, folded_seq=folded_seq)
            return branch.record

    def delete_session(self, session_id: SessionId, now_ms: int) -> Tombstone:
        """Delete a session and all that belongs to it."""
        with self._open():
            session = self._session(session_id)
            lease = session.lease
            if lease is not None and lease.expires_ms > now_ms:
                raise LeaseHeld(lease.holder, lease.epoch, lease.expires_ms)
            mine = [branch for branch in self._branches.values() if branch.record.session_id == session_id]
            for branch in mine:
                self._refuse_if_read(branch.record.branch_id, but=session_id)
            for branch in mine:
                for event in branch.events:
                    del self._events[event.event_id]
                del self._branches[branch.record.branch_id]
            for message in session.inbox.values():
                del self._messages[message.message_id]
            del self._sessions[session_id]
            del self._names[session.record.name]
            events = sum(len(branch.events) for branch in mine)
            tombstone = Tombstone(session_id, session.record.name, now_ms, events, session.catalogue[-1].hash)
            self._tombstones.append(tombstone)
            return tombstone

    def tombstones(self, prefix: str = "") -> Sequence[Tombstone]:
        """Return what is left of deleted sessions, in order of deletion."""
        with self._open():
            return [tombstone for tombstone in self._tombstones if tombstone.name.startswith(prefix)]

    def catalogue(self, session_id: SessionId) -> Sequence[CatalogueEntry]:
        """Return the chained list of a session's branches made and deleted."""
        with self._open():
            return list(self._session(session_id).catalogue)

    @contextmanager
    def audit(self, session_id: SessionId) -> Iterator[_MemoryAudit]:
        """Open what is stored of a session, as of one moment."""
        with self._open():
            session = self._session(session_id)
            audit = _MemoryAudit(session.record, list(session.catalogue))
            for branch_id, branch in self._branches.items():
                audit.all_branches[branch_id] = (branch.record, branch.base_hash, list(branch.events))
        yield audit

    # -- events ---------------------------------------------------------------------------------------------------

    def events(
        self,
        branch_id: BranchId,
        after_seq: int = 0,
        to_seq: int | None = None,
        types: Sequence[str] | None = None,
    ) -> Iterator[Event]:
        """Yield events ``after_seq + 1 … to_seq`` in order, crossing into parents."""
        with self._open():
            found: list[Event] = []
            for branch, last_seq in self._lineage(branch_id, to_seq):
                own = branch.base_seq
                found[:0] = branch.events[max(after_seq - own, 0) : max(last_seq - own, 0)]
        return iter([event for event in found if types is None or event.type in types])

    def find_event(self, event_id: EventId) -> Event | None:
        """Return an event by its id, ``None`` if it was never committed."""
        with self._open():
            return self._events.get(event_id)

    def commit(self, commit: Commit) -> Head:
        """Append, settle messages, fill the outbox and keep the snapshot, or do nothing of it."""
        head = head_after(commit.expected, commit.events)
        with self._open():
            branch = self._branches.get(head.branch_id)
            session = self._session(commit.session_id)
            if branch is None or branch.record.session_id != commit.session_id:
                raise NotFound(f"no branch {head.branch_id} in session {commit.session_id}")
            in_force = 0 if session.epoch == 0 else session.lease.epoch if session.lease else None
            if (commit.epoch or 0) != in_force or commit.epoch == 0:
                raise StaleEpoch(commit.epoch or 0, session.epoch)
            now = branch.record.head
            if (now.seq, now.hash) != (commit.expected.seq, commit.expected.hash):
                raise BranchVersionConflict(head.branch_id, now.seq, now.event_id)
            settled = [
                _settle(
                    self._settleable(commit.session_id, settlement.message_id, settlement.outcome), settlement.outcome
                )
                for settlement in commit.settled
            ]
            if len({message.message_id for message in settled}) < len(settled):
                raise NotFound("a message of the commit is settled twice")
            ids = [event.event_id for event in commit.events]
            if len(set(ids)) < len(ids) or any(event_id in self._events for event_id in ids):
                raise InvalidInput("an event id of the commit was used before")
            sent = [message.message_id for message in commit.outbox]
            if len(set(sent)) < len(sent) or any(message_id in self._outbox for message_id in sent):
                raise InvalidInput("a message of the commit is in the outbox already")
            if commit.snapshot is not None:
                _check_snapshot(commit.snapshot, head)
            # Nothing below can fail.
            branch.record = replace(branch.record, head=head)
            branch.events.extend(commit.events)
            self._events.update((event.event_id, event) for event in commit.events)
            session.inbox.update((message.position, message) for message in settled)
            self._outbox.update((message.message_id, message) for message in commit.outbox)
            if commit.snapshot is not None:
                _keep_snapshot(branch, commit.snapshot)
            return head

    def commit_many(self, commits: Sequence[Commit]) -> list[Head | Exception]:
        """Do several commits; each succeeds or fails by itself."""
        outcomes: list[Head | Exception] = []
        for commit in commits:
            try:
                outcomes.append(self.commit(commit))
            except ChronicleError as error:
                outcomes.append(error)
        return outcomes

    def erase(self, event_ids: Sequence[EventId]) -> None:
        """Erase the payloads of events."""
        with self._open():
            for event_id in event_ids:
                if event_id not in self._events:
                    raise NotFound(f"no event {event_id}")
            for event_id in event_ids:
                event = self._events[event_id]
                branch = self._branch(event.branch_id)
                erased = replace(event, payload=None, erased=True)
                branch.events[event.seq - branch.base_seq - 1] = self._events[event_id] = erased

    # -- inbox ----------------------------------------------------------------------------------------------------

    def admit(self, session_id: SessionId, message: NewMessage, limit: int = 1000) -> Receipt:
        """Give a message its place."""
        digest = sha256(message.body).digest()
        with self._open():
            session = self._session(session_id)
            key = message.idempotency_key
            if key is not None and key in session.keys:
                position, first_digest = session.keys[key]
                if digest != first_digest:
                    raise IdempotencyConflict(key)
                return Receipt(session_id, session.inbox[position].message_id, position, repeated=True)
            if message.message_id in self._messages:
                raise InvalidInput(f"message id {message.message_id} was used before")
            if sum(other.status is MessageStatus.PENDING for other in session.inbox.values()) >= limit:
                raise InboxFull(limit)
            session.last_position += 1
            position = session.last_position
            session.inbox[position] = InboxMessage(
                session_id,
                position,
                message.message_id,
                key,
                message.sender,
                message.body,
                message.admitted_ms,
                0,
                MessageStatus.PENDING,
            )
            self._messages[message.message_id] = (session_id, position)
            if key is not None:
                session.keys[key] = (position, digest)
            return Receipt(session_id, message.message_id, position, repeated=False)

    def pending(self, session_id: SessionId, limit: int = 100) -> Sequence[InboxMessage]:
        """Return the pending messages, in order of position."""
        return self.messages(session_id, MessageStatus.PENDING)[:limit]

    def message(self, message_id: MessageId) -> InboxMessage:
        """Return one message, whatever its status."""
        with self._open():
            if message_id not in self._messages:
                raise NotFound(f"no message {message_id}")
            session_id, position = self._messages[message_id]
            return self._sessions[session_id].inbox[position]

    def messages(self, session_id: SessionId, status: MessageStatus) -> Sequence[InboxMessage]:
        """Return a session's messages of one status, in order of position."""
        with self._open():
            if session_id not in self._sessions:
                return []
            inbox = self._sessions[session_id].inbox
            return [inbox[position] for position in sorted(inbox) if inbox[position].status is status]

    def retry_message(self, session_id: SessionId, message_id: MessageId) -> InboxMessage:
        """Put a parked message back into its place."""
        with self._open():
            found = self._messages.get(message_id)
            if found is None or found[0] != session_id or self.message(message_id).status is not MessageStatus.PARKED:
                raise NotFound(f"no parked message {message_id} in session {session_id}")
            message = replace(self.message(message_id), status=MessageStatus.PENDING, attempts=0)
            self._sessions[session_id].inbox[message.position] = message
            return message

    def waiting_before(self, message_id: MessageId) -> int:
        """Return how many pending messages come before one."""
        with self._open():
            message = self.message(message_id)
            pending = self.messages(message.session_id, MessageStatus.PENDING)
            return sum(other.position < message.position for other in pending)

    def sessions_with_pending(self) -> Sequence[SessionId]:
        """Return the sessions that have pending messages."""
        with self._open():
            return [session_id for session_id in self._sessions if self.messages(session_id, MessageStatus.PENDING)]

    # -- outbox ---------------------------------------------------------------------------------------------------

    def outbox(self, limit: int = 100) -> Sequence[OutboxMessage]:
        """Return messages that were committed and not yet delivered, oldest first."""
        with self._open():
            return list(self._outbox.values())[:limit]

    def outbox_delivered(self, message_id: MessageId) -> None:
        """Drop a delivered message from the outbox."""
        with self._open():
            self._outbox.pop(message_id, None)

    # -- leases ---------------------------------------------------------------------------------------------------

    def acquire_lease(
        self, session_id: SessionId, holder: str, now_ms: int, ttl_ms: int, *, takeover: bool = False
    ) -> Lease:
        """Take the lease under a new epoch, one higher than the last."""
        with self._open():
            session = self._session(session_id)
            held = session.lease
            if held is not None and held.holder != holder and held.expires_ms > now_ms and not takeover:
                raise LeaseHeld(held.holder, held.epoch, held.expires_ms)
            session.epoch += 1
            session.lease = Lease(session_id, holder, session.epoch, now_ms + ttl_ms)
            return session.lease

    def renew_lease(self, session_id: SessionId, epoch: int, now_ms: int, ttl_ms: int) -> Lease:
        """Push the lease's end to ``now_ms + ttl_ms``."""
        with self._open():
            session = self._session(session_id)
            if session.lease is None or session.lease.epoch != epoch:
                raise StaleEpoch(epoch, session.epoch)
            session.lease = replace(session.lease, expires_ms=now_ms + ttl_ms)
            return session.lease

    def release_lease(self, session_id: SessionId, epoch: int) -> None:
        """Give the lease back; harmless when it is not held under that epoch any more."""
        with self._open():
            session = self._sessions.get(session_id)
            if session is not None and session.lease is not None and session.lease.epoch == epoch:
                session.lease = None

    def lease(self, session_id: SessionId) -> Lease | None:
        """Return the lease as it was last taken; ``None`` when released or never taken."""
        with self._open():
            session = self._sessions.get(session_id)
            return session.lease if session is not None else None

    # -- snapshots ------------------------------------------------------------------------------------------------

    def snapshot(self, branch_id: BranchId, at_seq: int | None = None) -> Snapshot | None:
        """Return the newest snapshot at or before ``at_seq``, crossing into parents."""
        with self._open():
            for branch, last_seq in self._lineage(branch_id, at_seq):
                seqs = [seq for seq in branch.snapshots if seq <= last_seq]
                if seqs:
                    return branch.snapshots[max(seqs)]
            return None

    def put_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot made outside of a commit."""
        with self._open():
            branch = self._branch(snapshot.branch_id)
            _check_snapshot(snapshot, branch.record.head)
            _keep_snapshot(branch, snapshot)

    # -- life -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Forget everything; using the store afterwards raises ``Unavailable``."""
        with self._lock:
            self._closed = True

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise Unavailable("this journal was closed")
            yield

    def _session(self, session_id: SessionId) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise NotFound(f"no session {session_id}")
        return session

    def _branch(self, branch_id: BranchId) -> _Branch:
        branch = self._branches.get(branch_id)
        if branch is None:
            raise NotFound(f"no branch {branch_id}")
        return branch

    def _lineage(self, branch_id: BranchId, to_seq: int | None) -> list[tuple[_Branch, int]]:
        """The branch and its ancestors, each with the last seq that is read from it."""
        branch = self._branch(branch_id)
        last_seq = branch.record.head.seq if to_seq is None else min(to_seq, branch.record.head.seq)
        lineage = [(branch, last_seq)]
        while (parent_id := branch.parent_id()) is not None:
            last_seq = min(last_seq, branch.record.parent_seq)
            branch = self._branches[parent_id]
            lineage.append((branch, last_seq))
        return lineage

    def _refuse_if_read(self, branch_id: BranchId, *, but: SessionId | None = None) -> None:
        """Refuse when forks read from the branch, but for those of one session."""
        forks = [
            fork.record.branch_id
            for fork in self._branches.values()
            if fork.parent_id() == branch_id and fork.record.session_id != but
        ]
        if forks:
            raise BranchInUse(branch_id, tuple(forks))

    def _fork_head(self, parent: Branch, parent_seq: int, branch_id: BranchId) -> Head:
        if not 0 <= parent_seq <= parent.head.seq:
            raise InvalidInput(
                f"branch {parent.branch_id} has events 1 to {parent.head.seq}; no {parent_seq} to fork at"
            )
        if parent_seq == 0:
            return empty_head(branch_id)
        event = next(self.events(parent.branch_id, parent_seq - 1, parent_seq), None)
        if event is None:
            raise InvalidInput(f"event {parent_seq} of branch {parent.branch_id} was folded; fork at a later one")
        return Head(branch_id, parent_seq, event.event_id, event.hash, event.turn)

    def _make_session(
        self, name: str, session_id: SessionId, branch_id: BranchId, parent: BranchId | None, head: Head, now_ms: int
    ) -> Session:
        if session_id in self._sessions:
            raise Conflict(f"there is a session {session_id} already")
        session = _Session(Session(session_id, name, branch_id, now_ms))
        self._make_branch(session, branch_id, parent, head, now_ms)
        self._sessions[session_id] = session
        self._names[name] = session_id
        return session.record

    def _make_branch(
        self, session: _Session, branch_id: BranchId, parent: BranchId | None, head: Head, now_ms: int
    ) -> None:
        if branch_id in self._branches:
            raise Conflict(f"there is a branch {branch_id} already")
        record = Branch(branch_id, session.record.session_id, parent, head.seq, head, now_ms)
        self._branches[branch_id] = _Branch(record, head.hash)
        self._catalogue(session, BranchChange.CREATED, branch_id, parent, head, now_ms)

    def _catalogue(
        self,
        session: _Session,
        change: BranchChange,
        branch_id: BranchId,
        parent: BranchId | None,
        head: Head,
        now_ms: int,
    ) -> None:
        session_id = session.record.session_id
        before = session.catalogue[-1].hash if session.catalogue else catalogue_genesis(session.record)
        number = len(session.catalogue) + 1
        entry = CatalogueEntry(session_id, number, change, branch_id, parent, head.seq, head.hash, now_ms, before, "")
        session.catalogue.append(seal_entry(entry))

    def _settleable(self, session_id: SessionId, message_id: MessageId, outcome: Outcome) -> InboxMessage:
        found = self._messages.get(message_id)
        message = self._sessions[session_id].inbox[found[1]] if found and found[0] == session_id else None
        allowed = {MessageStatus.PENDING}
        if outcome is Outcome.CANCELLED:
            allowed.add(MessageStatus.PARKED)
        if message is None or message.status not in allowed:
            raise NotFound(f"message {message_id} does not wait in the inbox of session {session_id}")
        return message


@dataclass(slots=True)
class _MemoryAudit:
    """A copy of what the store held of a session."""

    session: Session
    catalogue: Sequence[CatalogueEntry]
    all_branches: dict[BranchId, tuple[Branch, str, list[Event]]] = field(default_factory=dict)

    @property
    def catalogue_head(self) -> tuple[int, str]:
        """The number and hash of the catalogue's last entry."""
        return self.catalogue[-1].number, self.catalogue[-1].hash

    @property
    def branches(self) -> Sequence[Branch]:
        """The branches that are there."""
        return [branch for branch, _, _ in self.all_branches.values() if branch.session_id == self.session.session_id]

    def branch(self, branch_id: BranchId) -> Branch | None:
        """Return a branch of any session."""
        found = self.all_branches.get(branch_id)
        return found[0] if found else None

    def base_hash(self, branch_id: BranchId) -> str:
        """Return the hash before a branch's first own event."""
        return self.all_branches[branch_id][1]

    def rows(self, branch_id: BranchId) -> Iterator[EventRow]:
        """Yield a branch's own events by seq."""
        for event in self.all_branches[branch_id][2]:
            yield (
                event.seq,
                event.event_id,
                event.type,
                event.turn,
                event.ts,
                event.correlation_id,
                event.causation_id,
                event.payload_ref,
                bytes.fromhex(event.payload_sha256),
                event.payload,
                bytes.fromhex(event.hash.partition(":")[2]),
            )


def _settle(message: InboxMessage, outcome: Outcome) -> InboxMessage:
    match outcome:
        case Outcome.CONSUMED:
            return replace(message, status=MessageStatus.CONSUMED, body=None)
        case Outcome.CANCELLED:
            return replace(message, status=MessageStatus.CANCELLED, body=None)
        case Outcome.FAILED:
            return replace(message, attempts=message.attempts + 1)
        case Outcome.PARKED:
            return replace(message, attempts=message.attempts + 1, status=MessageStatus.PARKED)


def _check_snapshot(snapshot: Snapshot, head: Head) -> None:
    if snapshot.branch_id != head.branch_id or not 0 <= snapshot.seq <= head.seq:
        raise InvalidInput(
            f"a snapshot of branch {snapshot.branch_id} at {snapshot.seq} does not fit branch {head.branch_id}, "
            f"which ends at {head.seq}"
        )


def _keep_snapshot(branch: _Branch, snapshot: Snapshot) -> None:
    branch.snapshots[snapshot.seq] = snapshot
    kept = kept_seqs(branch.snapshots)
    branch.snapshots = {seq: branch.snapshots[seq] for seq in branch.snapshots if seq in kept}
