"""The journal store on PostgreSQL: the shared SQL over a server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from chronicle.errors import Corrupt, Unavailable
from chronicle.journal.postgres.database import NOW_MS, PostgresDatabase
from chronicle.journal.postgres.schema import ASSIGNED, JOURNAL
from chronicle.journal.postgres.together import apply_together, lock_sessions, may_be_together
from chronicle.journal.sql.moving import columns_of, copy_rows
from chronicle.journal.sql.orphans import orphan
from chronicle.journal.sql.store import SqlJournalStore
from chronicle.journal.sql.tables import TABLES
from chronicle.journal.sql.writes import apply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.sql.port import Connection
    from chronicle.journal.sql.writes import ReadyWrite

__all__ = ["PostgresJournalStore"]

_CHECKSUM_FAILURES: Final = "SELECT checksum_failures FROM pg_stat_database WHERE datname = current_database()"
_SIZE: Final = """
SELECT coalesce(sum(pg_relation_size(pg_class.oid)), 0)::BIGINT FROM pg_class
JOIN pg_namespace ON relnamespace = pg_namespace.oid WHERE nspname = current_schema()
"""
_RENEW: Final = f"""
WITH locked AS (
    SELECT session_id FROM session WHERE session_id = ANY(?::text[]) ORDER BY session_id COLLATE "C" FOR NO KEY UPDATE%s
)
UPDATE session SET expires_ms = ({NOW_MS}) + ?
FROM locked JOIN unnest(?::text[], ?::bigint[]) AS given (session_id, epoch) ON given.session_id = locked.session_id
WHERE session.session_id = given.session_id AND session.epoch = given.epoch AND session.holder IS NOT NULL
RETURNING session.session_id, session.epoch
"""
"""Rows are locked in the order in which commits lock theirs."""
_RENEW_FREE: Final = _RENEW % " SKIP LOCKED"
_RENEW_ALL: Final = _RENEW % ""
_SMALL_BYTES: Final = 10 * 2**20


class _OneByOne(Exception):
    """Some of the writes are to be refused."""


class PostgresJournalStore(SqlJournalStore):
    """A :class:`~chronicle.journal.port.JournalStore` in a schema of a PostgreSQL database.

    A write is durable when it returns, to the extent that the server's settings make ``synchronous_commit = on``
    durable. Deleted and erased content is removed from the database at once, and from the server's files when it reuses
    their space.

    Args:
        conninfo: a connection string: ``postgresql://user:password@host/database`` or ``key=value`` pairs.
        schema: the schema of the tables; created, with the tables, if it does not exist.
        connections: the limit of the pool; a thread waits if none is free.
        create: false to refuse a database without a journal.
        read_only: nothing is created or written. Write methods raise `InvalidInput`.
        may_migrate: whether a journal of an older format may be migrated now; called only for a migration after which
            the code of the older format does not work.

    Raises:
        InvalidInput: the string cannot be read; or the server is too old, or reached through a pooler without sessions.
        NotFound: there is no journal, and none is to be created.
        Unavailable: the server cannot be reached, or refuses the connection.
        UnsupportedFormat: the schema holds a journal of a newer format.
        OlderFormat: it is of an older one, and nothing is to be written.
        OlderVersionRuns: it is of an older one, and must not be migrated now.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "chronicle",
        connections: int = 16,
        create: bool = True,
        read_only: bool = False,
        may_migrate: Callable[[], bool] = lambda: True,
    ) -> None:
        self._server = PostgresDatabase(
            conninfo, schema, JOURNAL, connections, create=create, read_only=read_only, may_migrate=may_migrate
        )
        super().__init__(self._server)

    def _write_each(self, ready: Sequence[ReadyWrite]) -> Sequence[Exception | None]:
        if may_be_together(ready) and self._are_written_together(ready):
            return [None] * len(ready)
        if len(ready) < 2:
            return super()._write_each(ready)
        parts = [partial(apply, ready=each) for each in ready]
        return self._each([partial(lock_sessions, writes=ready), *parts])[1:]

    def _are_written_together(self, ready: Sequence[ReadyWrite]) -> bool:
        """Write all, or none, as if one of them is to be refused."""
        try:
            with self._server.writing() as db:
                if not apply_together(db, ready):
                    raise _OneByOne
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - whatever one of them has, such as an id that was used: the others are written
            return False
        return True

    def renew_leases(self, leases: Sequence[tuple[SessionId, int]], now_ms: int, ttl_ms: int) -> Sequence[SessionId]:  # noqa: ARG002  the server's time counts
        """Extend leases, each given by its session and epoch, by the server's clock.

        That is one statement, and another one for those whose sessions a commit has locked: those of the others are not
        kept locked while that is waited for.
        """
        locked = self._renew(_RENEW_FREE, leases, ttl_ms)
        return [session_id for session_id, _ in self._renew(_RENEW_ALL, locked, ttl_ms)] if locked else []

    def _renew(
        self, statement: str, leases: Sequence[tuple[SessionId, int]], ttl_ms: int
    ) -> list[tuple[SessionId, int]]:
        """Extend leases; return those that were not."""
        sessions, epochs = [session_id for session_id, _ in leases], [epoch for _, epoch in leases]
        with self._server.writing() as db:
            rows = db.execute(statement, (sessions, ttl_ms, sessions, epochs)).fetchall()
        extended = {(session_id, epoch) for session_id, epoch in rows}
        return [lease for lease in leases if tuple(lease) not in extended]

    def damage(self) -> str | None:
        """Return damage that the chains do not cover: checksum failures that the server counted, and orphaned rows."""
        with self._server.reading_one_moment() as db:
            failures = db.execute(_CHECKSUM_FAILURES).fetchone()
            if failures is not None and failures[0]:
                return f"the server has found {failures[0]} pages of its database with a wrong checksum"
            return orphan(db)

    def check(self, *, thorough: bool = False) -> None:
        """Raise if it is damaged. Only a thorough check costs anything: the server checks the pages that it reads.

        Raises:
            Corrupt: it is.
        """
        problem = self.damage() if thorough else None
        if problem is not None:
            raise Corrupt(f"{self._server.name} is damaged: {problem}")

    @property
    def format(self) -> int:
        """The format that it has; a newer one than this code's if that works with it."""
        return self._server.version

    @property
    def is_small(self) -> bool:
        """Whether its tables have at most 10 MiB, which a check reads in less than a second."""
        with self._server.reading() as db:
            size: int = db.execute(_SIZE).fetchone()[0]
        return size <= _SMALL_BYTES

    def _copy(self, rows: Connection, db: Connection, on_rows: Callable[[int], None]) -> None:
        copy_rows(rows, db, TABLES, on_rows, " OVERRIDING SYSTEM VALUE")
        for table in ASSIGNED:
            key = columns_of(TABLES)[table][1][0]
            last = db.execute(f"SELECT max({key}) FROM {table}").fetchone()[0]
            if last is not None:
                db.execute("SELECT setval(pg_get_serial_sequence(?, ?), ?)", (table, key, last))
