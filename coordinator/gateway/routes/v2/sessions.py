"""Routes of sessions: their branches, and the events of those."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query

from coordinator.access.caller import Caller, Scope
from coordinator.gateway.bodies import MAX_TURN
from coordinator.gateway.dependencies import Called, Cursor, IdempotencyKey, Limit, Sessions
from coordinator.gateway.documents import statuses
from coordinator.gateway.routers import router_at
from coordinator.gateway.routes.v2.bodies import AppendBody, ForkBranchBody, SessionBody
from coordinator.sessions.events import NewEvent
from coordinator.sessions.objects import (
    BranchObject,
    BranchPage,
    DeletedSession,
    SessionEventObject,
    SessionEventPage,
    SessionObject,
    SessionPage,
)

__all__ = ["router"]

router = router_at("/v2/sessions", "sessions")

SessionId = Annotated[str, Path(max_length=64, description="The id of a session: `ses_…`.")]
BranchId = Annotated[str, Path(max_length=64, description="The id of a branch of the session: `br_…`.")]


def _reader(caller: Caller) -> str | None:
    """Return the only agent whose session a caller may read; ``None`` for all sessions of its tenant."""
    caller.require(Scope.READ, caller.agent)
    return caller.agent.name if caller.agent is not None else None


@router.post("", status_code=201, responses=statuses(404, 409, 413, 507))
async def create_session(
    sessions: Sessions, caller: Called, body: SessionBody, idempotency_key: IdempotencyKey = None
) -> SessionObject:
    """Open a session, with an empty default branch."""
    caller.require(Scope.WRITE)
    return await sessions.create(caller.tenant, body.base_bundle_ids, body.metadata, idempotency_key)


@router.get("", responses=statuses())
async def list_sessions(
    sessions: Sessions,
    caller: Called,
    kind: Annotated[
        Literal["client", "agent"] | None, Query(description="Only sessions of clients, or those of agents.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> SessionPage:
    """List sessions: those of clients by id, and those of agents, which can be read only, by address."""
    caller.require(Scope.READ)
    return await sessions.page(caller.tenant, kind, limit, cursor)


@router.get("/{session_id}", responses=statuses(404))
async def get_session(sessions: Sessions, caller: Called, session_id: SessionId) -> SessionObject:
    """Return a session."""
    return await sessions.session(caller.tenant, session_id, _reader(caller))


@router.delete("/{session_id}", responses=statuses(404, 409, 507))
async def delete_session(sessions: Sessions, caller: Called, session_id: SessionId) -> DeletedSession:
    """Delete a session permanently: its branches, their events, and the artifacts that belong to it."""
    caller.require(Scope.WRITE)
    return await sessions.delete(caller.tenant, session_id)


@router.get("/{session_id}/branches", responses=statuses(404))
async def list_branches(
    sessions: Sessions, caller: Called, session_id: SessionId, limit: Limit = 100, cursor: Cursor = None
) -> BranchPage:
    """List the branches of a session, oldest first."""
    return await sessions.branches(caller.tenant, session_id, limit, cursor, _reader(caller))


@router.post("/{session_id}/branches", status_code=201, responses=statuses(404, 409, 413, 507))
async def fork_branch(
    sessions: Sessions,
    caller: Called,
    session_id: SessionId,
    body: ForkBranchBody,
    idempotency_key: IdempotencyKey = None,
) -> BranchObject:
    """Make a branch that continues another one of the session, at its head or after an event. Nothing is copied."""
    caller.require(Scope.WRITE)
    return await sessions.fork(
        caller.tenant, session_id, body.fork_from_branch_id, body.fork_from_event_id, idempotency_key
    )


@router.get("/{session_id}/branches/{branch_id}", responses=statuses(404))
async def get_branch(sessions: Sessions, caller: Called, session_id: SessionId, branch_id: BranchId) -> BranchObject:
    """Return a branch at its present position."""
    return await sessions.branch(caller.tenant, session_id, branch_id, _reader(caller))


@router.post("/{session_id}/branches/{branch_id}/events", status_code=201, responses=statuses(404, 409, 413, 507))
async def append_event(
    sessions: Sessions,
    caller: Called,
    session_id: SessionId,
    branch_id: BranchId,
    body: AppendBody,
    idempotency_key: IdempotencyKey = None,
) -> SessionEventObject:
    """Append an event, if the branch is where the client expects it.

    Otherwise the error `branch_version_conflict` has the present `version` and `head_event_id`. With an
    `Idempotency-Key`, the repetition of an append whose answer was lost gets that answer, and not the conflict.
    """
    caller.require(Scope.WRITE)
    event = body.event
    new = NewEvent(
        body.expected_version, body.expected_head_event_id, event.event_type, event.payload, event.payload_ref
    )
    return await sessions.append(caller.tenant, session_id, branch_id, new, idempotency_key)


@router.get("/{session_id}/branches/{branch_id}/events", responses=statuses(404))
async def list_session_events(
    sessions: Sessions,
    caller: Called,
    session_id: SessionId,
    branch_id: BranchId,
    after: Annotated[int, Query(ge=0, le=MAX_TURN, description="Only events after this sequence.")] = 0,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> SessionEventPage:
    """List the events of a branch, those that it inherited included, oldest first."""
    return await sessions.events(caller.tenant, session_id, branch_id, after, limit, cursor, _reader(caller))
