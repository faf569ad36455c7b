"""Sessions and branches in memory."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from chronicle.errors import Conflict, InvalidInput, LeaseHeld, NotFound
from chronicle.journal.chain import check_base, empty_head
from chronicle.journal.memory.audit import MemoryAudit
from chronicle.journal.memory.tables import Tables
from chronicle.journal.records import (
    DEFAULT_NAMESPACE,
    NO_FILTER,
    ROW_BYTES,
    Branch,
    BranchChange,
    CatalogueEntry,
    Head,
    MessageStatus,
    RecordUsage,
    Session,
    SessionFilter,
    SessionSummary,
    Tombstone,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.ids import BranchId, SessionId

__all__ = ["Sessions"]


class Sessions(Tables):
    """Create, fork, fold and delete sessions and branches."""

    def ensure_session(
        self,
        name: str,
        session_id: SessionId,
        branch_id: BranchId,
        now_ms: int,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Session:
        """Return the session of that name; create it if there is none."""
        with self._open():
            if (name, namespace) in self._names:
                return self._sessions[self._names[name, namespace]].record
            return self._make_session(
                Session(session_id, name, branch_id, now_ms, namespace), None, empty_head(branch_id)
            )

    def session(self, name: str, namespace: str = DEFAULT_NAMESPACE) -> Session:
        """Return the session of that name."""
        with self._open():
            if (name, namespace) not in self._names:
                raise NotFound(f"no session named {name!r}")
            return self._sessions[self._names[name, namespace]].record

    def session_of_id(self, session_id: SessionId) -> Session:
        """Return the session of that id."""
        with self._open():
            return self._session(session_id).record

    def sessions(
        self, prefix: str = "", namespace: str | None = None, *, after: str = "", limit: int | None = None
    ) -> Sequence[Session]:
        """Return the sessions whose name starts with ``prefix``, by name, then namespace."""
        with self._open():
            found = [self._sessions[self._names[names]].record for names in sorted(self._names)]
        named = (session for session in found if session.name.startswith(prefix) and session.name > after)
        return [session for session in named if namespace in (None, session.namespace)][:limit]

    def summaries(
        self,
        prefix: str = "",
        namespace: str | None = None,
        *,
        after: str = "",
        after_namespace: str | None = None,
        limit: int | None = None,
        only: SessionFilter = NO_FILTER,
    ) -> Sequence[SessionSummary]:
        """Return the sessions that `sessions` returns, each with what a list shows."""
        with self._open():
            place = after if after_namespace is None else ""
            found = (
                session
                for session in self.sessions(prefix, namespace, after=place)
                if (session.name, session.namespace) > (after, after_namespace or "") and self._passes(session, only)
            )
            return [self._summary(session) for session in islice(found, limit)]

    def count_sessions(
        self,
        prefix: str = "",
        namespace: str | None = None,
        *,
        after: str = "",
        after_namespace: str | None = None,
        only: SessionFilter = NO_FILTER,
    ) -> int:
        """Return the number of sessions that `summaries` returns without a limit."""
        return len(self.summaries(prefix, namespace, after=after, after_namespace=after_namespace, only=only))

    def _passes(self, session: Session, only: SessionFilter) -> bool:
        lease = self._sessions[session.session_id].lease
        leased = only.leased_at_ms is None or (lease is not None and lease.expires_ms > only.leased_at_ms)
        return leased and ("/" in session.name or not only.with_slash)

    def record_usage(self, namespace: str = DEFAULT_NAMESPACE) -> RecordUsage:
        """Return what the records of a namespace take."""
        with self._open():
            sessions = [each for each in self._sessions.values() if each.record.namespace == namespace]
            ids = {each.record.session_id for each in sessions}
            branches = [each for each in self._branches.values() if each.record.session_id in ids]
            events = [event for branch in branches for event in branch.events]
            bodies = [
                *(event.payload for event in events),
                *(message.body for each in sessions for message in each.inbox.values() if message.body),
                *(step.body for each in sessions for steps in each.steps.values() for step in steps),
                *(reminder.body for each in sessions for reminder in each.reminders.values()),
                *(sent.body for sent in self._outbox.values() if sent.namespace == namespace),
                *(found.body for found in self._objects.values() if found.namespace == namespace),
            ]
            size = sum(len(body or b"") for body in bodies) + (len(bodies) + len(branches)) * ROW_BYTES
            return RecordUsage(size, [event.payload_ref for event in events if event.payload_ref and not event.erased])

    def _summary(self, session: Session) -> SessionSummary:
        table, head = self._sessions[session.session_id], self._branch(session.main_branch_id).record.head
        events = (event for branch in self._branches.values() for event in branch.events)
        last_ms = next((event.ts for event in events if event.event_id == head.event_id), None)
        counts = Counter(message.status for message in table.inbox.values())
        pending, parked = counts[MessageStatus.PENDING], counts[MessageStatus.PARKED]
        return SessionSummary(session, head, last_ms, table.lease, pending, parked)

    def branch(self, branch_id: BranchId) -> Branch:
        """Return a branch with its current head."""
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
        """Create a branch in the same session that continues another one after ``parent_seq``."""
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
        """Create a session whose main branch continues a branch of another session after ``parent_seq``."""
        with self._open():
            parent = self._branch(parent_branch_id).record
            head = self._fork_head(parent, parent_seq, branch_id)
            namespace = self._sessions[parent.session_id].record.namespace
            if (name, namespace) in self._names:
                raise Conflict(f"there is a session named {name!r} already")
            made = Session(session_id, name, branch_id, now_ms, namespace)
            return self._make_session(made, parent_branch_id, head)

    def import_session(
        self,
        name: str,
        session_id: SessionId,
        branch_id: BranchId,
        base: Head,
        now_ms: int,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Session:
        """Create a session whose main branch starts after an event that was folded in another store."""
        check_base(base)
        with self._open():
            if (name, namespace) in self._names:
                raise Conflict(f"there is a session named {name!r} already")
            made = Session(session_id, name, branch_id, now_ms, namespace)
            self._make_session(made, None, empty_head(branch_id))
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
        """Drop all history before one of the branch's own events."""
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
        """Delete a session and all its records."""
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
            self._objects = {name: each for name, each in self._objects.items() if each.session_id != session_id}
            del self._sessions[session_id]
            name, namespace = session.record.name, session.record.namespace
            del self._names[name, namespace]
            events = sum(len(branch.events) for branch in mine)
            tombstone = Tombstone(session_id, name, now_ms, events, session.catalogue[-1].hash, namespace)
            self._tombstones.append(tombstone)
            return tombstone

    def tombstones(self, prefix: str = "", namespace: str | None = None) -> Sequence[Tombstone]:
        """Return the tombstones of deleted sessions, in order of deletion."""
        with self._open():
            return [
                tombstone
                for tombstone in self._tombstones
                if tombstone.name.startswith(prefix) and namespace in (None, tombstone.namespace)
            ]

    def catalogue(self, session_id: SessionId) -> Sequence[CatalogueEntry]:
        """Return a session's catalogue: the chained list of branches created, folded and deleted."""
        with self._open():
            return list(self._session(session_id).catalogue)

    @contextmanager
    def audit(self, session_id: SessionId) -> Iterator[MemoryAudit]:
        """Open a consistent view of a session's records."""
        with self._open():
            session = self._session(session_id)
            audit = MemoryAudit(session.record, list(session.catalogue))
            for branch_id, branch in self._branches.items():
                audit.all_branches[branch_id] = (branch.record, branch.base_hash, list(branch.events))
        yield audit
