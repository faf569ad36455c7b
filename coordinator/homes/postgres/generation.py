"""`PostgresGeneration`: notices that a PostgreSQL database may have gone back, and that its clock is another one."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import structlog

from chronicle.clock import SystemClock
from chronicle.errors import StorageRefused
from chronicle.journal.postgres.database import NOW_MS
from chronicle.journal.postgres.position import POSITION, ServerPosition
from chronicle.system.atomic_files import replacing, sync_file
from coordinator.homes.generation import GENERATION, Generation
from coordinator.homes.postgres.gone_back import Known, why_gone_back
from coordinator.homes.postgres.skew import SkewReport

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.clock import Clock
    from chronicle.journal.postgres.database import PostgresConnection, PostgresDatabase

__all__ = ["PostgresGeneration"]

_LOOK: Final = (
    f"SELECT position.*, ({NOW_MS}), (SELECT data FROM document WHERE name = ?) FROM ({POSITION}) AS position"
)
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext(current_schema() || ' generation'))"
_WRITE: Final = """
INSERT INTO document VALUES (?, ?, 1)
ON CONFLICT (name) DO UPDATE SET data = excluded.data, written = document.written + 1
"""
_MARK_BYTES: Final = 1 << 20
"""The log that the database writes between two records of its position: the price of a record is 0.0002 of it."""

_log = structlog.stdlib.get_logger("coordinator.homes.generation")


class PostgresGeneration:
    """`coordinator.homes.generation.GenerationWatch` of a home in PostgreSQL.

    Args:
        schema: the schema of the home's records.
        directory: the home's directory on this node.
        clock: this node's.
    """

    def __init__(self, schema: PostgresDatabase, directory: Path, clock: Clock | None = None) -> None:
        self._schema = schema
        self._file = directory / GENERATION
        self._clock = clock or SystemClock()
        self._skew = SkewReport()
        self._guard = threading.Lock()

    def check(self) -> Generation:
        """See `GenerationWatch`."""
        with self._guard:
            node, seen = self._read_file()  # first: what it has was seen before the database is asked
            with self._schema.reading() as db:
                asked_ms = self._clock.now_ms()
                now, record, server_ms = _look(db)
                self._skew.compare(asked_ms, server_ms, self._clock.now_ms())
            if record is None or _is_due(now, record) or why_gone_back(now, record, node, seen) is not None:
                now, record = self._record(node, seen)
            if record != node or seen != now:
                self._write_file(record, now)
            return record.generation

    def _record(self, node: Known | None, seen: ServerPosition | None) -> tuple[ServerPosition, Known]:
        """Write the record of the database, in a new generation if it may have gone back; one process at a time."""
        with self._schema.writing() as db:
            db.execute(_LOCK)
            now, record, server_ms = _look(db)
            why = why_gone_back(now, record, node, seen)
            generation = record.generation if record is not None else Generation()
            if why is not None:
                known = max(each.generation.number for each in (record, node) if each is not None)
                generation = Generation(known + 1, server_ms, why)
            new = Known(generation, now)
            db.execute(_WRITE, (GENERATION, _described(new)))
        if why is not None:
            _log.warning("generation_raised", generation=generation.number, why=f"{self._schema.name} {why}")
        return now, new

    def _read_file(self) -> tuple[Known | None, ServerPosition | None]:
        try:
            data = json.loads(self._file.read_bytes())
            return _known(data), ServerPosition(**data["seen"])
        except FileNotFoundError:
            return None, None
        except OSError as error:
            raise StorageRefused(f"{self._file} cannot be read ({error.strerror})") from error
        except (ValueError, KeyError, TypeError):
            _log.warning("generation_file_damaged", path=str(self._file), then="it is written again")
            return None, None

    def _write_file(self, record: Known, seen: ServerPosition) -> None:
        try:
            with replacing(self._file) as new:
                new.write_bytes(_described(record, seen=asdict(seen)))
                sync_file(new)
        except OSError as error:
            raise StorageRefused(f"{self._file} cannot be written ({error.strerror})") from error


def _look(db: PostgresConnection) -> tuple[ServerPosition, Known | None, int]:
    """Return the position of a database, its record, and its time."""
    *position, now_ms, data = db.execute(_LOOK, (GENERATION,)).fetchone()
    return ServerPosition(*position), _known(json.loads(bytes(data))) if data is not None else None, now_ms


def _is_due(now: ServerPosition, record: Known) -> bool:
    return now.flushed - record.marked.flushed >= _MARK_BYTES


def _known(data: dict[str, Any]) -> Known:
    return Known(Generation(**data["generation"]), ServerPosition(**data["marked"]))


def _described(known: Known, **more: Any) -> bytes:
    data = {"generation": known.generation.as_json(), "marked": asdict(known.marked), **more}
    return f"{json.dumps(data)}\n".encode()
