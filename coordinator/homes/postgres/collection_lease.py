"""The lease of a home's collections in PostgreSQL: a document that says who has it, and until when.

A lock of a session would be free as soon as the server takes the session for dead, while a request of its holder may
still be under way to the blob store. The lease ends by the server's clock, and its holder stops a good while before.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from chronicle.errors import ChronicleError, Conflict
from chronicle.journal.postgres.database import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.journal.postgres.database import PostgresConnection, PostgresDatabase
    from coordinator.homes.collection_lease import Held

__all__ = ["COLLECTION", "LeaseTimes", "PostgresCollectionLease"]

COLLECTION: Final = "collection.json"
"""The name of the document."""
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext(current_schema() || ' collection'))"
_READ: Final = f"SELECT ({NOW_MS}), (SELECT data FROM document WHERE name = ?)"
_WRITE: Final = """
INSERT INTO document VALUES (?, ?, 1)
ON CONFLICT (name) DO UPDATE SET data = excluded.data, written = document.written + 1
"""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Times of a lease, seconds."""

    ttl_s: float = 180.0
    """Of a lease that is not renewed."""
    renewal_s: float = 20.0
    """Interval of renewals."""
    margin_s: float = 60.0
    """How long before its end nothing is changed any more: an attempt to remove an object takes 10 s at most, and one
    to store the list of condemned packs a second more for each 256 KiB."""


class PostgresCollectionLease:
    """`coordinator.homes.collection_lease.CollectionLease` of a home in PostgreSQL.

    Args:
        schema: the schema of the home's records.
        directory: the home's directory on this machine.
        times: of the lease.
    """

    def __init__(self, schema: PostgresDatabase, directory: Path, times: LeaseTimes | None = None) -> None:
        self._schema = schema
        self._place = f"{socket.gethostname()}:{directory}"
        self._times = times if times is not None else LeaseTimes()
        self._holder = uuid4().hex
        self._ends_s = 0.0
        """By `_now_s`."""
        self._ended = threading.Event()

    @contextmanager
    def hold(self) -> Iterator[Held]:
        """See `CollectionLease`."""
        asked_s = _now_s()
        with self._schema.writing() as db:
            now_ms, lease = _read(db)
            if lease is not None and lease["holder"] != self._holder and lease["ends_ms"] > now_ms:
                left_s = (lease["ends_ms"] - now_ms + 999) // 1000
                raise Conflict(
                    f"another gc of this home is running, at {lease['place']}: wait for it to end (if it was killed, "
                    f"{left_s} s)"
                )
            self._write(db, now_ms + round(self._times.ttl_s * 1000))
        self._ends_s = asked_s + self._times.ttl_s
        self._ended.clear()
        renewals = threading.Thread(target=self._renew_all, name="collection-lease", daemon=True)
        renewals.start()
        try:
            yield self._check
        finally:
            self._ended.set()
            renewals.join()
            with suppress(ChronicleError):  # it ends by itself
                self._release()

    def _check(self) -> None:
        if _now_s() > self._ends_s - self._times.margin_s:
            raise Conflict(
                "this gc has lost its lease, because the database was not reached in time, was restored, or this "
                "machine stood still: nothing else is freed; call it again"
            )

    def _renew_all(self) -> None:
        while not self._ended.wait(self._times.renewal_s):
            asked_s = _now_s()
            with suppress(ChronicleError):  # the next renewal may succeed; without one the lease ends
                if not self._renew():
                    self._ends_s = 0.0
                    return
                self._ends_s = asked_s + self._times.ttl_s

    def _renew(self) -> bool:
        """Extend the lease; return whether it is this one's still."""
        with self._schema.writing() as db:
            now_ms, lease = _read(db)
            if lease is None or lease["holder"] != self._holder:
                return False
            self._write(db, now_ms + round(self._times.ttl_s * 1000))
            return True

    def _release(self) -> None:
        with self._schema.writing() as db:
            _, lease = _read(db)
            if lease is not None and lease["holder"] == self._holder:
                self._write(db, 0)

    def _write(self, db: PostgresConnection, ends_ms: int) -> None:
        lease = {"holder": self._holder, "place": self._place, "ends_ms": ends_ms}
        db.execute(_WRITE, (COLLECTION, json.dumps(lease).encode()))


def _read(db: PostgresConnection) -> tuple[int, dict[str, Any] | None]:
    """Return the server's time and the lease, which nobody else changes until the transaction ends."""
    db.execute(_LOCK)
    now_ms, data = db.execute(_READ, (COLLECTION,)).fetchone()
    return now_ms, json.loads(bytes(data)) if data is not None else None


def _now_s() -> float:
    """Return the time by a clock that goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
