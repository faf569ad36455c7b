"""The journal store on PostgreSQL: the shared SQL over a server."""

from __future__ import annotations

from chronicle.journal.postgres.database import PostgresDatabase
from chronicle.journal.sql.store import SqlJournalStore

__all__ = ["PostgresJournalStore"]


class PostgresJournalStore(SqlJournalStore):
    """A :class:`~chronicle.journal.port.JournalStore` in a schema of a PostgreSQL database.

    A write is durable when it returns, to the extent that the server's settings make ``synchronous_commit = on``
    durable. Deleted and erased content is removed from the database at once, and from the server's files when it reuses
    their space.

    Args:
        conninfo: a connection string: ``postgresql://user:password@host/database`` or ``key=value`` pairs.
        schema: the schema of the tables; created, with the tables, if it does not exist.
        connections: the limit of the pool; a thread waits if none is free.

    Raises:
        Unavailable: the server cannot be reached, or refuses the connection.
        UnsupportedFormat: the schema holds a journal of another format.
    """

    def __init__(self, conninfo: str, *, schema: str = "chronicle", connections: int = 16) -> None:
        super().__init__(PostgresDatabase(conninfo, schema, connections))
