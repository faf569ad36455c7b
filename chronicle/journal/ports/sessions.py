"""The part of the port of journal stores that is about sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from chronicle.journal.records import DEFAULT_NAMESPACE, NO_FILTER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from chronicle.ids import BranchId, SessionId
    from chronicle.journal.audit import SessionAudit
    from chronicle.journal.records import CatalogueEntry, RecordUsage, Session, SessionFilter, SessionSummary, Tombstone

__all__ = ["SessionRecords"]


class SessionRecords(Protocol):
    """Sessions: their names, lists, deletion and catalogue."""

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

    def session(self, name: str, namespace: str = DEFAULT_NAMESPACE) -> Session:
        """Return the session of that name.

        Raises:
            NotFound: no such session.
        """

    def session_of_id(self, session_id: SessionId) -> Session:
        """Return the session of that id.

        Raises:
            NotFound: no such session.
        """

    def sessions(
        self, prefix: str = "", namespace: str | None = None, *, after: str = "", limit: int | None = None
    ) -> Sequence[Session]:
        """Return the sessions whose name starts with ``prefix``, by name, then namespace.

        Args:
            namespace: only sessions of this one; ``None`` for all.
            after: only sessions with a later name.
            limit: the most sessions; a page of a long list costs no more than its sessions.
        """

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

    def record_usage(self, namespace: str = DEFAULT_NAMESPACE) -> RecordUsage:
        """Return what a namespace's sessions and objects take; it looks at each of their rows."""

    def delete_session(self, session_id: SessionId, now_ms: int) -> Tombstone:
        """Delete a session: its branches, events, snapshots, inbox, steps, reminders and objects.

        Their bytes are removed from the store. Messages that it sent stay in the outbox. Its name is free afterwards.

        Raises:
            NotFound: no such session.
            LeaseHeld: its lease is held.
            BranchInUse: forks in other sessions read from it.
        """

    def tombstones(self, prefix: str = "", namespace: str | None = None) -> Sequence[Tombstone]:
        """Return the tombstones of deleted sessions whose name starts with ``prefix``, in order of deletion.

        Args:
            namespace: only those of this one; ``None`` for all.
        """

    def catalogue(self, session_id: SessionId) -> Sequence[CatalogueEntry]:
        """Return a session's catalogue: the chained list of branches created, folded and deleted, by number.

        Raises:
            NotFound: no such session.
        """

    def audit(self, session_id: SessionId) -> AbstractContextManager[SessionAudit]:
        """Open a consistent view of a session's records, for verification.

        Raises:
            NotFound: no such session.
        """
