"""Sessions: opening, listing and deleting them. All functions are synchronous, and each write is one transaction."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, cast

from chronicle.canonical import encode
from chronicle.errors import NotFound
from chronicle.ids import SessionId
from chronicle.journal.objects import ObjectName, new_object, object_body
from chronicle.journal.records import Session
from coordinator.operations.cursors import cursor_after, place_after
from coordinator.sessions.bundles import find_bundle
from coordinator.sessions.finding import SESSION, find_session, is_of_client, writable
from coordinator.sessions.repetition import repeated, repetition_of
from podium.agent_record import is_agent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.objects import ObjectRecords
    from coordinator.sessions.objects import DeletedSession, SessionObject, SessionPage

__all__ = ["create_session", "delete_session", "session_object", "session_page"]


def create_session(
    store: JournalStore,
    blobs: BlobStore,
    tenant: str,
    base_bundle_ids: Sequence[str],
    metadata: dict[str, Any],
    key: str | None,
    ids: IdSource,
    now_ms: int,
    check: Callable[[str, int], None] | None = None,
) -> SessionObject:
    """Open a session, with an empty default branch.

    Raises:
        QuotaExceeded: the tenant may not have more bytes.
        UnknownBundle: the tenant does not have one of the bundles.
        IdempotencyConflict: the key was used with another body.
        InvalidInput: the metadata are not JSON.
    """
    for bundle_id in base_bundle_ids:
        find_bundle(store, tenant, bundle_id, "base_bundle_ids")
    body: dict[str, Any] = {"base_bundle_ids": list(base_bundle_ids), "metadata": metadata}
    repetition = repetition_of("POST /v2/sessions", key, body)
    if check is not None and repeated(store, tenant, repetition) is None:
        check(tenant, len(encode(body)))
    session_id, branch_id = ids.session(now_ms), ids.branch(now_ms)
    new = new_object(
        blobs, ObjectName(SESSION, session_id, tenant), now_ms, body, session_id=session_id, repetition=repetition
    )
    stored = store.put_object(new, Session(session_id, session_id, branch_id, now_ms, tenant))
    return session_object(store, blobs, store.session_of_id(SessionId(stored.object_id)))


def session_object(store: ObjectRecords, blobs: BlobReader, session: Session) -> SessionObject:
    """Return a session as a JSON object."""
    body: dict[str, Any] = {}
    if is_of_client(session):
        with suppress(NotFound):  # it is being deleted
            body = object_body(store.object(SESSION, session.session_id, session.namespace), blobs)
    return {
        "id": session.session_id,
        "object": "session",
        "project_id": session.namespace,
        "status": "active",
        "default_branch_id": session.main_branch_id,
        "agent": None if is_of_client(session) else session.name,
        "base_bundle_ids": cast("list[str]", body.get("base_bundle_ids", [])),
        "metadata": cast("dict[str, Any]", body.get("metadata", {})),
        "created_at": session.created_ms,
    }


def session_page(
    store: JournalStore,
    blobs: BlobReader,
    tenant: str,
    kind: Literal["client", "agent"] | None,
    limit: int,
    cursor: str | None,
) -> SessionPage:
    """Return a page of a tenant's sessions, those of clients by id and those of agents by address.

    Raises:
        InvalidCursor: it is of another list.
    """
    of = [tenant, kind]
    after = place_after(cursor, "sessions", of, "")
    prefix = "ses_" if kind == "client" else ""
    page: list[Session] = []
    while len(page) <= limit:
        found = store.sessions(prefix, tenant, after=after, limit=limit + 1)
        page += [
            session
            for session in found
            if (kind != "agent" and is_of_client(session)) or (kind != "client" and is_agent(session))
        ]
        if len(found) <= limit:
            break
        after = found[-1].name
    more, page = len(page) > limit, page[:limit]
    return {
        "items": [session_object(store, blobs, session) for session in page],
        "next_cursor": cursor_after("sessions", of, page[-1].name) if more else None,
    }


def delete_session(store: JournalStore, tenant: str, session_id: str, now_ms: int) -> DeletedSession:
    """Delete a session of a client, with its branches, events, and the objects that belong to it.

    Raises:
        UnknownSession: the tenant has none of that id.
        SessionReadOnly: it is an agent's.
    """
    session = writable(find_session(store, tenant, session_id))
    tombstone = store.delete_session(session.session_id, now_ms)
    return {"id": session.session_id, "object": "session", "status": "tombstoned", "events": tombstone.events}
