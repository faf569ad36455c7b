"""Leases in SQL: columns of the session's row. All statements run inside the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import LeaseHeld, NotFound
from chronicle.journal.records import Lease
from chronicle.journal.sql.rows import SESSION_COLUMNS, lease_from, session_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.records import Session
    from chronicle.journal.sql.port import Connection

__all__ = ["acquire", "find", "held", "release"]


def acquire(
    db: Connection,
    session_id: SessionId,
    holder: str,
    now_ms: int,
    ttl_ms: int,
    *,
    takeover: bool = False,
    least_epoch: int = 0,
) -> Lease:
    """Acquire the lease under a new epoch, one higher than the last, or ``least_epoch`` if that is higher.

    Raises:
        LeaseHeld: another holder's lease has not expired, and ``takeover`` is false.
        NotFound: no such session.
    """
    row = db.execute(
        f"SELECT holder, epoch, expires_ms FROM session WHERE session_id = ?{db.for_update}", (session_id,)
    ).fetchone()
    if row is None:
        raise NotFound(f"no session {session_id}")
    held, now_ms = lease_from(session_id, row), db.now_ms(now_ms)
    if held is not None and held.holder != holder and held.expires_ms > now_ms and not takeover:
        raise LeaseHeld(held.holder, held.epoch, held.expires_ms)
    lease = Lease(session_id, holder, max(row[1] + 1, least_epoch), now_ms + ttl_ms)
    db.execute(
        "UPDATE session SET holder = ?, epoch = ?, expires_ms = ? WHERE session_id = ?",
        (lease.holder, lease.epoch, lease.expires_ms, session_id),
    )
    return lease


def release(db: Connection, session_id: SessionId, epoch: int) -> None:
    """Release the lease, if it is held under that epoch."""
    db.execute("UPDATE session SET holder = NULL WHERE session_id = ? AND epoch = ?", (session_id, epoch))


def find(db: Connection, session_id: SessionId) -> Lease | None:
    """Return the lease as last acquired; ``None`` if released or never acquired."""
    row = db.execute("SELECT holder, epoch, expires_ms FROM session WHERE session_id = ?", (session_id,)).fetchone()
    return lease_from(session_id, row) if row is not None else None


def held(db: Connection, holder_prefix: str) -> Sequence[tuple[Session, Lease]]:
    """Return the leases, expired or not, whose holder's name starts with ``holder_prefix``, with their sessions."""
    rows = db.execute(
        f"SELECT {SESSION_COLUMNS}, holder, epoch, expires_ms FROM session WHERE substr(holder, 1, ?) = ? ORDER BY key",
        (len(holder_prefix), holder_prefix),
    )
    return [(session := session_from(row[:-3]), Lease(session.session_id, *row[-3:])) for row in rows]
