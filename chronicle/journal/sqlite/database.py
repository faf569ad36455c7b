"""Connections to the journal's file: one that writes, a pool of those that read, and SQLite's errors as ours.

Locks, in the order in which they are taken: the writer lock (threads, then processes), then SQLite's own. Readers take
none: in WAL mode they see the last commit before they began.

Commits are durable before they are visible (``synchronous=FULL``): the write-ahead log is synced inside the writer
lock, and a commit whose sync fails is rolled back. Syncing after the lock was released would let the syncs of several
processes overlap, but a commit whose sync then fails would have been visible already and could not be rolled back.

A connection must not be used by a forked child: SQLite's locks belong to the process. The child gets a clear error,
and the connections that it inherited are kept from being closed there.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import weakref
from collections import deque
from contextlib import contextmanager, suppress
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
from chronicle.journal.sqlite import checksums, health, raw_reads, schema
from chronicle.journal.sqlite.group_commit.waiting_room import WaitingRoom
from chronicle.journal.sqlite.group_commit.writer_lock import WriterLock
from chronicle.system.atomic_files import sync_directory
from chronicle.system.permissions import private_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from chronicle.journal.sql.port import Connection
    from chronicle.journal.sqlite.group_commit.waiting_room import Request, Ticket

__all__ = ["LOG_INDEX_BYTES", "SqliteConnection", "SqliteDatabase", "translate"]

_BUSY_TIMEOUT_MS: Final = 30_000
"""Only for others than journal stores: a SQLite shell that writes, recovery after a crash by another process."""
_PAGE_SIZE: Final = 16384
"""A commit writes four pages whole: 18 µs of CPU time and some 15 µs of the sync more than with pages of 8 KiB. But
turns of 1.2 KB leave 6 % of such pages empty, and 19 % of pages of 8 KiB, with which the bound of twice the new bytes
on disk is missed (2.13 instead of 1.95)."""
_CHECKPOINT_PAGES: Final = 256
"""4 MiB of write-ahead log, as SQLite has by default with its smaller pages."""
LOG_INDEX_BYTES: Final = 32 * 1024
"""What SQLite makes ``-shm`` at least, before it reads or writes the log."""
_IDLE_READERS: Final = 8
_log: Final = logging.getLogger(__name__)
_open_databases: Final[weakref.WeakSet[SqliteDatabase]] = weakref.WeakSet()
_inherited: Final[list[SqliteConnection]] = []
"""In a forked child: the parent's connections, kept so that they are not closed by garbage collection."""


class SqliteConnection(sqlite3.Connection):
    """A connection. There is one writer at a time, so no rows are locked."""

    for_share: Final = ""
    for_update: Final = ""

    def insert(self, sql: str, rows: Sequence[Sequence[Any]], /) -> None:
        """Run an ``INSERT`` for each row, with one look-up of the prepared statement for all."""
        self.executemany(sql, rows)

    def changed(self, sql: str, values: Sequence[Any], /) -> int:
        """Run an ``UPDATE``, and return how many rows it changed."""
        return self.execute(sql, values).rowcount


class SqliteDatabase:
    """A journal file that is open.

    Args:
        path: the file. Beside it appear ``-wal`` and ``-shm``, which are part of it, and the lock's files, which are
            not.
        serve: does a request of another process in a transaction; returns whether it could.
        create: make it if it is not there.
        watched: on closing, write checksums and heads beside it (`chronicle.journal.sqlite.checksums`).

    Raises:
        InvalidInput: the path cannot hold a journal: its directory is missing, or it is a directory.
        StorageRefused: it or its directory cannot be written, or the disk is full.
        NotFound: there is none, and ``create`` is false.
        Corrupt: it is not a journal; or it was watched, and is gone or not what it was when it was closed.
        UnsupportedFormat: it is a journal of a newer format, or of an older one that no migration leads from.
    """

    def __init__(
        self, path: Path, serve: Callable[[SqliteConnection, bytes], bool], *, create: bool, watched: bool = False
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
                _forget_sums(path)  # reads the file, so before the first connection to it
                self._held = raw_reads.hold(path)
                self._writer = self._connect()
                _set_up(self._writer, path)
            sync_directory(path.parent)
            self._watched = watched
        except BaseException:
            self.close()
            raise
        _open_databases.add(self)

    @contextmanager
    def reading(self) -> Iterator[SqliteConnection]:
        """Lend a connection for statements that read; each sees the last commit before it."""
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

    @contextmanager
    def reading_one_moment(self) -> Iterator[SqliteConnection]:
        """Lend a connection on which all statements see the same commit."""
        with self.reading() as db:
            db.execute("BEGIN")
            try:
                yield db
            finally:
                if db.in_transaction:  # SQLite rolls back by itself when the disk fails
                    db.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[SqliteConnection]:
        """Lend the writing connection in a transaction that commits at the end, durably, or rolls back on any error."""
        self._check_open()
        self._lock.acquire()
        with self._transaction_and_leave() as db:
            yield db

    def write(self, work: Callable[[SqliteConnection, bool], None], encoded: Callable[[], bytes | None]) -> None:
        """Do ``work`` in a transaction, durably; or have it done by the process that holds the writer lock.

        Args:
            work: its second argument says that another process may have done it already, and died before it said so.
            encoded: returns the work as a request for another process; ``None`` if it cannot be expressed as one.
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
        if self._lock.try_acquire():  # its holder may have released it without seeing the request
            return True
        ticket.wait()
        return self._lock.acquire(unless=ticket.is_done)

    @contextmanager
    def _transaction_and_leave(self, ticket: Ticket | None = None) -> Iterator[SqliteConnection]:
        """Begin with the lock held; release it at the end. The transaction does the requests of waiters as well."""
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
        """As `writing`; afterwards deleted content is gone from the log as well, unless a reader holds it."""
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
        """Open a savepoint: this part of a transaction can fail alone, unless the failure ended the transaction."""
        db.execute("SAVEPOINT part")
        try:
            with self.translated():
                yield
        except BaseException as error:
            if not self._writer.in_transaction:  # the disk is full, or worse: SQLite has rolled all of it back
                raise Unavailable(f"{self._path}: nothing was written: {error}") from error
            db.execute("ROLLBACK TO part")
            db.execute("RELEASE part")
            raise
        db.execute("RELEASE part")

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn SQLite's errors into ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def close(self) -> None:
        """Close all connections; the last one of all processes folds the write-ahead log into the file."""
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
        """Return what is wrong with the file, after reading all of it; ``None`` if nothing is."""
        with self.reading_one_moment() as db:
            return health.damage(db, self._path)

    def _keep_sums(self) -> None:
        """Write checksums and heads, if no other process has the file open. Without them later checks find less."""
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
            if self._closed:  # meanwhile
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
    """Return what an error of SQLite means to a caller."""
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
    if name == "SQLITE_NOTADB":
        return Corrupt(f"{path} is not a SQLite database")
    if name.startswith("SQLITE_CORRUPT") or "Could not decode" in str(error):
        return Corrupt(f"{path} is damaged: {error}")
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
    """Whether so little is free that SQLite cannot make the index of its log, which it says as an error of its own."""
    try:
        free = os.statvfs(path.parent)
    except OSError:
        return False
    return free.f_bavail * free.f_frsize < LOG_INDEX_BYTES


def _check_path(path: Path, *, create: bool) -> None:
    # os.path and not Path, whose questions raise where a directory on the way must not be entered
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


def _forget_sums(path: Path) -> None:
    """Remove what the file was when it was closed, as it is going to be written; not if it is something else by now.

    The caller has the writer lock. A journal of a newer format is left as it is, to be refused by its format. Checksums
    beside a log are of another time, and are removed unread.

    Raises:
        Corrupt: it was changed since. Writing to it would hide that.
        StorageRefused: it cannot be removed.
    """
    try:
        if not checksums.sums_path(path).exists():
            return
        if not checksums.has_log(path):
            if checksums.version_at_rest(path) > schema.VERSION:
                return
            problem = checksums.damaged_page(path, checksums.LOOK_BYTES)
            if problem is not None:
                raise checksums.damaged(path, problem)
        checksums.forget_sums(path)
    except OSError as error:
        raise StorageRefused(f"cannot write beside {path}: {error.strerror}; make its directory writable") from error


def _make(path: Path) -> None:
    """Make the file, if it is not there, with the mode that SQLite then gives to those beside it as well.

    One that is there is not opened: closing it would drop the locks that SQLite has on it in this process.
    """
    with suppress(OSError):  # it is there; or SQLite cannot make it either, and says why
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, private_mode(path.parent)))


def _set_up(db: sqlite3.Connection, path: Path) -> None:
    schema.version_of(db, path)  # before a write, as this may be the database of another program
    db.execute(f"PRAGMA page_size = {_PAGE_SIZE}")  # of no effect on a file that exists
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise UnusableFormat(f"{path} is on a file system that SQLite's write-ahead log does not work on")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA secure_delete = ON")  # always: bodies of consumed messages too are erased with their session
    schema.prepare(db, path)
