"""Sizes of the records of a namespace, in SQL: sums of columns, without reading a payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.ids import BlobId
from chronicle.journal.records import ROW_BYTES, RecordUsage

if TYPE_CHECKING:
    from chronicle.journal.sql.port import Connection

__all__ = ["usage_of"]

_OF_SESSION: Final = "FROM session JOIN {table} ON {table}.session = session.key WHERE session.namespace = ?"
_OF_BRANCH: Final = (
    "FROM session JOIN branch ON branch.session = session.key "
    "JOIN {table} ON {table}.id BETWEEN branch.key << 32 AND (branch.key << 32) + 4294967295 "
    "WHERE session.namespace = ?"
)
_OF_STEPS: Final = (
    "FROM session JOIN inbox ON inbox.session = session.key JOIN step ON step.message = inbox.id "
    "WHERE session.namespace = ?"
)
_SUMS: Final = (
    f"SELECT count(*), 0 {_OF_SESSION.format(table='branch')}",
    f"SELECT count(*), sum(length(payload)) {_OF_BRANCH.format(table='event')}",
    f"SELECT count(body), sum(length(body)) {_OF_SESSION.format(table='inbox')}",
    f"SELECT count(*), sum(length(body)) {_OF_SESSION.format(table='reminder')}",
    f"SELECT count(*), sum(length(step.body)) {_OF_STEPS}",
    "SELECT count(*), sum(length(body)) FROM outbox WHERE namespace = ?",
    "SELECT count(*), sum(length(body)) FROM object WHERE namespace = ?",
)
_PAYLOADS: Final = (
    f"SELECT payload_ref {_OF_BRANCH.format(table='event')} AND payload_ref IS NOT NULL AND erased IS NULL"
)


def usage_of(db: Connection, namespace: str) -> RecordUsage:
    """Return what the records of a namespace take."""
    size = 0
    for query in _SUMS:
        rows, found = db.execute(query, (namespace,)).fetchone()
        size += int(rows) * ROW_BYTES + int(found or 0)
    return RecordUsage(size, [BlobId(ref) for (ref,) in db.execute(_PAYLOADS, (namespace,)).fetchall()])
