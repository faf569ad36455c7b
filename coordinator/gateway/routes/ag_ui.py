"""Routes for AG-UI: runs of agents, for `HttpAgent` and what is built on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from fastapi import Depends
from starlette.requests import Request
from starlette.responses import Response

from coordinator.access.caller import Caller, Scope
from coordinator.frontends.ag_ui import AgUiRun
from coordinator.gateway.dependencies import AgentType, Called, Chats, Writing, permitted
from coordinator.gateway.documents import statuses
from coordinator.gateway.errors import mark_admitted
from coordinator.gateway.frontend_bodies import AgUiBody
from coordinator.gateway.frontend_stream import FrontEndProtocol, front_end_stream
from coordinator.gateway.routers import router_at
from coordinator.gateway.routes.messages import Traceparent
from coordinator.gateway.streaming import EVENTS, Streaming, StreamingOf
from coordinator.operations.conversations import Conversations
from coordinator.operations.threads import agent_of_run
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
    **statuses(404, 409, 413, 422, 507),
}


@dataclass(frozen=True, slots=True)
class _Runner:
    """Runs agents for one request."""

    streaming: Streaming
    chats: Conversations
    caller: Caller
    accepts_state: AcceptsState

    async def run(self, root: Address, body: AgUiBody, traceparent: str | None) -> Response:
        """Run an agent, or a fork of it, and stream the run."""
        sent = body.sent(with_state=self.accepts_state(root.agent_type))
        address = await agent_of_run(
            self.streaming.agents,
            root,
            body.threadId,
            body.runId,
            body.parentRunId,
            sent.key,
            lambda agent: self.caller.require(Scope.WRITE, agent),
        )
        receipt = await self.chats.send(address, sent, self.caller.of_message, trace=traceparent)
        mark_admitted(self.streaming.request, receipt.message_id)
        run = AgUiRun(body.threadId, body.runId, body.parentRunId, address.name, knows_cancelled=body.knows_cancelled)
        return front_end_stream(self.streaming, address, receipt, FrontEndProtocol(run, self._before(address)))

    def _before(self, address: Address) -> Callable[[Frame], Awaitable[Mapping[str, Any]]]:
        async def before(frame: Frame) -> Mapping[str, Any]:
            return await self.chats.before(address, frame["message_id"], frame["turn"])

        return before


async def _runner(request: Request, streaming: StreamingOf, chats: Chats, caller: Called) -> _Runner:
    return _Runner(streaming, chats, caller, request.app.state.accepts_state)


Runner: TypeAlias = Annotated[_Runner, Depends(_runner)]
"""Runs agents for the request."""


@router.post("", responses=_STREAM, response_class=Response)
async def run_thread(
    runner: Runner, caller: Called, agent_type: AgentType, body: AgUiBody, traceparent: Traceparent = None
) -> Response:
    """Run the agent whose key is the thread's id, and stream the run."""
    return await runner.run(permitted(caller, Scope.WRITE, f"{agent_type}/{body.threadId}"), body, traceparent)


@agent.post("", responses=_STREAM, response_class=Response)
async def run_agent(runner: Runner, address: Writing, body: AgUiBody, traceparent: Traceparent = None) -> Response:
    """Run an agent, and stream the run. An earlier `parentRunId` forks the agent, and the thread follows the fork."""
    return await runner.run(address, body, traceparent)
