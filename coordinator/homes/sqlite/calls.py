"""The records of calls of models, in ``models.db``."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from coordinator.homes.sqlite.file import FileKind, RecordsFile, damage_of, read_once
from coordinator.models.calls import Attempt, CallRecord

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

__all__ = ["CALLS", "SqliteCallLog", "SqliteCallRecords", "damage_of_calls"]

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
CALLS: Final = FileKind("models.db", "calls", 0x5044_4D4F, 1, _TABLES)  # PDMO
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


class SqliteCallRecords:
    """`coordinator.models.records.CallRecords` in a file.

    Args:
        home: the home's directory.

    Raises:
        StorageRefused: the file cannot be read or written.
        Corrupt: the file is not a database of calls, or was changed since it was closed.
        UnsupportedFormat: a newer version wrote it.
    """

    def __init__(self, home: Path) -> None:
        self._file = RecordsFile(home, CALLS)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def begin(self, record: CallRecord) -> bool:
        """See `CallRecords`."""
        with self._file.writing() as db:
            if db.execute("SELECT 1 FROM call WHERE call_id = ?", (record.call_id,)).fetchone() is not None:
                return False
            db.execute(_INSERT, _row(record))
        return True

    def end(self, record: CallRecord) -> None:
        """See `CallRecords`."""
        with self._file.writing() as db:
            first, *others = _row(record)
            db.execute(_UPDATE, (*others, first))

    def give_up_running(self) -> int:
        """See `CallRecords`."""
        with self._file.writing() as db:
            error = json.dumps({"kind": "unavailable", "message": "the model gateway was killed during the call"})
            return db.execute("UPDATE call SET status = 'lost', error = ? WHERE status = 'running'", (error,)).rowcount

    def spent(self, tenant: str, day_ms: int) -> Decimal:
        """See `CallRecords`."""
        with self._file.reading() as db:
            rows = db.execute(
                "SELECT cost FROM call WHERE tenant = ? AND started_ms >= ? AND started_ms < ? AND cost IS NOT NULL",
                (tenant, day_ms, day_ms + _DAY_MS),
            ).fetchall()
        return sum((Decimal(cost) for (cost,) in rows), Decimal(0))


class SqliteCallLog:
    """`coordinator.models.records.CallLog` of a file, which need not exist.

    Args:
        home: the home's directory.
    """

    def __init__(self, home: Path) -> None:
        self._home = home

    def latest(
        self,
        tenant: str | None,
        limit: int,
        *,
        owner: str | None = None,
        profile: str | None = None,
        before: tuple[int, str] | None = None,
    ) -> list[CallRecord]:
        """See `CallLog`."""
        query = f"{_SELECT} WHERE {_WANTED} ORDER BY started_ms DESC, call_id DESC LIMIT ?6"
        with read_once(self._home, CALLS) as db:
            values = (tenant, owner, profile, *(before or _FIRST), limit)
            return [_record(row) for row in db.execute(query, values)] if db is not None else []

    def count(
        self,
        tenant: str | None,
        *,
        owner: str | None = None,
        profile: str | None = None,
        before: tuple[int, str] | None = None,
    ) -> int:
        """See `CallLog`."""
        query = f"SELECT count(*) FROM call WHERE {_WANTED}"
        with read_once(self._home, CALLS) as db:
            values = (tenant, owner, profile, *(before or _FIRST))
            return int(db.execute(query, values).fetchone()[0]) if db is not None else 0


def damage_of_calls(home: Path) -> str | None:
    """Return the damage of a home's records; ``None`` if there is none, or no record. Nothing is written."""

    def read(db: sqlite3.Connection) -> None:
        for row in db.execute(_SELECT):
            _record(row)

    return damage_of(home, CALLS, read)


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
