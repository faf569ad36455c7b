"""The journal's store on PostgreSQL: the shared SQL over a server."""

from __future__ import annotations

from chronicle.journal.postgres.database import PostgresDatabase
from chronicle.journal.sql.store import SqlJournalStore

__all__ = ["PostgresJournalStore"]


class PostgresJournalStore(SqlJournalStore):
    """A :class:`~chronicle.journal.port.JournalStore` in a schema of a PostgreSQL database.

    A write is durable when it returns, as far as the server's own settings make ``synchronous_commit = on`` so. What is
    deleted or erased is gone from the database at once, and from the server's files as it reuses their space.

    Args:
        conninfo: how to connect: ``postgresql://user:password@host/database`` or ``key=value`` pairs.
        schema: where the tables are; made, with them, when it is not there.
        connections: most connections at once; a thread that finds none free waits.

    Raises:
        Unavailable: the server cannot be reached, or refuses.
        UnsupportedFormat: it holds a journal of a newer format.
    """

    def __init__(self, conninfo: str, *, schema: str = "chronicle", connections: int = 16) -> None:
        super().__init__(PostgresDatabase(conninfo, schema, connections))
