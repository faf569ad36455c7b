"""The response of a stream of events (SSE): plain ASGI, one task that sends and one that watches the client.

Starlette's `StreamingResponse` takes the events from a generator; here the reader's events are sent as they are, all
that wait in one write.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from starlette.responses import Response

from coordinator.streams.sse import HEADERS, KEEP_ALIVE, OPENING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from starlette.types import Receive, Scope, Send

__all__ = ["EventReader", "EventStreamResponse", "StreamedEvent"]

_MAX_STALLED_LOOKS: Final = 8
"""Looks without progress before a stalled client is disconnected; frees the message's backlog."""


class StreamedEvent(Protocol):
    """An event as it is sent."""

    @property
    def event(self) -> bytes:
        """Its SSE encoding."""
        ...


_Event_co = TypeVar("_Event_co", bound=StreamedEvent, covariant=True)


class EventReader(Protocol[_Event_co]):
    """A reader of a stream: of a message's, or of an agent's events."""

    @property
    def is_complete(self) -> bool:
        """Whether the whole stream was returned."""
        ...

    async def next(self) -> Sequence[_Event_co]:
        """Wait for events and return them; none at the end."""
        ...

    def cut_off(self) -> None:
        """End the stream now."""
        ...


class EventStreamResponse(Response):
    """The response of a stream of events.

    Args:
        opening: opens the stream; it is closed with the response.
        on_abandoned: called if the client disconnects before the end of the stream.
        look_s: interval of looks at the stream: in silence a comment is sent after one or two of them.
        headers: of the response, beside its content type.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        opening: AbstractContextManager[EventReader[StreamedEvent]],
        on_abandoned: Callable[[], Awaitable[None]] | None = None,
        *,
        look_s: float = 7.5,
        headers: Mapping[str, str] = HEADERS,
    ) -> None:
        self._opening = opening
        self._on_abandoned = on_abandoned
        self._look_s = look_s
        self._sending_looks: int | None = None
        """Looks at the write that is in progress; `None` if none is."""
        self._sent = True
        """Whether anything was sent since the last look."""
        self._gone = False
        self.status_code = 200
        self.background = None
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  ASGI
        """Send the stream."""
        with self._opening as reader:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": OPENING, "more_body": True})
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(self._watch(reader, receive, send), name="watch a client")
                while events := await reader.next():
                    self._sending_looks = 0
                    body = events[0].event if len(events) == 1 else b"".join([each.event for each in events])
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                    self._sending_looks, self._sent = None, True
                watching.cancel()
            if not self._gone:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            elif self._on_abandoned is not None and not reader.is_complete:
                await self._on_abandoned()

    async def _watch(self, reader: EventReader[StreamedEvent], receive: Receive, send: Send) -> None:
        """Notice that the client disconnects; keep a silent connection alive, and cut off a client that stalls."""
        while not self._gone:
            try:
                async with asyncio.timeout(self._look_s):
                    self._gone = (await receive())["type"] == "http.disconnect"
            except TimeoutError:
                if self._sending_looks is not None:
                    self._sending_looks += 1
                    if self._sending_looks >= _MAX_STALLED_LOOKS:
                        reader.cut_off()
                elif not self._sent:
                    await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
                self._sent = False
        reader.cut_off()
