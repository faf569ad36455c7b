"""Routes for the AI SDK: chats with agents, for `useChat` and every other `DefaultChatTransport`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias
from urllib.parse import quote

from fastapi import Depends, Path, Query
from starlette.responses import Response

from coordinator.access.caller import Caller, Scope
from coordinator.frontends.ai_sdk import HEADERS, UiMessageStream, ui_messages
from coordinator.frontends.wire import DONE
from coordinator.gateway.dependencies import AgentType, Called, Chats, Reading, Writing, permitted
from coordinator.gateway.documents import statuses
from coordinator.gateway.errors import ApiError, mark_admitted
from coordinator.gateway.frontend_bodies import UiBody
from coordinator.gateway.frontend_stream import FrontEndProtocol, front_end_stream
from coordinator.gateway.routers import router_at
from coordinator.gateway.routes.messages import Traceparent
from coordinator.gateway.streaming import EVENTS, Streaming, StreamingOf
from coordinator.operations.conversations import Conversations
from coordinator.operations.discreet_agents import without_text_of
from coordinator.operations.objects import ChatMessages, Receipt
from coordinator.operations.problems import Problem
from podium.address import Address

__all__ = ["agent", "chat", "router"]

router = router_at("/v1/ui/{type}", "front ends")
chat = router_at("/v1/ui/{type}/{key}", "front ends")
"""The routes of a chat whose id is an agent's key."""
agent = router_at("/v1/agents/{type}/{key}/ui", "front ends")
"""The routes of the chats of one agent."""

_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The UI message stream, version 1, as server-sent events.",
        "content": EVENTS,
    }
}
_NOTHING: Final[dict[int | str, dict[str, Any]]] = {204: {"description": "The agent has no message to handle."}}
_SENDS: Final = statuses(404, 409, 413, 422, 507)
_MAX_MESSAGES: Final = 10_000

ChatId = Annotated[str, Path(min_length=1, max_length=256, description="The chat, as the front end named it.")]
Exchanges = Annotated[
    int, Query(ge=1, le=_MAX_MESSAGES, description="The most messages of users; those before them are left out.")
]


@dataclass(frozen=True, slots=True)
class _Chat:
    """Chats with agents, for one request."""

    streaming: Streaming
    chats: Conversations
    caller: Caller

    async def send(self, address: Address, body: UiBody, traceparent: str | None) -> Response:
        """Send the last message of a chat, and stream the answer."""
        again = body.trigger == "regenerate-message"
        receipt = await self.chats.send(
            address,
            body.sent(),
            self.caller.of_message,
            again=again,
            answer=body.messageId if again else None,
            replaces=body.edits,
            when_busy=body.when_busy,
            trace=traceparent,
        )
        mark_admitted(self.streaming.request, receipt.message_id)
        return self._stream(address, receipt, cancel_on_disconnect=body.cancel_on_disconnect)

    async def resume(self, address: Address, chat_id: str) -> Response:
        """Stream the answer that a chat waits for, or else that runs."""
        receipt = await self.chats.running(address, chat_id)
        return Response(status_code=204) if receipt is None else self._stream(address, receipt)

    async def messages(self, address: Address, limit: int) -> ChatMessages:
        """Return the visible transcript of an agent."""
        found, earlier = await self.chats.exchanges(address, limit)
        if not self.streaming.agents.shows_error_texts:
            found = [without_text_of(exchange) for exchange in found]
        shown = ui_messages(found, _path(address))
        return ChatMessages(agent=address.name, messages=tuple(shown), earlier=earlier)

    def _stream(self, address: Address, receipt: Receipt, *, cancel_on_disconnect: bool = False) -> Response:
        protocol = FrontEndProtocol(UiMessageStream(_path(address)), headers=HEADERS, end=DONE)
        return front_end_stream(self.streaming, address, receipt, protocol, cancel_on_disconnect=cancel_on_disconnect)


async def _chat(streaming: StreamingOf, chats: Chats, caller: Called) -> _Chat:
    return _Chat(streaming, chats, caller)


Chat: TypeAlias = Annotated[_Chat, Depends(_chat)]
"""Chats with agents, for the request."""


@router.post("", responses={**_STREAM, **_SENDS}, response_class=Response)
async def send_chat(
    here: Chat, caller: Called, agent_type: AgentType, body: UiBody, traceparent: Traceparent = None
) -> Response:
    """Send the last message of a chat to the agent whose key is the chat's id, and stream the answer."""
    return await here.send(permitted(caller, Scope.WRITE, f"{agent_type}/{body.id}"), body, traceparent)


@chat.get("", responses=statuses(404))
async def get_chat(here: Chat, address: Reading, limit: Exchanges = 1000) -> ChatMessages:
    """Return the messages of a chat as `UIMessage` objects, to begin a page with; its key is the chat's id."""
    return await here.messages(address, limit)


@chat.get("/stream", responses={**_STREAM, **_NOTHING, **statuses(404)}, response_class=Response)
async def resume_chat(here: Chat, address: Reading) -> Response:
    """Stream the answer that a chat waits for, or else that runs, from its beginning; its id is the key. 204: none."""
    return await here.resume(address, address.key)


@agent.post("", responses={**_STREAM, **_SENDS}, response_class=Response)
async def send_chat_to_agent(here: Chat, address: Writing, body: UiBody, traceparent: Traceparent = None) -> Response:
    """Send the last message of a chat to an agent, and stream the answer. The chat's id names the stream only."""
    if "/" in body.id:
        raise ApiError(Problem(400, "invalid_parameter"), "the id of a chat has no '/'", "id")
    return await here.send(address, body, traceparent)


@agent.get("", responses=statuses(404))
async def get_agent_chat(here: Chat, address: Reading, limit: Exchanges = 1000) -> ChatMessages:
    """Return the visible transcript of an agent as `UIMessage` objects, to begin a page with."""
    return await here.messages(address, limit)


@agent.get("/{chat_id}/stream", responses={**_STREAM, **_NOTHING, **statuses(404)}, response_class=Response)
async def resume_chat_of_agent(here: Chat, address: Reading, chat_id: ChatId) -> Response:
    """Stream the answer that a chat of an agent waits for, or else that runs, from its beginning. 204: none."""
    return await here.resume(address, chat_id)


def _path(address: Address) -> str:
    """Return the path of an agent's routes. It has no host: a front end may reach the gateway by another name."""
    return f"/v1/agents/{address.agent_type}/{quote(address.key, safe='')}"
