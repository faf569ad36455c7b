"""The journal's port on SQLite.

A commit is a handful of statements and one sync: the update of the branch's row checks head and epoch at once, and the
reasons for a refusal are looked for only after it. Keys of branches are remembered. The key of a deleted branch may be
given to a new one: then the head that a commit expects does not fit, as its hash covers the branch's id.
"""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.errors import (
    BranchInUse,
    BranchVersionConflict,
    ChronicleError,
    Conflict,
    IdempotencyConflict,
    InboxFull,
    InvalidInput,
    LeaseHeld,
    NotFound,
    StaleEpoch,
)
from chronicle.journal.chain import MAX_SEQ, catalogue_genesis, empty_head, genesis_hash, head_after, seal_entry
from chronicle.journal.records import (
    Branch,
    BranchChange,
    CatalogueEntry,
    Head,
    Lease,
    MessageStatus,
    Outcome,
    Receipt,
    Session,
)
from chronicle.journal.sqlite import snapshots
from chronicle.journal.sqlite.audit import SqliteAudit, read_catalogue
from chronicle.journal.sqlite.database import Database
from chronicle.journal.sqlite.rows import (
    BRANCH_COLUMNS,
    EVENT_COLUMNS,
    INBOX_COLUMNS,
    MAX_NUMBER,
    OUTBOX_COLUMNS,
    SESSION_COLUMNS,
    STATUS_CODES,
    branch_from,
    event_from,
    event_row,
    hash_bytes,
    hash_text,
    inbox_message_from,
    key_of,
    lease_from,
    number_of,
    outbox_message_from,
    row_id,
    session_from,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from chronicle.ids import BranchId, EventId, MessageId, SessionId
    from chronicle.journal.records import Commit, Event, InboxMessage, NewMessage, OutboxMessage, Settlement, Snapshot

__all__ = ["SqliteJournalStore"]

_BATCH: Final = 256
"""Events read at a time, so that no reader holds back the write-ahead log while its caller works on them."""

_PENDING: Final = STATUS_CODES[MessageStatus.PENDING]
_PARKED: Final = STATUS_CODES[MessageStatus.PARKED]
_WAITS: Final = f"WHERE message_id = ? AND session = ? AND status = {_PENDING}"
_SETTLE: Final = {
    Outcome.CONSUMED: f"UPDATE inbox SET status = {STATUS_CODES[MessageStatus.CONSUMED]}, body = NULL {_WAITS}",
    Outcome.CANCELLED: (
        f"UPDATE inbox SET status = {STATUS_CODES[MessageStatus.CANCELLED]}, body = NULL "
        f"WHERE message_id = ? AND session = ? AND status IN ({_PENDING}, {_PARKED})"
    ),
    Outcome.FAILED: f"UPDATE inbox SET attempts = attempts + 1 {_WAITS}",
    Outcome.PARKED: f"UPDATE inbox SET status = {_PARKED}, attempts = attempts + 1 {_WAITS}",
}
_IN_FORCE: Final = "SELECT 1 FROM session WHERE key = ? AND epoch = ? AND (holder IS NOT NULL OR epoch = 0)"
_ADVANCE: Final = (
    "UPDATE branch SET seq = ?, turn = ?, event_id = ?, hash = ? WHERE key = ? AND seq = ? AND hash = ? "
    f"AND EXISTS ({_IN_FORCE})"
)
_INSERT_EVENT: Final = "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_OUTBOX: Final = "INSERT INTO outbox (message_id, target, body, created_ms, sender) VALUES (?, ?, ?, ?, ?)"
_SELECT_BRANCH: Final = f"SELECT {BRANCH_COLUMNS} FROM branch JOIN session ON session.key = branch.session"
_SELECT_INBOX: Final = f"SELECT {INBOX_COLUMNS} FROM inbox JOIN session ON session.key = inbox.session"


class _Ready:
    """A commit turned into rows, before the writer lock is taken."""

    __slots__ = ("branch_key", "commit", "head", "rows", "session_key", "snapshot")

    def __init__(
        self,
        commit: Commit,
        head: Head,
        session_key: int,
        branch_key: int,
        snapshot: snapshots.Draft | None,
    ) -> None:
        self.commit = commit
        self.head = head
        self.session_key = session_key
        self.branch_key = branch_key
        self.rows = [event_row(branch_key, event) for event in commit.events]
        self.snapshot = snapshot


class SqliteJournalStore:
    """A :class:`~chronicle.journal.store.JournalStore` in one file, for any number of threads and processes.

    A write is on disk when it returns: it costs one sync, which is what ``synchronous=FULL`` gives, but done after the
    writer lock was let go.

    Args:
        path: the file; made, with its tables, when it is not there.
        create: false to refuse a path where no journal is.

    Raises:
        InvalidInput: the path cannot hold a journal: its directory is missing or not writable, or it is a directory.
        NotFound: there is none, and ``create`` is false.
        Corrupt: the file is not a journal.
        UnsupportedFormat: it is a journal of a newer format.
    """

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        self._db = Database(Path(path), create=create)
        self._keys: dict[BranchId, tuple[int, int, SessionId]] = {}
        """Of branches: their key, their session's key and id."""

    # -- sessions and branches ------------------------------------------------------------------------------------

    def ensure_session(self, name: str, session_id: SessionId, branch_id: BranchId, now_ms: int) -> Session:
        """Return the session of that name; make it, with an empty main branch, when there is none."""
        try:
            return self.session(name)
        except NotFound:
            pass
        with self._db.writing() as db:
            row = db.execute(f"SELECT {SESSION_COLUMNS} FROM session WHERE name = ?", (name,)).fetchone()
            if row is not None:
                return session_from(row)
            session = Session(session_id, name, branch_id, now_ms)
            _insert_session(db, session, None, empty_head(branch_id))
            return session

    def session(self, name: str) -> Session:
        """Return the session of that name."""
        with self._db.reading() as db:
            row = db.execute(f"SELECT {SESSION_COLUMNS} FROM session WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise NotFound(f"no session named {name!r}")
        return session_from(row)

    def sessions(self, prefix: str = "") -> Sequence[Session]:
        """Return the sessions whose name starts with ``prefix``, by name."""
        with self._db.reading() as db:
            rows = db.execute(
                f"SELECT {SESSION_COLUMNS} FROM session WHERE name >= ? AND substr(name, 1, ?) = ? ORDER BY name",
                (prefix, len(prefix), prefix),
            ).fetchall()
        return [session_from(row) for row in rows]

    def branch(self, branch_id: BranchId) -> Branch:
        """Return a branch with its head as it is now."""
        with self._db.reading() as db:
            return _branch(db, branch_id)

    def branches(self, session_id: SessionId) -> Sequence[Branch]:
        """Return a session's branches, oldest first."""
        with self._db.reading() as db:
            rows = db.execute(f"{_SELECT_BRANCH} WHERE session_id = ? ORDER BY branch.key", (session_id,)).fetchall()
        return [branch_from(row) for row in rows]

    def head(self, branch_id: BranchId) -> Head:
        """Return a branch's head."""
        return self.branch(branch_id).head

    def fork_branch(self, parent_branch_id: BranchId, parent_seq: int, branch_id: BranchId, now_ms: int) -> Branch:
        """Make a branch in the same session that continues another one after ``parent_seq``."""
        with self._db.writing() as db:
            parent = _branch(db, parent_branch_id)
            head = _fork_head(db, parent, parent_seq, branch_id)
            row = db.execute(
                f"SELECT key, {SESSION_COLUMNS} FROM session WHERE session_id = ?", (parent.session_id,)
            ).fetchone()
            _insert_branch(db, row[0], session_from(row[1:]), branch_id, parent_branch_id, head, now_ms)
            return _branch(db, branch_id)

    def fork_session(
        self,
        parent_branch_id: BranchId,
        parent_seq: int,
        name: str,
        session_id: SessionId,
        branch_id: BranchId,
        now_ms: int,
    ) -> Session:
        """Make a session whose main branch continues a branch of another session after ``parent_seq``."""
        with self._db.writing() as db:
            head = _fork_head(db, _branch(db, parent_branch_id), parent_seq, branch_id)
            if db.execute("SELECT 1 FROM session WHERE name = ?", (name,)).fetchone():
                raise Conflict(f"there is a session named {name!r} already")
            session = Session(session_id, name, branch_id, now_ms)
            _insert_session(db, session, parent_branch_id, head)
            return session

    def delete_branch(self, branch_id: BranchId, now_ms: int) -> None:
        """Delete a branch, its events and snapshots; the session's catalogue keeps that it was there."""
        with self._db.writing() as db:
            branch = _branch(db, branch_id)
            session_key, *columns = db.execute(
                f"SELECT key, {SESSION_COLUMNS} FROM session WHERE session_id = ?", (branch.session_id,)
            ).fetchone()
            session = session_from(tuple(columns))
            if session.main_branch_id == branch_id:
                raise InvalidInput(f"branch {branch_id} is the main branch of session {session.name!r}")
            forks = db.execute("SELECT branch_id FROM branch WHERE parent_branch_id = ?", (branch_id,)).fetchall()
            if forks:
                raise BranchInUse(branch_id, tuple(fork for (fork,) in forks))
            _append_to_catalogue(
                db, session_key, session, BranchChange.DELETED, branch_id, branch.parent_branch_id, branch.head, now_ms
            )
            (key,) = db.execute("SELECT key FROM branch WHERE branch_id = ?", (branch_id,)).fetchone()
            db.execute("DELETE FROM branch WHERE key = ?", (key,))
            for table in ("event", "snapshot", "snapshot_pack"):
                db.execute(f"DELETE FROM {table} WHERE id BETWEEN ? AND ?", (row_id(key, 0), row_id(key, MAX_NUMBER)))
        self._keys.pop(branch_id, None)

    def catalogue(self, session_id: SessionId) -> Sequence[CatalogueEntry]:
        """Return the chained list of a session's branches made and deleted, by number."""
        with self._db.reading_one_moment() as db:
            row = db.execute(
                f"SELECT key, {SESSION_COLUMNS} FROM session WHERE session_id = ?", (session_id,)
            ).fetchone()
            if row is None:
                raise NotFound(f"no session {session_id}")
            return read_catalogue(db, row[0], session_from(row[1:]))

    @contextmanager
    def audit(self, session_id: SessionId) -> Iterator[SqliteAudit]:
        """Open what is stored of a session, as of one moment, for verification."""
        with self._db.reading_one_moment() as db:
            yield SqliteAudit(db, session_id)

    # -- events ---------------------------------------------------------------------------------------------------

    def events(
        self,
        branch_id: BranchId,
        after_seq: int = 0,
        to_seq: int | None = None,
        types: Sequence[str] | None = None,
    ) -> Iterator[Event]:
        """Yield events ``after_seq + 1 … to_seq`` in order, crossing into parents; to the head without ``to_seq``."""
        with self._db.reading_one_moment() as db:
            lineage = _lineage(db, branch_id, to_seq)
        return self._events(lineage, after_seq, types)

    def _events(
        self, lineage: list[tuple[int, Branch, int]], after_seq: int, types: Sequence[str] | None
    ) -> Iterator[Event]:
        # prev_hash is the row's before; for a branch's first row, what the branch stands on.
        wanted = "" if types is None else f"AND type IN ({', '.join('?' * len(types))})"
        query = (
            f"SELECT (SELECT hash FROM event AS before WHERE before.id = event.id - 1), {EVENT_COLUMNS} "
            f"FROM event WHERE id > ? AND id <= ? {wanted} ORDER BY id LIMIT {_BATCH}"
        )
        for key, branch, last_seq in reversed(lineage):
            at = max(after_seq, branch.parent_seq)
            while at < last_seq:
                with self._db.reading() as db:
                    rows = db.execute(query, (row_id(key, at), row_id(key, last_seq), *(types or ()))).fetchall()
                    for position, (before, *columns) in enumerate(rows):
                        if columns[0] == branch.parent_seq + 1:
                            rows[position] = (hash_bytes(_base_hash(db, branch)), *columns)
                        elif before is None:
                            rows[position] = (b"", *columns)
                for before, *columns in rows:
                    yield event_from(branch.branch_id, tuple(columns), hash_text(before))
                if len(rows) < _BATCH:
                    break
                at = rows[-1][1]

    def find_event(self, event_id: EventId) -> Event | None:
        """Return an event by its id, ``None`` if it was never committed."""
        with self._db.reading_one_moment() as db:
            return _find_event(db, "event_id = ?", event_id)

    def commit(self, commit: Commit) -> Head:
        """Append, settle messages, fill the outbox and keep the snapshot in one durable transaction."""
        ready = self._prepare(commit)
        with self._db.writing() as db:
            _apply(db, ready)
        return ready.head

    def commit_many(self, commits: Sequence[Commit]) -> list[Head | Exception]:
        """Do several commits with one sync to disk; each succeeds or fails by itself."""
        outcomes: list[Head | Exception] = []
        prepared: list[_Ready | None] = []
        for commit in commits:
            try:
                ready = self._prepare(commit)
                prepared.append(ready)
                outcomes.append(ready.head)
            except ChronicleError as error:
                prepared.append(None)
                outcomes.append(error)
        if not any(prepared):
            return outcomes
        with self._db.writing() as db:
            for index, each in enumerate(prepared):
                if each is None:
                    continue
                db.execute("SAVEPOINT one")
                try:
                    with self._db.translated():
                        _apply(db, each)
                except ChronicleError as error:
                    if not db.in_transaction:  # the disk is full, or worse: SQLite has rolled all of it back
                        raise
                    db.execute("ROLLBACK TO one")
                    outcomes[index] = error
                db.execute("RELEASE one")
        return outcomes

    def _prepare(self, commit: Commit) -> _Ready:
        head = head_after(commit.expected, commit.events)
        if commit.epoch is not None and commit.epoch < 1:
            raise InvalidInput(f"epoch {commit.epoch}: epochs begin at 1")
        if head.seq > MAX_SEQ:
            raise InvalidInput(f"branch {head.branch_id} would grow over {MAX_SEQ} events")
        known = self._keys.get(head.branch_id)
        if known is None:
            known = self._read_keys(head.branch_id)
        branch_key, session_key, session_id = known
        if session_id != commit.session_id:
            raise NotFound(f"no branch {head.branch_id} in session {commit.session_id}")
        return _Ready(commit, head, session_key, branch_key, self._draft(commit.snapshot, branch_key, head))

    def _draft(self, snapshot: Snapshot | None, branch_key: int, head: Head) -> snapshots.Draft | None:
        if snapshot is None:
            return None
        if snapshot.branch_id != head.branch_id or not 0 <= snapshot.seq <= head.seq:
            raise InvalidInput(
                f"a snapshot of branch {snapshot.branch_id} at {snapshot.seq} does not fit branch {head.branch_id}, "
                f"which ends at {head.seq}"
            )
        with self._db.reading_one_moment() as db:
            return snapshots.draft(db, branch_key, snapshot)

    def _read_keys(self, branch_id: BranchId) -> tuple[int, int, SessionId]:
        with self._db.reading() as db:
            row = db.execute(
                "SELECT branch.key, session.key, session_id FROM branch JOIN session ON session.key = branch.session "
                "WHERE branch_id = ?",
                (branch_id,),
            ).fetchone()
        if row is None:
            raise NotFound(f"no branch {branch_id}")
        self._keys[branch_id] = row
        return row[0], row[1], row[2]

    # -- inbox ----------------------------------------------------------------------------------------------------

    def admit(self, session_id: SessionId, message: NewMessage, limit: int = 1000) -> Receipt:
        """Give a message its place, durably."""
        key = message.idempotency_key
        digest = sha256(message.body).digest() if key is not None else None
        with self._db.writing() as db:
            found = db.execute(
                "SELECT key, last_position, pending_from FROM session WHERE session_id = ?", (session_id,)
            ).fetchone()
            if found is None:
                raise NotFound(f"no session {session_id}")
            session_key, last_position, pending_from = found
            if key is not None:
                first = db.execute(
                    "SELECT id & 4294967295, message_id, body_sha256 FROM inbox "
                    "WHERE session = ? AND idempotency_key = ?",
                    (session_key, key),
                ).fetchone()
                if first is not None:
                    if first[2] != digest:
                        raise IdempotencyConflict(key)
                    return Receipt(session_id, first[1], first[0], repeated=True)
            pending_from = _first_pending(db, session_key, pending_from, last_position)
            if last_position - pending_from + 1 >= limit and _count_pending(db, session_key, pending_from) >= limit:
                raise InboxFull(limit)
            position = last_position + 1
            db.execute(
                "UPDATE session SET last_position = ?, pending_from = ? WHERE key = ?",
                (position, pending_from, session_key),
            )
            db.execute(
                f"INSERT INTO inbox VALUES (?, ?, ?, ?, ?, ?, ?, 0, {_PENDING}, ?)",
                (
                    row_id(session_key, position),
                    session_key,
                    message.message_id,
                    key,
                    message.sender,
                    digest,
                    message.admitted_ms,
                    message.body,
                ),
            )
        return Receipt(session_id, message.message_id, position, repeated=False)

    def pending(self, session_id: SessionId, limit: int = 100) -> Sequence[InboxMessage]:
        """Return the pending messages, in order of position."""
        with self._db.reading_one_moment() as db:
            found = db.execute("SELECT key, pending_from FROM session WHERE session_id = ?", (session_id,)).fetchone()
            if found is None:
                return []
            rows = db.execute(
                f"{_SELECT_INBOX} WHERE inbox.id BETWEEN ? AND ? AND status = {_PENDING} ORDER BY inbox.id LIMIT ?",
                (row_id(*found), row_id(found[0], MAX_NUMBER), limit),
            ).fetchall()
        return [inbox_message_from(row) for row in rows]

    def message(self, message_id: MessageId) -> InboxMessage:
        """Return one message, whatever its status."""
        with self._db.reading() as db:
            return _message(db, message_id)

    def messages(self, session_id: SessionId, status: MessageStatus) -> Sequence[InboxMessage]:
        """Return a session's messages of one status, in order of position."""
        with self._db.reading() as db:
            rows = db.execute(
                f"{_SELECT_INBOX} WHERE inbox.session = (SELECT key FROM session WHERE session_id = ?) "
                "AND inbox.id BETWEEN session.key << 32 AND session.key << 32 | 4294967295 AND status = ? "
                "ORDER BY inbox.id",
                (session_id, STATUS_CODES[status]),
            ).fetchall()
        return [inbox_message_from(row) for row in rows]

    def retry_message(self, session_id: SessionId, message_id: MessageId) -> InboxMessage:
        """Put a parked message back into its place in the inbox, with no attempts counted."""
        with self._db.writing() as db:
            row = db.execute(
                f"UPDATE inbox SET status = {_PENDING}, attempts = 0 WHERE message_id = ? AND status = {_PARKED} "
                "AND session = (SELECT key FROM session WHERE session_id = ?) RETURNING id",
                (message_id, session_id),
            ).fetchone()
            if row is None:
                raise NotFound(f"no parked message {message_id} in session {session_id}")
            db.execute(
                "UPDATE session SET pending_from = min(pending_from, ?) WHERE key = ?",
                (number_of(row[0]), key_of(row[0])),
            )
            return _message(db, message_id)

    def sessions_with_pending(self) -> Sequence[SessionId]:
        """Return the sessions that have pending messages."""
        with self._db.reading() as db:
            rows = db.execute(
                f"SELECT session_id FROM session WHERE EXISTS (SELECT 1 FROM inbox WHERE status = {_PENDING} "
                "AND inbox.id BETWEEN (key << 32) + pending_from AND (key << 32) + last_position) ORDER BY key"
            ).fetchall()
        return [session_id for (session_id,) in rows]

    # -- outbox ---------------------------------------------------------------------------------------------------

    def outbox(self, limit: int = 100) -> Sequence[OutboxMessage]:
        """Return messages that were committed and not yet delivered, oldest first."""
        with self._db.reading() as db:
            rows = db.execute(f"SELECT {OUTBOX_COLUMNS} FROM outbox ORDER BY id LIMIT ?", (limit,)).fetchall()
        return [outbox_message_from(row) for row in rows]

    def outbox_delivered(self, message_id: MessageId) -> None:
        """Drop a delivered message from the outbox; doing it twice is harmless."""
        with self._db.writing() as db:
            db.execute("DELETE FROM outbox WHERE message_id = ?", (message_id,))

    # -- leases ---------------------------------------------------------------------------------------------------

    def acquire_lease(
        self, session_id: SessionId, holder: str, now_ms: int, ttl_ms: int, *, takeover: bool = False
    ) -> Lease:
        """Take the lease under a new epoch, one higher than the last."""
        with self._db.writing() as db:
            row = db.execute(
                "SELECT holder, epoch, expires_ms FROM session WHERE session_id = ?", (session_id,)
            ).fetchone()
            if row is None:
                raise NotFound(f"no session {session_id}")
            held = lease_from(session_id, row)
            if held is not None and held.holder != holder and held.expires_ms > now_ms and not takeover:
                raise LeaseHeld(held.holder, held.epoch, held.expires_ms)
            lease = Lease(session_id, holder, row[1] + 1, now_ms + ttl_ms)
            db.execute(
                "UPDATE session SET holder = ?, epoch = ?, expires_ms = ? WHERE session_id = ?",
                (lease.holder, lease.epoch, lease.expires_ms, session_id),
            )
            return lease

    def renew_lease(self, session_id: SessionId, epoch: int, now_ms: int, ttl_ms: int) -> Lease:
        """Push the lease's end to ``now_ms + ttl_ms``."""
        with self._db.writing() as db:
            row = db.execute("SELECT holder, epoch FROM session WHERE session_id = ?", (session_id,)).fetchone()
            if row is None:
                raise NotFound(f"no session {session_id}")
            holder, current = row
            if holder is None or current != epoch:
                raise StaleEpoch(epoch, current)
            db.execute("UPDATE session SET expires_ms = ? WHERE session_id = ?", (now_ms + ttl_ms, session_id))
            return Lease(session_id, holder, epoch, now_ms + ttl_ms)

    def release_lease(self, session_id: SessionId, epoch: int) -> None:
        """Give the lease back; harmless when it is not held under that epoch any more."""
        with self._db.writing() as db:
            db.execute("UPDATE session SET holder = NULL WHERE session_id = ? AND epoch = ?", (session_id, epoch))

    def lease(self, session_id: SessionId) -> Lease | None:
        """Return the lease as it was last taken; ``None`` when released or never taken."""
        with self._db.reading() as db:
            row = db.execute(
                "SELECT holder, epoch, expires_ms FROM session WHERE session_id = ?", (session_id,)
            ).fetchone()
        return lease_from(session_id, row) if row is not None else None

    # -- snapshots ------------------------------------------------------------------------------------------------

    def snapshot(self, branch_id: BranchId, at_seq: int | None = None) -> Snapshot | None:
        """Return the newest snapshot at or before ``at_seq``, crossing into parents.

        A damaged one is passed over with a warning in the log: it is derived data, and an older one does.
        """
        with self._db.reading_one_moment() as db:
            for key, branch, last_seq in _lineage(db, branch_id, at_seq):
                found = snapshots.newest(db, key, branch.branch_id, last_seq)
                if found is not None:
                    return found
        return None

    def put_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot made outside of a commit; replaces one of the same branch and seq."""
        key, _, _ = self._keys.get(snapshot.branch_id) or self._read_keys(snapshot.branch_id)
        draft = self._draft(snapshot, key, self.head(snapshot.branch_id))
        with self._db.writing() as db:
            here = db.execute("SELECT 1 FROM branch WHERE key = ? AND branch_id = ?", (key, snapshot.branch_id))
            if not here.fetchone():
                raise NotFound(f"no branch {snapshot.branch_id}")
            if draft is not None:
                snapshots.keep(db, key, draft)

    # -- life -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release files and connections. Using the store afterwards raises ``Unavailable``."""
        self._db.close()


def _apply(db: sqlite3.Connection, ready: _Ready) -> None:
    """Do a commit in the open transaction, or raise."""
    commit, head, session_key = ready.commit, ready.head, ready.session_key
    expected = commit.expected
    epoch = commit.epoch or 0
    advanced = db.execute(
        _ADVANCE,
        (
            head.seq,
            head.turn,
            head.event_id,
            hash_bytes(head.hash),
            ready.branch_key,
            expected.seq,
            hash_bytes(expected.hash),
            session_key,
            epoch,
        ),
    ).rowcount
    if not advanced:
        raise _refusal(db, ready, epoch)
    for row in ready.rows:
        db.execute(_INSERT_EVENT, row)
    for settlement in commit.settled:
        _settle(db, session_key, commit.session_id, settlement)
    for message in commit.outbox:
        db.execute(_INSERT_OUTBOX, (message.message_id, message.target, message.body, message.created_ms, message.sender))
    if ready.snapshot is not None:
        snapshots.keep(db, ready.branch_key, ready.snapshot)


def _settle(db: sqlite3.Connection, session_key: int, session_id: SessionId, settlement: Settlement) -> None:
    if not db.execute(_SETTLE[settlement.outcome], (settlement.message_id, session_key)).rowcount:
        raise NotFound(f"message {settlement.message_id} does not wait in the inbox of session {session_id}")


def _refusal(db: sqlite3.Connection, ready: _Ready, epoch: int) -> ChronicleError:
    """Say why a commit did not advance its branch. An old epoch comes first: its holder must stop, not retry."""
    head = ready.head
    row = db.execute(
        "SELECT seq, event_id FROM branch WHERE key = ? AND branch_id = ?", (ready.branch_key, head.branch_id)
    ).fetchone()
    if row is None:
        return NotFound(f"no branch {head.branch_id}")
    if not db.execute(_IN_FORCE, (ready.session_key, epoch)).fetchone():
        (current,) = db.execute("SELECT epoch FROM session WHERE key = ?", (ready.session_key,)).fetchone()
        return StaleEpoch(epoch, current)
    return BranchVersionConflict(head.branch_id, row[0], row[1])


def _branch(db: sqlite3.Connection, branch_id: BranchId) -> Branch:
    row = db.execute(f"{_SELECT_BRANCH} WHERE branch_id = ?", (branch_id,)).fetchone()
    if row is None:
        raise NotFound(f"no branch {branch_id}")
    return branch_from(row)


def _lineage(db: sqlite3.Connection, branch_id: BranchId, to_seq: int | None) -> list[tuple[int, Branch, int]]:
    """Return the branch and its ancestors: key, branch and the last seq that is read from it."""
    lineage: list[tuple[int, Branch, int]] = []
    last_seq = to_seq if to_seq is not None else MAX_SEQ
    following: BranchId | None = branch_id
    while following is not None:
        row = db.execute(
            f"SELECT branch.key, {BRANCH_COLUMNS} FROM branch JOIN session ON session.key = branch.session "
            "WHERE branch_id = ?",
            (following,),
        ).fetchone()
        if row is None:
            raise NotFound(f"no branch {following}")
        branch = branch_from(row[1:])
        last_seq = min(last_seq, branch.head.seq)
        lineage.append((row[0], branch, last_seq))
        last_seq = min(last_seq, branch.parent_seq)
        following = branch.parent_branch_id
    return lineage


def _base_hash(db: sqlite3.Connection, branch: Branch) -> str:
    """Return what a branch's first own event has as its ``prev_hash``."""
    if branch.parent_seq == 0 or branch.parent_branch_id is None:
        return genesis_hash(branch.branch_id)
    event = _event_at(db, branch.parent_branch_id, branch.parent_seq)
    return event.hash


def _event_at(db: sqlite3.Connection, branch_id: BranchId, seq: int) -> Event:
    """Return the event at a seq of a branch, wherever in its ancestry it lies."""
    for key, branch, _ in _lineage(db, branch_id, seq):
        if seq > branch.parent_seq:
            event = _find_event(db, "id = ?", row_id(key, seq))
            if event is not None:
                return event
    raise NotFound(f"branch {branch_id} has no event {seq}")


def _find_event(db: sqlite3.Connection, condition: str, value: str | int) -> Event | None:
    row = db.execute(
        f"SELECT id, (SELECT hash FROM event AS before WHERE before.id = event.id - 1), {EVENT_COLUMNS} "
        f"FROM event WHERE {condition}",
        (value,),
    ).fetchone()
    if row is None:
        return None
    found = db.execute(f"{_SELECT_BRANCH} WHERE branch.key = ?", (key_of(row[0]),)).fetchone()
    if found is None:
        return None
    branch = branch_from(found)
    before = hash_text(row[1]) if row[1] is not None else _base_hash(db, branch)
    return event_from(branch.branch_id, row[2:], before)


def _fork_head(db: sqlite3.Connection, parent: Branch, parent_seq: int, branch_id: BranchId) -> Head:
    """Return the head of a new branch that stands on a parent's event."""
    if not 0 <= parent_seq <= parent.head.seq:
        raise InvalidInput(f"branch {parent.branch_id} has events 1 to {parent.head.seq}; no {parent_seq} to fork at")
    if parent_seq == 0:
        return empty_head(branch_id)
    event = _event_at(db, parent.branch_id, parent_seq)
    return Head(branch_id, parent_seq, event.event_id, event.hash, event.turn)


def _insert_session(db: sqlite3.Connection, session: Session, parent: BranchId | None, head: Head) -> None:
    if db.execute("SELECT 1 FROM session WHERE session_id = ?", (session.session_id,)).fetchone():
        raise Conflict(f"there is a session {session.session_id} already")
    key = db.execute(
        f"INSERT INTO session ({SESSION_COLUMNS}) VALUES (?, ?, ?, ?)",
        (session.session_id, session.name, session.main_branch_id, session.created_ms),
    ).lastrowid
    if key is not None:
        _insert_branch(db, key, session, session.main_branch_id, parent, head, session.created_ms)


def _insert_branch(
    db: sqlite3.Connection,
    session_key: int,
    session: Session,
    branch_id: BranchId,
    parent: BranchId | None,
    head: Head,
    now_ms: int,
) -> None:
    if db.execute("SELECT 1 FROM branch WHERE branch_id = ?", (branch_id,)).fetchone():
        raise Conflict(f"there is a branch {branch_id} already")
    db.execute(
        "INSERT INTO branch (branch_id, session, parent_branch_id, parent_seq, created_ms, seq, turn, event_id, hash) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            branch_id,
            session_key,
            parent,
            head.seq,
            now_ms,
            head.seq,
            head.turn,
            head.event_id,
            hash_bytes(head.hash),
        ),
    )
    _append_to_catalogue(db, session_key, session, BranchChange.CREATED, branch_id, parent, head, now_ms)


def _append_to_catalogue(
    db: sqlite3.Connection,
    session_key: int,
    session: Session,
    change: BranchChange,
    branch_id: BranchId,
    parent: BranchId | None,
    head: Head,
    now_ms: int,
) -> None:
    size, last = db.execute(
        "SELECT catalogue_size, catalogue_hash FROM session WHERE key = ?", (session_key,)
    ).fetchone()
    prev_hash = hash_text(last) if last is not None else catalogue_genesis(session)
    entry = seal_entry(
        CatalogueEntry(
            session.session_id, size + 1, change, branch_id, parent, head.seq, head.hash, now_ms, prev_hash, ""
        )
    )
    digest = hash_bytes(entry.hash)
    db.execute(
        "INSERT INTO catalogue VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (row_id(session_key, size + 1), change, branch_id, parent, head.seq, hash_bytes(head.hash), now_ms, digest),
    )
    db.execute(
        "UPDATE session SET catalogue_size = ?, catalogue_hash = ? WHERE key = ?", (size + 1, digest, session_key)
    )


def _first_pending(db: sqlite3.Connection, session_key: int, pending_from: int, last_position: int) -> int:
    """Return the position of the first message that waits, or the one that the next message will get."""
    row = db.execute(
        f"SELECT id FROM inbox WHERE id BETWEEN ? AND ? AND status = {_PENDING} ORDER BY id LIMIT 1",
        (row_id(session_key, pending_from), row_id(session_key, last_position)),
    ).fetchone()
    return number_of(row[0]) if row is not None else last_position + 1


def _count_pending(db: sqlite3.Connection, session_key: int, pending_from: int) -> int:
    (count,) = db.execute(
        f"SELECT count(*) FROM inbox WHERE id BETWEEN ? AND ? AND status = {_PENDING}",
        (row_id(session_key, pending_from), row_id(session_key, MAX_NUMBER)),
    ).fetchone()
    return int(count)


def _message(db: sqlite3.Connection, message_id: MessageId) -> InboxMessage:
    row = db.execute(f"{_SELECT_INBOX} WHERE message_id = ?", (message_id,)).fetchone()
    if row is None:
        raise NotFound(f"no message {message_id}")
    return inbox_message_from(row)
