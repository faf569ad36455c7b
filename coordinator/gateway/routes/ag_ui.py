"""Routes for AG-UI: runs of agents, for `HttpAgent` and what is built on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, TypeAlias

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from coordinator.access.caller import Caller, Scope
from coordinator.frontends.ag_ui import AgUiRun
from coordinator.gateway.dependencies import Agents, AgentType, Called, Chats, Streams, Writing, permitted
from coordinator.gateway.documents import statuses
from coordinator.gateway.errors import mark_admitted
from coordinator.gateway.frontend_bodies import AgUiBody
from coordinator.gateway.frontend_stream import FrontEndProtocol, front_end_stream
from coordinator.gateway.routers import router_at
from coordinator.gateway.routes.messages import Traceparent
from coordinator.gateway.streaming import EVENTS
from coordinator.operations.agents import HomeAgents
from coordinator.operations.conversations import Conversations
from coordinator.operations.threads import agent_of_run
from coordinator.streams.home_streams import HomeStreams
from podium.address import Address
from podium.turn.stream import Frame

__all__ = ["AcceptsState", "agent", "router"]

router = router_at("/v1/ag-ui/{type}", "front ends")
agent = router_at("/v1/agents/{type}/{key}/ag-ui", "front ends")

AcceptsState: TypeAlias = Callable[[str], bool]
"""Whether the class of an agent type accepts the state that a front end sends."""

_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The events of the run, AG-UI 1.0, as server-sent events.",
        "content": EVENTS,
    },
    **statuses(404, 409, 413, 507),
}


def _accepts_state(request: Request) -> AcceptsState:
    found: AcceptsState = request.app.state.accepts_state
    return found


AcceptsStateOf = Annotated[AcceptsState, Depends(_accepts_state)]


@router.post("", responses=_STREAM, response_class=Response)
async def run_thread(
    request: Request,
    agents: Agents,
    streams: Streams,
    chats: Chats,
    caller: Called,
    accepts_state: AcceptsStateOf,
    agent_type: AgentType,
    body: AgUiBody,
    traceparent: Traceparent = None,
) -> Response:
    """Run the agent whose key is the thread's id, and stream the run."""
    address = permitted(caller, Scope.WRITE, f"{agent_type}/{body.threadId}")
    return await _run(request, agents, streams, chats, caller, accepts_state, address, body, traceparent)


@agent.post("", responses=_STREAM, response_class=Response)
async def run_agent(
    request: Request,
    agents: Agents,
    streams: Streams,
    chats: Chats,
    caller: Called,
    accepts_state: AcceptsStateOf,
    address: Writing,
    body: AgUiBody,
    traceparent: Traceparent = None,
) -> Response:
    """Run an agent, and stream the run. An earlier `parentRunId` forks the agent, and the thread follows the fork."""
    return await _run(request, agents, streams, chats, caller, accepts_state, address, body, traceparent)


async def _run(
    request: Request,
    agents: HomeAgents,
    streams: HomeStreams,
    chats: Conversations,
    caller: Caller,
    accepts_state: AcceptsState,
    root: Address,
    body: AgUiBody,
    traceparent: str | None,
) -> Response:
    sent = body.sent(with_state=accepts_state(root.agent_type))
    address = await agent_of_run(
        agents,
        root,
        body.threadId,
        body.runId,
        body.parentRunId,
        sent.key,
        lambda agent: caller.require(Scope.WRITE, agent),
    )
    receipt = await chats.send(address, sent, trace=traceparent)
    mark_admitted(request, receipt.message_id)
    return front_end_stream(
        request,
        streams,
        agents,
        address,
        receipt,
        FrontEndProtocol(
            AgUiRun(body.threadId, body.runId, body.parentRunId, address.name, knows_cancelled=body.knows_cancelled),
            _before(chats, address),
        ),
    )


def _before(chats: Conversations, address: Address) -> Callable[[Frame], Awaitable[Mapping[str, Any]]]:
    async def before(frame: Frame) -> Mapping[str, Any]:
        return await chats.before(address, frame["message_id"], frame["turn"])

    return before
