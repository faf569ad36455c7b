"""The database port of the shared SQL: statements with ``?`` placeholders, and four kinds of transactions.

The SQL is the common subset of SQLite and PostgreSQL. SQLite has one writer at a time. For PostgreSQL, a transaction
locks the rows whose values it relies on, in this order: session, then branch.
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

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows."""


class Connection(Protocol):
    """A connection, inside or outside of a transaction."""

    @property
    def for_share(self) -> str:
        """The clause that locks the rows of a ``SELECT`` against changes until the end of the transaction."""

    @property
    def for_update(self) -> str:
        """The same for rows that the transaction will change."""

    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> Cursor:
        """Run a statement. Its errors may be raised by a later statement, or at the end of the transaction."""

    def insert(self, sql: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Run an ``INSERT`` once for each row. Errors are raised as in `execute`."""

    def changed(self, sql: str, values: Sequence[Any], /) -> int:
        """Run an ``UPDATE`` without ``RETURNING``, and return the number of changed rows."""

    def changed_by_each(self, updates: Sequence[tuple[str, Sequence[Any]]], /) -> list[int]:
        """Run several, each with its values, and return the number of rows that each has changed, with one wait."""

    def now_ms(self, given_ms: int) -> int:
        """Return the time that leases go by: of the server that all callers have in common, or else the caller's."""

    def wait(self) -> None:
        """Wait until all earlier statements have run; their errors are raised now at the latest."""


class Database(Protocol):
    """A source of connections. The context managers translate errors of the driver."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Lend a connection for reads; each statement sees the last commit before it."""

    def reading_one_moment(self) -> AbstractContextManager[Connection]:
        """Lend a connection on which all statements see the same commit."""

    def writing(self) -> AbstractContextManager[Connection]:
        """Lend a connection in a write transaction: durable on exit, rolled back on an error."""

    def erasing(self) -> AbstractContextManager[Connection]:
        """As `writing`, for deletions that must also remove the content from the disk."""

    def savepoint(self, db: Connection) -> AbstractContextManager[None]:
        """Open a savepoint: a failure inside rolls back to it, and the transaction continues."""

    def close(self) -> None:
        """Close all connections."""
