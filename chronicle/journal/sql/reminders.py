"""Reminders in SQL. All statements run inside the caller's transaction."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from chronicle.journal.records import DropReminder, Reminder
from chronicle.journal.sql import inbox
from chronicle.journal.sql.rows import INSERT_OUTBOX, outbox_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.records import NewMessage, OutboxMessage, Receipt, SetReminder
    from chronicle.journal.sql.port import Connection
    from chronicle.journal.sql.rows import Row

__all__ = ["apply", "cancel", "due", "fire", "next_ms", "now_ms", "of_session", "prepare", "send"]

_SET: Final = (
    "INSERT INTO reminder (session, name, due_ms, body) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (session, name) DO UPDATE SET due_ms = excluded.due_ms, body = excluded.body"
)
_DROP: Final = "DELETE FROM reminder WHERE session = ? AND name = ?"
_SELECT: Final = (
    "SELECT session_id, reminder.name, due_ms, body FROM reminder JOIN session ON session.key = reminder.session"
)


def prepare(changes: Iterable[SetReminder | DropReminder]) -> list[Row]:
    """Convert a commit's changes to rows of name, due time and body; both are ``None`` in a removal."""
    return [
        (change.name, None, None) if isinstance(change, DropReminder) else (change.name, change.due_ms, change.body)
        for change in changes
    ]


def apply(db: Connection, session_key: int, rows: Iterable[Row]) -> None:
    """Apply the rows of `prepare`, in their order."""
    for name, due_ms, body in rows:
        if due_ms is None:
            db.execute(_DROP, (session_key, name))
        else:
            db.execute(_SET, (session_key, name, due_ms, body))


def of_session(db: Connection, session_id: SessionId) -> Sequence[Reminder]:
    """Return a session's reminders, by name."""
    return [
        Reminder(*row) for row in db.execute(f"{_SELECT} WHERE session_id = ? ORDER BY reminder.name", (session_id,))
    ]


def now_ms(db: Connection, given_ms: int) -> int:
    """Return the time that reminders go by."""
    return db.now_ms(given_ms)


def due(db: Connection, now_ms: int, limit: int) -> Sequence[Reminder]:
    """Return the reminders that are due, longest due first."""
    rows = db.execute(f"{_SELECT} WHERE due_ms <= ? ORDER BY due_ms, reminder.id LIMIT ?", (now_ms, limit))
    return [Reminder(*row) for row in rows]


def next_ms(db: Connection, after_ms: int = -1) -> int | None:
    """Return the first time after ``after_ms`` at which a reminder is due."""
    (first,) = db.execute("SELECT min(due_ms) FROM reminder WHERE due_ms > ?", (after_ms,)).fetchone()
    return int(first) if first is not None else None


def cancel(db: Connection, session_id: SessionId, name: str) -> bool:
    """Drop a reminder; return whether there was one."""
    row = db.execute(f"SELECT key FROM session WHERE session_id = ?{db.for_share}", (session_id,)).fetchone()
    return row is not None and db.changed(_DROP, (row[0], name)) > 0


def fire(
    db: Connection,
    session_id: SessionId,
    name: str,
    due_ms: int,
    message: NewMessage,
    next_due_ms: int | None,
    next_body: bytes | None = None,
) -> Receipt | None:
    """Admit the message of a reminder that is due at ``due_ms``, and move or drop the reminder.

    Raises:
        IdempotencyConflict: the message's key was used with another body.
    """
    row = db.execute(f"SELECT key FROM session WHERE session_id = ?{db.for_update}", (session_id,)).fetchone()
    if row is None:
        return None
    this = (row[0], name, due_ms)
    if next_due_ms is None:
        changed = db.changed(f"{_DROP} AND due_ms = ?", this)
    else:
        changed = db.changed(
            "UPDATE reminder SET due_ms = ?, body = coalesce(?, body) WHERE session = ? AND name = ? AND due_ms = ?",
            (next_due_ms, next_body, *this),
        )
    return inbox.admit(db, session_id, message, sys.maxsize) if changed else None


def send(db: Connection, session_id: SessionId, name: str, due_ms: int, message: OutboxMessage) -> bool:
    """Put a message into the outbox in place of a reminder that is due at ``due_ms``; return whether there was one."""
    row = db.execute(f"SELECT key FROM session WHERE session_id = ?{db.for_share}", (session_id,)).fetchone()
    if row is None or not db.changed(f"{_DROP} AND due_ms = ?", (row[0], name, due_ms)):
        return False
    db.insert(INSERT_OUTBOX, [outbox_row(message)])
    return True
