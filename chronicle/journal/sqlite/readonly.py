"""Read-only access to a journal's file: no file is created, changed or locked.

SQLite's write-ahead mode writes even for a reader: it creates ``-wal`` and ``-shm`` where they are missing. So each
connection depends on the state of the file:

- *At rest*: closed cleanly, with neither a log that has content nor a complete index of one; a full disk leaves
  incomplete indexes, which no process can use. The file alone is the journal; it is opened as ``immutable``, which
  touches no other file and takes no lock. A concurrent writer may mix two commits into one read: the file's stamp is
  compared after each read, and a read during which it changed is refused. The next read finds the journal in use.
  Opening reads the file, too, and retries by itself, because a journal that is being created changes all the time.
- *In use*, or left by a crash: the log and its index exist. It is opened with ``mode=ro``, which reads both and writes
  neither.
- Left by a crash, or copied, with its log but without the log's index, on a read-only medium: SQLite cannot read that,
  and the error says what to do. On a writable medium SQLite rebuilds the index.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import urllib.parse
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from chronicle.errors import InvalidInput, NotFound, OlderFormat, StorageRefused, Unavailable, UnsupportedFormat
from chronicle.journal.sql.orphans import orphan
from chronicle.journal.sqlite import checksums, health, raw_reads, schema
from chronicle.journal.sqlite.database import LOG_INDEX_BYTES, SqliteConnection, in_read_transaction, translate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from chronicle.journal.sql.port import Connection

__all__ = ["ReadOnlyDatabase"]

_BUSY_TIMEOUT_MS: Final = 30_000
"""As for writers: crash recovery by another process may take a while."""
_OPENING_S: Final = 5.0
"""Creating a journal takes milliseconds, longer on a disk with slow syncs; its file changes a few times meanwhile."""
_OPENING_PAUSE_S: Final = 0.005


class ReadOnlyDatabase:
    """A read-only `chronicle.journal.sql.port.Database`; its write methods raise `InvalidInput`.

    Args:
        path: the file.
        watched: checksums and heads of its last close are beside it (`chronicle.journal.sqlite.checksums`).

    Raises:
        Corrupt: the file is missing, empty or changed, and was watched.
        NotFound: there is no journal, or only the file of one that is being created.
        InvalidInput: the path is a directory.
        StorageRefused: the file may not be read.
        Corrupt: the file is not a journal.
        UnsupportedFormat: the journal has a newer format, or an older one, which only a writer upgrades.
        StorageRefused: its log cannot be read without a write, and the medium is read-only.
        Unavailable: the file kept changing.
    """

    def __init__(self, path: Path, *, watched: bool = False) -> None:
        if watched:
            checksums.refuse_loss(path)
        _check_path(path)
        self._path = path
        self._pid = os.getpid()
        self._closed = False
        self._guard = threading.Lock()
        self._idle: list[_Reader] = []
        try:
            self._check_version()
        except (NotFound, UnsupportedFormat):  # what says so may be damaged
            problem = checksums.damaged_page(path, checksums.LOOK_BYTES) if watched else None
            if problem is not None:
                raise checksums.damaged(path, problem) from None
            raise

    @contextmanager
    def reading(self) -> Iterator[SqliteConnection]:
        """Lend a connection for statements that read; each sees the last commit before it.

        Raises:
            Unavailable: the file changed during the read; its results must not be used.
        """
        self._check_open()
        try:
            reader = self._borrow()
            try:
                yield reader.db
            except Exception:  # any error may result from a mix of two commits
                self._check_unchanged(reader)
                raise
            finally:
                self._give_back(reader)
            self._check_unchanged(reader)
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
                raise StorageRefused(
                    f"{self._path} was not closed in order, and its log cannot be read where nothing can be written: "
                    f"make its directory writable, or copy it and {self._path.name}-wal to one that is"
                ) from error
            raise translate(error, self._path) from error

    def reading_one_moment(self) -> AbstractContextManager[SqliteConnection]:
        """Lend a connection on which all statements see the same commit."""
        return in_read_transaction(self.reading())

    def writing(self) -> AbstractContextManager[Connection]:
        """Raise `InvalidInput`."""
        self._refuse()

    def erasing(self) -> AbstractContextManager[Connection]:
        """Raise `InvalidInput`."""
        self._refuse()

    def savepoint(self, db: Connection) -> AbstractContextManager[None]:  # noqa: ARG002 - the port has it
        """Raise `InvalidInput`."""
        self._refuse()

    def close(self) -> None:
        """Close all connections."""
        if os.getpid() != self._pid:
            return
        with self._guard:
            self._closed = True
            readers, self._idle = self._idle, []
        for reader in readers:
            reader.close()

    def damage(self) -> str | None:
        """Read the whole file and return its damage; ``None`` if there is none."""
        with self.reading_one_moment() as db:
            return health.damage(db, self._path) or orphan(db)

    def _refuse(self) -> NoReturn:
        raise InvalidInput(f"the journal {self._path} was opened for reading only")

    def _check_version(self) -> None:
        """Check that the file is a readable journal; retry for a while if it changes meanwhile."""
        deadline = time.monotonic() + _OPENING_S
        while True:
            found = _stamps(self._path)
            try:
                with self.reading_one_moment() as db:
                    _check_version(db, self._path)
            except Unavailable:
                if _stamps(self._path) == found or time.monotonic() > deadline:
                    raise
                time.sleep(_OPENING_PAUSE_S)
            else:
                return

    def _check_unchanged(self, reader: _Reader) -> None:
        if reader.rest is not None and _stamp(self._path) != reader.rest:
            raise Unavailable(f"{self._path} was written to while it was read; read it again")

    def _borrow(self) -> _Reader:
        """Return an idle connection that is still usable, or a new one."""
        while True:
            with self._guard:
                reader = self._idle.pop() if self._idle else None
            if reader is None:
                return self._connect()
            if _at_rest(self._path) == reader.rest:
                return reader
            reader.close()

    def _give_back(self, reader: _Reader) -> None:
        with self._guard:
            if not self._closed:
                self._idle.append(reader)
                return
        reader.close()

    def _connect(self) -> _Reader:
        rest = _at_rest(self._path)
        how = "mode=ro" if rest is None else "mode=ro&immutable=1"
        held = raw_reads.hold(self._path)
        try:
            db = sqlite3.connect(
                f"file:{urllib.parse.quote(os.fspath(self._path))}?{how}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                factory=SqliteConnection,
            )
        except BaseException:
            held.release()
            raise
        reader = _Reader(db, rest, held)
        try:
            db.execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
            db.execute("PRAGMA query_only = ON")
        except BaseException:
            reader.close()
            raise
        return reader

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise Unavailable(
                f"the journal {self._path} was opened by process {self._pid}, before a fork; open it again in the child"
            )
        if self._closed:
            raise Unavailable(f"the journal {self._path} was closed")


class _Stamp(NamedTuple):
    """The status fields that change with each write to a file."""

    ino: int
    size: int
    mtime_ns: int


class _Reader(NamedTuple):
    """A connection."""

    db: SqliteConnection
    rest: _Stamp | None
    """The stamp of a file that was opened as immutable; ``None`` if the connection reads along with writers."""
    held: raw_reads.Hold

    def close(self) -> None:
        """Close the connection."""
        self.db.close()
        self.held.release()


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return _Stamp(status.st_ino, status.st_size, status.st_mtime_ns)


def _stamps(path: Path) -> list[_Stamp | None]:
    return [_stamp(path.with_name(path.name + part)) for part in ("", "-wal", "-shm")]


def _at_rest(path: Path) -> _Stamp | None:
    """Return the stamp of a journal at rest; ``None`` if it has a log to read, or a process has it open."""
    log = _stamp(path.with_name(path.name + "-wal"))
    if log is not None:
        index = _stamp(path.with_name(path.name + "-shm"))
        if log.size > 0 or (index is not None and index.size >= LOG_INDEX_BYTES):
            return None
    return _stamp(path)


def _check_path(path: Path) -> None:
    # os.path and not Path, whose questions raise where a directory on the way must not be entered
    if os.path.isdir(path):  # noqa: PTH112
        raise InvalidInput(f"{path} is a directory; give the path of a file")
    if not os.path.exists(path):  # noqa: PTH110
        raise NotFound(f"there is no journal {path}")
    if not os.access(path, os.R_OK):
        raise StorageRefused(f"{path} cannot be read; mend its permissions")


def _check_version(db: sqlite3.Connection, path: Path) -> None:
    version = schema.version_of(db, path)
    if version == 0:
        raise NotFound(f"there is no journal in {path} yet")
    if version > schema.VERSION:
        raise UnsupportedFormat(f"{path} is a journal of format {version}, and this code reads up to {schema.VERSION}")
    if version < schema.VERSION:
        raise OlderFormat(
            f"{path} is a journal of format {version}, which is upgraded when it is opened to write",
            version,
            schema.VERSION,
        )
