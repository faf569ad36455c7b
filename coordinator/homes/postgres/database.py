"""The schema of a home's records in PostgreSQL, and its transactions."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from chronicle.journal.postgres.database import PostgresDatabase
from chronicle.journal.postgres.schema import SchemaKind, translated
from coordinator.homes.sql.calls import CALL_TABLES
from coordinator.homes.sql.keys import KEY_TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coordinator.homes.sql.port import Connection

__all__ = ["PostgresRecordsDatabase", "open_schema"]

_OWN_TABLES: Final = (
    "CREATE TABLE document (name TEXT PRIMARY KEY, data BLOB NOT NULL, written INTEGER NOT NULL)",
    "CREATE TABLE changed (writes INTEGER NOT NULL)",
    "INSERT INTO changed VALUES (0)",
)
_RECORDS: Final = SchemaKind(
    "the records of a home", 1, ";\n".join(translated(table) for table in (*KEY_TABLES, *CALL_TABLES, *_OWN_TABLES))
)
_CONNECTIONS: Final = 4
"""Of one process: a request uses one for less than a millisecond."""


def open_schema(
    conninfo: str,
    schema: str,
    *,
    create: bool = False,
    read_only: bool = False,
    may_migrate: Callable[[], bool] = lambda: False,
) -> PostgresDatabase:
    """Open the schema of a home's records.

    Args:
        create: create it, with its tables, if it does not exist.
        read_only: write nothing.
        may_migrate: called before a migration that older versions do not work with afterwards.

    Raises:
        NotFound: it does not exist, and is not to be created.
        OlderFormat: it is older, and nothing is to be written.
        OlderVersionRuns: it is older, and must not be migrated now.
        InvalidInput: the server is too old, or reached through a pooler without sessions.
        Unavailable: the server cannot be reached, or refuses the connection.
        UnsupportedFormat: a newer version wrote the schema.
    """
    return PostgresDatabase(
        conninfo, schema, _RECORDS, _CONNECTIONS, create=create, read_only=read_only, may_migrate=may_migrate
    )


class PostgresRecordsDatabase:
    """`coordinator.homes.sql.port.RecordsDatabase` in a schema, which others may use, too: to close it does nothing.

    Args:
        schema: the schema.
        is_counted: whether `changes` counts what is written: keys and quotas are asked for at each request, and calls
            are not among them, though they are written often.
    """

    is_far: Final = True
    """See `RecordsDatabase`."""

    def __init__(self, schema: PostgresDatabase, *, is_counted: bool) -> None:
        self._schema = schema
        self._is_counted = is_counted

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """See `RecordsDatabase`."""
        with self._schema.reading() as db:
            yield db

    @contextmanager
    def reading_one_moment(self) -> Iterator[Connection]:
        """See `RecordsDatabase`."""
        with self._schema.reading_one_moment() as db:
            yield db

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """See `RecordsDatabase`. The server reuses the space of what was deleted."""
        with self._schema.writing() as db:
            if self._is_counted:
                db.execute("UPDATE changed SET writes = writes + 1")
            yield db

    def note(self, statement: str, values: Sequence[object]) -> None:
        """See `RecordsDatabase`; a writer of the same row is waited for."""
        with self._schema.writing() as db:
            db.execute("SET LOCAL synchronous_commit TO off")
            db.execute(statement, values)

    def changes(self) -> int:
        """See `RecordsDatabase`."""
        with self._schema.reading() as db:
            return int(db.execute("SELECT writes FROM changed").fetchone()[0])

    def close(self) -> None:
        """Do nothing: the schema closes its connections when nobody uses it any more."""
