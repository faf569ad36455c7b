"""A SQLite file of a home: its kind, its tables, and its connections."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.errors import Corrupt, StorageRefused, UnsupportedFormat
from chronicle.journal.sqlite.watched_database import WatchedDatabase, damage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["FileKind", "RecordsFile", "damage_of", "format_of", "read_once", "translated"]

_READ_TIMEOUT_MS: Final = 100
"""In a write-ahead log a reader waits for its recovery only, after a process of the home was killed."""
_WRITE_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file."""

    name: str
    """The file's name in the home."""
    content: str
    """Its content in a word, for messages."""
    application_id: int
    format: int
    tables: tuple[str, ...]
    erased: bool = False
    """Whether what is deleted is erased from the log, too."""


class RecordsFile:
    """An open file, readable for its owner only, for any number of threads and processes.

    It has a write-ahead log and two connections, so that a reader waits for no writer.

    Args:
        directory: where it is; created, with its tables, if it does not exist.
        kind: its kind.

    Raises:
        StorageRefused: it cannot be read or written.
        Corrupt: it is of another kind, or was changed since it was closed.
        UnsupportedFormat: a newer version wrote it.
    """

    is_far: Final = False
    """See `coordinator.homes.sql.port.RecordsDatabase`."""

    def __init__(self, directory: Path, kind: FileKind) -> None:
        self._path = directory / kind.name
        self._kind = kind
        self._write_guard = threading.Lock()
        self._read_guard = threading.Lock()
        """Held for microseconds: the reader waits for no lock, and for the disk only with a checkpoint of the log."""
        self._watched = WatchedDatabase(self._path)
        with translated(self._path), self._watched.opening(), ExitStack() as opened:
            self._writer = self._connected(_WRITE_TIMEOUT_MS)
            opened.callback(self._writer.close)
            self._set_up()
            self._reader = self._connected(_READ_TIMEOUT_MS)
            opened.callback(self._reader.close)
            self._reader.execute("PRAGMA synchronous = NORMAL")  # it writes what may be lost only
            opened.pop_all()

    def close(self) -> None:
        """Close the file."""
        with self._watched.closing():
            with self._read_guard:
                self._reader.close()
            with self._write_guard:
                self._writer.close()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection that waits for no writer."""
        with self._read_guard, translated(self._path):
            yield self._reader

    @contextmanager
    def reading_one_moment(self) -> Iterator[sqlite3.Connection]:
        """Lend the same connection in a transaction: all statements see one commit."""
        with self.reading() as db:
            db.execute("BEGIN")
            try:
                yield db
            finally:
                db.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Lend the other connection in a transaction, durable on exit; what it deletes is erased from the file.

        From the log it is erased as soon as nobody reads it.
        """
        with self._write_guard, translated(self._path):
            db = self._writer
            db.execute("BEGIN IMMEDIATE")
            before = db.total_changes
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # SQLite rolls back by itself on a full disk
                    db.execute("ROLLBACK")
                raise
            if self._kind.erased and db.total_changes != before:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def note(self, statement: str, values: Sequence[object]) -> None:
        """Run an ``UPDATE``, not durably; not at all while another process writes."""
        with self.reading() as db:
            db.execute("PRAGMA busy_timeout = 0")
            try:
                db.execute(statement, values)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
            finally:
                db.execute(f"PRAGMA busy_timeout = {_READ_TIMEOUT_MS}")

    def changes(self) -> int:
        """Return a number that changes with each commit but those of `reading`'s connection."""
        with self.reading() as db:
            (version,) = db.execute("PRAGMA data_version").fetchone()
        return int(version)

    def _connected(self, timeout_ms: int) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout_ms / 1000, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA secure_delete = ON")
        return db

    def _set_up(self) -> None:
        """Create the tables unless they are there; opening a file that has them writes nothing."""
        db, kind = self._writer, self._kind
        if not _has_tables(db, self._path, kind):
            with self.writing():
                if not _has_tables(db, self._path, kind):  # another process may have created them meanwhile
                    for statement in kind.tables:
                        db.execute(statement)
                    db.execute(f"PRAGMA application_id = {kind.application_id}")
                    db.execute(f"PRAGMA user_version = {kind.format}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")


@contextmanager
def read_once(directory: Path, kind: FileKind) -> Iterator[sqlite3.Connection | None]:
    """Lend a connection for one reading; ``None`` if there is no file, or one without tables.

    Raises:
        StorageRefused: the file cannot be read.
        Corrupt: it is damaged, or of another kind.
    """
    path = directory / kind.name
    if not path.exists():
        yield None
        return
    with translated(path), closing(sqlite3.connect(path, _WRITE_TIMEOUT_MS / 1000, isolation_level=None)) as db:
        yield db if _has_tables(db, path, kind) else None


def format_of(directory: Path, kind: FileKind) -> int | None:
    """Return the format of a file; ``None`` if there is no file, or one without tables.

    Raises:
        StorageRefused, Corrupt: as `read_once`.
        UnsupportedFormat: a newer version wrote it.
    """
    with read_once(directory, kind) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0]) if db is not None else None


def damage_of(directory: Path, kind: FileKind, read: Callable[[sqlite3.Connection], object]) -> str | None:
    """Return the damage of a file; ``None`` if there is none, or no file. Nothing is written.

    Args:
        directory: where it is.
        kind: its kind.
        read: reads all rows, and raises for one that it cannot read.
    """
    path = directory / kind.name
    return damage(path, lambda db: read(db) if _has_tables(db, path, kind) else None)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as those of the home."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            raise Corrupt(f"{path} is damaged: {error}; put it back from a backup, or remove it") from error
        raise StorageRefused(f"{path} cannot be used: {error}") from error
    except OSError as error:
        raise StorageRefused(f"{path} cannot be written: {error.strerror}") from error


def _has_tables(db: sqlite3.Connection, path: Path, kind: FileKind) -> bool:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != kind.application_id and (application or version or tables):
        raise Corrupt(f"{path} is not a database of {kind.content}; put it back from a backup, or remove it")
    if version > kind.format:
        raise UnsupportedFormat(f"{path} has format {version}, and this code reads up to {kind.format}")
    return bool(version)
