"""Inbox statements. All of them run inside the caller's transaction.

``session.pending_from`` is a lower bound of the pending and paused positions. An admission advances it, a retry of a
parked message moves it back. So a commit need not maintain an index of pending messages.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import IdempotencyConflict, InboxFull, NotFound
from chronicle.journal.records import Backlog, MessageStatus, Receipt
from chronicle.journal.sql.pauses import IS_PAUSED
from chronicle.journal.sql.rows import (
    INBOX_COLUMNS,
    SESSION_COLUMNS,
    STATUS_CODES,
    headers_bytes,
    inbox_message_from,
    key_of,
    number_of,
    row_id,
    session_from,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from chronicle.ids import MessageId, SessionId
    from chronicle.journal.records import InboxMessage, NewMessage, Session
    from chronicle.journal.sql.port import Connection

__all__ = [
    "admit",
    "backlog",
    "find_message",
    "message_of_key",
    "messages",
    "pending",
    "retry",
    "sessions_with_pending",
    "waiting_before",
]

_PENDING: Final = STATUS_CODES[MessageStatus.PENDING]
_PARKED: Final = STATUS_CODES[MessageStatus.PARKED]
_WAITING: Final = f"({_PENDING}, {STATUS_CODES[MessageStatus.PAUSED]})"
"""The statuses of messages that others wait for."""
_SELECT: Final = f"SELECT {INBOX_COLUMNS} FROM inbox JOIN session ON session.key = inbox.session"
_FROM_FIRST: Final = (
    "FROM session JOIN inbox ON inbox.id BETWEEN (session.key << 32) + session.pending_from "
    "AND (session.key << 32) + session.last_position WHERE session_id = ? AND status"
)
_PENDING_FIRST: Final = (
    f"SELECT {INBOX_COLUMNS} {_FROM_FIRST} = {_PENDING} AND NOT {IS_PAUSED} ORDER BY inbox.id LIMIT ?"
)
_FIRST_WAITING: Final = f"SELECT inbox.id {_FROM_FIRST} IN {_WAITING} ORDER BY inbox.id LIMIT 1"
_OF_KEY: Final = (
    "SELECT id & 4294967295, message_id, body_sha256 FROM inbox "
    "WHERE session = (SELECT key FROM session WHERE session_id = ?) AND idempotency_key = ?"
)

_WITH_PENDING: Final = (
    f"SELECT {SESSION_COLUMNS} FROM {{source}} WHERE name >= ? AND substr(name, 1, ?) = ? AND EXISTS (SELECT 1 "
    f"FROM inbox WHERE status = {_PENDING} "
    "AND inbox.id BETWEEN (session.key << 32) + pending_from AND (session.key << 32) + last_position) "
    f"AND NOT {IS_PAUSED} ORDER BY session.key"
)
_ASKED: Final = "(VALUES {names}) AS asked JOIN session ON namespace = column2 AND name = column1"
"""The sessions of some names; with ``IN`` SQLite would look at all sessions."""
_NAMES_AT_ONCE: Final = 400
"""Names in one query: SQLite permits 999 values in some builds."""


def admit(db: Connection, session_id: SessionId, message: NewMessage, limit: int = 1000) -> Receipt:
    """Admit a message, or find the receipt of its first admission.

    Raises:
        IdempotencyConflict: the key was used with another body.
        InboxFull: ``limit`` messages are pending or paused.
        NotFound: no such session.
    """
    key = message.idempotency_key
    digest = sha256(message.body).digest() if key is not None else None
    # One wait for all three; what comes after the first one sees what was committed before that had its lock.
    sessions = db.execute(
        f"SELECT key, last_position, pending_from FROM session WHERE session_id = ?{db.for_update}", (session_id,)
    )
    repeated = db.execute(_OF_KEY, (session_id, key)) if key is not None else None
    waiting = db.execute(_FIRST_WAITING, (session_id,))
    found = sessions.fetchone()
    if found is None:
        raise NotFound(f"no session {session_id}")
    session, last_position, pending_from = found
    first = repeated.fetchone() if repeated is not None else None
    if key is not None and first is not None:
        if first[2] != digest:
            raise IdempotencyConflict(key)
        return Receipt(session_id, first[1], first[0], repeated=True)
    oldest = waiting.fetchone()
    pending_from = number_of(oldest[0]) if oldest is not None else last_position + 1
    before = 0 if pending_from > last_position else None
    if last_position - pending_from + 1 >= limit:
        first_id, last_id = row_id(session, pending_from), row_id(session, last_position)
        if _count_waiting(db, first_id, last_id) >= limit:
            raise InboxFull(limit)
    position = last_position + 1
    db.execute(
        "UPDATE session SET last_position = ?, pending_from = ? WHERE key = ?", (position, pending_from, session)
    )
    db.execute(
        "INSERT INTO inbox (id, session, message_id, idempotency_key, sender, body_sha256, admitted_ms, attempts, "
        f"status, body, headers) VALUES (?, ?, ?, ?, ?, ?, ?, 0, {_PENDING}, ?, ?)",
        (
            row_id(session, position),
            session,
            message.message_id,
            key,
            message.sender,
            digest,
            message.admitted_ms,
            message.body,
            headers_bytes(message.headers),
        ),
    )
    return Receipt(session_id, message.message_id, position, repeated=False, before=before)


def pending(db: Connection, session_id: SessionId, limit: int = 100) -> Sequence[InboxMessage]:
    """Return the pending messages, in order of position; none behind a paused one."""
    rows = db.execute(_PENDING_FIRST, (session_id, limit))
    return [inbox_message_from(row) for row in rows]


def messages(db: Connection, session_id: SessionId, status: MessageStatus) -> Sequence[InboxMessage]:
    """Return a session's messages of one status, in order of position."""
    rows = db.execute(
        f"{_SELECT} WHERE inbox.session = (SELECT key FROM session WHERE session_id = ?) "
        "AND inbox.id BETWEEN (session.key << 32) AND ((session.key + 1) << 32) AND status = ? "
        "ORDER BY inbox.id",
        (session_id, STATUS_CODES[status]),
    )
    return [inbox_message_from(row) for row in rows]


def find_message(db: Connection, message_id: MessageId) -> InboxMessage:
    """Return one message.

    Raises:
        NotFound: no such message.
    """
    row = db.execute(f"{_SELECT} WHERE message_id = ?", (message_id,)).fetchone()
    if row is None:
        raise NotFound(f"no message {message_id}")
    return inbox_message_from(row)


def message_of_key(db: Connection, session_id: SessionId, idempotency_key: str) -> InboxMessage | None:
    """Return the message of an idempotency key; ``None`` if there is none."""
    row = db.execute(
        f"{_SELECT} WHERE inbox.session = (SELECT key FROM session WHERE session_id = ?) AND idempotency_key = ?",
        (session_id, idempotency_key),
    ).fetchone()
    return inbox_message_from(row) if row is not None else None


def retry(db: Connection, session_id: SessionId, message_id: MessageId) -> InboxMessage:
    """Make a parked message pending again, at its old position.

    Raises:
        NotFound: it is not parked in that session.
    """
    row = db.execute(
        f"UPDATE inbox SET status = {_PENDING}, attempts = 0 WHERE message_id = ? AND status = {_PARKED} "
        "AND session = (SELECT key FROM session WHERE session_id = ?) RETURNING id",
        (message_id, session_id),
    ).fetchone()
    if row is None:
        raise NotFound(f"no parked message {message_id} in session {session_id}")
    db.execute(
        "UPDATE session SET pending_from = ? WHERE key = ? AND pending_from > ?",
        (number_of(row[0]), key_of(row[0]), number_of(row[0])),
    )
    return find_message(db, message_id)


def sessions_with_pending(
    db: Connection, prefix: str = "", among: Collection[tuple[str, str]] | None = None
) -> Sequence[Session]:
    """Return the sessions that have pending messages and no paused one, the oldest first.

    Args:
        prefix: only those whose name starts with it.
        among: only those with one of these names and namespaces.
    """
    values = prefix, len(prefix), prefix
    if among is None:
        return [session_from(row) for row in db.execute(_WITH_PENDING.format(source="session"), values)]
    asked = sorted(set(among))
    found: list[Session] = []
    for start in range(0, len(asked), _NAMES_AT_ONCE):
        names = asked[start : start + _NAMES_AT_ONCE]
        source = _ASKED.format(names=", ".join(["(?, ?)"] * len(names)))
        rows = db.execute(_WITH_PENDING.format(source=source), (*chain.from_iterable(names), *values))
        found += [session_from(row) for row in rows]
    return found


def backlog(db: Connection) -> Backlog:
    """Count what waits in all sessions."""
    (sessions,) = _row(db, "SELECT count(*) FROM session WHERE name <> session_id")
    pending, oldest_pending_ms = _row(
        db,
        "SELECT count(*), min(admitted_ms) FROM session JOIN inbox ON inbox.id BETWEEN (session.key << 32) + "
        "session.pending_from AND (session.key << 32) + session.last_position "
        f"WHERE pending_from <= last_position AND status = {_PENDING}",
    )
    (parked,) = _row(db, f"SELECT count(*) FROM inbox WHERE status = {_PARKED}")
    outbox, oldest_outbox_ms = _row(db, "SELECT count(*), min(created_ms) FROM outbox")
    return Backlog(sessions, pending, oldest_pending_ms, parked, outbox, oldest_outbox_ms)


def waiting_before(db: Connection, message_id: MessageId) -> int:
    """Return the number of pending and paused messages before one in its inbox.

    Raises:
        NotFound: no such message.
    """
    found = db.execute(
        "SELECT inbox.id, pending_from FROM inbox JOIN session ON session.key = inbox.session WHERE message_id = ?",
        (message_id,),
    ).fetchone()
    if found is None:
        raise NotFound(f"no message {message_id}")
    return _count_waiting(db, row_id(key_of(found[0]), found[1]), found[0] - 1)


def _count_waiting(db: Connection, first_id: int, last_id: int) -> int:
    (count,) = db.execute(
        f"SELECT count(*) FROM inbox WHERE id BETWEEN ? AND ? AND status IN {_WAITING}", (first_id, last_id)
    ).fetchone()
    return int(count)


def _row(db: Connection, statement: str) -> tuple[Any, ...]:
    """Return the one row of a query."""
    row: tuple[Any, ...] | None = db.execute(statement, ()).fetchone()
    assert row is not None, "an aggregate has a row"
    return row
