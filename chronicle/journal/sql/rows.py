"""Conversion of table rows to records and back, and row ids, which hold a key and a number in one integer."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.canonical import decode, encode
from chronicle.errors import Corrupt
from chronicle.journal.chain import HASH_PREFIX
from chronicle.journal.records import (
    Branch,
    BranchChange,
    CatalogueEntry,
    Event,
    Head,
    InboxMessage,
    Lease,
    MessageStatus,
    OutboxMessage,
    Session,
    Tombstone,
)

if TYPE_CHECKING:
    from chronicle.canonical import JsonObject
    from chronicle.ids import BranchId, SessionId

__all__ = [
    "BRANCH_COLUMNS",
    "CATALOGUE_COLUMNS",
    "EVENT_COLUMNS",
    "INBOX_COLUMNS",
    "INSERT_OUTBOX",
    "MAX_NUMBER",
    "OUTBOX_COLUMNS",
    "SESSION_COLUMNS",
    "STATUS_CODES",
    "TOMBSTONE_COLUMNS",
    "Row",
    "branch_from",
    "catalogue_entry_from",
    "event_from",
    "event_row",
    "hash_bytes",
    "hash_text",
    "headers_bytes",
    "inbox_message_from",
    "key_of",
    "lease_from",
    "number_of",
    "outbox_message_from",
    "outbox_row",
    "row_id",
    "session_from",
    "tombstone_from",
]

Row = tuple[Any, ...]

MAX_NUMBER: Final = 2**32 - 1
_SHIFT: Final = 32

SESSION_COLUMNS: Final = "session_id, name, main_branch_id, created_ms, namespace"
BRANCH_COLUMNS: Final = (
    "branch.branch_id, session.session_id, branch.parent_branch_id, branch.parent_seq, branch.created_ms, "
    "branch.seq, branch.event_id, branch.hash, branch.turn, branch.folded_seq, "
    "(SELECT ts FROM event WHERE event_id = branch.event_id)"
)
EVENT_COLUMNS: Final = (
    "id & 4294967295, event_id, type, turn, ts, correlation_id, "
    "CASE WHEN causation_id = '' THEN correlation_id ELSE causation_id END, payload_ref, payload_sha256, payload, hash"
)
"""As :data:`chronicle.journal.audit.EventRow`."""
CATALOGUE_COLUMNS: Final = "id & 4294967295, change, branch_id, parent_branch_id, seq, branch_hash, ts, hash"
INBOX_COLUMNS: Final = (
    "session.session_id, inbox.id & 4294967295, message_id, idempotency_key, sender, body, admitted_ms, attempts"
    ", status, headers"
)
OUTBOX_COLUMNS: Final = "message_id, target, body, created_ms, sender, namespace, headers"
INSERT_OUTBOX: Final = f"INSERT INTO outbox ({OUTBOX_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
TOMBSTONE_COLUMNS: Final = "session_id, name, deleted_ms, events, catalogue_hash, namespace"

_STATUSES: Final = (
    MessageStatus.PENDING,
    MessageStatus.CONSUMED,
    MessageStatus.CANCELLED,
    MessageStatus.PARKED,
    MessageStatus.PAUSED,
)
STATUS_CODES: Final = {status: code for code, status in enumerate(_STATUSES)}


def row_id(key: int, number: int) -> int:
    """Return the primary key of row ``number`` of a branch or session."""
    return key << _SHIFT | number


def key_of(row: int) -> int:
    """Return the branch key or session key in a row id."""
    return row >> _SHIFT


def number_of(row: int) -> int:
    """Return the seq, position or number in a row id."""
    return row & MAX_NUMBER


def hash_bytes(text: str) -> bytes:
    """Return the 32 bytes of a hash's text."""
    return bytes.fromhex(text[len(HASH_PREFIX) :])


def hash_text(data: bytes) -> str:
    """Return a hash's text form."""
    return HASH_PREFIX + data.hex()


def event_row(key: int, event: Event) -> Row:
    """Return the values of an event's row, in the order of the table's columns."""
    causation_id = event.causation_id
    return (
        key << _SHIFT | event.seq,
        event.event_id,
        event.type,
        event.turn,
        event.ts,
        event.correlation_id,
        "" if causation_id is not None and causation_id == event.correlation_id else causation_id,
        event.payload_ref,
        None if event.payload is not None else bytes.fromhex(event.payload_sha256),
        1 if event.erased else None,
        hash_bytes(event.hash),
        event.payload,
    )


def event_from(branch_id: BranchId, row: Row, prev_hash: str) -> Event:
    """Return the event of a row of ``erased`` and `EVENT_COLUMNS`."""
    (
        erased,
        seq,
        event_id,
        event_type,
        turn,
        ts,
        correlation_id,
        causation_id,
        payload_ref,
        payload_sha256,
        payload,
        digest,
    ) = row
    return Event(
        branch_id,
        seq,
        event_id,
        event_type,
        turn,
        ts,
        payload,
        payload_ref,
        payload_sha256.hex() if payload is None else sha256(payload).hexdigest(),
        correlation_id,
        causation_id,
        prev_hash,
        HASH_PREFIX + digest.hex(),
        erased=bool(erased),
    )


def session_from(row: Row) -> Session:
    """Return the session of a row of `SESSION_COLUMNS`.

    Raises:
        Corrupt: it has a name that is no text: SQLite does not enforce the types of columns.
    """
    session = Session(*row)
    if type(session.name) is not str or type(session.namespace) is not str:
        raise Corrupt(f"the row of session {session.session_id!r} is damaged: it has a name that is no text")
    return session


def branch_from(row: Row) -> Branch:
    """Return the branch of a row of `BRANCH_COLUMNS`."""
    branch_id, session_id, parent_branch_id, parent_seq, created_ms, seq, event_id, digest, turn, folded_seq, ts = row
    head = Head(branch_id, seq, event_id, hash_text(digest), turn, ts)
    return Branch(branch_id, session_id, parent_branch_id, parent_seq, head, created_ms, folded_seq)


def catalogue_entry_from(session_id: SessionId, row: Row, prev_hash: str) -> CatalogueEntry:
    """Return the entry of a row of `CATALOGUE_COLUMNS`."""
    number, change, branch_id, parent_branch_id, seq, branch_hash, ts, digest = row
    return CatalogueEntry(
        session_id,
        number,
        BranchChange(change),
        branch_id,
        parent_branch_id,
        seq,
        hash_text(branch_hash),
        ts,
        prev_hash,
        hash_text(digest),
    )


def headers_bytes(headers: JsonObject | None) -> bytes | None:
    """Return a message's headers as they are stored.

    Raises:
        InvalidInput: they are not JSON.
    """
    return encode(headers) if headers is not None else None


def _headers_from(data: bytes | None) -> JsonObject | None:
    return cast("JsonObject", decode(bytes(data))) if data is not None else None


def inbox_message_from(row: Row) -> InboxMessage:
    """Return the message of a row of `INBOX_COLUMNS`."""
    session_id, position, message_id, key, sender, body, admitted_ms, attempts, status, headers = row
    return InboxMessage(
        session_id,
        position,
        message_id,
        key,
        sender,
        body,
        admitted_ms,
        attempts,
        _STATUSES[status],
        _headers_from(headers),
    )


def outbox_row(message: OutboxMessage) -> Row:
    """Return the row of `OUTBOX_COLUMNS` of a message."""
    headers = headers_bytes(message.headers)
    return (
        message.message_id,
        message.target,
        message.body,
        message.created_ms,
        message.sender,
        message.namespace,
        headers,
    )


def outbox_message_from(row: Row) -> OutboxMessage:
    """Return the message of a row of `OUTBOX_COLUMNS`."""
    message_id, target, body, created_ms, sender, namespace, headers = row
    return OutboxMessage(message_id, target, body, created_ms, sender, namespace, _headers_from(headers))


def tombstone_from(row: Row) -> Tombstone:
    """Return the tombstone of a row of `TOMBSTONE_COLUMNS`."""
    session_id, name, deleted_ms, events, digest, namespace = row
    return Tombstone(session_id, name, deleted_ms, events, hash_text(digest), namespace)


def lease_from(session_id: SessionId, row: Row) -> Lease | None:
    """Return the lease of a row ``holder, epoch, expires_ms``."""
    holder, epoch, expires_ms = row
    return Lease(session_id, holder, epoch, expires_ms) if holder is not None else None
