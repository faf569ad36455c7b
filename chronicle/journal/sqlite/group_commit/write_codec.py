"""The encoding of commits and steps, with which a waiting process requests them from the holder of the writer lock.

The bytes are a JSON array that begins with the version of the form and the kind of write: a process that does not know
the version leaves the write to the waiter. Hashes are hex digits, and JSON values are text. The encoding expresses only
a commit's or step's own rows. A process with write permission on the waiting room's file has it on the journal, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from chronicle.journal.records import Head, Outcome
from chronicle.journal.sql.commits import Ready
from chronicle.journal.sql.steps import ReadyStep

if TYPE_CHECKING:
    from chronicle.journal.sql.rows import Row
    from chronicle.journal.sql.writes import ReadyWrite

__all__ = ["from_bytes", "to_bytes"]

_FORM: Final = 3
"""3: messages of the outbox have headers, commits have reminders, and there are steps."""
_COMMIT: Final = "commit"
_STEP: Final = "step"
_DIGEST, _HASH, _PAYLOAD = 8, 10, 11
"""Number of columns of an event's row."""
_OUTBOX_BYTES: Final = (2, 6)
"""Body and headers of a message's row."""
_REMINDER_BYTES: Final = (2,)
"""Body in a reminder's row."""


def to_bytes(ready: ReadyWrite) -> bytes | None:
    """Encode a write; ``None`` if it cannot be encoded: a commit with a snapshot or no event, or bytes but no text."""
    if isinstance(ready, Ready) and (ready.snapshot is not None or not ready.events):
        return None
    try:
        if isinstance(ready, ReadyStep):
            number, key, body, *rest = ready.values
            return orjson.dumps((_FORM, _STEP, number, key, body.decode(), *rest))
        return orjson.dumps((_FORM, _COMMIT, *_parts(ready)))
    except UnicodeDecodeError:  # sealed by another program: this package writes text
        return None


def from_bytes(data: bytes) -> ReadyWrite | None:
    """Decode a write; ``None`` if the bytes have another version, or are damaged."""
    try:
        form, kind, *parts = orjson.loads(data)
        if form != _FORM:
            return None
        return _step(*parts) if kind == _STEP else _ready(*parts)
    except (ValueError, TypeError, IndexError, AttributeError):  # the waiter applies it itself, and gets the error
        return None


def _step(number: int, key: str, body: str, session_id: str, epoch: int, message_id: str) -> ReadyStep:
    return ReadyStep((number, key, body.encode(), session_id, epoch, message_id))


def _parts(ready: Ready) -> tuple[Any, ...]:
    seq, turn, event_id, digest, branch_key, expected_seq, expected_digest, session_key, epoch = ready.advance
    return (
        ready.session_id,
        session_key,
        branch_key,
        (ready.head.branch_id, seq, event_id, ready.head.hash, turn, ready.head.ts),
        (digest.hex(), expected_seq, expected_digest.hex(), epoch),
        [_event(row) for row in ready.events],
        ready.settled,
        [_with_text(row, *_OUTBOX_BYTES) for row in ready.outbox],
        [_with_text(row, *_REMINDER_BYTES) for row in ready.reminders],
    )


def _ready(*parts: Any) -> Ready:
    session_id, session_key, branch_key, head_values, old_and_new, events, settled, outbox, reminders = parts
    digest, expected_seq, expected_digest, epoch = old_and_new
    head = Head(*head_values)
    advance = (
        head.seq,
        head.turn,
        head.event_id,
        bytes.fromhex(digest),
        branch_key,
        expected_seq,
        bytes.fromhex(expected_digest),
        session_key,
        epoch,
    )
    return Ready(
        session_id,
        session_key,
        branch_key,
        head,
        advance,
        [_row(values) for values in events],
        [(Outcome(outcome), message_id) for outcome, message_id in settled],
        [_with_bytes(row, *_OUTBOX_BYTES) for row in outbox],
        [_with_bytes(row, *_REMINDER_BYTES) for row in reminders],
    )


def _event(row: Row) -> list[Any]:
    values = _with_text(row, _PAYLOAD)
    digest = row[_DIGEST]
    values[_DIGEST] = digest.hex() if digest is not None else None
    values[_HASH] = row[_HASH].hex()
    return values


def _row(values: list[Any]) -> Row:
    digest = values[_DIGEST]
    values[_DIGEST] = bytes.fromhex(digest) if digest is not None else None
    values[_HASH] = bytes.fromhex(values[_HASH])
    return _with_bytes(values, _PAYLOAD)


def _with_text(row: Row, *columns: int) -> list[Any]:
    """Return a row's values with the bytes of some columns as text."""
    values = list(row)
    for column in columns:
        values[column] = values[column].decode() if values[column] is not None else None
    return values


def _with_bytes(values: list[Any], *columns: int) -> Row:
    """Return the row of which `_with_text` made the values."""
    for column in columns:
        values[column] = values[column].encode() if values[column] is not None else None
    return tuple(values)
