"""The part of the port of journal stores that is about sessions and their branches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from chronicle.journal.records import DEFAULT_NAMESPACE, NO_FILTER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from chronicle.ids import BranchId, SessionId
    from chronicle.journal.audit import SessionAudit
    from chronicle.journal.records import (
        Branch,
        CatalogueEntry,
        Head,
        RecordUsage,
        Session,
        SessionFilter,
        SessionSummary,
        Tombstone,
    )

__all__ = ["SessionRecords"]


class SessionRecords(Protocol):
    """Durable sessions and branches of events."""

    def ensure_session(
        self,
        name: str,
        session_id: SessionId,
        branch_id: BranchId,
        now_ms: int,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Session:
        """Return the session of that name; create it, with an empty main branch, if there is none.

        The ids are used only if it is created. Concurrent callers get the same session.
        """
        ...

    def session(self, name: str, namespace: str = DEFAULT_NAMESPACE) -> Session:
        """Return the session of that name.

        Raises:
            NotFound: no such session.
        """
        ...

    def session_of_id(self, session_id: SessionId) -> Session:
        """Return the session of that id.

        Raises:
            NotFound: no such session.
        """
        ...

    def sessions(
        self, prefix: str = "", namespace: str | None = None, *, after: str = "", limit: int | None = None
    ) -> Sequence[Session]:
        """Return the sessions whose name starts with ``prefix``, by name, then namespace.

        Args:
            namespace: only sessions of this one; ``None`` for all.
            after: only sessions with a later name.
            limit: the most sessions; a page of a long list costs no more than its sessions.
        """
        ...

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
        """Return the sessions that `sessions` returns, in its order, each with what a list shows: one query for all.

        Args:
            after_namespace: also the sessions named ``after`` in later namespaces than this one, for a page of all
                namespaces that ends among sessions of one name.
            only: what else the sessions have in common.
        """
        ...

    def count_sessions(
        self,
        prefix: str = "",
        namespace: str | None = None,
        *,
        after: str = "",
        after_namespace: str | None = None,
        only: SessionFilter = NO_FILTER,
    ) -> int:
        """Return the number of sessions that `summaries` returns without a limit; reads none of them."""
        ...

    def record_usage(self, namespace: str = DEFAULT_NAMESPACE) -> RecordUsage:
        """Return what a namespace's sessions and objects take; it looks at each of their rows."""
        ...

    def branch(self, branch_id: BranchId) -> Branch:
        """Return a branch with its current head.

        Raises:
            NotFound: no such branch.
        """
        ...

    def branches(self, session_id: SessionId) -> Sequence[Branch]:
        """Return a session's branches, oldest first."""
        ...

    def fork_branch(self, parent_branch_id: BranchId, parent_seq: int, branch_id: BranchId, now_ms: int) -> Branch:
        """Create a branch in the same session that continues another one after ``parent_seq``; O(1), nothing is copied.

        Nothing is written to the parent.

        Raises:
            NotFound: no such parent.
            InvalidInput: the parent does not reach ``parent_seq``.
            Conflict: the id is taken.
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
        """Create a session whose main branch continues a branch of another session after ``parent_seq``; O(1).

        It gets the namespace of the parent's session.

        Raises:
            NotFound: no such parent.
            InvalidInput: the parent does not reach ``parent_seq``.
            Conflict: the name or one of the ids is taken.
        """
        ...

    def import_session(
        self,
        name: str,
        session_id: SessionId,
        branch_id: BranchId,
        base: Head,
        now_ms: int,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Session:
        """Create a session whose main branch starts after an event that was folded in another store.

        The branch equals one that was folded here, up to and including that event, and has no events yet.

        Args:
            base: ``seq``, ``hash`` and ``turn`` of that event.

        Raises:
            InvalidInput: ``base`` is not the place of an event.
            Conflict: the name or one of the ids is taken.
        """
        ...

    def delete_branch(self, branch_id: BranchId, now_ms: int) -> None:
        """Delete a branch, its events and snapshots; the session's catalogue records the deletion.

        Raises:
            NotFound: no such branch.
            InvalidInput: it is the session's main branch.
            BranchInUse: forks read from it.
        """
        ...

    def fold(self, branch_id: BranchId, before_seq: int, now_ms: int) -> Branch:
        """Drop all history before one of the branch's own events: its older events and snapshots, and a parent's.

        The chain verifies from there on, because the session's catalogue keeps the hash before it. The event should
        hold the state that the dropped history produced; the store does not check that. Folding is idempotent.

        Raises:
            NotFound: no such branch.
            InvalidInput: the event is not one of the branch's own.
            BranchInUse: forks read events that would be dropped.
        """
        ...

    def delete_session(self, session_id: SessionId, now_ms: int) -> Tombstone:
        """Delete a session: its branches, events, snapshots, inbox, steps, reminders and objects.

        Their bytes are removed from the store. Messages that it sent stay in the outbox. Its name is free afterwards.

        Raises:
            NotFound: no such session.
            LeaseHeld: its lease is held.
            BranchInUse: forks in other sessions read from it.
        """
        ...

    def tombstones(self, prefix: str = "", namespace: str | None = None) -> Sequence[Tombstone]:
        """Return the tombstones of deleted sessions whose name starts with ``prefix``, in order of deletion.

        Args:
            namespace: only those of this one; ``None`` for all.
        """
        ...

    def catalogue(self, session_id: SessionId) -> Sequence[CatalogueEntry]:
        """Return a session's catalogue: the chained list of branches created, folded and deleted, by number.

        Raises:
            NotFound: no such session.
        """
        ...

    def audit(self, session_id: SessionId) -> AbstractContextManager[SessionAudit]:
        """Open a consistent view of a session's records, for verification.

        Raises:
            NotFound: no such session.
        """
        ...
