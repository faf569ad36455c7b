"""Sessions and branches of the journal's port in SQL: each method is one transaction or one query."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from chronicle.errors import Conflict, NotFound
from chronicle.journal.chain import check_base, empty_head
from chronicle.journal.records import DEFAULT_NAMESPACE, NO_FILTER, Session
from chronicle.journal.sql import branches, snapshots, summaries
from chronicle.journal.sql.audit import SqlAudit, read_catalogue
from chronicle.journal.sql.objects import SqlObjects
from chronicle.journal.sql.rows import (
    BRANCH_COLUMNS,
    SESSION_COLUMNS,
    TOMBSTONE_COLUMNS,
    branch_from,
    session_from,
    tombstone_from,
)
from chronicle.journal.sql.usage import usage_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.ids import BranchId, SessionId
    from chronicle.journal.records import (
        Branch,
        CatalogueEntry,
        Head,
        RecordUsage,
        SessionFilter,
        SessionSummary,
        Tombstone,
    )

__all__ = ["SqlSessions"]


class SqlSessions(SqlObjects):
    """The part of a journal store that knows sessions and branches; the port documents the methods."""

    def ensure_session(
        self,
        name: str,
        session_id: SessionId,
        branch_id: BranchId,
        now_ms: int,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Session:
        """Return the session of that name; create it, with an empty main branch, if there is none."""
        try:
            return self.session(name, namespace)
        except NotFound:
            pass
        with self._db.writing() as db:
            session = Session(session_id, name, branch_id, now_ms, namespace)
            if branches.insert_session(db, session, None, empty_head(branch_id)):
                return session
        return self.session(name, namespace)

    def session(self, name: str, namespace: str = DEFAULT_NAMESPACE) -> Session:
        """Return the session of that name."""
        with self._db.reading() as db:
            row = db.execute(
                f"SELECT {SESSION_COLUMNS} FROM session WHERE namespace = ? AND name = ?", (namespace, name)
            ).fetchone()
        if row is None:
            raise NotFound(f"no session named {name!r}")
        return session_from(row)

    def session_of_id(self, session_id: SessionId) -> Session:
        """Return the session of that id."""
        with self._db.reading() as db:
            return branches.find_session(db, session_id)[1]

    def sessions(
        self, prefix: str = "", namespace: str | None = None, *, after: str = "", limit: int | None = None
    ) -> Sequence[Session]:
        """Return the sessions whose name starts with ``prefix``, by name, then namespace."""
        query, values = summaries.named(SESSION_COLUMNS, prefix, namespace, (after, None), limit)
        with self._db.reading() as db:
            rows = db.execute(query, values).fetchall()
        return [session_from(row) for row in rows]

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
        with self._db.reading() as db:
            return summaries.summaries(db, prefix, namespace, (after, after_namespace), limit, only)

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
        condition, values = summaries.condition(prefix, namespace, (after, after_namespace), only)
        with self._db.reading() as db:
            row = db.execute(f"SELECT count(*) FROM session WHERE {condition}", values).fetchone()
        assert row is not None, "an aggregate has a row"
        return int(row[0])

    def record_usage(self, namespace: str = DEFAULT_NAMESPACE) -> RecordUsage:
        """Return what the records of a namespace take."""
        with self._db.reading() as db:
            return usage_of(db, namespace)

    def branch(self, branch_id: BranchId) -> Branch:
        """Return a branch with its current head."""
        with self._db.reading() as db:
            return branches.find_branch(db, branch_id)[1]

    def branches(self, session_id: SessionId) -> Sequence[Branch]:
        """Return a session's branches, oldest first."""
        with self._db.reading() as db:
            rows = db.execute(
                f"SELECT {BRANCH_COLUMNS} FROM branch JOIN session ON session.key = branch.session "
                "WHERE session_id = ? ORDER BY branch.created_ms, branch.key",
                (session_id,),
            ).fetchall()
        return [branch_from(row) for row in rows]

    def head(self, branch_id: BranchId) -> Head:
        """Return a branch's head."""
        return self.branch(branch_id).head

    def fork_branch(self, parent_branch_id: BranchId, parent_seq: int, branch_id: BranchId, now_ms: int) -> Branch:
        """Create a branch in the same session that continues another one after ``parent_seq``."""
        with self._db.writing() as db:
            _, parent = branches.find_branch(db, parent_branch_id)
            _, session = branches.find_session(db, parent.session_id, db.for_update)
            _, parent = branches.find_branch(db, parent_branch_id, db.for_share)
            head = branches.fork_head(db, parent, parent_seq, branch_id)
            branches.insert_branch(db, session, branch_id, parent_branch_id, head, now_ms)
            return branches.find_branch(db, branch_id)[1]

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
        with self._db.writing() as db:
            _, parent = branches.find_branch(db, parent_branch_id, db.for_share)
            head = branches.fork_head(db, parent, parent_seq, branch_id)
            _, source = branches.find_session(db, parent.session_id)
            session = Session(session_id, name, branch_id, now_ms, source.namespace)
            if not branches.insert_session(db, session, parent_branch_id, head):
                raise Conflict(f"there is a session named {name!r} already")
            return session

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
        session = Session(session_id, name, branch_id, now_ms, namespace)
        with self._db.writing() as db:
            if not branches.import_session(db, session, base):
                raise Conflict(f"there is a session named {name!r} already")
        return session

    def delete_branch(self, branch_id: BranchId, now_ms: int) -> None:
        """Delete a branch, its events and snapshots; the session's catalogue records the deletion."""
        with self._db.erasing() as db:
            branches.delete_branch(db, branch_id, now_ms)

    def fold(self, branch_id: BranchId, before_seq: int, now_ms: int) -> Branch:
        """Drop all history before one of the branch's own events."""
        with self._db.erasing() as db:
            folded = branches.fold(db, branch_id, before_seq, now_ms)
            snapshots.prune(db, branches.find_branch(db, branch_id)[0])
            return folded

    def delete_session(self, session_id: SessionId, now_ms: int) -> Tombstone:
        """Delete a session and all its rows; their bytes are removed from the file."""
        with self._db.erasing() as db:
            return branches.delete_session(db, session_id, now_ms)

    def tombstones(self, prefix: str = "", namespace: str | None = None) -> Sequence[Tombstone]:
        """Return the tombstones of deleted sessions whose name starts with ``prefix``, in order of deletion."""
        query, values = f"SELECT {TOMBSTONE_COLUMNS} FROM tombstone WHERE substr(name, 1, ?) = ?", [len(prefix), prefix]
        if namespace is not None:
            query, values = f"{query} AND namespace = ?", [*values, namespace]
        with self._db.reading() as db:
            rows = db.execute(f"{query} ORDER BY id", values).fetchall()
        return [tombstone_from(row) for row in rows]

    def catalogue(self, session_id: SessionId) -> Sequence[CatalogueEntry]:
        """Return a session's catalogue: the chained list of branches created, folded and deleted, by number."""
        with self._db.reading_one_moment() as db:
            key, session = branches.find_session(db, session_id)
            return read_catalogue(db, key, session)

    @contextmanager
    def audit(self, session_id: SessionId) -> Iterator[SqlAudit]:
        """Open a consistent view of a session's rows, for verification."""
        with self._db.reading_one_moment() as db:
            yield SqlAudit(db, session_id)
