"""Streams as routes answer them: who asks for one, from which position, and the response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import structlog
from fastapi import Depends, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from chronicle.errors import ChronicleError
from coordinator.gateway.dependencies import Agents, Streams
from coordinator.gateway.event_stream import EventStreamResponse
from coordinator.gateway.key_bound import key_bound
from coordinator.streams.event_tail import TailedEvent, parse_seq
from coordinator.streams.message_streams import StreamedFrame
from coordinator.streams.position import Position
from coordinator.streams.sse import encode_event
from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractContextManager

    from coordinator.gateway.event_stream import EventReader
    from coordinator.operations.agents import HomeAgents
    from coordinator.operations.objects import Receipt
    from coordinator.streams.home_streams import HomeStreams
    from podium.address import Address

__all__ = ["EVENTS", "STREAM", "AsksForStream", "LastEventId", "Streaming", "StreamingOf"]

_MEDIA_TYPE: Final = "text/event-stream"
EVENTS: Final[dict[str, Any]] = {
    _MEDIA_TYPE: {"schema": {"type": "object", "required": ["data"], "properties": {"data": {"type": "string"}}}}
}
"""The description of a stream's content: the schema is that of one event."""
STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": EVENTS},
    204: {"description": "The stream has ended: the client has all of it."},
}
"""The further answers of a route that streams if the client accepts `text/event-stream`."""

_log = structlog.stdlib.get_logger(__name__)


def _asks_for_stream(request: Request) -> bool:
    """Whether a client accepts a stream, and names it: ``*/*`` gets JSON."""
    for accepted in request.headers.getlist("accept"):
        for media_range in accepted.split(","):
            kind, *parameters = (part.strip().lower() for part in media_range.split(";"))
            if kind == _MEDIA_TYPE and not any(_refuses(parameter) for parameter in parameters):
                return True
    return False


def _refuses(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name == "q" and value.rstrip("0") in {"", "0."}


def _last_event_id(
    header: Annotated[
        str | None,
        Header(alias="Last-Event-ID", max_length=4096, description="Of a stream: it goes on after this event."),
    ] = None,
    query: Annotated[
        str | None,
        Query(
            alias="last_event_id",
            max_length=4096,
            description="The same, for clients that cannot set headers; a header takes precedence.",
        ),
    ] = None,
) -> str | None:
    return header or query or None


AsksForStream: TypeAlias = Annotated[bool, Depends(_asks_for_stream)]
"""Whether the client accepts `text/event-stream`."""
LastEventId: TypeAlias = Annotated[str | None, Depends(_last_event_id)]
"""The id of the last event that the client has."""


@dataclass(frozen=True, slots=True)
class Streaming:
    """The streams that one request can be answered with."""

    request: Request
    agents: HomeAgents
    """As the caller may see them."""
    streams: HomeStreams

    def message(
        self, address: Address, receipt: Receipt, position: Position | None = None
    ) -> AbstractContextManager[EventReader[StreamedFrame]]:
        """Open a message's stream, which ends with the reader's key; see `MessageStreams.open`."""
        message_id = receipt.message_id

        def last(frame: dict[str, Any]) -> StreamedFrame:
            frame = {**frame, "message_id": message_id}
            return StreamedFrame(frame, None, encode_event(frame, None))

        opening = self.streams.messages.open(
            address, message_id, position, _accepted_frame(receipt), error_texts=self.agents.shows_error_texts
        )
        return key_bound(self.request, opening, last)

    def sent(self, address: Address, receipt: Receipt, *, cancel_on_disconnect: bool) -> Response:
        """Return the stream of a message that was just admitted.

        Args:
            cancel_on_disconnect: whether a client that leaves before the end cancels the message.
        """
        abandoned = self.cancelling(address, receipt.message_id) if cancel_on_disconnect else None
        return EventStreamResponse(self.message(address, receipt), abandoned)

    async def resumed(self, address: Address, message_id: str, last_event_id: str | None) -> Response:
        """Return the stream of a message, from the beginning or after a position; 204 if the client has all of it.

        Raises:
            InvalidPosition: the id is not one of this stream.
            UnknownAgent, NotFound: the agent never got the message, or its record was pruned.
        """
        position = Position.parse(last_event_id, message_id) if last_event_id is not None else None
        receipt = await self.agents.receipt(address, message_id)
        if position is not None and position.is_end:
            return Response(status_code=204)
        return EventStreamResponse(self.message(address, receipt, position))

    async def tail(self, address: Address, after_seq: int, types: Sequence[str], last_event_id: str | None) -> Response:
        """Return the tail of an agent's recorded events.

        Raises:
            InvalidPosition: the id is not one of this stream, or the agent has no such event.
            UnknownAgent: there is no such agent.
        """
        events = self.streams.events
        after = parse_seq(last_event_id) if last_event_id is not None else after_seq
        await events.check(address, after)

        def last(frame: dict[str, Any]) -> TailedEvent:
            return TailedEvent(after, encode_event(frame, None))

        return EventStreamResponse(key_bound(self.request, events.open(address, after, types, self.agents), last))

    def cancelling(self, address: Address, message_id: str) -> Callable[[], Awaitable[None]]:
        """Return a function that cancels a message whose client left."""

        async def cancel() -> None:
            try:
                await self.agents.cancel(address, message_id)
            except (PodiumError, ChronicleError) as error:  # already settled, and the client is gone
                _log.info("abandoned_message_not_cancelled", message_id=message_id, error=str(error))

        return cancel


async def _streaming(request: Request, agents: Agents, streams: Streams) -> Streaming:
    return Streaming(request, agents, streams)


StreamingOf: TypeAlias = Annotated[Streaming, Depends(_streaming)]
"""The streams for the request."""


def _accepted_frame(receipt: Receipt) -> dict[str, Any]:
    """Return the frame that begins the stream of a message."""
    keys = {"position": receipt.position, "before": receipt.before}
    return {"type": "accepted", "message_id": receipt.message_id, **keys}
