"""Steps: the durable results of parts of a message's handling. A step is one statement, which also checks the fence.

A row's key begins with that of its message, so the steps of a message are adjacent, and so are those of a session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import Conflict, InvalidInput, NotFound, StaleEpoch
from chronicle.journal.records import MessageStatus, StoredStep
from chronicle.journal.sql.rows import MAX_NUMBER, STATUS_CODES, Row, row_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.errors import ChronicleError
    from chronicle.ids import MessageId, SessionId
    from chronicle.journal.records import StepWrite
    from chronicle.journal.sql.port import Connection

__all__ = ["ReadyStep", "apply", "drop", "is_there", "of_message", "of_session", "prepare"]

_PENDING: Final = STATUS_CODES[MessageStatus.PENDING]
_PUT: Final = (
    "INSERT INTO step (message, number, key, body) "
    "SELECT inbox.id, ?, ?, ? FROM session JOIN inbox ON inbox.session = session.key "
    "WHERE session_id = ? AND epoch = ? AND (holder IS NOT NULL OR epoch = 0) "
    f"AND message_id = ? AND status = {_PENDING} ON CONFLICT (message, number) DO NOTHING"
)
_OF: Final = "(SELECT id FROM inbox WHERE message_id = ?)"


@dataclass(frozen=True, slots=True)
class ReadyStep:
    """A step as a row."""

    values: Row
    """The values of `_PUT`: number, key and body of the step; session, epoch, 0 for none, and message."""

    @property
    def session_id(self) -> SessionId:
        """The session of its message."""
        session_id: SessionId = self.values[3]
        return session_id


def prepare(write: StepWrite) -> ReadyStep:
    """Convert a step to a row.

    Raises:
        InvalidInput: its number or its epoch is below 1.
    """
    step = write.step
    if step.number < 1:
        raise InvalidInput(f"step {step.number}: steps are numbered from 1")
    if write.epoch is not None and write.epoch < 1:
        raise InvalidInput(f"epoch {write.epoch}: epochs begin at 1")
    return ReadyStep((step.number, step.key, step.body, write.session_id, write.epoch or 0, step.message_id))


def apply(db: Connection, ready: ReadyStep) -> None:
    """Store a step in the open transaction.

    Raises:
        StaleEpoch, NotFound, Conflict: the step is refused; the caller must roll back.
    """
    if db.for_share:
        db.execute(f"SELECT 1 FROM session WHERE session_id = ?{db.for_share}", (ready.session_id,))
    if not db.changed(_PUT, ready.values):
        raise _refusal(db, ready)


def is_there(db: Connection, ready: ReadyStep) -> bool:
    """Return whether exactly this step has been stored already."""
    number, key, body, _, _, message_id = ready.values
    row = db.execute(f"SELECT key, body FROM step WHERE message = {_OF} AND number = ?", (message_id, number))
    found = row.fetchone()
    return found is not None and (found[0], bytes(found[1])) == (key, body)


def of_message(db: Connection, message_id: MessageId) -> Sequence[StoredStep]:
    """Return the steps of a message, by number."""
    rows = db.execute(f"SELECT number, key, body FROM step WHERE message = {_OF} ORDER BY number", (message_id,))
    return [StoredStep(message_id, *row) for row in rows]


def of_session(db: Connection, session_id: SessionId) -> Sequence[StoredStep]:
    """Return the steps of a session's messages, by the position of the message, then number."""
    row = db.execute("SELECT key FROM session WHERE session_id = ?", (session_id,)).fetchone()
    if row is None:
        return []
    rows = db.execute(
        "SELECT message_id, number, key, step.body FROM step JOIN inbox ON inbox.id = step.message "
        "WHERE message BETWEEN ? AND ? ORDER BY message, number",
        _bounds(row[0]),
    )
    return [StoredStep(*found) for found in rows]


def drop(db: Connection, message_id: MessageId) -> None:
    """Drop the steps of a message."""
    db.execute(f"DELETE FROM step WHERE message = {_OF}", (message_id,))


def _bounds(session_key: int) -> tuple[int, int]:
    return row_id(session_key, 0), row_id(session_key, MAX_NUMBER)


def _refusal(db: Connection, ready: ReadyStep) -> ChronicleError:
    """Return why a step was not stored. A stale epoch takes precedence: its holder must not retry."""
    number, _, _, session_id, epoch, message_id = ready.values
    session: Any = db.execute("SELECT epoch, holder FROM session WHERE session_id = ?", (session_id,)).fetchone()
    if session is not None and (session[0] != epoch or (session[0] and session[1] is None)):
        return StaleEpoch(epoch, session[0])
    pending = db.execute(
        "SELECT 1 FROM session JOIN inbox ON inbox.session = session.key "
        f"WHERE session_id = ? AND message_id = ? AND status = {_PENDING}",
        (session_id, message_id),
    ).fetchone()
    if pending is None:
        return NotFound(f"message {message_id} is not pending in session {session_id}")
    return Conflict(f"message {message_id} has a step {number} already")
