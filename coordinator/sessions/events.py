"""Events of branches: appending one, and reading them.

An append names the version and the last event of the branch as its client knows them; both must be so when it is
written. The system appends nothing to a branch of a client.

The payload of a stored event is a JSON object with ``payload``, or ``payload_ref``, or neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chronicle.canonical import decode, encode
from chronicle.errors import BranchVersionConflict, IdempotencyConflict, InvalidInput, NotFound
from chronicle.journal.chain import payload_digest
from chronicle.journal.payloads import payload_bytes, payload_of, seal_durably
from chronicle.journal.records import Commit, Draft
from coordinator.operations.cursors import cursor_after, place_after
from coordinator.operations.errors import UnknownBranch, UnknownEventType
from coordinator.sessions.artifacts import find_artifact
from coordinator.sessions.finding import find_branch, find_session, is_of_client, writable
from coordinator.sessions.objects import EVENT_TYPES
from coordinator.sessions.repetition import event_id_of

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.canonical import Json, JsonObject
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.events import EventRecords
    from chronicle.journal.records import Branch, Event, Session
    from coordinator.sessions.objects import SessionEventObject, SessionEventPage
    from coordinator.sessions.write_request import WriteRequest

__all__ = ["NewEvent", "append_event", "event_object", "event_page", "payload_and_ref"]

_PAGE_BYTES: Final = 8 * 1024 * 1024
"""After so many bytes of payloads a page ends, whatever its limit."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to append, and where."""

    expected_version: int
    expected_head_event_id: str | None
    event_type: str
    payload: Any = None
    payload_ref: str | None = None

    def check(self) -> None:
        """Check what can be checked without a journal.

        Raises:
            UnknownEventType: it is none of the six public types.
            InvalidInput: there are two payloads.
        """
        if self.event_type not in EVENT_TYPES:
            types = ", ".join(EVENT_TYPES)
            raise UnknownEventType(
                f"{self.event_type!r} is no type of events of clients; there are {types}", "event.event_type"
            )
        if self.payload is not None and self.payload_ref is not None:
            raise InvalidInput("give an event payload or payload_ref, not both")

    def stored(self) -> JsonObject:
        """Return the payload as it is stored."""
        if self.payload_ref is not None:
            return {"payload_ref": self.payload_ref}
        return {"payload": self.payload} if self.payload is not None else {}


def append_event(
    store: JournalStore,
    blobs: BlobStore,
    request: WriteRequest,
    session_id: str,
    branch_id: str,
    new: NewEvent,
) -> SessionEventObject:
    """Append an event to a branch of a client, durably.

    Raises:
        QuotaExceeded: the tenant may not.
        BranchVersionConflict: the branch is not at the expected version and head; nothing was appended.
        UnknownSession, UnknownBranch: there is none.
        SessionReadOnly: the session is an agent's.
        UnknownEventType: it is none of the six public types.
        UnknownArtifact: the tenant does not have the artifact that ``payload_ref`` names.
        InvalidInput: the payload is not JSON, or there are two.
        IdempotencyConflict: the key was used with another body.
    """
    new.check()
    tenant, key, now_ms = request.tenant, request.key, request.now_ms
    session = writable(find_session(store, tenant, session_id))
    branch = find_branch(store, session, branch_id)
    event_id = event_id_of(branch.branch_id, key, request.ids, now_ms)
    draft = Draft(event_id, new.event_type, new.stored(), branch.head.turn, now_ms)
    if key is not None and (event := store.find_event(event_id)) is not None:
        return _repeated(store, blobs, session, event, new, key)
    head = branch.head
    if (head.seq, head.event_id) != (new.expected_version, new.expected_head_event_id):
        raise BranchVersionConflict(head.branch_id, head.seq, head.event_id)
    if new.payload_ref is not None:
        find_artifact(store, tenant, new.payload_ref, now_ms, "event.payload_ref")
    if request.check is not None:
        request.check(tenant, len(encode(draft.payload)))
    events = seal_durably(blobs, head, [draft])
    try:
        store.commit(Commit(session.session_id, head, events, None))
    except (BranchVersionConflict, InvalidInput):
        if key is not None and (event := store.find_event(event_id)) is not None:  # another process took the repeat
            return _repeated(store, blobs, session, event, new, key)
        raise
    except NotFound as error:
        raise UnknownBranch(f"session {session_id} has no branch {branch_id}: it was deleted") from error
    return event_object(session, events[0], new.stored())


def _repeated(
    store: EventRecords, blobs: BlobReader, session: Session, event: Event, new: NewEvent, key: str
) -> SessionEventObject:
    """Return the event that an earlier request has appended under the same key.

    Raises:
        IdempotencyConflict: that request asked for something else.
    """
    before = next(iter(store.events(event.branch_id, event.seq - 2, event.seq - 1)), None) if event.seq > 1 else None
    then = (event.seq - 1, before.event_id if before is not None else None, event.type, event.payload_sha256)
    now = (new.expected_version, new.expected_head_event_id, new.event_type, payload_digest(encode(new.stored())))
    if then != now:
        raise IdempotencyConflict(key)
    return event_object(session, event, None if event.erased else payload_of(event, blobs))


def event_page(
    store: EventRecords,
    blobs: BlobReader,
    session: Session,
    branch: Branch,
    after_sequence: int,
    limit: int,
    cursor: str | None,
) -> SessionEventPage:
    """Return a page of a branch's events, inherited ones included, oldest first. A page of large payloads ends early.

    Raises:
        InvalidCursor: it is of another list.
    """
    of = [session.namespace, branch.branch_id]
    after = place_after(cursor, "session events", of, after_sequence)
    items: list[SessionEventObject] = []
    size, more = 0, False
    for event in store.events(branch.branch_id, after):
        if len(items) == limit or size >= _PAGE_BYTES:
            more = True
            break
        data = None if event.erased else payload_bytes(event, blobs)
        size += len(data or b"")
        items.append(event_object(session, event, None if data is None else decode(data)))
    return {
        "items": items,
        "next_cursor": cursor_after("session events", of, items[-1]["sequence"]) if more else None,
    }


def event_object(session: Session, event: Event, stored: Json) -> SessionEventObject:
    """Return an event as a JSON object.

    Args:
        stored: its payload as it is stored; ``None`` if it was erased.
    """
    payload, ref = payload_and_ref(session, stored)
    return {
        "id": event.event_id,
        "object": "event",
        "session_id": session.session_id,
        "branch_id": event.branch_id,
        "sequence": event.seq,
        "event_type": event.type,
        "payload": payload,
        "payload_ref": ref,
        "created_at": event.ts,
        "hash": event.hash,
    }


def payload_and_ref(session: Session, stored: Json) -> tuple[Json, str | None]:
    """Return the payload of a stored event, and the artifact that it names instead."""
    if not is_of_client(session) or not isinstance(stored, dict):
        return stored, None
    ref = stored.get("payload_ref")
    return stored.get("payload"), ref if isinstance(ref, str) else None
