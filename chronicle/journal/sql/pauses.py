"""Paused messages. All statements run inside the caller's transaction.

The status of the message is the one record of a pause. An index has the paused messages alone, so it takes a page in a
journal without any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.journal.records import MessageStatus, PausedMessage, StoredStep
from chronicle.journal.sql.rows import (
    INBOX_COLUMNS,
    SESSION_COLUMNS,
    STATUS_CODES,
    inbox_message_from,
    key_of,
    number_of,
    session_from,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.records import InboxMessage, PauseEnd
    from chronicle.journal.sql.port import Connection

__all__ = ["IS_PAUSED", "count", "end", "of_session", "page"]

_PENDING: Final = STATUS_CODES[MessageStatus.PENDING]
_PAUSED: Final = STATUS_CODES[MessageStatus.PAUSED]
IS_PAUSED: Final = f"EXISTS (SELECT 1 FROM inbox AS head WHERE head.session = session.key AND head.status = {_PAUSED})"
"""Whether a session of a query has a paused message."""
_INBOX: Final = INBOX_COLUMNS.replace("message_id", "inbox.message_id").replace(" body", " inbox.body")
_SESSION: Final = ", ".join(f"session.{column}" for column in SESSION_COLUMNS.split(", "))
_FEW: Final = 1_000
"""Sessions of a namespace whose paused messages are found session by session."""
_COUNT_SESSIONS: Final = f"SELECT count(*) FROM (SELECT 1 FROM session WHERE namespace = ? LIMIT {_FEW + 1}) AS found"
_FOUND_OF_FEW: Final = (
    "SELECT id, session FROM (SELECT key AS session, "
    f"(SELECT min(id) FROM inbox WHERE inbox.session = session.key AND status = {_PAUSED}) AS id "
    "FROM session WHERE {condition}) AS found WHERE session >= ? AND id > ? ORDER BY session, id LIMIT {limit:d}"
)
"""Paused messages of a namespace with few sessions: the cost is that of its sessions, whatever other namespaces have.

As a value of each session, not as a join: PostgreSQL would read all paused messages in the plan for any namespace. A
session has one at most.
"""
_FOUND: Final = "SELECT id, session FROM inbox WHERE {condition} ORDER BY session, id LIMIT {limit:d}"
"""Paused messages by the index of them alone and in its order: the cost is that of the messages.

The limit is a part of the text: PostgreSQL plans a prepared statement for a tenth of all rows if it is a parameter.
"""
_PAGE: Final = (
    f"SELECT inbox.id, number, step.key, step.body, {_SESSION}, {_INBOX} "
    "FROM ({found}) AS page "
    "JOIN inbox ON inbox.id = page.id JOIN session ON session.key = page.session "
    "LEFT JOIN step ON step.message = page.id AND number = (SELECT max(number) FROM step WHERE message = page.id) "
    "ORDER BY page.session, page.id"
)
_COUNT: Final = "SELECT count(*) FROM ({found}) AS page"
_PAUSES: Final = f"status = {_PAUSED} AND inbox.session >= ? AND inbox.id > ?"
"""The paused messages behind a place, by their index."""
_SESSION_AT: Final = 4
"""The first column of the session in a row of `_PAGE`."""
_MESSAGE_AT: Final = _SESSION_AT + len(SESSION_COLUMNS.split(", "))


def of_session(db: Connection, session_id: SessionId) -> InboxMessage | None:
    """Return the paused message of a session; ``None`` without one."""
    row = db.execute(
        f"SELECT {INBOX_COLUMNS} FROM session JOIN inbox ON inbox.session = session.key "
        f"WHERE session_id = ? AND inbox.status = {_PAUSED}",
        (session_id,),
    ).fetchone()
    return inbox_message_from(row) if row is not None else None


def page(
    db: Connection, namespace: str | None = None, prefix: str = "", *, after: int = -1, limit: int = 100
) -> Sequence[PausedMessage]:
    """Return paused messages of all sessions, by place."""
    query, values = _query(db, namespace, prefix, after, limit)
    rows = db.execute(_PAGE.format(found=query), values).fetchall()
    found = []
    for row in rows:
        message = inbox_message_from(row[_MESSAGE_AT:])
        step = StoredStep(message.message_id, row[1], row[2], bytes(row[3])) if row[1] is not None else None
        found.append(PausedMessage(session_from(row[_SESSION_AT:_MESSAGE_AT]), message, step, row[0]))
    return found


def count(db: Connection, namespace: str | None = None, prefix: str = "", *, after: int = -1, limit: int) -> int:
    """Return the number of paused messages that `page` returns."""
    query, values = _query(db, namespace, prefix, after, limit)
    (found,) = db.execute(_COUNT.format(found=query), values).fetchall()
    return int(found[0])


def _query(db: Connection, namespace: str | None, prefix: str, after: int, limit: int) -> tuple[str, Sequence[object]]:
    """Return the query for the paused messages behind a place, and its values."""
    conditions: list[str] = []
    values: list[object] = []
    place = (key_of(max(after, 0)), after)
    if namespace is not None:
        conditions.append("namespace = ?")
        values.append(namespace)
    if prefix:
        conditions.append("substr(name, 1, ?) = ?")
        values += [len(prefix), prefix]
    if not conditions:
        return _FOUND.format(condition=_PAUSES, limit=limit), place
    condition = " AND ".join(conditions)
    if namespace is not None and _has_few(db, namespace):
        return _FOUND_OF_FEW.format(condition=condition, limit=limit), (*values, *place)
    # As a value of each message, not as a join: PostgreSQL would begin with the sessions, of which there are more.
    condition = f"{_PAUSES} AND (SELECT {condition} FROM session WHERE key = inbox.session)"
    return _FOUND.format(condition=condition, limit=limit), (*place, *values)


def _has_few(db: Connection, namespace: str) -> bool:
    (found,) = db.execute(_COUNT_SESSIONS, (namespace,)).fetchall()
    return int(found[0]) <= _FEW


def end(db: Connection, session_id: SessionId, end: PauseEnd, now_ms: int) -> bool:
    """Give a paused message what it waits for, and make it pending again; return whether that happened."""
    session = db.execute(f"SELECT key FROM session WHERE session_id = ?{db.for_update}", (session_id,)).fetchone()
    now_ms = db.now_ms(now_ms)
    late = end.until_ms is not None and now_ms >= end.until_ms
    early = end.from_ms is not None and now_ms < end.from_ms
    if session is None or late or early:
        return False
    paused = f"(SELECT id FROM inbox WHERE message_id = ? AND session = ? AND status = {_PAUSED})"
    if not db.changed(
        f"UPDATE step SET body = ? WHERE message = {paused} AND number = ? AND body = ?",
        (end.after, end.message_id, session[0], end.number, end.before),
    ):
        return False
    (row,) = db.execute(
        f"UPDATE inbox SET status = {_PENDING} WHERE message_id = ? RETURNING id", (end.message_id,)
    ).fetchall()
    db.execute(
        "UPDATE session SET pending_from = ? WHERE key = ? AND pending_from > ?",
        (number_of(row[0]), session[0], number_of(row[0])),
    )
    if end.reminder is not None:
        db.execute("DELETE FROM reminder WHERE session = ? AND name = ?", (session[0], end.reminder))
    return True
