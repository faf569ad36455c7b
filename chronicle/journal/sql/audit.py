"""Verification's view of a session: its rows, straight from the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.errors import Corrupt, NotFound
from chronicle.journal.chain import catalogue_genesis
from chronicle.journal.sql.rows import (
    BRANCH_COLUMNS,
    CATALOGUE_COLUMNS,
    EVENT_COLUMNS,
    MAX_NUMBER,
    SESSION_COLUMNS,
    branch_from,
    catalogue_entry_from,
    hash_text,
    row_id,
    session_from,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.ids import BranchId, SessionId
    from chronicle.journal.audit import EventRow
    from chronicle.journal.records import Branch, CatalogueEntry, Session
    from chronicle.journal.sql.port import Connection

__all__ = ["SqlAudit", "read_catalogue"]


_BATCH: Final = 1024
"""Rows per query."""


class SqlAudit:
    """A :class:`~chronicle.journal.audit.SessionAudit` over one read transaction.

    Raises:
        NotFound: no such session.
        Corrupt: its rows cannot be read.
    """

    def __init__(self, db: Connection, session_id: SessionId) -> None:
        self._db = db
        row = db.execute(
            f"SELECT key, catalogue_size, catalogue_hash, {SESSION_COLUMNS} FROM session WHERE session_id = ?",
            (session_id,),
        ).fetchone()
        if row is None:
            raise NotFound(f"no session {session_id}")
        key, size, digest, *columns = row
        self.session = session_from(tuple(columns))
        try:
            self.catalogue_head = (int(size), hash_text(digest))
            self.catalogue: Sequence[CatalogueEntry] = read_catalogue(db, key, self.session)
            self.branches: Sequence[Branch] = [
                branch_from(branch)
                for branch in db.execute(
                    f"SELECT {BRANCH_COLUMNS} FROM branch JOIN session ON session.key = branch.session "
                    "WHERE branch.session = ? ORDER BY branch.key",
                    (key,),
                )
            ]
        except (AttributeError, TypeError, ValueError) as error:
            raise Corrupt(f"the rows of session {session_id} hold values of wrong types: {error}") from error

    def branch(self, branch_id: BranchId) -> Branch | None:
        """Return a branch of any session."""
        row = self._db.execute(
            f"SELECT {BRANCH_COLUMNS} FROM branch JOIN session ON session.key = branch.session "
            "WHERE branch.branch_id = ?",
            (branch_id,),
        ).fetchone()
        return branch_from(row) if row is not None else None

    def base_hash(self, branch_id: BranchId) -> str:
        """Return the hash before a branch's first own event."""
        (digest,) = self._db.execute("SELECT base_hash FROM branch WHERE branch_id = ?", (branch_id,)).fetchone()
        try:
            return hash_text(digest)
        except (AttributeError, TypeError) as error:
            raise Corrupt(f"the record of branch {branch_id} holds a value of a wrong type: {error}") from error

    def rows(self, branch_id: BranchId) -> Iterator[EventRow]:
        """Yield a branch's own events by seq, including rows after its head."""
        (key,) = self._db.execute("SELECT key FROM branch WHERE branch_id = ?", (branch_id,)).fetchone()
        last = row_id(key, MAX_NUMBER)
        after, count = row_id(key, 0) - 1, _BATCH
        while count == _BATCH:
            count = 0
            for row in self._db.execute(
                f"SELECT {EVENT_COLUMNS} FROM event WHERE id > ? AND id <= ? ORDER BY id LIMIT {_BATCH}", (after, last)
            ):
                count += 1
                yield row
            if count:
                after = row_id(key, row[0])


def read_catalogue(db: Connection, key: int, session: Session) -> list[CatalogueEntry]:
    """Return a session's catalogue by number."""
    entries: list[CatalogueEntry] = []
    prev_hash = catalogue_genesis(session)
    for row in db.execute(
        f"SELECT {CATALOGUE_COLUMNS} FROM catalogue WHERE id BETWEEN ? AND ? ORDER BY id",
        (row_id(key, 0), row_id(key, MAX_NUMBER)),
    ):
        entry = catalogue_entry_from(session.session_id, row, prev_hash)
        prev_hash = entry.hash
        entries.append(entry)
    return entries
