"""The encoding of a commit, with which a waiting process requests it from the holder of the writer lock.

The bytes are a JSON array that begins with the version of the form: a process that does not know the version leaves the
commit to the waiter. Hashes are hex digits, and JSON values are text. The encoding expresses only a commit's own rows.
A process with write permission on the waiting room's file has it on the journal, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from chronicle.journal.records import Head
from chronicle.journal.sql.commits import Ready

if TYPE_CHECKING:
    from chronicle.journal.sql.rows import Row

__all__ = ["from_bytes", "to_bytes"]

_FORM: Final = 2
"""2: messages of the outbox have a namespace."""
_DIGEST, _HASH, _PAYLOAD = 8, 10, 11
"""Number of columns of an event's row."""


def to_bytes(ready: Ready) -> bytes | None:
    """Encode a commit; ``None`` if it cannot be encoded: it has a snapshot, or no event."""
    if ready.snapshot is not None or not ready.events:
        return None
    seq, turn, event_id, digest, branch_key, expected_seq, expected_digest, session_key, epoch = ready.advance
    try:
        return orjson.dumps(
            (
                _FORM,
                ready.session_id,
                session_key,
                branch_key,
                (ready.head.branch_id, seq, event_id, ready.head.hash, turn),
                (digest.hex(), expected_seq, expected_digest.hex(), epoch),
                [_event(row) for row in ready.events],
                ready.settled,
                [(*row[:2], row[2].decode(), *row[3:]) for row in ready.outbox],
            )
        )
    except UnicodeDecodeError:  # sealed by another program: this package writes text
        return None


def from_bytes(data: bytes) -> Ready | None:
    """Decode a commit; ``None`` if the bytes have another version, or are damaged."""
    try:
        form, *parts = orjson.loads(data)
        return _ready(*parts) if form == _FORM else None
    except (ValueError, TypeError, IndexError, AttributeError):  # the waiter applies it itself, and gets the error
        return None


def _ready(*parts: Any) -> Ready:
    session_id, session_key, branch_key, head_values, old_and_new, events, settled, outbox = parts
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
        [(outcome, message_id) for outcome, message_id in settled],
        [(message_id, target, body.encode(), *rest) for message_id, target, body, *rest in outbox],
    )


def _event(row: Row) -> list[Any]:
    values = list(row)
    digest, payload = row[_DIGEST], row[_PAYLOAD]
    values[_DIGEST] = digest.hex() if digest is not None else None
    values[_HASH] = row[_HASH].hex()
    values[_PAYLOAD] = payload.decode() if payload is not None else None
    return values


def _row(values: list[Any]) -> Row:
    digest, payload = values[_DIGEST], values[_PAYLOAD]
    values[_DIGEST] = bytes.fromhex(digest) if digest is not None else None
    values[_HASH] = bytes.fromhex(values[_HASH])
    values[_PAYLOAD] = payload.encode() if payload is not None else None
    return tuple(values)
