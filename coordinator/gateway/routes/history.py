"""Routes of an agent's history: its state at a turn, and its events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from coordinator.gateway.dependencies import Agents, Cursor, Limit, Reading
from coordinator.gateway.documents import statuses
from coordinator.operations.objects import EventPage, StateObject

__all__ = ["router"]

router = APIRouter(prefix="/agents/{type}/{key}", tags=["history"])


@router.get("/state", responses=statuses(404))
async def get_state(
    agents: Agents,
    address: Reading,
    at: Annotated[int | None, Query(ge=0, le=2**53, description="A committed turn; the last one by default.")] = None,
) -> StateObject:
    """Return the committed state at the end of a turn."""
    return await agents.state(address, at)


@router.get("/events", responses=statuses(404))
async def list_events(
    agents: Agents,
    address: Reading,
    after: Annotated[int, Query(ge=0, le=2**53, description="Only events after this seq.")] = 0,
    types: Annotated[
        list[str] | None, Query(alias="type", max_length=32, description="Only events of this type; can be repeated.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> EventPage:
    """List events, oldest first, with those that a rewind has hidden (`visible`)."""
    return await agents.events(address, after_seq=after, types=types or (), limit=limit, cursor=cursor)
