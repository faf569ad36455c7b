"""Rows that belong to a session or a branch that is not there: no foreign key would find them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from chronicle.journal.sql.port import Connection

__all__ = ["orphan"]

_OWNED: Final = {
    "branch": ("session", "session"),
    "inbox": ("session", "session"),
    "catalogue": ("id >> 32", "session"),
    "event": ("id >> 32", "branch"),
    "snapshot": ("id >> 32", "branch"),
    "snapshot_pack": ("id >> 32", "branch"),
    "step": ("message >> 32", "session"),
    "reminder": ("session", "session"),
}
"""By table: the expression for a row's owner, and the owner's table."""


def orphan(db: Connection) -> str | None:
    """Return which row has no owner, in a sentence; ``None`` if each has. Reads all rows."""
    for table, (owner, among) in _OWNED.items():
        statement = f"SELECT {owner} FROM {table} WHERE {owner} NOT IN (SELECT key FROM {among}) LIMIT 1"
        row = db.execute(statement).fetchone()
        if row is not None:
            return f"a row of its table {table} belongs to a {among} {row[0]} that is not there"
    return None
