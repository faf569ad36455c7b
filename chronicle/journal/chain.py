"""The hash chain: sealing events so that no change of them goes unseen, and checking that none happened.

An event's hash is ``"v1:"`` and the hex SHA-256 of the canonical JSON array ::

    ["chronicle.event.v1", branch_id, seq, event_id, type, turn, ts,
     payload_sha256, payload_ref, correlation_id, causation_id, prev_hash]

A JSON array keeps its elements apart whatever they hold (an absent one is ``null``), and any language can rebuild it.
The payload enters as its SHA-256, so the chain still verifies after the payload was moved out of line or erased.
``prev_hash`` is the hash of the event before, in the parent for the first event of a fork, and the branch's genesis
hash for the first event of all. The catalogue of a session's branches is chained in the same way.

Everything here is pure.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import orjson

from chronicle.blobs.ident import blob_id
from chronicle.canonical import encode
from chronicle.errors import Corrupt, InvalidInput
from chronicle.journal.records import Event, Head

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
"""Says how the hash was made; part of the text that the next event's hash covers."""
MAX_SEQ: Final = 2**31 - 1
"""Most events in one branch: stores put branch and seq into one 64-bit key."""

MAX_INLINE: Final = 64 * 1024
"""Largest payload, in bytes, that is kept in the event when there is a place for larger ones."""

_EVENT: Final = "chronicle.event.v1"
_BRANCH: Final = "chronicle.branch.v1"
_CATALOGUE: Final = "chronicle.catalogue.v1"
_CATALOGUE_ENTRY: Final = "chronicle.catalogue-entry.v1"
_MAX_INT: Final = 2**63 - 1


def genesis_hash(branch_id: BranchId) -> str:
    """Return what the first event of a branch without a parent has as its ``prev_hash``."""
    return HASH_PREFIX + sha256(orjson.dumps((_BRANCH, branch_id))).hexdigest()


def empty_head(branch_id: BranchId) -> Head:
    """Return the head of a branch that has neither events nor a parent."""
    return Head(branch_id, 0, None, genesis_hash(branch_id), 0)


def check_base(head: Head) -> None:
    """Check that a head can be what a branch begins after.

    Raises:
        InvalidInput: it cannot.
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


def event_digest(
    branch_id: str,
    seq: int,
    event_id: str,
    event_type: str,
    turn: int,
    ts: int,
    payload_sha256: str | None,
    payload_ref: str | None,
    correlation_id: str | None,
    causation_id: str | None,
    prev_hash: str,
) -> str:
    """Return the 64 hex digits of the event's hash, without its prefix.

    Raises:
        TypeError: a value is not of its type, as a damaged table may give it.
    """
    return sha256(
        # Text, integers of 64 bits and None: orjson writes them canonically, with no pass before.
        orjson.dumps(
            (
                _EVENT,
                branch_id,
                seq,
                event_id,
                event_type,
                turn,
                ts,
                payload_sha256,
                payload_ref,
                correlation_id,
                causation_id,
                prev_hash,
            )
        )
    ).hexdigest()


def event_hash(event: Event) -> str:
    """Return the hash that an event must have, from all its other fields."""
    return HASH_PREFIX + event_digest(
        event.branch_id,
        event.seq,
        event.event_id,
        event.type,
        event.turn,
        event.ts,
        event.payload_sha256,
        event.payload_ref,
        event.correlation_id,
        event.causation_id,
        event.prev_hash,
    )


def seal(
    expected: Head, drafts: Sequence[Draft], out_of_line: MutableMapping[BlobId, bytes] | None = None
) -> tuple[Event, ...]:
    """Give drafts their places on top of a head, and their hashes.

    Args:
        out_of_line: payloads over `MAX_INLINE` are put here, and their events name them. They must be in the blob
            store, durably, before the events are committed. Without it all payloads stay in their events.

    Raises:
        InvalidInput: a payload is not JSON, an id or type is empty or not text, or a turn is lower than the one
            before it (an event that reports a failed try has the turn committed last).
    """
    events: list[Event] = []
    branch_id, seq, turn, prev_hash = expected.branch_id, expected.seq, expected.turn, expected.hash
    if seq + len(drafts) > MAX_SEQ:
        raise InvalidInput(f"branch {branch_id} would grow over {MAX_SEQ} events")
    for draft in drafts:
        seq += 1
        if not turn <= draft.turn <= _MAX_INT or not -_MAX_INT <= draft.ts <= _MAX_INT:
            raise InvalidInput(f"event {draft.event_id}: turn {draft.turn} at {draft.ts} ms cannot follow turn {turn}")
        if not draft.event_id or not draft.type or draft.correlation_id == "" or draft.causation_id == "":
            raise InvalidInput(f"event {draft.event_id!r}: an id or type that is given must not be empty")
        turn = draft.turn
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
                draft.ts,
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
            draft.ts,
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
    """Return the head once sealed events were appended to it.

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
    return Head(head.branch_id, last.seq, last.event_id, last.hash, last.turn)


def check_events(before: Head, events: Iterable[Event]) -> Head:
    """Check that events follow a head and each other with nothing changed, and return the head after them.

    Events of a parent may come first; ``before.branch_id`` is not looked at.

    Raises:
        Corrupt: for the first event that does not; the message names it and says why.
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
        head = Head(event.branch_id, event.seq, event.event_id, event.hash, event.turn)
    return head


def catalogue_genesis(session: Session) -> str:
    """Return what the first entry of a session's catalogue has as its ``prev_hash``; it covers the session's record."""
    record = (_CATALOGUE, session.session_id, session.name, session.main_branch_id, session.created_ms)
    return HASH_PREFIX + sha256(orjson.dumps(record)).hexdigest()


def catalogue_hash(entry: CatalogueEntry) -> str:
    """Return the hash that an entry must have, from all its other fields."""
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
    """Return a catalogue entry with the hash it must have."""
    return replace(entry, hash=catalogue_hash(entry))
