"""Branches of sessions: reading their positions, and forking."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from chronicle.errors import Conflict
from chronicle.ids import BranchId, EventId
from chronicle.journal.objects import ObjectName, new_object, object_body
from coordinator.operations.cursors import cursor_after, place_after
from coordinator.operations.errors import UnknownSessionEvent
from coordinator.sessions.finding import find_branch, find_session, writable
from coordinator.sessions.repetition import repeated, repetition_of

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobStore
    from chronicle.canonical import JsonObject
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.branches import BranchRecords
    from chronicle.journal.ports.events import EventRecords
    from chronicle.journal.records import Branch, Session
    from coordinator.sessions.objects import BranchObject, BranchPage
    from coordinator.sessions.write_request import WriteRequest

__all__ = ["branch_object", "branch_page", "fork_branch"]

_FORK = "fork"
"""The kind of the object that makes a repeated fork find its branch."""


def branch_object(session: Session, branch: Branch) -> BranchObject:
    """Return a branch as a JSON object."""
    return {
        "id": branch.branch_id,
        "object": "branch",
        "session_id": session.session_id,
        "is_default": branch.branch_id == session.main_branch_id,
        "version": branch.head.seq,
        "head_event_id": branch.head.event_id,
        "parent": None
        if branch.parent_branch_id is None
        else {"branch_id": branch.parent_branch_id, "version": branch.parent_seq},
        "created_at": branch.created_ms,
    }


def branch_page(store: BranchRecords, session: Session, limit: int, cursor: str | None) -> BranchPage:
    """Return a page of a session's branches, oldest first.

    Raises:
        InvalidCursor: it is of another list.
    """
    of = [session.namespace, session.session_id]
    after = place_after(cursor, "branches", of, "")
    found = store.branches(session.session_id)
    start = next((number for number, branch in enumerate(found, 1) if branch.branch_id == after), 0)
    page = found[start : start + limit]
    more = len(found) > start + limit
    return {
        "items": [branch_object(session, branch) for branch in page],
        "next_cursor": cursor_after("branches", of, page[-1].branch_id) if more else None,
    }


def fork_branch(
    store: JournalStore,
    blobs: BlobStore,
    request: WriteRequest,
    session_id: str,
    from_branch_id: str,
    from_event_id: str | None,
) -> BranchObject:
    """Make a branch that continues another one of the session, after an event or at its head. Nothing is copied.

    Raises:
        QuotaExceeded: the tenant may not have more bytes.
        UnknownSession, UnknownBranch, UnknownSessionEvent: there is none.
        SessionReadOnly: the session is an agent's.
        IdempotencyConflict: the key was used with another body.
    """
    tenant, now_ms = request.tenant, request.now_ms
    session = writable(find_session(store, tenant, session_id))
    parent = find_branch(store, session, from_branch_id, "fork_from_branch_id")
    seq = parent.head.seq if from_event_id is None else _place_of(store, parent, from_event_id)
    branch_id = request.ids.branch(now_ms)
    route = f"POST /v2/sessions/{session.session_id}/branches"
    asked: JsonObject = {"fork_from_branch_id": from_branch_id, "fork_from_event_id": from_event_id}
    repetition = repetition_of(route, request.key, asked)
    if request.check is not None and repeated(store, tenant, repetition) is None:
        request.check(tenant, 0)
    if repetition is not None:
        new = new_object(
            blobs,
            ObjectName(_FORK, branch_id, tenant),
            now_ms,
            {"parent_seq": seq},
            session_id=session.session_id,
            repetition=repetition,
        )
        stored = store.put_object(new)
        branch_id, seq = BranchId(stored.object_id), int(str(object_body(stored, blobs)["parent_seq"]))
    with suppress(Conflict):  # a repeat: it is there
        return branch_object(session, store.fork_branch(parent.branch_id, seq, branch_id, now_ms))
    return branch_object(session, store.branch(branch_id))


def _place_of(store: EventRecords, branch: Branch, event_id: str) -> int:
    """Return the sequence of an event of a branch, its own or an inherited one.

    Raises:
        UnknownSessionEvent: it has none of that id.
    """
    event = store.find_event(EventId(event_id))
    if event is not None and event.seq <= branch.head.seq:
        there = next(iter(store.events(branch.branch_id, event.seq - 1, event.seq)), None)
        if there is not None and there.event_id == event_id:
            return event.seq
    raise UnknownSessionEvent(f"branch {branch.branch_id} has no event {event_id}", "fork_from_event_id")
