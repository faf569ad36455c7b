"""Connections to the journal's file: one writer, a pool of readers, and the translation of SQLite's errors.

Lock order: the writer lock (threads, then processes), then SQLite's own. Readers take no locks: in WAL mode they see
the last commit before their transaction.

Commits are durable before they are visible (``synchronous=FULL``): the write-ahead log is synced inside the writer
lock, and a commit whose sync fails is rolled back. Syncing after the lock was released would let the syncs of several
processes overlap, but a commit whose sync then fails would have been visible already and could not be rolled back.

A forked child must not use a connection of its parent: SQLite's locks belong to the process. The child gets an error
that says so, and does not close the inherited connections.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import weakref
from collections import deque
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import (
    ChronicleError,
    Corrupt,
    InvalidInput,
    NotFound,
    StorageRefused,
    Unavailable,
    UnusableFormat,
)
from chronicle.journal.sql.orphans import orphan
from chronicle.journal.sqlite import checksums, health, raw_reads, schema
from chronicle.journal.sqlite.group_commit.waiting_room import WaitingRoom
from chronicle.journal.sqlite.group_commit.writer_lock import WriterLock
from chronicle.system.atomic_files import sync_directory
from chronicle.system.permissions import private_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from chronicle.journal.sql.port import Connection
    from chronicle.journal.sqlite.group_commit.waiting_room import Request, Ticket

__all__ = ["LOG_INDEX_BYTES", "SqliteConnection", "SqliteDatabase", "in_read_transaction", "translate"]

_BUSY_TIMEOUT_MS: Final = 30_000
"""For lock holders other than journal stores: a SQLite shell that writes, crash recovery by another process."""
_PAGE_SIZE: Final = 16384
"""A commit writes four whole pages: 18 µs of CPU time and some 15 µs of sync more than with pages of 8 KiB. But
turns of 1.2 KB leave 6 % of such pages empty, and 19 % of pages of 8 KiB, with which the bound of twice the new bytes
on disk is missed (2.13 instead of 1.95)."""
_CHECKPOINT_PAGES: Final = 256
"""4 MiB of write-ahead log: SQLite's default with its smaller pages."""
LOG_INDEX_BYTES: Final = 32 * 1024
"""The minimum size of ``-shm``, which SQLite allocates before it reads or writes the log."""
_IDLE_READERS: Final = 8
_MAX_ROWS: Final = 32
"""Rows of one ``INSERT``: so many statements are kept prepared for each kind of row."""
_log: Final = logging.getLogger(__name__)
_open_databases: Final[weakref.WeakSet[SqliteDatabase]] = weakref.WeakSet()
_inherited: Final[list[SqliteConnection]] = []
"""In a forked child: references to the parent's connections, so that garbage collection does not close them."""


class SqliteConnection(sqlite3.Connection):
    """A connection. SQLite has one writer at a time, so rows need no locks."""

    for_share: Final = ""
    for_update: Final = ""

    def now_ms(self, given_ms: int) -> int:
        """Return the caller's time: all callers are on this machine."""
        return given_ms

    def insert(self, sql: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Run an ``INSERT`` for all rows; for very many of them, one for each."""
        if len(rows) > _MAX_ROWS:
            self.executemany(sql, rows)
            return
        self.execute(_for_rows(sql, len(rows)), tuple(chain.from_iterable(rows)))

    def changed(self, sql: str, values: Sequence[Any], /) -> int:
        """Run an ``UPDATE``, and return the number of changed rows."""
        return self.execute(sql, values).rowcount

    def changed_by_each(self, updates: Sequence[tuple[str, Sequence[Any]]], /) -> list[int]:
        """Run several, and return the number of rows that each has changed."""
        return [self.changed(sql, values) for sql, values in updates]

    def wait(self) -> None:
        """Do nothing: each statement has run when its call returns."""


@cache
def _for_rows(sql: str, count: int) -> str:
    """Return an ``INSERT`` of one row as one of several."""
    head, values = sql.rsplit(" VALUES ", 1)
    return f"{head} VALUES {', '.join([values] * count)}"


@contextmanager
def in_read_transaction(reading: AbstractContextManager[SqliteConnection]) -> Iterator[SqliteConnection]:
    """Lend a connection for reads in a transaction: all statements see the same commit."""
    with reading as db:
        db.execute("BEGIN")
        try:
            yield db
        finally:
            if db.in_transaction:  # SQLite rolls back by itself on a disk error
                db.execute("ROLLBACK")


class SqliteDatabase:
    """An open journal file.

    Args:
        path: the file. ``-wal`` and ``-shm`` beside it are part of it; the lock's files are not.
        serve: applies a request of another process in a transaction; returns whether it succeeded.
        create: create the file if it does not exist.
        watched: on close, write checksums and heads beside it (`chronicle.journal.sqlite.checksums`).
        may_migrate: whether a file of an older format may be migrated now; called at most once.

    Raises:
        InvalidInput: the path cannot hold a journal: its directory is missing, or it is a directory.
        StorageRefused: the file or its directory cannot be written, or the disk is full.
        NotFound: the file does not exist, and ``create`` is false.
        Corrupt: the file is not a journal; or it was watched, and was lost or changed since it was closed.
        UnsupportedFormat: the journal has a newer format, or an older one without a migration.
        OlderVersionRuns: the journal has an older format, and must not be migrated now.
    """

    def __init__(
        self,
        path: Path,
        serve: Callable[[SqliteConnection, bytes], bool],
        *,
        create: bool,
        watched: bool = False,
        may_migrate: Callable[[], bool] = lambda: True,
    ) -> None:
        if watched:
            checksums.refuse_loss(path)
        _check_path(path, create=create)
        self._watched = False
        self._held: raw_reads.Hold | None = None
        self._path = path
        self._serve = serve
        self._pid = os.getpid()
        self._closed = False
        self._readers: deque[SqliteConnection] = deque()
        self._all: list[SqliteConnection] = []
        self._guard = threading.Lock()
        may_migrate = cache(may_migrate)  # asked twice below, and its answer may change in between
        try:
            self._lock = WriterLock(path)
            self._room = WaitingRoom(self._lock.queue_path, self._lock.queue_fd)
        except OSError as error:
            raise StorageRefused(
                f"cannot write beside {path}: {error.strerror}; make space, or its directory writable"
            ) from error
        try:
            with self._lock, self.translated():
                if create:
                    _make(path)
                _forget_sums(path, may_migrate)  # reads the file, so it precedes the first connection
                self._held = raw_reads.hold(path)
                self._writer = self._connect()
                _set_up(self._writer, path, may_migrate)
            sync_directory(path.parent)
            self._watched = watched
        except BaseException:
            self.close()
            raise
        _open_databases.add(self)

    @contextmanager
    def reading(self) -> Iterator[SqliteConnection]:
        """Lend a connection for reads; each statement sees the last commit before it."""
        self._check_open()
        try:
            try:
                db = self._readers.pop()
            except IndexError:
                db = self._connect()
                db.execute("PRAGMA query_only = ON")
            try:
                yield db
            finally:
                self._give_back(db)
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def reading_one_moment(self) -> AbstractContextManager[SqliteConnection]:
        """Lend a connection on which all statements see the same commit."""
        return in_read_transaction(self.reading())

    @contextmanager
    def writing(self) -> Iterator[SqliteConnection]:
        """Lend the writing connection in a transaction: durable on exit, rolled back on an error."""
        self._check_open()
        self._lock.acquire()
        with self._transaction_and_leave() as db:
            yield db

    def write(self, work: Callable[[SqliteConnection, bool], None], encoded: Callable[[], bytes | None]) -> None:
        """Do ``work`` in a durable transaction, or have the holder of the writer lock do it.

        Args:
            work: its second argument says that another process may have done it already and died before it marked it
                done.
            encoded: returns the work as a request to another process; ``None`` if it cannot be encoded.
        """
        self._check_open()
        ticket = None
        try:
            if not self._lock.try_acquire():
                data = encoded()
                ticket = self._room.submit(data) if data is not None else None
                if not self._wait_for_lock(ticket):
                    return
            with self._transaction_and_leave(ticket) as db:
                work(db, ticket is not None)
        finally:
            if ticket is not None:
                ticket.close()

    def _wait_for_lock(self, ticket: Ticket | None) -> bool:
        """Wait until the lock is taken or the request done; return whether the lock was taken."""
        if ticket is None:
            return self._lock.acquire()
        if self._lock.try_acquire():  # its holder may have released it without reading the request
            return True
        ticket.wait()
        return self._lock.acquire(unless=ticket.is_done)

    @contextmanager
    def _transaction_and_leave(self, ticket: Ticket | None = None) -> Iterator[SqliteConnection]:
        """Run a transaction with the lock held, then release it. The transaction also serves the waiters' requests."""
        db = self._writer
        served: list[Request] = []
        try:
            self._check_open()
            if ticket is not None:
                ticket.withdraw()
            db.execute("BEGIN IMMEDIATE")
            yield db
            served = [request for request in self._room.requests() if self._serve(db, request.data)]
            db.execute("COMMIT")
            self._room.mark_done(served)
        except BaseException as error:
            served.clear()
            if db.in_transaction:
                db.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise translate(error, self._path) from error
            raise
        finally:
            self._lock.release()
            self._room.wake(served)

    @contextmanager
    def erasing(self) -> Iterator[SqliteConnection]:
        """As `writing`; afterwards deleted content is also removed from the log, unless a reader pins it."""
        with self.writing() as db:
            yield db
        self._lock.acquire()
        try:
            self._check_open()
            with self.translated():
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self._lock.release()
            self._room.wake(())

    @contextmanager
    def savepoint(self, db: Connection) -> Iterator[None]:
        """Open a savepoint: a failure inside rolls back to it, unless it ended the whole transaction."""
        db.execute("SAVEPOINT part")
        try:
            with self.translated():
                yield
        except BaseException as error:
            if not self._writer.in_transaction:  # SQLite rolled back the transaction: disk full or I/O error
                raise Unavailable(f"{self._path}: nothing was written: {error}") from error
            db.execute("ROLLBACK TO part")
            db.execute("RELEASE part")
            raise
        db.execute("RELEASE part")

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Translate SQLite's errors."""
        try:
            yield
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def close(self) -> None:
        """Close all connections; the last close of all processes checkpoints the write-ahead log and removes it."""
        with self._guard:
            if self._closed or os.getpid() != self._pid:
                return
            self._closed = True
        self._lock.acquire()
        try:
            for db in self._all:
                db.close()
            if self._held is not None:
                self._held.release()
            if self._all and self._watched:
                self._keep_sums()
            self._all.clear()
            self._readers.clear()
        finally:
            self._room.close()
            self._lock.close()
            self._lock.release()

    def damage(self) -> str | None:
        """Read the whole file and return its damage; ``None`` if there is none."""
        with self.reading_one_moment() as db:
            return health.damage(db, self._path) or orphan(db)

    def _keep_sums(self) -> None:
        """Write checksums and heads, if no other process has the file open. Without them later checks detect less."""
        try:
            checksums.keep(self._path)
        except (OSError, sqlite3.Error) as error:
            _log.warning("the checksums of %s could not be written beside it: %s", self._path, error)

    def _connect(self) -> SqliteConnection:
        db = sqlite3.connect(
            self._path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=128,
            factory=SqliteConnection,
        )
        with self._guard:
            if self._closed:  # closed by another thread
                db.close()
                raise Unavailable(f"the journal {self._path} was closed")
            self._all.append(db)
        db.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        return db

    def _give_back(self, db: SqliteConnection) -> None:
        if not self._closed and len(self._readers) < _IDLE_READERS:
            self._readers.append(db)
            return
        with self._guard:
            if db in self._all:
                self._all.remove(db)
        db.close()

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise Unavailable(
                f"the journal {self._path} was opened by process {self._pid}, before a fork; open it again in the child"
            )
        if self._closed:
            raise Unavailable(f"the journal {self._path} was closed")

    def _leave_to_parent(self) -> None:
        _inherited.extend(self._all)
        self._room.forget()
        self._lock.close()


def _leave_all_to_parent() -> None:
    for database in list(_open_databases):
        database._leave_to_parent()  # noqa: SLF001 - the hook is this module's own


os.register_at_fork(after_in_child=_leave_all_to_parent)


def translate(error: sqlite3.Error, path: Path) -> ChronicleError:
    """Return the `ChronicleError` for an error of SQLite."""
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    if name == "SQLITE_FULL":
        return _disk_full(path)
    if name.startswith("SQLITE_READONLY"):
        return StorageRefused(f"{path} cannot be written: make it and its directory writable")
    if name.startswith("SQLITE_CANTOPEN"):
        return StorageRefused(f"{path} cannot be opened: {error}")
    if name.startswith("SQLITE_IOERR"):
        if _is_full(path):
            return _disk_full(path)
        return StorageRefused(f"{path} cannot be read or written: {error} ({name})")
    if name == "SQLITE_NOTADB" or "unsupported file format" in str(error):
        return Corrupt(f"{path} is not a SQLite database")
    if name.startswith("SQLITE_CORRUPT") or "Could not decode" in str(error):
        return Corrupt(f"{path} is damaged: {error}", str(path))
    if name.startswith("SQLITE_BUSY"):
        return Unavailable(f"another program holds {path} locked for writing; close it and try again")
    if name.startswith("SQLITE_CONSTRAINT"):
        return InvalidInput(f"an id was used before: {error}")
    if name == "SQLITE_ERROR" and "no such" in str(error):
        return Corrupt(f"{path} lacks a table or column: {error}")
    if name in ("SQLITE_TOOBIG", "OverflowError", "DataError"):
        return InvalidInput(f"a value is too large: {error}")
    return Unavailable(f"{path}: {error} ({name})")


def _disk_full(path: Path) -> StorageRefused:
    return StorageRefused(
        f"the disk of {path} is full; nothing was written: make space on it by removing or moving what else is there, "
        "and try again"
    )


def _is_full(path: Path) -> bool:
    """Whether too little is free for the index of SQLite's log, a failure that SQLite reports with a separate code."""
    try:
        free = os.statvfs(path.parent)
    except OSError:
        return False
    return free.f_bavail * free.f_frsize < LOG_INDEX_BYTES


def _check_path(path: Path, *, create: bool) -> None:
    # os.path, because Path's predicates raise if a parent directory is not searchable
    directory = path.parent
    if os.path.isdir(path):  # noqa: PTH112
        raise InvalidInput(f"{path} is a directory; give the path of a file")
    if not os.path.isdir(directory):  # noqa: PTH112
        raise InvalidInput(f"the directory {directory} does not exist; make it first")
    if os.access(path, os.F_OK):
        if not os.access(path, os.R_OK | os.W_OK):
            raise StorageRefused(f"{path} cannot be read and written; mend its permissions")
    elif not os.access(directory, os.W_OK | os.X_OK):
        raise StorageRefused(f"the directory {directory} is not writable; mend its permissions or choose another")
    elif not create:
        raise NotFound(f"there is no journal {path}")


def _forget_sums(path: Path, may_migrate: Callable[[], bool]) -> None:
    """Remove the checksums of the last close before the file is written, unless they reveal a change.

    The caller has the writer lock. A journal of a newer format, or of an older one that must not be migrated, is not
    touched; its format check refuses it. Checksums beside a log are outdated, and are removed unread.

    Raises:
        Corrupt: the file was changed since its last close. A write would hide that.
        StorageRefused: the checksums cannot be removed.
    """
    try:
        if not checksums.sums_path(path).exists():
            return
        if not checksums.has_log(path):
            version = checksums.version_at_rest(path)
            if version > schema.VERSION or (0 < version < schema.VERSION and not may_migrate()):
                return
            problem = checksums.damaged_page(path, checksums.LOOK_BYTES)
            if problem is not None:
                raise checksums.damaged(path, problem)
        checksums.forget_sums(path)
    except OSError as error:
        raise StorageRefused(f"cannot write beside {path}: {error.strerror}; make its directory writable") from error


def _make(path: Path) -> None:
    """Create the file if it does not exist, with the mode that SQLite then gives to the files beside it.

    An existing file is not opened: closing it would drop SQLite's locks on it in this process.
    """
    with suppress(OSError):  # it exists; or SQLite cannot create it either, and reports why
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, private_mode(path.parent)))


def _set_up(db: sqlite3.Connection, path: Path, may_migrate: Callable[[], bool]) -> None:
    schema.version_of(db, path)  # before any write: it may be another program's database
    db.execute(f"PRAGMA page_size = {_PAGE_SIZE}")  # no effect on an existing file
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise UnusableFormat(f"{path} is on a file system that SQLite's write-ahead log does not work on")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA secure_delete = ON")  # always: a session's deletion also erases bodies of consumed messages
    schema.prepare(db, path, may_migrate=may_migrate)
