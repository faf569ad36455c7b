"""The journal's port in SQL: each method is one transaction or one query.

The store caches the keys of branches. The database may assign the key of a deleted branch to a new one. A commit with
the stale key then fails its head check, because the head's hash covers the branch id.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from chronicle.errors import NotFound, Unavailable
from chronicle.journal.ports.reserve import NO_RESERVE
from chronicle.journal.records import Commit, OutboxEnvelope, StepWrite
from chronicle.journal.sql import branches, commits, inbox, leases, pauses, snapshots, writes
from chronicle.journal.sql import reminders as reminder_rows
from chronicle.journal.sql import steps as step_rows
from chronicle.journal.sql.moving import copy_rows
from chronicle.journal.sql.rows import OUTBOX_COLUMNS, event_from, hash_bytes, hash_text, outbox_message_from, row_id
from chronicle.journal.sql.sessions import SqlSessions
from chronicle.journal.sql.tables import TABLES
from chronicle.journal.sql.transactions import reading, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from chronicle.ids import BranchId, EventId, MessageId, SessionId
    from chronicle.journal.ports.reserve import Reserve
    from chronicle.journal.ports.upkeep import StoreUpkeep
    from chronicle.journal.records import (
        Branch,
        Event,
        Head,
        InboxWrite,
        OutboxMessage,
        Receipt,
        Snapshot,
        StoredStep,
    )
    from chronicle.journal.sql.port import Connection, Database

__all__ = ["SqlJournalStore"]

_FIRST_BATCH: Final = 16
"""The first page of events is small: a caller that needs one event reads few."""
_BATCH: Final = 256
"""Events per query. Between two pages no read transaction is open, so a slow consumer does not block checkpoints."""


class SqlJournalStore(SqlSessions):
    """A :class:`~chronicle.journal.port.JournalStore` over a SQL database; the port documents the methods.

    Args:
        database: the connections; the store closes them.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._keys: dict[BranchId, tuple[int, int, SessionId]] = {}
        """By branch id: the branch's key, and its session's key and id."""

    def delete_branch(self, branch_id: BranchId, now_ms: int) -> None:
        """Delete a branch, its events and snapshots; the session's catalogue records the deletion."""
        super().delete_branch(branch_id, now_ms)
        self._keys.pop(branch_id, None)

    def receive(self, source: StoreUpkeep, on_rows: Callable[[int], None]) -> None:
        """Replace all rows by those that another journal has at one moment, in one transaction."""
        assert isinstance(source, SqlJournalStore), "the port asks for one"
        with source._db.reading_one_moment() as rows, self._db.writing() as db:  # noqa: SLF001  of its own kind
            self._copy(rows, db, on_rows)

    def _copy(self, rows: Connection, db: Connection, on_rows: Callable[[int], None]) -> None:
        copy_rows(rows, db, TABLES, on_rows)

    # -- events ---------------------------------------------------------------------------------------------------

    def events(
        self,
        branch_id: BranchId,
        after_seq: int = 0,
        to_seq: int | None = None,
        types: Sequence[str] | None = None,
    ) -> Iterator[Event]:
        """Yield events ``after_seq + 1 … to_seq`` in order, crossing into parents; to the head without ``to_seq``."""
        with self._db.reading() as db:
            key, branch = branches.find_branch(db, branch_id)
        lineage = [(key, branch, branch.head.seq if to_seq is None else min(to_seq, branch.head.seq))]
        if branch.parent_branch_id is not None and not branch.folded_seq:
            with self._db.reading_one_moment() as db:
                lineage = branches.lineage(db, branch_id, to_seq)
        return iter(()) if types is not None and not types else self._events(lineage, after_seq, types)

    def _events(
        self, lineage: list[tuple[int, Branch, int]], after_seq: int, types: Sequence[str] | None
    ) -> Iterator[Event]:
        wanted = "" if types is None else f"AND type IN ({', '.join('?' * len(types))})"
        query = f"{branches.EVENT_QUERY} WHERE id > ? AND id <= ? {wanted} ORDER BY id LIMIT ?"
        limit = _FIRST_BATCH
        for key, branch, last_seq in reversed(lineage):
            at = max(after_seq, branches.base_seq(branch))
            while at < last_seq:
                with self._db.reading() as db:
                    rows = db.execute(query, (row_id(key, at), row_id(key, last_seq), *(types or ()), limit)).fetchall()
                    if rows and rows[0][0] is None:
                        rows[0] = (hash_bytes(branches.base_hash(db, key)), *rows[0][1:])
                for before, *columns in rows:
                    yield event_from(branch.branch_id, tuple(columns), hash_text(before or b""))
                if len(rows) < limit:
                    break
                at, limit = rows[-1][2], _BATCH

    def find_event(self, event_id: EventId) -> Event | None:
        """Return an event by its id, ``None`` if it was never committed."""
        with self._db.reading_one_moment() as db:
            return branches.find_event(db, event_id)

    def erase(self, event_ids: Sequence[EventId]) -> None:
        """Erase the payloads of events; their bytes are removed from the file."""
        with self._db.erasing() as db:
            for event_id in event_ids:
                event = branches.find_event(db, event_id)
                if event is None:
                    raise NotFound(f"no event {event_id}")
                branches.erase(db, event_id, bytes.fromhex(event.payload_sha256))

    def commit(self, commit: Commit) -> Head:
        """Append events, settle messages, fill the outbox and store the snapshot in one durable transaction."""
        ready = self._prepare(commit)
        self._write(ready)
        return ready.head

    def commit_many(self, writes_: Sequence[Commit | StepWrite]) -> list[Head | Exception | None]:
        """Apply several commits and steps with one sync to disk; each succeeds or fails by itself."""
        outcomes: list[Head | Exception | None] = []
        prepared: dict[int, writes.ReadyWrite] = {}
        for index, write in enumerate(writes_):
            try:
                ready = self._prepare(write) if isinstance(write, Commit) else step_rows.prepare(write)
            except Exception as error:  # noqa: BLE001 - whatever it is, the others are written
                outcomes.append(error)
            else:
                prepared[index] = ready
                outcomes.append(ready.head if isinstance(ready, commits.Ready) else None)
        refused = self._write_each(list(prepared.values()))
        for index, refusal in zip(prepared, refused, strict=True):
            if refusal is not None:
                outcomes[index] = refusal
        return outcomes

    def _write_each(self, ready: Sequence[writes.ReadyWrite]) -> Sequence[Exception | None]:
        """Apply writes in one transaction, each of which is done or refused by itself; see `_each`."""
        return self._each([partial(writes.apply, ready=each) for each in ready])

    def _each(self, parts: Sequence[Callable[[Connection], object]]) -> list[Exception | None]:
        """Run parts of one transaction, each of which is done or refused by itself.

        A savepoint takes two of the six statements of a small part, and refusals are rare: all parts are run without
        savepoints first, and again with them if one is refused.

        Returns:
            for each part its error, in order; ``None`` for one that was done.

        Raises:
            Unavailable: the database failed; it is unknown whether any was done.
        """
        if not parts:
            return []
        in_parts = False
        try:
            with self._db.writing() as db:
                in_parts = True
                for part in parts:
                    part(db)
                if len(parts) > 1:  # what is refused at the end is refused to the one part
                    db.wait()
                    in_parts = False
        except Unavailable:
            raise  # of the database, not of a part: nothing was written
        except Exception as error:
            if not in_parts:  # the transaction could not begin, or not be committed
                raise
            if len(parts) == 1:
                return [error]
        else:
            return [None] * len(parts)
        with self._db.writing() as db:
            return [self._refused(db, partial(part, db)) for part in parts]

    def _refused(self, db: Connection, part: Callable[[], object]) -> Exception | None:
        """Run a part of the open transaction; roll it back alone if it fails, and return its error.

        Raises:
            Unavailable: the transaction may have ended: what comes after the part would be written by itself.
        """
        try:
            with self._db.savepoint(db):
                part()
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - such as of text that cannot be stored: the others are written
            return error
        return None

    def _write(self, ready: writes.ReadyWrite) -> None:
        with self._db.writing() as db:
            writes.apply(db, ready)

    def _prepare(self, commit: Commit) -> commits.Ready:
        branch_id = commit.expected.branch_id
        branch_key, session_key, session_id = self._keys.get(branch_id) or self._read_keys(branch_id)
        if session_id != commit.session_id:
            raise NotFound(f"no branch {branch_id} in session {commit.session_id}")
        ready = commits.prepare(commit, branch_key, session_key)
        return ready if commit.snapshot is None else self._with_snapshot(ready, commit.snapshot)

    def _with_snapshot(self, ready: commits.Ready, snapshot: Snapshot) -> commits.Ready:
        commits.check_snapshot(snapshot, ready.head)
        with self._db.reading_one_moment() as db:
            draft = snapshots.draft(db, ready.branch_key, snapshot)
        return replace(ready, snapshot=draft)

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

    admit = writing(inbox.admit)

    def admit_many(self, admissions: Sequence[InboxWrite]) -> list[Receipt | Exception]:
        """Admit several messages with one sync to disk; each is admitted or refused by itself."""
        outcomes: dict[int, Receipt | Exception] = {}

        def admit(db: Connection, index: int, each: InboxWrite) -> None:
            outcomes[index] = inbox.admit(db, each.session_id, each.message, each.limit)

        # By session, so that concurrent calls lock rows in one order; the sort keeps the order in each.
        in_order = sorted(enumerate(admissions), key=lambda numbered: numbered[1].session_id)
        refused = self._each([partial(admit, index=index, each=each) for index, each in in_order])
        for (index, _), error in zip(in_order, refused, strict=True):
            if error is not None:
                outcomes[index] = error
        return [outcomes[index] for index in range(len(admissions))]

    pending = reading(inbox.pending)
    message = reading(inbox.find_message)
    message_of_key = reading(inbox.message_of_key)
    messages = reading(inbox.messages)
    retry_message = writing(inbox.retry)
    waiting_before = reading(inbox.waiting_before)
    sessions_with_pending = reading(inbox.sessions_with_pending)
    backlog = reading(inbox.backlog)

    # -- steps ----------------------------------------------------------------------------------------------------

    def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        """Store the result of a part of the handling of a pending message, durably."""
        self._write(step_rows.prepare(StepWrite(session_id, step, epoch)))

    steps = reading(step_rows.of_message)
    drop_steps = writing(step_rows.drop)

    def steps_of_session(self, session_id: SessionId) -> Sequence[StoredStep]:
        """Return the steps of all messages of a session, by the position of the message, then number."""
        with self._db.reading_one_moment() as db:
            return step_rows.of_session(db, session_id)

    # -- pauses ---------------------------------------------------------------------------------------------------

    paused_message = reading(pauses.of_session)
    paused_messages = reading(pauses.page)
    count_paused = reading(pauses.count)
    end_pause = writing(pauses.end)

    # -- reminders ------------------------------------------------------------------------------------------------

    now_ms = reading(reminder_rows.now_ms)
    reminders = reading(reminder_rows.of_session)
    due_reminders = reading(reminder_rows.due)
    next_reminder_ms = reading(reminder_rows.next_ms)
    cancel_reminder = writing(reminder_rows.cancel)
    fire_reminder = writing(reminder_rows.fire)
    send_reminder = writing(reminder_rows.send)

    # -- outbox ---------------------------------------------------------------------------------------------------

    def outbox(self, limit: int = 100, among: Sequence[MessageId] | None = None) -> Sequence[OutboxMessage]:
        """Return messages that were committed and not yet delivered, oldest first."""
        chosen, ids = "", tuple(among or ())
        if among is not None:
            if not ids:
                return []
            chosen = f"WHERE message_id IN ({', '.join('?' * len(ids))})"
        with self._db.reading() as db:
            rows = db.execute(
                f"SELECT {OUTBOX_COLUMNS} FROM outbox {chosen} ORDER BY id LIMIT ?", (*ids, limit)
            ).fetchall()
        return [outbox_message_from(row) for row in rows]

    def outbox_envelopes(self) -> Sequence[OutboxEnvelope]:
        """Return the envelopes of all messages in the outbox, oldest first."""
        with self._db.reading() as db:
            rows = db.execute("SELECT message_id, target, created_ms, namespace FROM outbox ORDER BY id", ()).fetchall()
        return [OutboxEnvelope(*row) for row in rows]

    def outbox_delivered(self, message_id: MessageId) -> None:
        """Drop a delivered message from the outbox; doing it twice is harmless."""
        with self._db.writing() as db:
            db.execute("DELETE FROM outbox WHERE message_id = ?", (message_id,))

    # -- leases ---------------------------------------------------------------------------------------------------

    acquire_lease = writing(leases.acquire)
    release_lease = writing(leases.release)
    lease = reading(leases.find)
    held_sessions = reading(leases.held)

    def renew_leases(self, leases: Sequence[tuple[SessionId, int]], now_ms: int, ttl_ms: int) -> Sequence[SessionId]:
        """Extend leases, each given by its session and epoch, to ``now_ms + ttl_ms`` in one transaction."""
        extend = "UPDATE session SET expires_ms = ? WHERE session_id = ? AND epoch = ? AND holder IS NOT NULL"
        with self._db.writing() as db:
            expires_ms = db.now_ms(now_ms) + ttl_ms
            return [  # sorted, so that concurrent calls lock rows in one order
                session_id
                for session_id, epoch in sorted(leases)
                if not db.changed(extend, (expires_ms, session_id, epoch))
            ]

    def release_leases(self, leases: Sequence[tuple[SessionId, int]]) -> None:
        """Release leases, each given by its session and epoch, in one transaction."""
        with self._db.writing() as db:
            for session_id, epoch in sorted(leases):
                db.execute("UPDATE session SET holder = NULL WHERE session_id = ? AND epoch = ?", (session_id, epoch))

    # -- snapshots ------------------------------------------------------------------------------------------------

    def snapshot(self, branch_id: BranchId, at_seq: int | None = None) -> Snapshot | None:
        """Return the newest snapshot at or before ``at_seq``, crossing into parents.

        A damaged snapshot is skipped with a warning in the log: it is derived data, and an older one serves as well.
        """
        with self._db.reading_one_moment() as db:
            for key, branch, last_seq in branches.lineage(db, branch_id, at_seq):
                found = snapshots.newest(db, key, branch.branch_id, last_seq)
                if found is not None:
                    return found
        return None

    # -- life -----------------------------------------------------------------------------------------------------

    @property
    def reserve(self) -> Reserve:
        """The space that is reserved for essential writes: none, unless the database is a file."""
        return NO_RESERVE

    def close(self) -> None:
        """Release files and connections. Using the store afterwards raises ``Unavailable``."""
        self._db.close()
