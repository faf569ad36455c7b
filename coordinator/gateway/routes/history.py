"""Routes of an agent's history: its state at a turn, its events, differences, forks and rewinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query
from starlette.responses import Response

from coordinator.access.caller import Scope
from coordinator.gateway.bodies import MAX_TURN, ForkBody, RewindBody
from coordinator.gateway.dependencies import (
    Agents,
    Called,
    Cursor,
    IdempotencyKey,
    Limit,
    Operations,
    OtherAgent,
    Reading,
    Writing,
    permitted,
)
from coordinator.gateway.documents import statuses
from coordinator.gateway.routers import router_at
from coordinator.gateway.streaming import STREAM, AsksForStream, LastEventId, StreamingOf
from coordinator.operations.history import context_object, state_object, turn_page
from coordinator.operations.objects import Difference, EventPage, Forked, ModelContext, Page, Rewound, State, Turn
from podium.address import Address

__all__ = ["router"]

router = router_at("/v1/agents/{type}/{key}", "history")


@router.get("/state", responses=statuses(404))
async def get_state(
    agents: Agents,
    address: Reading,
    at: Annotated[
        int | None, Query(ge=0, le=MAX_TURN, description="A committed turn; the last one by default.")
    ] = None,
) -> State:
    """Return the committed state at the end of a turn."""
    return await agents.read(state_object, address, at)


@dataclass
class WantedEvents:
    """The query of a list of events."""

    after: Annotated[int, Query(ge=0, le=MAX_TURN, description="Only events after this seq.")] = 0
    types: Annotated[
        list[str] | None, Query(alias="type", max_length=32, description="Only events of this type; can be repeated.")
    ] = None


@router.get("/events", response_model=EventPage, responses={200: STREAM[200], **statuses(404)})
async def list_events(
    agents: Agents,
    streaming: StreamingOf,
    address: Reading,
    asks_for_stream: AsksForStream,
    last_event_id: LastEventId,
    wanted: Annotated[WantedEvents, Depends()],
    limit: Limit = 100,
    cursor: Cursor = None,
) -> EventPage | Response:
    """List events, oldest first, with those that a rewind has hidden (`visible`).

    With `Accept: text/event-stream` they are streamed, and further ones as they are recorded; the id is the seq.
    """
    if asks_for_stream:
        return await streaming.tail(address, wanted.after, wanted.types or (), last_event_id)
    return await agents.events(address, after_seq=wanted.after, types=wanted.types or (), limit=limit, cursor=cursor)


@router.get("/turns", responses=statuses(404))
async def list_turns(agents: Agents, address: Reading, limit: Limit = 100, cursor: Cursor = None) -> Page[Turn]:
    """List committed turns, oldest first: their causes, times, steps, and how much they changed."""
    return await agents.read(turn_page, address, limit=limit, cursor=cursor)


@router.get("/context", responses=statuses(404))
async def get_context(
    agents: Agents,
    address: Reading,
    at: Annotated[
        int | None, Query(ge=0, le=MAX_TURN, description="A committed turn; the last one with calls by default.")
    ] = None,
) -> ModelContext:
    """Return what the models were sent in a turn, and what they answered."""
    return await agents.read(context_object, address, at)


@router.get("/diff", responses=statuses(404))
async def get_difference(
    agents: Agents,
    caller: Called,
    address: Reading,
    before: Annotated[
        int | None, Query(alias="from", ge=0, le=MAX_TURN, description="A committed turn; the last one by default.")
    ] = None,
    after: Annotated[
        int | None, Query(alias="to", ge=0, le=MAX_TURN, description="Another one; the last one by default.")
    ] = None,
    other: OtherAgent = None,
) -> Difference:
    """Compare two turns of an agent, or of two agents: state, files and visible transcript."""
    compared = None if other is None else permitted(caller, Scope.READ, other)
    return await agents.difference(address, before, after, compared)


@router.post("/fork", status_code=201, responses=statuses(404, 409, 413, 507))
async def fork_agent(
    agents: Agents,
    operations: Operations,
    caller: Called,
    address: Writing,
    body: ForkBody,
    idempotency_key: IdempotencyKey = None,
) -> Forked:
    """Make an agent of the same type that continues this one after a turn. Nothing is copied; both are independent."""
    caller.require(Scope.WRITE, Address(address.agent_type, body.key, address.tenant))
    return await operations.once(
        address, "fork", idempotency_key, body.model_dump(), Forked, lambda: agents.fork(address, body.key, body.at)
    )


@router.post("/rewind", responses=statuses(404, 409, 413, 507))
async def rewind_agent(
    agents: Agents, operations: Operations, address: Writing, body: RewindBody, idempotency_key: IdempotencyKey = None
) -> Rewound:
    """Return to an earlier turn, as a turn of its own: nothing is lost, and another rewind undoes it.

    An agent that is awake ends its running turn first.
    """
    return await operations.once(
        address,
        "rewind",
        idempotency_key,
        body.model_dump(),
        Rewound,
        lambda: agents.rewind(address, body.turn, body.only),
    )
