"""Statements on sessions, branches and their events. All of them run inside the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import BranchInUse, Conflict, InvalidInput, LeaseHeld, NotFound
from chronicle.journal.chain import MAX_SEQ, catalogue_genesis, empty_head, seal_entry
from chronicle.journal.records import Branch, BranchChange, CatalogueEntry, Head, Session, Tombstone
from chronicle.journal.sql.rows import (
    BRANCH_COLUMNS,
    EVENT_COLUMNS,
    MAX_NUMBER,
    SESSION_COLUMNS,
    TOMBSTONE_COLUMNS,
    branch_from,
    event_from,
    hash_bytes,
    hash_text,
    key_of,
    lease_from,
    row_id,
    session_from,
)

if TYPE_CHECKING:
    from chronicle.ids import BranchId, EventId, SessionId
    from chronicle.journal.records import Event
    from chronicle.journal.sql.port import Connection

__all__ = [
    "EVENT_QUERY",
    "base_hash",
    "base_seq",
    "delete_branch",
    "delete_session",
    "erase",
    "find_branch",
    "find_event",
    "find_session",
    "fold",
    "fork_head",
    "import_session",
    "insert_branch",
    "insert_session",
    "lineage",
]

_SELECT_BRANCH: Final = f"SELECT branch.key, {BRANCH_COLUMNS} FROM branch JOIN session ON session.key = branch.session"

EVENT_QUERY: Final = (
    f"SELECT (SELECT hash FROM event AS before WHERE before.id = event.id - 1), erased, {EVENT_COLUMNS} FROM event"
)
"""Selects ``prev_hash``, the hash of the previous row, before the event's own columns."""


def find_session(db: Connection, session_id: SessionId, lock: str = "") -> tuple[int, Session]:
    """Return a session and its key.

    Raises:
        NotFound: there is none.
    """
    row = db.execute(f"SELECT key, {SESSION_COLUMNS} FROM session WHERE session_id = ?{lock}", (session_id,)).fetchone()
    if row is None:
        raise NotFound(f"no session {session_id}")
    return row[0], session_from(row[1:])


def insert_session(db: Connection, session: Session, parent: BranchId | None, head: Head) -> bool:
    """Create a session whose main branch starts at ``head``; return false if its name is taken.

    Raises:
        Conflict: the id of the session or of the branch is taken.
    """
    if db.execute("SELECT 1 FROM session WHERE session_id = ?", (session.session_id,)).fetchone():
        named = db.execute(
            "SELECT 1 FROM session WHERE namespace = ? AND name = ?", (session.namespace, session.name)
        ).fetchone()
        if named is None:
            raise Conflict(f"there is a session {session.session_id} already")
        return False
    made = db.execute(
        f"INSERT INTO session ({SESSION_COLUMNS}) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (namespace, name) DO NOTHING RETURNING 1",
        (session.session_id, session.name, session.main_branch_id, session.created_ms, session.namespace),
    ).fetchall()
    if made:
        insert_branch(db, session, session.main_branch_id, parent, head, session.created_ms)
    return bool(made)


def insert_branch(
    db: Connection, session: Session, branch_id: BranchId, parent: BranchId | None, head: Head, now_ms: int
) -> None:
    """Create a branch that starts at ``head``, and add it to the session's catalogue.

    Raises:
        Conflict: the id is taken.
    """
    if db.execute("SELECT 1 FROM branch WHERE branch_id = ?", (branch_id,)).fetchone():
        raise Conflict(f"there is a branch {branch_id} already")
    digest = hash_bytes(head.hash)
    db.execute(
        "INSERT INTO branch (branch_id, session, parent_branch_id, parent_seq, created_ms, base_hash, seq, turn, "
        "event_id, hash) VALUES (?, (SELECT key FROM session WHERE session_id = ?), ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            branch_id,
            session.session_id,
            parent,
            head.seq,
            now_ms,
            digest,
            head.seq,
            head.turn,
            head.event_id,
            digest,
        ),
    )
    _enter(db, session.session_id, BranchChange.CREATED, branch_id, parent, head.seq, head.hash, now_ms)


def import_session(db: Connection, session: Session, base: Head) -> bool:
    """Create a session whose main branch starts after an event folded in another store; see `insert_session`."""
    branch_id = session.main_branch_id
    made = insert_session(db, session, None, empty_head(branch_id))
    if made:
        _enter(db, session.session_id, BranchChange.FOLDED, branch_id, None, base.seq, base.hash, session.created_ms)
        digest = hash_bytes(base.hash)
        db.execute(
            "UPDATE branch SET folded_seq = ?, base_hash = ?, seq = ?, turn = ?, hash = ? WHERE branch_id = ?",
            (base.seq, digest, base.seq, base.turn, digest, branch_id),
        )
    return made


def find_branch(db: Connection, branch_id: BranchId, lock: str = "") -> tuple[int, Branch]:
    """Return a branch and its key.

    Raises:
        NotFound: there is none.
    """
    of = f"{lock} OF branch" if lock else ""
    row = db.execute(f"{_SELECT_BRANCH} WHERE branch_id = ?{of}", (branch_id,)).fetchone()
    if row is None:
        raise NotFound(f"no branch {branch_id}")
    return row[0], branch_from(row[1:])


def base_seq(branch: Branch) -> int:
    """Return the seq before a branch's first own event."""
    return max(branch.parent_seq, branch.folded_seq)


def base_hash(db: Connection, key: int) -> str:
    """Return the ``prev_hash`` of a branch's first own event."""
    (digest,) = db.execute("SELECT base_hash FROM branch WHERE key = ?", (key,)).fetchone()
    return hash_text(digest)


def lineage(db: Connection, branch_id: BranchId, to_seq: int | None) -> list[tuple[int, Branch, int]]:
    """Return the branch and the ancestors it reads from, each as its key, the branch and the last seq read from it.

    Raises:
        NotFound: there is no such branch.
    """
    found: list[tuple[int, Branch, int]] = []
    last_seq = to_seq if to_seq is not None else MAX_SEQ
    following: BranchId | None = branch_id
    while following is not None:
        key, branch = find_branch(db, following)
        last_seq = min(last_seq, branch.head.seq)
        found.append((key, branch, last_seq))
        last_seq = min(last_seq, branch.parent_seq)
        following = branch.parent_branch_id if not branch.folded_seq else None
    return found


def fork_head(db: Connection, parent: Branch, parent_seq: int, branch_id: BranchId) -> Head:
    """Return the head of a new branch that starts after an event of its parent.

    Raises:
        InvalidInput: the parent does not have that event.
    """
    if not 0 <= parent_seq <= parent.head.seq:
        raise InvalidInput(f"branch {parent.branch_id} has events 1 to {parent.head.seq}; no {parent_seq} to fork at")
    if parent_seq == 0:
        return empty_head(branch_id)
    for key, branch, _ in lineage(db, parent.branch_id, parent_seq):
        if parent_seq > base_seq(branch):
            row = db.execute(
                "SELECT event_id, hash, turn, ts FROM event WHERE id = ?", (row_id(key, parent_seq),)
            ).fetchone()
            if row is not None:
                return Head(branch_id, parent_seq, row[0], hash_text(row[1]), row[2], row[3])
    raise InvalidInput(f"event {parent_seq} of branch {parent.branch_id} was folded; fork at a later one")


def find_event(db: Connection, event_id: EventId) -> Event | None:
    """Return an event by its id."""
    row = db.execute("SELECT id FROM event WHERE event_id = ?", (event_id,)).fetchone()
    if row is None:
        return None
    key = key_of(row[0])
    owner = db.execute("SELECT branch_id FROM branch WHERE key = ?", (key,)).fetchone()
    if owner is None:
        return None
    before, *columns = db.execute(f"{EVENT_QUERY} WHERE id = ?", row).fetchone()
    return event_from(owner[0], tuple(columns), hash_text(before) if before is not None else base_hash(db, key))


def erase(db: Connection, event_id: EventId, payload_sha256: bytes) -> None:
    """Erase one event's payload."""
    db.execute(
        "UPDATE event SET payload = NULL, payload_sha256 = ?, erased = 1 WHERE event_id = ?", (payload_sha256, event_id)
    )


def fold(db: Connection, branch_id: BranchId, before_seq: int, now_ms: int) -> Branch:
    """Drop all history before one of the branch's own events.

    Raises:
        InvalidInput: the event is not one of the branch's own.
        BranchInUse: forks read from the branch.
    """
    key, branch = _locked(db, branch_id)
    if not base_seq(branch) < before_seq <= branch.head.seq:
        raise InvalidInput(f"event {before_seq} is not one of branch {branch_id}'s own")
    folded_seq = before_seq - 1
    if folded_seq <= branch.folded_seq:
        return branch
    _refuse_if_read(db, branch_id)
    row = db.execute("SELECT hash FROM event WHERE id = ?", (row_id(key, folded_seq),)).fetchone()
    before = hash_text(row[0]) if row is not None else base_hash(db, key)
    _enter(db, branch.session_id, BranchChange.FOLDED, branch_id, branch.parent_branch_id, folded_seq, before, now_ms)
    db.execute("UPDATE branch SET folded_seq = ?, base_hash = ? WHERE key = ?", (folded_seq, hash_bytes(before), key))
    bounds = (row_id(key, 0), row_id(key, folded_seq))
    db.execute("DELETE FROM event WHERE id BETWEEN ? AND ?", bounds)
    db.execute("DELETE FROM snapshot WHERE id BETWEEN ? AND ?", bounds)
    return find_branch(db, branch_id)[1]


def delete_branch(db: Connection, branch_id: BranchId, now_ms: int) -> None:
    """Delete a branch and record the deletion in the session's catalogue.

    Raises:
        InvalidInput: it is the session's main branch.
        BranchInUse: forks read from the branch.
    """
    key, branch = _locked(db, branch_id)
    _, session = find_session(db, branch.session_id)
    if session.main_branch_id == branch_id:
        raise InvalidInput(f"branch {branch_id} is the main branch of session {session.name!r}")
    _refuse_if_read(db, branch_id)
    head = branch.head
    _enter(
        db,
        branch.session_id,
        BranchChange.DELETED,
        branch_id,
        branch.parent_branch_id,
        head.seq,
        head.hash,
        now_ms,
    )
    _drop_branch(db, key)


def delete_session(db: Connection, session_id: SessionId, now_ms: int) -> Tombstone:
    """Delete a session and all its rows, and insert a tombstone.

    Raises:
        LeaseHeld: its lease is held.
        BranchInUse: forks in other sessions read from it.
    """
    key, session = find_session(db, session_id, db.for_update)
    holder, epoch, expires_ms, catalogue_hash = db.execute(
        "SELECT holder, epoch, expires_ms, catalogue_hash FROM session WHERE key = ?", (key,)
    ).fetchone()
    held = lease_from(session_id, (holder, epoch, expires_ms))
    if held is not None and held.expires_ms > now_ms:
        raise LeaseHeld(held.holder, held.epoch, held.expires_ms)
    branches = db.execute(f"SELECT key, branch_id FROM branch WHERE session = ?{db.for_update}", (key,)).fetchall()
    for _, branch_id in branches:
        _refuse_if_read(db, branch_id, but=key)
    events = sum(_drop_branch(db, branch_key) for branch_key, _ in branches)
    for table in ("catalogue", "inbox"):
        db.execute(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", (row_id(key, 0), row_id(key, MAX_NUMBER)))
    db.execute("DELETE FROM step WHERE message BETWEEN ? AND ?", (row_id(key, 0), row_id(key, MAX_NUMBER)))
    db.execute("DELETE FROM reminder WHERE session = ?", (key,))
    db.execute("DELETE FROM object WHERE session_id = ?", (session_id,))
    db.execute("DELETE FROM session WHERE key = ?", (key,))
    db.execute(
        f"INSERT INTO tombstone ({TOMBSTONE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
        (session_id, session.name, now_ms, events, catalogue_hash, session.namespace),
    )
    return Tombstone(session_id, session.name, now_ms, events, hash_text(catalogue_hash), session.namespace)


def _drop_branch(db: Connection, key: int) -> int:
    """Delete a branch's rows, and return the number of its events."""
    bounds = (row_id(key, 0), row_id(key, MAX_NUMBER))
    db.execute("DELETE FROM branch WHERE key = ?", (key,))
    for table in ("snapshot", "snapshot_pack"):
        db.execute(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", bounds)
    (events,) = db.execute("SELECT count(*) FROM event WHERE id BETWEEN ? AND ?", bounds).fetchone()
    db.execute("DELETE FROM event WHERE id BETWEEN ? AND ?", bounds)
    return int(events)


def _locked(db: Connection, branch_id: BranchId) -> tuple[int, Branch]:
    """Lock a branch's session, then the branch; return the branch and its key."""
    _, branch = find_branch(db, branch_id)
    find_session(db, branch.session_id, db.for_update)
    return find_branch(db, branch_id, db.for_update)


def _refuse_if_read(db: Connection, branch_id: BranchId, *, but: int = 0) -> None:
    """Raise `BranchInUse` if forks read from the branch; forks in the session ``but`` are ignored."""
    forks = db.execute(
        "SELECT branch_id FROM branch WHERE parent_branch_id = ? AND folded_seq = 0 AND session <> ? ORDER BY key",
        (branch_id, but),
    ).fetchall()
    if forks:
        raise BranchInUse(branch_id, tuple(fork for (fork,) in forks))


def _enter(
    db: Connection,
    session_id: SessionId,
    change: BranchChange,
    branch_id: BranchId,
    parent: BranchId | None,
    seq: int,
    branch_hash: str,
    now_ms: int,
) -> None:
    """Add an entry to a session's catalogue."""
    key, session = find_session(db, session_id, db.for_update)
    size, last = db.execute("SELECT catalogue_size, catalogue_hash FROM session WHERE key = ?", (key,)).fetchone()
    prev_hash = hash_text(last) if last is not None else catalogue_genesis(session)
    number = size + 1
    entry = seal_entry(
        CatalogueEntry(session_id, number, change, branch_id, parent, seq, branch_hash, now_ms, prev_hash, "")
    )
    values: tuple[Any, ...] = (
        row_id(key, number),
        change.value,
        branch_id,
        parent,
        seq,
        hash_bytes(branch_hash),
        now_ms,
        hash_bytes(entry.hash),
    )
    db.execute(
        "INSERT INTO catalogue (id, change, branch_id, parent_branch_id, seq, branch_hash, ts, hash) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        values,
    )
    db.execute("UPDATE session SET catalogue_size = ?, catalogue_hash = ? WHERE key = ?", (number, values[-1], key))
