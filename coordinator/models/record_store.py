"""The records of calls, in ``models.db`` of the home: a SQLite database of its own, readable for its owner only.

A call has a row before its provider is asked, with the status ``running``, and its result before the last chunk is
handed out. Rows that are ``running`` when a model gateway starts are those of one that was killed: they become
``lost``. Both writes survive a power loss.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import Corrupt, StorageRefused, UnsupportedFormat
from chronicle.journal.sqlite.watched_database import WatchedDatabase, damage
from coordinator.models.calls import Attempt, CallRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["FILE", "RecordStore", "count_records", "damage_of_records", "read_records"]

FILE: Final = "models.db"
_FORMAT: Final = 1
_APPLICATION_ID: Final = 0x5044_4D4F  # PDMO
_TIMEOUT_S: Final = 10.0
_DAY_MS: Final = 86_400_000
_TABLES: Final = (
    """CREATE TABLE call (
        call_id            TEXT PRIMARY KEY,
        tenant             TEXT NOT NULL,
        owner              TEXT NOT NULL,
        turn               INTEGER,
        profile            TEXT NOT NULL,
        provider           TEXT NOT NULL,
        model              TEXT NOT NULL,
        status             TEXT NOT NULL,
        error              TEXT,
        input_tokens       INTEGER,
        output_tokens      INTEGER,
        cached_tokens      INTEGER,
        cache_write_tokens INTEGER,
        cache_miss_reason  TEXT,
        cost               TEXT,
        attempts           TEXT NOT NULL,
        started_ms         INTEGER NOT NULL,
        ttft_ms            INTEGER,
        latency_ms         INTEGER,
        qos_outcome        TEXT NOT NULL
    )""",
    "CREATE INDEX call_of_tenant ON call (tenant, started_ms)",
    "CREATE INDEX call_running ON call (status) WHERE status = 'running'",
)
_COLUMNS: Final = (
    "call_id",
    "tenant",
    "owner",
    "turn",
    "profile",
    "provider",
    "model",
    "status",
    "error",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "cache_miss_reason",
    "cost",
    "attempts",
    "started_ms",
    "ttft_ms",
    "latency_ms",
    "qos_outcome",
)
_SELECT: Final = f"SELECT {', '.join(_COLUMNS)} FROM call"
_WANTED: Final = (
    "(?1 IS NULL OR tenant = ?1) AND (?2 IS NULL OR owner = ?2) AND (?3 IS NULL OR profile = ?3) "
    "AND (started_ms, call_id) < (?4, ?5)"
)
"""The condition of a list: tenant, owner, profile, and the start and id of the record before it."""
_FIRST: Final = (1 << 62, "")
"""Start and id before those of all records."""
_INSERT: Final = f"INSERT INTO call VALUES ({', '.join('?' * len(_COLUMNS))})"
_UPDATE: Final = f"UPDATE call SET {', '.join(f'{name} = ?' for name in _COLUMNS[1:])} WHERE call_id = ?"


class RecordStore:
    """The records, for the model gateway. Safe to share between threads.

    Args:
        home: the home's directory.

    Raises:
        StorageRefused: the file cannot be read or written.
        Corrupt: the file is not a database of calls, or was changed since it was closed.
        UnsupportedFormat: a newer version wrote it.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / FILE
        self._guard = threading.Lock()
        self._watched = WatchedDatabase(self._path)
        with _translated(self._path), self._watched.opening():
            self._db = sqlite3.connect(self._path, _TIMEOUT_S, isolation_level=None, check_same_thread=False)
            try:
                self._set_up()
            except BaseException:
                self._db.close()
                raise

    def close(self) -> None:
        """Close the file."""
        with self._watched.closing(), self._guard:
            self._db.close()

    def begin(self, record: CallRecord) -> bool:
        """Record a call that begins; durable on return.

        Returns:
            whether its id is new; else nothing was recorded.
        """
        with self._writing() as db:
            if db.execute("SELECT 1 FROM call WHERE call_id = ?", (record.call_id,)).fetchone() is not None:
                return False
            db.execute(_INSERT, _row(record))
        return True

    def end(self, record: CallRecord) -> None:
        """Record the result of a call; durable on return."""
        with self._writing() as db:
            first, *others = _row(record)
            db.execute(_UPDATE, (*others, first))

    def give_up_running(self) -> int:
        """Mark the calls of an earlier process, which was killed, as lost; return their number."""
        with self._writing() as db:
            error = json.dumps({"kind": "unavailable", "message": "the model gateway was killed during the call"})
            return db.execute("UPDATE call SET status = 'lost', error = ? WHERE status = 'running'", (error,)).rowcount

    def spent(self, tenant: str, day_ms: int) -> Decimal:
        """Return the cost of a tenant's calls that began on a day.

        Args:
            day_ms: the beginning of the day.
        """
        with self._guard, _translated(self._path):
            rows = self._db.execute(
                "SELECT cost FROM call WHERE tenant = ? AND started_ms >= ? AND started_ms < ? AND cost IS NOT NULL",
                (tenant, day_ms, day_ms + _DAY_MS),
            ).fetchall()
        return sum((Decimal(cost) for (cost,) in rows), Decimal(0))

    def _set_up(self) -> None:
        if not _has_tables(self._db, self._path):
            with self._writing() as db:
                if not _has_tables(db, self._path):
                    for statement in _TABLES:
                        db.execute(statement)
                    db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    db.execute(f"PRAGMA user_version = {_FORMAT}")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._guard, _translated(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite rolls back by itself on a full disk
                    self._db.execute("ROLLBACK")
                raise


def read_records(
    home: Path,
    tenant: str | None,
    limit: int,
    *,
    owner: str | None = None,
    profile: str | None = None,
    before: tuple[int, str] | None = None,
) -> list[CallRecord]:
    """Return the latest records of a home, the latest first; any process may call it.

    Args:
        tenant: only the calls of this one; of all, if ``None``.
        limit: the most records.
        owner: only the calls of this one.
        profile: only the calls of this one.
        before: start and id of the last record that is known.

    Raises:
        StorageRefused: the file cannot be read.
        Corrupt: the file is not a database of calls.
    """
    values = (tenant, owner, profile, *(before or _FIRST), limit)
    query = f"{_SELECT} WHERE {_WANTED} ORDER BY started_ms DESC, call_id DESC LIMIT ?6"
    return [_record(row) for row in _rows(home, query, values)]


def count_records(
    home: Path,
    tenant: str | None,
    *,
    owner: str | None = None,
    profile: str | None = None,
    before: tuple[int, str] | None = None,
) -> int:
    """Return the number of records that `read_records` returns without a limit; raises as that does."""
    counted = _rows(home, f"SELECT count(*) FROM call WHERE {_WANTED}", (tenant, owner, profile, *(before or _FIRST)))
    return int(counted[0][0]) if counted else 0


def _rows(home: Path, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
    """Return the result of a query; none if no call was ever recorded."""
    path = home / FILE
    if not path.exists():
        return []
    with _translated(path):
        db = sqlite3.connect(path, _TIMEOUT_S, isolation_level=None)
        try:
            return db.execute(query, values).fetchall() if _has_tables(db, path) else []
        finally:
            db.close()


def damage_of_records(home: Path) -> str | None:
    """Return the damage of a home's records; ``None`` if there is none, or no record. Nothing is written."""

    def read(db: sqlite3.Connection) -> None:
        if _has_tables(db, home / FILE):
            for row in db.execute(_SELECT):
                _record(row)

    return damage(home / FILE, read)


def _has_tables(db: sqlite3.Connection, path: Path) -> bool:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != _APPLICATION_ID and (application or version or tables):
        raise Corrupt(f"{path} is not a database of calls; put it back from a backup, or remove it")
    if version > _FORMAT:
        raise UnsupportedFormat(f"{path} has format {version}, and this code reads up to {_FORMAT}")
    return bool(version)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            raise Corrupt(f"{path} is damaged: {error}; put it back from a backup, or remove it") from error
        raise StorageRefused(f"{path} cannot be used: {error}") from error
    except OSError as error:
        raise StorageRefused(f"{path} cannot be written: {error.strerror}") from error


def _row(record: CallRecord) -> tuple[Any, ...]:
    values = record.to_json()
    for name in ("error", "attempts", "qos_outcome"):
        values[name] = json.dumps(values[name]) if values[name] is not None else None
    return tuple(values[name] for name in _COLUMNS)


def _record(row: tuple[Any, ...]) -> CallRecord:
    values = dict(zip(_COLUMNS, row, strict=True))
    for name in ("error", "attempts", "qos_outcome"):
        values[name] = json.loads(values[name]) if values[name] is not None else None
    values["attempts"] = tuple(Attempt(**attempt) for attempt in values["attempts"])
    return CallRecord(**values)
