"""The records of calls of models, in SQL."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from chronicle.journal.sql.moving import copy_rows
from coordinator.models.calls import Attempt, CallRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from coordinator.homes.sql.port import Connection, RecordsDatabase
    from coordinator.models.records import CallRecords

__all__ = ["CALL_TABLES", "SqlCallLog", "SqlCallRecords", "read_calls"]

_DAY_MS: Final = 86_400_000
CALL_TABLES: Final = (
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
_INSERT: Final = (
    f"INSERT INTO call VALUES ({', '.join('?' * len(_COLUMNS))}) ON CONFLICT (call_id) DO NOTHING RETURNING 1"
)
_UPDATE: Final = f"UPDATE call SET {', '.join(f'{name} = ?' for name in _COLUMNS[1:])} WHERE call_id = ?"


class SqlCallRecords:
    """`coordinator.models.records.CallRecords` in a database.

    Args:
        database: has `CALL_TABLES`; closed with the records.
    """

    def __init__(self, database: RecordsDatabase) -> None:
        self._database = database

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def receive(self, source: CallRecords) -> None:
        """Replace all that is kept by what others have at one moment, durably."""
        assert isinstance(source, SqlCallRecords), "all of homes are"
        database = source._database  # noqa: SLF001  of its own kind
        with database.reading_one_moment() as rows, self._database.writing() as db:
            copy_rows(rows, db, "\n".join(CALL_TABLES), lambda _: None)

    def begin(self, record: CallRecord) -> bool:
        """See `CallRecords`."""
        with self._database.writing() as db:
            return db.execute(_INSERT, _row(record)).fetchone() is not None

    def end(self, record: CallRecord) -> None:
        """See `CallRecords`."""
        with self._database.writing() as db:
            first, *others = _row(record)
            db.execute(_UPDATE, (*others, first))

    def give_up_running(self) -> int:
        """See `CallRecords`."""
        with self._database.writing() as db:
            error = json.dumps({"kind": "unavailable", "message": "the model gateway was killed during the call"})
            update = "UPDATE call SET status = 'lost', error = ? WHERE status = 'running' RETURNING 1"
            return len(db.execute(update, (error,)).fetchall())

    def spent(self, tenant: str, day_ms: int) -> Decimal:
        """See `CallRecords`."""
        with self._database.reading() as db:
            rows = db.execute(
                "SELECT cost FROM call WHERE tenant = ? AND started_ms >= ? AND started_ms < ? AND cost IS NOT NULL",
                (tenant, day_ms, day_ms + _DAY_MS),
            ).fetchall()
        return sum((Decimal(cost) for (cost,) in rows), Decimal(0))


class SqlCallLog:
    """`coordinator.models.records.CallLog` of a database.

    Args:
        reading: lends a connection; ``None`` if there are no records yet.
    """

    def __init__(self, reading: Callable[[], AbstractContextManager[Connection | None]]) -> None:
        self._reading = reading

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
        wanted, values = _wanted(tenant, owner, profile, before)
        query = f"{_SELECT} {wanted} ORDER BY started_ms DESC, call_id DESC LIMIT ?"
        with self._reading() as db:
            return [_record(row) for row in db.execute(query, (*values, limit))] if db is not None else []

    def count(
        self,
        tenant: str | None,
        *,
        owner: str | None = None,
        profile: str | None = None,
        before: tuple[int, str] | None = None,
    ) -> int:
        """See `CallLog`."""
        wanted, values = _wanted(tenant, owner, profile, before)
        with self._reading() as db:
            return int(db.execute(f"SELECT count(*) FROM call {wanted}", values).fetchone()[0]) if db is not None else 0


def read_calls(db: Connection) -> None:
    """Read all records, to check that they can be read."""
    for row in db.execute(_SELECT):
        _record(row)


def _wanted(
    tenant: str | None, owner: str | None, profile: str | None, before: tuple[int, str] | None
) -> tuple[str, list[Any]]:
    """Return the condition of a list, and its values."""
    columns = {"tenant": tenant, "owner": owner, "profile": profile}
    parts = [f"{name} = ?" for name, value in columns.items() if value is not None]
    values: list[Any] = [value for value in columns.values() if value is not None]
    if before is not None:
        parts, values = [*parts, "(started_ms, call_id) < (?, ?)"], [*values, *before]
    return f"WHERE {' AND '.join(parts)}" if parts else "", values


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
