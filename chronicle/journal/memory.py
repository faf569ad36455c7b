"""A journal in memory, for tests and simulations: SQLite's tables without a file, so without durability.

It runs the same SQL as the journals that last. One lock is held during each transaction and each read.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.errors import Unavailable
from chronicle.journal.sql.store import SqlJournalStore
from chronicle.journal.sqlite import schema
from chronicle.journal.sqlite.database import SqliteConnection, translate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.journal.sql.port import Connection

__all__ = ["MemoryJournalStore"]

_NAME: Final = Path(":memory:")


class MemoryJournalStore(SqlJournalStore):
    """A :class:`~chronicle.journal.port.JournalStore` with the lifetime of the object."""

    def __init__(self) -> None:
        super().__init__(_MemoryDatabase())


class _MemoryDatabase:
    """One connection, which all threads share."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._connection: SqliteConnection = sqlite3.connect(
            _NAME, isolation_level=None, check_same_thread=False, cached_statements=128, factory=SqliteConnection
        )
        self._closed = False
        weakref.finalize(self, self._connection.close)
        schema.make_tables(self._connection)

    @contextmanager
    def reading(self) -> Iterator[SqliteConnection]:
        """Lend the connection; other threads wait."""
        with self._lock:
            if self._closed:
                raise Unavailable("this journal was closed")
            try:
                yield self._connection
            except sqlite3.Error as error:
                raise translate(error, _NAME) from error

    reading_one_moment = reading

    @contextmanager
    def writing(self) -> Iterator[SqliteConnection]:
        """Lend the connection in a transaction, which an error rolls back."""
        with self.reading() as db:
            db.execute("BEGIN")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    erasing = writing

    @contextmanager
    def savepoint(self, db: Connection) -> Iterator[None]:
        """Open a savepoint: a failure inside rolls back to it, and the transaction continues."""
        db.execute("SAVEPOINT part")
        try:
            yield
        except BaseException as error:
            db.execute("ROLLBACK TO part")
            db.execute("RELEASE part")
            if isinstance(error, sqlite3.Error):
                raise translate(error, _NAME) from error
            raise
        db.execute("RELEASE part")

    def close(self) -> None:
        """Drop everything; using the journal afterwards raises `Unavailable`."""
        with self._lock:
            self._closed = True
            self._connection.close()
