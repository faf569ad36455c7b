"""A transport of events over HTTP: an endpoint of FastAPI returns its response, and the producer emits into it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.responses import StreamingResponse

from chronicle.errors import InvalidInput
from coordinator.streams.sse import HEADERS
from coordinator.streams.transport import SSEEvent, encode_transport_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["FastAPISseTransport"]

_KEEP_ALIVE_S: Final = 15.0


class FastAPISseTransport:
    """A `coordinator.streams.transport.TransportAdapter` whose reader is an HTTP client. It serves one response.

    Args:
        limit: events that wait for the reader before `emit` waits.
        keep_alive_s: silence after which a ``keepalive`` event is sent.
    """

    def __init__(self, limit: int = 1024, keep_alive_s: float = _KEEP_ALIVE_S) -> None:
        self._events: asyncio.Queue[SSEEvent] = asyncio.Queue(limit)
        self._keep_alive_s = keep_alive_s
        self._done = False
        self._left = False

    async def emit(self, event: SSEEvent) -> None:
        """Add an event; wait while as many as the limit are unread. Events for a client that left are dropped.

        Raises:
            InvalidInput: ``done`` was emitted before, or the data is not JSON.
        """
        if self._done:
            raise InvalidInput(f"the stream has ended: {event.type} cannot be emitted after done")
        encode_transport_event(event)
        self._done = event.type == "done"
        if not self._left:
            await self._events.put(event)

    async def receive(self) -> AsyncGenerator[SSEEvent]:
        """Yield the events, ``done`` last, and ``keepalive`` in silence."""
        try:
            while True:
                try:
                    async with asyncio.timeout(self._keep_alive_s):
                        event = await self._events.get()
                except TimeoutError:
                    event = SSEEvent("keepalive")
                yield event
                if event.type == "done":
                    return
        finally:
            self._left = True
            while not self._events.empty():  # a producer that waits goes on
                self._events.get_nowait()

    def response(self) -> StreamingResponse:
        """Return the response with the events."""
        return StreamingResponse(self._bytes(), media_type="text/event-stream", headers=HEADERS)

    async def _bytes(self) -> AsyncGenerator[bytes]:
        events = self.receive()
        try:
            async for event in events:
                yield encode_transport_event(event)
        finally:
            await events.aclose()
