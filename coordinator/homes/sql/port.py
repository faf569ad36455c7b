"""The port to a database of records.

Statements have ``?`` placeholders, and are in the common subset of SQLite and PostgreSQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from chronicle.journal.sql.port import Cursor

__all__ = ["Connection", "RecordsDatabase"]


class Connection(Protocol):
    """A connection, inside or outside of a transaction."""

    def execute(self, sql: str, values: Sequence[object] = ..., /) -> Cursor:
        """Run a statement. Its errors may be raised by a later statement, or at the end of the transaction."""


class RecordsDatabase(Protocol):
    """A database of records, for any number of threads and processes; it raises the errors of the home."""

    @property
    def is_far(self) -> bool:
        """Whether a call may wait for a network: it is for threads then, and not for an event loop."""

    def reading(self) -> AbstractContextManager[Connection]:
        """Lend a connection that waits for no writer."""

    def reading_one_moment(self) -> AbstractContextManager[Connection]:
        """Lend a connection on which all statements see the same commit."""

    def writing(self) -> AbstractContextManager[Connection]:
        """Lend a connection in a transaction, durable on exit; what it deletes is erased."""

    def note(self, statement: str, values: Sequence[object]) -> None:
        """Run an ``UPDATE``, not durably; not at all while another process writes. `changes` does not count it."""

    def changes(self) -> int:
        """Return a number that changes with each transaction of `writing`, in this process or another one."""

    def close(self) -> None:
        """Release files and connections."""
