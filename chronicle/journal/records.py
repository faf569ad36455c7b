"""What a journal holds, as frozen values: sessions, branches, heads, events, messages, leases, snapshots.

Nothing here does I/O. All times are epoch milliseconds, all hashes the text form that is shown to users.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronicle.canonical import Json
    from chronicle.ids import BlobId, BranchId, EventId, MessageId, SessionId

__all__ = [
    "Branch",
    "BranchChange",
    "CatalogueEntry",
    "Commit",
    "Draft",
    "Event",
    "Head",
    "InboxMessage",
    "Lease",
    "MessageStatus",
    "NewMessage",
    "OutboxMessage",
    "Outcome",
    "Receipt",
    "Session",
    "Settlement",
    "Snapshot",
    "Tombstone",
]


@dataclass(frozen=True, slots=True)
class Session:
    """A container of branches, found by id or by its unique name (an agent's address, for an agent's session)."""

    session_id: SessionId
    name: str
    main_branch_id: BranchId
    created_ms: int


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a branch: what the next append must name to be accepted."""

    branch_id: BranchId
    seq: int
    """The branch's version: the ``seq`` of its last event, the parent's events counted; 0 when there is none."""
    event_id: EventId | None
    hash: str
    """The last event's hash; the branch's genesis hash when there is none."""
    turn: int
    """The number of turns committed so far."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of events that may continue another one from a given event on."""

    branch_id: BranchId
    session_id: SessionId
    parent_branch_id: BranchId | None
    parent_seq: int
    """Events 1 to ``parent_seq`` are read from the parent; 0 without a parent."""
    head: Head
    created_ms: int
    folded_seq: int = 0
    """Events up to this one were folded and are not there any more; nothing is read from the parent then. 0: none."""


class BranchChange(StrEnum):
    """What a catalogue entry says of a branch."""

    CREATED = "created"
    FOLDED = "folded"
    """Its older events were dropped; it begins with an event that holds all that came before."""
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One entry of a session's catalogue: the chained list of branches that were made, folded and deleted.

    ``hash`` covers every other field, so a branch that vanished without an entry is noticed.
    """

    session_id: SessionId
    number: int
    """From 1."""
    change: BranchChange
    branch_id: BranchId
    parent_branch_id: BranchId | None
    seq: int
    """The seq that the branch began on top of, was folded up to, or ended with."""
    branch_hash: str
    """The hash of the event there; for a branch that began without a parent its genesis hash."""
    ts: int
    prev_hash: str
    hash: str


@dataclass(frozen=True, slots=True)
class Draft:
    """An event that has no place yet."""

    event_id: EventId
    type: str
    payload: Json
    turn: int
    ts: int
    correlation_id: str | None = None
    """What it belongs to: for all events of a turn, the id of the message that the turn handled."""
    causation_id: str | None = None
    """The event or message that made it happen."""


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
    """Canonical JSON; ``None`` when it is out of line (``payload_ref``) or was erased."""
    payload_ref: BlobId | None
    payload_sha256: str
    """64 hex digits, of the payload's canonical bytes wherever they are; kept when the payload is erased."""
    correlation_id: str | None
    causation_id: str | None
    prev_hash: str
    hash: str
    erased: bool = False
    """The payload was erased, out of line too. Not covered by the hash: erasing leaves the chain as it is."""


class MessageStatus(StrEnum):
    """Where a message stands."""

    PENDING = "pending"
    CONSUMED = "consumed"
    CANCELLED = "cancelled"
    PARKED = "parked"

    @property
    def is_settled(self) -> bool:
        """Whether no further attempt follows by itself: consumed, cancelled or parked."""
        return self is not MessageStatus.PENDING

    @property
    def is_in_inbox(self) -> bool:
        """Whether the message can still be cancelled: pending or parked."""
        return self in (MessageStatus.PENDING, MessageStatus.PARKED)


class Outcome(StrEnum):
    """What a commit says of a message."""

    CONSUMED = "consumed"
    """Handled; it leaves the inbox and its body is dropped."""
    CANCELLED = "cancelled"
    """Its sender took it back; it leaves the inbox."""
    FAILED = "failed"
    """One more attempt is counted; it stays where it is."""
    PARKED = "parked"
    """One more attempt is counted, and it is set aside, visible and retriable."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """One message and what became of it in a commit."""

    message_id: MessageId
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message on its way into an inbox."""

    message_id: MessageId
    body: bytes
    """Canonical JSON."""
    admitted_ms: int
    idempotency_key: str | None = None
    sender: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """A message's place in an inbox: the answer to admission, the same for a repeat of the same message."""

    session_id: SessionId
    message_id: MessageId
    position: int
    """From 1, growing by one for each message admitted to this session, never reused."""
    repeated: bool
    """True when the same idempotency key and body were admitted before."""


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


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """A message that a commit sends: durable with it, delivered after it, at least once."""

    message_id: MessageId
    """Also the idempotency key under which the receiver admits it."""
    target: str
    """The name of the receiving session."""
    body: bytes
    """Canonical JSON."""
    created_ms: int
    sender: str | None = None
    """The name of the sending session, as the receiver's inbox will have it."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Derived data: what replaying a branch up to ``seq`` gives, so that opening need not replay.

    The body is opaque to the journal. Stores keep it in content-defined chunks, so that consecutive snapshots of a
    slowly growing body share what they have in common.
    """

    branch_id: BranchId
    seq: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """One atomic append to a branch: all of it becomes durable, or none.

    The caller seals the events with :func:`chronicle.journal.chain.seal` on top of ``expected``; the store checks the
    head and the epoch, and writes what it was given.
    """

    session_id: SessionId
    expected: Head
    events: tuple[Event, ...]
    epoch: int | None
    """The lease under which this is written; ``None`` only for sessions that no lease was ever taken on."""
    settled: tuple[Settlement, ...] = ()
    outbox: tuple[OutboxMessage, ...] = ()
    snapshot: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a session's agent branch, until it runs out or a higher epoch is given."""

    session_id: SessionId
    holder: str
    epoch: int
    """From 1; it only grows."""
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of a session that was deleted."""

    session_id: SessionId
    name: str
    """Free to be used again."""
    deleted_ms: int
    events: int
    """How many events were deleted with it."""
    catalogue_hash: str
    """The hash of its catalogue's last entry: a copy that was kept elsewhere can be told to be this session's."""
