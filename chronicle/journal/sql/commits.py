"""A commit: its rows are built before the writer lock is taken; the transaction runs a handful of statements.

The ``UPDATE`` of the branch's row checks head and epoch together. The reason of a refusal is determined afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.errors import BranchVersionConflict, InvalidInput, NotFound, StaleEpoch
from chronicle.journal.chain import MAX_SEQ, head_after
from chronicle.journal.records import MessageStatus, Outcome
from chronicle.journal.sql import reminders, snapshots, steps
from chronicle.journal.sql.rows import INSERT_OUTBOX, STATUS_CODES, Row, event_row, hash_bytes, outbox_row, row_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.errors import ChronicleError
    from chronicle.ids import MessageId, SessionId
    from chronicle.journal.records import Commit, Head, Snapshot
    from chronicle.journal.sql.port import Connection

__all__ = ["ENDED", "SETTLE", "Ready", "apply", "check_snapshot", "is_there", "prepare"]

_PENDING: Final = STATUS_CODES[MessageStatus.PENDING]
_CONSUMED: Final = STATUS_CODES[MessageStatus.CONSUMED]
_CANCELLED: Final = STATUS_CODES[MessageStatus.CANCELLED]
_PARKED: Final = STATUS_CODES[MessageStatus.PARKED]
_PAUSED: Final = STATUS_CODES[MessageStatus.PAUSED]

_OF: Final = "WHERE message_id = ? AND session = ? AND status"
SETTLE: Final[dict[Outcome, str]] = {
    outcome: f"UPDATE inbox SET {change}"
    for outcome, change in {
        Outcome.CONSUMED: f"status = {_CONSUMED}, body = NULL {_OF} = {_PENDING}",
        Outcome.CANCELLED: f"status = {_CANCELLED}, body = NULL {_OF} IN ({_PENDING}, {_PARKED}, {_PAUSED})",
        Outcome.FAILED: f"attempts = attempts + 1 {_OF} = {_PENDING}",
        Outcome.PARKED: f"status = {_PARKED}, attempts = attempts + 1 {_OF} = {_PENDING}",
        Outcome.PAUSED: f"status = {_PAUSED} {_OF} = {_PENDING}",
    }.items()
}
"""By outcome: what it changes in the inbox."""
ENDED: Final = frozenset({Outcome.CONSUMED, Outcome.CANCELLED})
"""Outcomes after which a message has no steps."""
_IN_FORCE: Final = "SELECT 1 FROM session WHERE key = ? AND epoch = ? AND (holder IS NOT NULL OR epoch = 0)"
_ADVANCE: Final = (
    "UPDATE branch SET seq = ?, turn = ?, event_id = ?, hash = ? WHERE key = ? AND seq = ? AND hash = ? "
    f"AND EXISTS ({_IN_FORCE})"
)
_INSERT_EVENT: Final = (
    "INSERT INTO event (id, event_id, type, turn, ts, correlation_id, causation_id, payload_ref, payload_sha256, "
    "erased, hash, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class Ready:
    """A commit as rows."""

    session_id: SessionId
    session_key: int
    branch_key: int
    head: Head
    """The head after it."""
    advance: Row
    """The values of `_ADVANCE`: the new head, the expected one, and the epoch, 0 for none."""
    events: Sequence[Row]
    settled: Sequence[tuple[Outcome, MessageId]]
    """Outcomes with message ids."""
    outbox: Sequence[Row]
    reminders: Sequence[Row]
    snapshot: snapshots.PreparedSnapshot | None = None

    @property
    def epoch(self) -> int:
        """The epoch of its lease; 0 without one."""
        return int(self.advance[-1])


def prepare(commit: Commit, branch_key: int, session_key: int) -> Ready:
    """Convert a commit, except its snapshot, to rows.

    Raises:
        InvalidInput: its events were not sealed on top of the expected head, or its epoch is below 1.
    """
    expected = commit.expected
    head = head_after(expected, commit.events)
    if commit.epoch is not None and commit.epoch < 1:
        raise InvalidInput(f"epoch {commit.epoch}: epochs begin at 1")
    if head.seq > MAX_SEQ:
        raise InvalidInput(f"branch {head.branch_id} would grow over {MAX_SEQ} events")
    advance = (
        head.seq,
        head.turn,
        head.event_id,
        hash_bytes(head.hash),
        branch_key,
        expected.seq,
        hash_bytes(expected.hash),
        session_key,
        commit.epoch or 0,
    )
    return Ready(
        commit.session_id,
        session_key,
        branch_key,
        head,
        advance,
        [event_row(branch_key, event) for event in commit.events],
        [(settlement.outcome, settlement.message_id) for settlement in commit.settled],
        [outbox_row(sent) for sent in commit.outbox],
        reminders.prepare(commit.reminders),
    )


def check_snapshot(snapshot: Snapshot, head: Head) -> None:
    """Check that a snapshot's place is on a branch.

    Raises:
        InvalidInput: it does not.
    """
    if snapshot.branch_id != head.branch_id or not 0 <= snapshot.seq <= head.seq:
        raise InvalidInput(
            f"a snapshot of branch {snapshot.branch_id} at {snapshot.seq} does not fit branch {head.branch_id}, "
            f"which ends at {head.seq}"
        )


def apply(db: Connection, ready: Ready) -> None:
    """Apply a commit in the open transaction.

    Raises:
        NotFound, StaleEpoch, BranchVersionConflict: the commit is refused; the caller must roll back.
    """
    if db.for_share:
        db.execute(f"SELECT 1 FROM session WHERE key = ?{db.for_share}", (ready.session_key,))
    settle = [(SETTLE[outcome], (message_id, ready.session_key)) for outcome, message_id in ready.settled]
    advanced, *settled = db.changed_by_each([(_ADVANCE, ready.advance), *settle])
    if not advanced:
        raise _refusal(db, ready)
    db.insert(_INSERT_EVENT, ready.events)
    for (outcome, message_id), is_settled in zip(ready.settled, settled, strict=True):
        if not is_settled:
            raise NotFound(f"message {message_id} does not wait in the inbox of session {ready.session_id}")
        if outcome in ENDED:
            steps.drop(db, message_id)
    if ready.outbox:
        db.insert(INSERT_OUTBOX, ready.outbox)
    if ready.reminders:
        reminders.apply(db, ready.session_key, ready.reminders)
    if ready.snapshot is not None:
        snapshots.keep(db, ready.branch_key, ready.snapshot)


def is_there(db: Connection, ready: Ready) -> bool:
    """Return whether exactly this commit has been applied already."""
    row = db.execute("SELECT hash FROM event WHERE id = ?", (row_id(ready.branch_key, ready.head.seq),)).fetchone()
    return row is not None and bytes(row[0]) == ready.advance[3]


def _refusal(db: Connection, ready: Ready) -> ChronicleError:
    """Return why a commit did not advance its branch. A stale epoch takes precedence: its holder must not retry."""
    branch_id = ready.head.branch_id
    row = db.execute(
        "SELECT seq, event_id FROM branch WHERE key = ? AND branch_id = ?", (ready.branch_key, branch_id)
    ).fetchone()
    if row is None:
        return NotFound(f"no branch {branch_id}")
    if not db.execute(_IN_FORCE, (ready.session_key, ready.epoch)).fetchone():
        (current,) = db.execute("SELECT epoch FROM session WHERE key = ?", (ready.session_key,)).fetchone()
        return StaleEpoch(ready.epoch, current)
    return BranchVersionConflict(branch_id, row[0], row[1])
