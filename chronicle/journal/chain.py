"""The hash chain: sealing events so that every later change is detectable, and checking the chain.

An event's hash is ``"v1:"`` and the hex SHA-256 of the canonical JSON array ::

    ["chronicle.event.v1", branch_id, seq, event_id, type, turn, ts,
     payload_sha256, payload_ref, correlation_id, causation_id, prev_hash]

A JSON array separates its elements unambiguously (an absent one is ``null``), and any language can build it.
The payload enters as its SHA-256, so the chain still verifies after the payload is erased, and whether it is inline or
out of line. ``prev_hash`` is the hash of the previous event: for the first event of a fork that of an event of the
parent, for the first event of a branch without a parent the branch's genesis hash. The catalogue of a session's
branches is chained in the same way.

Everything here is pure.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import orjson

from chronicle.blobs.ident import blob_id
from chronicle.canonical import encode
from chronicle.errors import Corrupt, InvalidInput
from chronicle.journal.records import DEFAULT_NAMESPACE, Event, Head

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping, Sequence

    from chronicle.ids import BlobId, BranchId
    from chronicle.journal.records import CatalogueEntry, Draft, Session

__all__ = [
    "HASH_PREFIX",
    "MAX_INLINE",
    "MAX_SEQ",
    "catalogue_genesis",
    "catalogue_hash",
    "check_base",
    "check_events",
    "empty_head",
    "event_digest",
    "event_hash",
    "genesis_hash",
    "head_after",
    "payload_digest",
    "seal",
    "seal_entry",
]

HASH_PREFIX: Final = "v1:"
"""The version of the hash function; part of the text that the next event's hash covers."""
MAX_SEQ: Final = 2**31 - 1
"""Most events in one branch: stores combine branch key and seq in one 64-bit key."""

MAX_INLINE: Final = 64 * 1024
"""Largest inline payload, in bytes, if larger ones can be stored out of line."""

_EVENT: Final = "chronicle.event.v1"
_HASHED: Final = (
    *("branch_id", "seq", "event_id", "type", "turn", "ts"),
    *("payload_sha256", "payload_ref", "correlation_id", "causation_id", "prev_hash"),
)
"""The fields of an event that its hash covers."""
_hashed_fields: Final = attrgetter(*_HASHED)
_BRANCH: Final = "chronicle.branch.v1"
_CATALOGUE: Final = "chronicle.catalogue.v1"
_CATALOGUE_IN_NAMESPACE: Final = "chronicle.catalogue.v2"
_CATALOGUE_ENTRY: Final = "chronicle.catalogue-entry.v1"
_MAX_INT: Final = 2**63 - 1


def genesis_hash(branch_id: BranchId) -> str:
    """Return the ``prev_hash`` of the first event of a branch without a parent."""
    return HASH_PREFIX + sha256(orjson.dumps((_BRANCH, branch_id))).hexdigest()


def empty_head(branch_id: BranchId) -> Head:
    """Return the head of a branch without events and without a parent."""
    return Head(branch_id, 0, None, genesis_hash(branch_id), 0)


def check_base(head: Head) -> None:
    """Check that a branch can start after a head.

    Raises:
        InvalidInput: the head is not the place of an event.
    """
    digest = head.hash.removeprefix(HASH_PREFIX)
    is_hash = head.hash.startswith(HASH_PREFIX) and len(digest) == 64 and set(digest) <= set("0123456789abcdef")
    if not 0 < head.seq < MAX_SEQ or not 0 <= head.turn <= _MAX_INT or not is_hash:
        raise InvalidInput(
            f"event {head.seq} of turn {head.turn} with the hash {head.hash!r} is nothing to begin after"
        )


def payload_digest(payload: bytes) -> str:
    """Return the SHA-256 of a payload's canonical bytes, as 64 hex digits."""
    return sha256(payload).hexdigest()


def event_digest(*fields: str | int | None) -> str:
    """Return the 64 hex digits of an event's hash, without its prefix.

    Args:
        fields: the values of `_HASHED`, in this order.

    Raises:
        TypeError: a value has a wrong type, as in a damaged table.
    """
    # orjson writes text, 64-bit integers and None canonically, so no conversion is needed.
    return sha256(orjson.dumps((_EVENT, *fields))).hexdigest()


def event_hash(event: Event) -> str:
    """Compute an event's hash from its other fields."""
    return HASH_PREFIX + event_digest(*_hashed_fields(event))


def seal(
    expected: Head, drafts: Sequence[Draft], out_of_line: MutableMapping[BlobId, bytes] | None = None
) -> tuple[Event, ...]:
    """Assign seqs and hashes to drafts on top of a head.

    An event's time is not lower than that of the event before it: the clock of a machine that goes on with a branch may
    be behind that of the machine before.

    Args:
        out_of_line: receives payloads over `MAX_INLINE`, which their events reference. The caller must make them
            durable in the blob store before it commits the events. Without it all payloads are inline.

    Raises:
        InvalidInput: a payload is not JSON, an id or type is empty or not text, or a turn is lower than the one
            before it (an event that reports a failed try has the turn committed last).
    """
    events: list[Event] = []
    branch_id, seq, turn, prev_hash = expected.branch_id, expected.seq, expected.turn, expected.hash
    ts = expected.ts if expected.ts is not None else -_MAX_INT
    if seq + len(drafts) > MAX_SEQ:
        raise InvalidInput(f"branch {branch_id} would grow over {MAX_SEQ} events")
    for draft in drafts:
        seq += 1
        if not turn <= draft.turn <= _MAX_INT or not -_MAX_INT <= draft.ts <= _MAX_INT:
            raise InvalidInput(f"event {draft.event_id}: turn {draft.turn} at {draft.ts} ms cannot follow turn {turn}")
        if not draft.event_id or not draft.type or draft.correlation_id == "" or draft.causation_id == "":
            raise InvalidInput(f"event {draft.event_id!r}: an id or type that is given must not be empty")
        turn, ts = draft.turn, max(ts, draft.ts)
        try:
            payload = encode(draft.payload)
        except InvalidInput as error:
            raise InvalidInput(f"payload of {draft.type} {draft.event_id}: {error}") from None
        payload_sha256 = sha256(payload).hexdigest()
        payload_ref = None
        if out_of_line is not None and len(payload) > MAX_INLINE:
            payload_ref = blob_id(payload)
            out_of_line[payload_ref] = payload
        try:
            digest = event_digest(
                branch_id,
                seq,
                draft.event_id,
                draft.type,
                turn,
                ts,
                payload_sha256,
                payload_ref,
                draft.correlation_id,
                draft.causation_id,
                prev_hash,
            )
        except TypeError as error:
            raise InvalidInput(f"event {draft.event_id!r} of type {draft.type!r}: {error}") from error
        event = Event(
            branch_id,
            seq,
            draft.event_id,
            draft.type,
            turn,
            ts,
            payload if payload_ref is None else None,
            payload_ref,
            payload_sha256,
            draft.correlation_id,
            draft.causation_id,
            prev_hash,
            HASH_PREFIX + digest,
        )
        prev_hash = event.hash
        events.append(event)
    return tuple(events)


def head_after(head: Head, events: Sequence[Event]) -> Head:
    """Return the head after sealed events are appended.

    Raises:
        InvalidInput: the events were not sealed on top of this head, in this order.
    """
    seq, prev_hash = head.seq, head.hash
    for event in events:
        seq += 1
        if event.seq != seq or event.prev_hash != prev_hash or event.branch_id != head.branch_id:
            raise InvalidInput(f"event {event.event_id} was not sealed as event {seq} of branch {head.branch_id}")
        prev_hash = event.hash
    if not events:
        return head
    last = events[-1]
    return Head(head.branch_id, last.seq, last.event_id, last.hash, last.turn, last.ts)


def check_events(before: Head, events: Iterable[Event]) -> Head:
    """Check that events continue the chain from a head unchanged, and return the head after them.

    Events of a parent may come first; ``before.branch_id`` is ignored.

    Raises:
        Corrupt: an event does not; the message names the first one and the reason.
    """
    head = before
    for event in events:
        where = f"branch {event.branch_id} seq {event.seq} ({event.event_id})"
        if event.seq != head.seq + 1:
            raise Corrupt(f"{where}: follows seq {head.seq}; events are missing or out of order")
        if event.prev_hash != head.hash:
            raise Corrupt(f"{where}: does not follow the event before it")
        if event.payload is not None and payload_digest(event.payload) != event.payload_sha256:
            raise Corrupt(f"{where}: its payload was changed")
        if event_hash(event) != event.hash:
            raise Corrupt(f"{where}: its content does not have its hash")
        head = Head(event.branch_id, event.seq, event.event_id, event.hash, event.turn, event.ts)
    return head


def catalogue_genesis(session: Session) -> str:
    """Return the ``prev_hash`` of the first entry of a session's catalogue; it covers the session's record.

    The default namespace is left out: its sessions have the hashes that they had before there were namespaces.
    """
    fields = (session.session_id, session.name, session.main_branch_id, session.created_ms)
    if session.namespace == DEFAULT_NAMESPACE:
        record = orjson.dumps((_CATALOGUE, *fields))
    else:
        record = orjson.dumps((_CATALOGUE_IN_NAMESPACE, *fields, session.namespace))
    return HASH_PREFIX + sha256(record).hexdigest()


def catalogue_hash(entry: CatalogueEntry) -> str:
    """Compute an entry's hash from its other fields."""
    return (
        HASH_PREFIX
        + sha256(
            orjson.dumps(
                (
                    _CATALOGUE_ENTRY,
                    entry.session_id,
                    entry.number,
                    entry.change,
                    entry.branch_id,
                    entry.parent_branch_id,
                    entry.seq,
                    entry.branch_hash,
                    entry.ts,
                    entry.prev_hash,
                )
            )
        ).hexdigest()
    )


def seal_entry(entry: CatalogueEntry) -> CatalogueEntry:
    """Return a catalogue entry with its computed hash."""
    return replace(entry, hash=catalogue_hash(entry))
