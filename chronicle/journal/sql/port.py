"""What the shared SQL needs of a database: statements with ``?`` for values, and transactions of four kinds.

The SQL is what both SQLite and PostgreSQL understand. SQLite has one writer at a time; for PostgreSQL rows are locked
where a transaction relies on what it read, in this order: session, then branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

__all__ = ["Connection", "Cursor", "Database"]


class Cursor(Protocol):
    """The result of a statement."""

    def fetchone(self) -> Any:
        """Return the next row, ``None`` after the last."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows."""
        ...


class Connection(Protocol):
    """A connection, inside a transaction or outside of any."""

    @property
    def for_share(self) -> str:
        """What to append to a ``SELECT`` so that its rows stay as they are until the transaction's end."""
        ...

    @property
    def for_update(self) -> str:
        """The same, for rows that will be changed."""
        ...

    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> Cursor:
        """Run a statement. Its errors may come with a later one's, or at the transaction's end."""
        ...

    def insert(self, sql: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Run an ``INSERT`` once for each row. Its errors may come as those of `execute`."""
        ...

    def changed(self, sql: str, values: Sequence[Any], /) -> int:
        """Run an ``UPDATE`` without ``RETURNING``, and return how many rows it changed."""
        ...


class Database(Protocol):
    """Where connections come from. Errors of the driver leave these as ours."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Lend a connection for statements that read; each sees the last commit before it."""
        ...

    def reading_one_moment(self) -> AbstractContextManager[Connection]:
        """Lend a connection on which all statements see the same commit."""
        ...

    def writing(self) -> AbstractContextManager[Connection]:
        """Lend a connection in a transaction that is durable at the end, or rolled back on any error."""
        ...

    def erasing(self) -> AbstractContextManager[Connection]:
        """As `writing`, for what must be gone from the disk as well."""
        ...

    def savepoint(self, db: Connection) -> AbstractContextManager[None]:
        """Begin a part of a transaction that can fail by itself."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...
