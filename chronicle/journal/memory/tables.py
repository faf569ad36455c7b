"""The tables of the journal in memory, with look-ups and inserts."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chronicle.errors import BranchInUse, Conflict, InvalidInput, NotFound, StaleEpoch, Unavailable
from chronicle.journal.chain import catalogue_genesis, empty_head, seal_entry
from chronicle.journal.records import (
    Branch,
    BranchChange,
    CatalogueEntry,
    Head,
    InboxMessage,
    Lease,
    Reminder,
    Session,
    Snapshot,
    StoredStep,
    Tombstone,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.ids import BranchId, EventId, MessageId, SessionId
    from chronicle.journal.objects import StoredObject
    from chronicle.journal.records import Event, OutboxMessage

__all__ = ["BranchTable", "SessionTable", "Tables"]


@dataclass(slots=True)
class SessionTable:
    record: Session
    catalogue: list[CatalogueEntry] = field(default_factory=list)
    inbox: dict[int, InboxMessage] = field(default_factory=dict)
    keys: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """Idempotency key to position and SHA-256 of the body."""
    last_position: int = 0
    steps: dict[MessageId, list[StoredStep]] = field(default_factory=dict)
    reminders: dict[str, Reminder] = field(default_factory=dict)
    epoch: int = 0
    lease: Lease | None = None

    def check_epoch(self, epoch: int | None) -> None:
        """Raise `StaleEpoch` unless the epoch, ``None`` for no lease, is the one in force."""
        in_force = 0 if self.epoch == 0 else self.lease.epoch if self.lease else None
        if (epoch or 0) != in_force or epoch == 0:
            raise StaleEpoch(epoch or 0, self.epoch)


@dataclass(slots=True)
class BranchTable:
    record: Branch
    base_hash: str
    """The hash before the branch's first own event."""
    events: list[Event] = field(default_factory=list)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)

    @property
    def base_seq(self) -> int:
        """The seq before the branch's first own event."""
        return max(self.record.parent_seq, self.record.folded_seq)

    def parent_id(self) -> BranchId | None:
        """The branch that this one reads from, if any."""
        return self.record.parent_branch_id if not self.record.folded_seq else None


class Tables:
    """All tables, under one lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._closed = False
        self._sessions: dict[SessionId, SessionTable] = {}
        self._names: dict[tuple[str, str], SessionId] = {}
        """By name and namespace."""
        self._branches: dict[BranchId, BranchTable] = {}
        self._events: dict[EventId, Event] = {}
        self._messages: dict[MessageId, tuple[SessionId, int]] = {}
        self._outbox: dict[MessageId, OutboxMessage] = {}
        self._tombstones: list[Tombstone] = []
        self._objects: dict[tuple[str, str, str], StoredObject] = {}
        """By namespace, kind and id."""

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise Unavailable("this journal was closed")
            yield

    def _session(self, session_id: SessionId) -> SessionTable:
        session = self._sessions.get(session_id)
        if session is None:
            raise NotFound(f"no session {session_id}")
        return session

    def _branch(self, branch_id: BranchId) -> BranchTable:
        branch = self._branches.get(branch_id)
        if branch is None:
            raise NotFound(f"no branch {branch_id}")
        return branch

    def _lineage(self, branch_id: BranchId, to_seq: int | None) -> list[tuple[BranchTable, int]]:
        """Return the branch and its ancestors, each with the last seq read from it."""
        branch = self._branch(branch_id)
        last_seq = branch.record.head.seq if to_seq is None else min(to_seq, branch.record.head.seq)
        lineage = [(branch, last_seq)]
        while (parent_id := branch.parent_id()) is not None:
            last_seq = min(last_seq, branch.record.parent_seq)
            branch = self._branches[parent_id]
            lineage.append((branch, last_seq))
        return lineage

    def _read(self, branch_id: BranchId, after_seq: int, to_seq: int | None) -> list[Event]:
        """Return the events of a branch and its ancestors, in order."""
        found: list[Event] = []
        for branch, last_seq in self._lineage(branch_id, to_seq):
            own = branch.base_seq
            found[:0] = branch.events[max(after_seq - own, 0) : max(last_seq - own, 0)]
        return found

    def _refuse_if_read(self, branch_id: BranchId, *, but: SessionId | None = None) -> None:
        """Raise `BranchInUse` if forks read from the branch; forks in the session ``but`` are ignored."""
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
        event = next(iter(self._read(parent.branch_id, parent_seq - 1, parent_seq)), None)
        if event is None:
            raise InvalidInput(f"event {parent_seq} of branch {parent.branch_id} was folded; fork at a later one")
        return Head(branch_id, parent_seq, event.event_id, event.hash, event.turn)

    def _make_session(self, record: Session, parent: BranchId | None, head: Head) -> Session:
        if record.session_id in self._sessions:
            raise Conflict(f"there is a session {record.session_id} already")
        session = SessionTable(record)
        self._make_branch(session, record.main_branch_id, parent, head, record.created_ms)
        self._sessions[record.session_id] = session
        self._names[record.name, record.namespace] = record.session_id
        return record

    def _make_branch(
        self, session: SessionTable, branch_id: BranchId, parent: BranchId | None, head: Head, now_ms: int
    ) -> None:
        if branch_id in self._branches:
            raise Conflict(f"there is a branch {branch_id} already")
        record = Branch(branch_id, session.record.session_id, parent, head.seq, head, now_ms)
        self._branches[branch_id] = BranchTable(record, head.hash)
        self._catalogue(session, BranchChange.CREATED, branch_id, parent, head, now_ms)

    def _catalogue(
        self,
        session: SessionTable,
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
