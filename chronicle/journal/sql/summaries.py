"""Sessions as lists show them, in SQL: one query for a page, where one for each fact took five for each session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.journal.records import NO_FILTER, Head, MessageStatus, SessionFilter, SessionSummary
from chronicle.journal.sql.rows import SESSION_COLUMNS, STATUS_CODES, hash_text, lease_from, session_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.journal.sql.port import Connection
    from chronicle.journal.sql.rows import Row

__all__ = ["condition", "named", "summaries"]

_FACTS: Final = (
    "branch.seq, branch.event_id, branch.hash, branch.turn, (SELECT ts FROM event WHERE event_id = branch.event_id), "
    "page.holder, page.epoch, page.expires_ms, "
    "(SELECT count(*) FROM inbox WHERE inbox.id BETWEEN (page.key << 32) + page.pending_from "
    f"AND (page.key << 32) + page.last_position AND status = {STATUS_CODES[MessageStatus.PENDING]}), "
    f"(SELECT count(*) FROM inbox WHERE inbox.session = page.key AND status = {STATUS_CODES[MessageStatus.PARKED]})"
)


def condition(
    prefix: str, namespace: str | None, after: tuple[str, str | None], only: SessionFilter
) -> tuple[str, list[object]]:
    """Return the condition of the sessions with a prefix, and its values.

    Args:
        after: the name after which they begin, and the namespace if sessions of that name are among them.
    """
    name, after_namespace = after
    text = "name > ?"
    values: list[object] = [name]
    if after_namespace is not None and namespace is None:
        text, values = "(name, namespace) > (?, ?)", [name, after_namespace]
    elif after_namespace is not None and namespace is not None and namespace > after_namespace:
        text = "name >= ?"
    text, values = f"{text} AND name >= ?", [*values, max(prefix, name)]
    if prefix:
        text, values = f"{text} AND substr(name, 1, ?) = ?", [*values, len(prefix), prefix]
    if namespace is not None:
        text, values = f"{text} AND namespace = ?", [*values, namespace]
    if only.with_slash:
        text, values = f"{text} AND name LIKE ?", [*values, "%/%"]
    if only.leased_at_ms is not None:
        text, values = f"{text} AND holder IS NOT NULL AND expires_ms > ?", [*values, only.leased_at_ms]
    return text, values


def named(
    columns: str,
    prefix: str,
    namespace: str | None,
    after: tuple[str, str | None],
    limit: int | None,
    only: SessionFilter = NO_FILTER,
) -> tuple[str, Sequence[object]]:
    """Return the query for columns of the sessions with a prefix, by name, then namespace, and its values."""
    text, values = condition(prefix, namespace, after, only)
    query = f"SELECT {columns} FROM session WHERE {text} ORDER BY name, namespace"
    if limit is not None:
        query += " LIMIT ?"
        values.append(limit)
    return query, values


def summaries(
    db: Connection,
    prefix: str,
    namespace: str | None,
    after: tuple[str, str | None],
    limit: int | None,
    only: SessionFilter,
) -> Sequence[SessionSummary]:
    """Return sessions with what a list shows of each."""
    of_session = f"{SESSION_COLUMNS}, key, holder, epoch, expires_ms, pending_from, last_position"
    query, values = named(of_session, prefix, namespace, after, limit, only)
    page_columns = ", ".join(f"page.{column}" for column in SESSION_COLUMNS.split(", "))
    rows = db.execute(
        f"SELECT {page_columns}, {_FACTS} FROM ({query}) AS page JOIN branch ON branch.branch_id = page.main_branch_id "
        "ORDER BY page.name, page.namespace",
        values,
    ).fetchall()
    return [_summary(row) for row in rows]


def _summary(row: Row) -> SessionSummary:
    session = session_from(row[:5])
    seq, event_id, digest, turn, last_ms, holder, epoch, expires_ms, pending, parked = row[5:]
    head = Head(session.main_branch_id, seq, event_id, hash_text(bytes(digest)), turn, last_ms)
    lease = lease_from(session.session_id, (holder, epoch, expires_ms))
    return SessionSummary(session, head, last_ms, lease, pending, parked)
