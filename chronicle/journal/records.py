"""The records of a journal, as frozen values, from sessions and branches to leases and snapshots.

Nothing here does I/O. All times are epoch milliseconds, all hashes are in the text form that users see.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import BlobId, BranchId, EventId, MessageId, SessionId

__all__ = [
    "DEFAULT_NAMESPACE",
    "NO_FILTER",
    "ROW_BYTES",
    "Backlog",
    "Branch",
    "BranchChange",
    "CatalogueEntry",
    "Commit",
    "Draft",
    "DropReminder",
    "Event",
    "Head",
    "InboxMessage",
    "InboxWrite",
    "Lease",
    "MessageStatus",
    "NewMessage",
    "OutboxEnvelope",
    "OutboxMessage",
    "Outcome",
    "PauseEnd",
    "PausedMessage",
    "Receipt",
    "RecordUsage",
    "Reminder",
    "Session",
    "SessionFilter",
    "SessionSummary",
    "SetReminder",
    "Settlement",
    "Snapshot",
    "StepWrite",
    "StoredStep",
    "Tombstone",
]


DEFAULT_NAMESPACE: Final = "default"
"""The namespace of session names where none is given."""
ROW_BYTES: Final = 256
"""Bytes of a record in `RecordUsage` beside its payload or body: about those of ids, times and hashes."""


@dataclass(frozen=True, slots=True)
class Session:
    """A container of branches, found by id or by its name, which is unique in its namespace.

    An agent's session has the agent's ``type/key`` as its name, in the namespace of the agent's tenant.
    """

    session_id: SessionId
    name: str
    main_branch_id: BranchId
    created_ms: int
    namespace: str = DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a branch, which the next append must name."""

    branch_id: BranchId
    seq: int
    """The branch's version: the ``seq`` of its last event, the parent's events counted; 0 when there is none."""
    event_id: EventId | None
    hash: str
    """The last event's hash; the branch's genesis hash when there is none."""
    turn: int
    """The number of turns committed so far."""
    ts: int | None = field(default=None, compare=False)
    """The time of the last event, epoch milliseconds: later ones have no lower time. ``None`` if it is not known."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of events, which may continue another branch from a given event on."""

    branch_id: BranchId
    session_id: SessionId
    parent_branch_id: BranchId | None
    parent_seq: int
    """Events 1 to ``parent_seq`` are read from the parent; 0 without a parent."""
    head: Head
    created_ms: int
    folded_seq: int = 0
    """Events up to this seq were folded: they no longer exist, and nothing is read from the parent. 0: none."""


class BranchChange(StrEnum):
    """The kind of a catalogue entry."""

    CREATED = "created"
    FOLDED = "folded"
    """Its older events were dropped; its first event holds the state before it."""
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One entry of a session's catalogue: the chained list of branches created, folded and deleted.

    ``hash`` covers every other field, so a branch that disappeared without an entry is detected.
    """

    session_id: SessionId
    number: int
    """From 1."""
    change: BranchChange
    branch_id: BranchId
    parent_branch_id: BranchId | None
    seq: int
    """The seq at which the branch was created, up to which it was folded, or with which it ended."""
    branch_hash: str
    """The hash of that event; the genesis hash for a branch created without a parent."""
    ts: int
    prev_hash: str
    hash: str


@dataclass(frozen=True, slots=True)
class Draft:
    """An event without a place in a branch."""

    event_id: EventId
    type: str
    payload: Json
    turn: int
    ts: int
    correlation_id: str | None = None
    """The common id of related events: for all events of a turn, the id of the handled message."""
    causation_id: str | None = None
    """The event or message that caused it."""


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a branch. ``hash`` covers every other field but ``erased``, the payload as its SHA-256."""

    branch_id: BranchId
    seq: int
    event_id: EventId
    type: str
    turn: int
    ts: int
    payload: bytes | None
    """Canonical JSON; ``None`` if it is out of line (``payload_ref``) or was erased."""
    payload_ref: BlobId | None
    payload_sha256: str
    """64 hex digits: the digest of the payload's canonical bytes, inline or out of line. Erasing keeps it."""
    correlation_id: str | None
    causation_id: str | None
    prev_hash: str
    hash: str
    erased: bool = False
    """The payload was erased, out of line too. Not covered by the hash: erasing leaves the chain valid."""


class MessageStatus(StrEnum):
    """The status of a message."""

    PENDING = "pending"
    CONSUMED = "consumed"
    CANCELLED = "cancelled"
    PARKED = "parked"
    PAUSED = "paused"
    """Its handling waits for an answer. It is the head of its inbox: no message behind it is pending meanwhile."""

    @property
    def is_settled(self) -> bool:
        """Whether its handling is over, unless it is put back: consumed, cancelled or parked."""
        return self not in (MessageStatus.PENDING, MessageStatus.PAUSED)

    @property
    def is_in_inbox(self) -> bool:
        """Whether the message can still be cancelled: pending, paused or parked."""
        return self in (MessageStatus.PENDING, MessageStatus.PAUSED, MessageStatus.PARKED)


class Outcome(StrEnum):
    """The outcome of a message in a commit."""

    CONSUMED = "consumed"
    """Handled; it leaves the inbox and its body is dropped."""
    CANCELLED = "cancelled"
    """Its sender withdrew it; it leaves the inbox."""
    FAILED = "failed"
    """One more attempt is counted; it stays pending."""
    PARKED = "parked"
    """One more attempt is counted, and it is set aside, visible and retriable."""
    PAUSED = "paused"
    """No attempt is counted. It waits for `PauseEnd`, and so do the messages behind it."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """A message and its outcome in a commit."""

    message_id: MessageId
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to admit."""

    message_id: MessageId
    body: bytes
    """Canonical JSON."""
    admitted_ms: int
    idempotency_key: str | None = None
    sender: str | None = None
    headers: JsonObject | None = None
    """Headers of the message. A repeat may have others; those of the first admission stay."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of an admission: a message's place in an inbox. A repeat of the message gets the same place."""

    session_id: SessionId
    message_id: MessageId
    position: int
    """From 1; each admission to the session adds one. Never reused."""
    repeated: bool
    """True when the same idempotency key and body were admitted before."""
    before: int | None = field(default=None, compare=False)
    """Pending messages ahead of it at its admission, if that was seen at no cost."""


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """A message in an inbox."""

    session_id: SessionId
    position: int
    message_id: MessageId
    idempotency_key: str | None
    sender: str | None
    body: bytes | None
    """Canonical JSON; ``None`` once consumed or cancelled."""
    admitted_ms: int
    attempts: int
    status: MessageStatus
    headers: JsonObject | None = None
    """As admitted; kept after the body was dropped."""


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A message sent by a commit: durable with it, delivered after it, at least once."""

    message_id: MessageId
    """Also the idempotency key under which the receiver admits it."""
    target: str
    """The name of the receiving session, in the sender's namespace."""
    body: bytes
    """Canonical JSON."""
    created_ms: int
    sender: str | None = None
    """The sender as the receiver's inbox shows it."""
    namespace: str = DEFAULT_NAMESPACE
    """The namespace of both sessions."""
    headers: JsonObject | None = None
    """The headers with which the receiver admits it."""


@dataclass(frozen=True, slots=True)
class OutboxEnvelope:
    """A message in the outbox, without its body: what decides whether it can be delivered."""

    message_id: MessageId
    target: str
    created_ms: int
    namespace: str = DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class StoredStep:
    """The durable result of a part of the handling of a pending message.

    It is dropped when the message is consumed or cancelled, and kept when an attempt fails or the message is parked.
    """

    message_id: MessageId
    number: int
    """From 1, in the order in which the steps of the message ended."""
    key: str
    """The name by which the next attempt finds it."""
    body: bytes
    """Opaque to the journal."""


@dataclass(frozen=True, slots=True)
class PauseEnd:
    """The end of the pause of a message: a step gets what the message waits for."""

    message_id: MessageId
    number: int
    """Of the step."""
    before: bytes
    """The step's body while the message is paused. Another body, and the pause is another one."""
    after: bytes
    """Its body from now on."""
    from_ms: int | None = None
    """The first moment at which it may end, by the journal's clock; ``None`` for any."""
    until_ms: int | None = None
    """The moment, by the journal's clock, from which on it may not; ``None`` for any."""
    reminder: str | None = None
    """The name of a reminder of the session that is dropped."""


@dataclass(frozen=True, slots=True)
class PausedMessage:
    """A paused message, as a list shows it."""

    session: Session
    message: InboxMessage
    step: StoredStep | None
    """Its last step; ``None`` without any."""
    place: int
    """Its place in the list of all paused messages."""


@dataclass(frozen=True, slots=True)
class InboxWrite:
    """A message to admit with others (`JournalStore.admit_many`)."""

    session_id: SessionId
    message: NewMessage
    limit: int = 1000
    """As of `JournalStore.admit`."""


@dataclass(frozen=True, slots=True)
class StepWrite:
    """A step to store with other writes (`JournalStore.commit_many`)."""

    session_id: SessionId
    step: StoredStep
    epoch: int | None
    """As in a `Commit`."""


@dataclass(frozen=True, slots=True)
class Reminder:
    """A message that a session is to get at a given time."""

    session_id: SessionId
    name: str
    """Unique in the session."""
    due_ms: int
    body: bytes
    """Opaque to the journal: what is to be sent, and when again."""


@dataclass(frozen=True, slots=True)
class SetReminder:
    """A reminder that a commit makes, or puts in place of the one of that name."""

    name: str
    due_ms: int
    body: bytes


@dataclass(frozen=True, slots=True)
class DropReminder:
    """A reminder that a commit removes, if there is one of that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Derived data: the result of replaying a branch up to ``seq``, so that opening it need not replay.

    The body is opaque to the journal. Stores keep it in content-defined chunks, so that consecutive snapshots of a
    slowly growing body share chunks.
    """

    branch_id: BranchId
    seq: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """One atomic append to a branch: all of it becomes durable, or none.

    The caller seals the events with :func:`chronicle.journal.chain.seal` on top of ``expected``; the store checks the
    head and the epoch, and writes the events unchanged.
    """

    session_id: SessionId
    expected: Head
    events: tuple[Event, ...]
    epoch: int | None
    """The epoch of the writer's lease; ``None`` only for sessions on which no lease was ever acquired."""
    settled: tuple[Settlement, ...] = ()
    outbox: tuple[OutboxMessage, ...] = ()
    snapshot: Snapshot | None = None
    reminders: tuple[SetReminder | DropReminder, ...] = ()
    """Applied in this order."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a session's agent branch, until it expires or a higher epoch is issued."""

    session_id: SessionId
    holder: str
    epoch: int
    """From 1; it only grows."""
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The record of a deleted session."""

    session_id: SessionId
    name: str
    """The name is free for a new session."""
    deleted_ms: int
    events: int
    """The number of events deleted with it."""
    catalogue_hash: str
    """The hash of its catalogue's last entry, which identifies a copy of this session that was kept elsewhere."""
    namespace: str = DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class Backlog:
    """Numbers of waiting records of a journal, over all sessions."""

    sessions: int
    """Sessions that have a name of their own, other than their id."""
    pending: int
    """Pending messages."""
    oldest_pending_ms: int | None
    """When the oldest of them was admitted; ``None`` without one."""
    parked: int
    """Parked messages."""
    outbox: int
    """Messages that were committed and not yet delivered."""
    oldest_outbox_ms: int | None
    """When the oldest of them was committed; ``None`` without one."""


@dataclass(frozen=True, slots=True)
class RecordUsage:
    """Sizes of the records of a namespace, but for snapshots, which are derived from them."""

    size_bytes: int
    """Payloads of events, bodies of messages that wait or were sent, of steps, reminders and objects; and `ROW_BYTES`
    for each of them, and for each branch."""
    payloads: Sequence[BlobId]
    """The blobs of payloads that are out of line, one for each event. Blobs of objects are in `object_bytes`."""


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session as a list shows it."""

    session: Session
    head: Head
    """Of its main branch."""
    last_ms: int | None
    """The time of the head's event; ``None`` without one."""
    lease: Lease | None
    """As last acquired, expired or not; ``None`` if released or never acquired."""
    pending: int
    """Pending messages."""
    parked: int
    """Parked messages."""


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Filter of a list of sessions, beside the beginning of their names."""

    with_slash: bool = False
    """Whether their names have a slash, as those of agents do."""
    leased_at_ms: int | None = None
    """A time at which a lease on each is in force; ``None`` for leased and released ones."""


NO_FILTER: Final = SessionFilter()
"""All sessions."""
