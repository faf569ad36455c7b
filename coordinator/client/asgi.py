"""A stream of server-sent events as an ASGI response, with heartbeats. It imports no web framework."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from coordinator.streams.sse import HEADERS, KEEP_ALIVE
from podium.tasks import with_pauses

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping

__all__ = ["StreamResponse", "with_heartbeats"]

_HEARTBEAT_S: Final = 15.0
"""Interval of heartbeats, below the idle timeouts of proxies, of which 60 s is the common one."""
_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    *((name.lower().encode(), value.encode()) for name, value in HEADERS.items()),
)


async def with_heartbeats(chunks: AsyncGenerator[bytes], interval_s: float = _HEARTBEAT_S) -> AsyncGenerator[bytes]:
    """Yield chunks as they come, and a comment whenever none came for an interval, seconds; close them at the end."""
    async with aclosing(with_pauses(chunks, interval_s)) as pieces:
        async for piece in pieces:
            yield KEEP_ALIVE if piece is None else piece


class StreamResponse:
    """An ASGI application that answers one HTTP request with a stream of server-sent events.

    It ends with the stream, or when the reader leaves. If the stream fails, the response breaks off, so that its reader
    connects again.

    Args:
        stream: makes the stream that follows a ``Last-Event-ID``; empty for the beginning.
    """

    def __init__(self, stream: Callable[[str], AsyncGenerator[bytes]]) -> None:
        self._stream = stream

    async def __call__(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer a request of the type ``http``."""
        headers = dict(scope.get("headers", ()))
        after = headers.get(b"last-event-id", b"").decode(errors="replace")
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._send(after, send), name="send the stream")
            leaving = tasks.create_task(_disconnected(receive), name="watch the reader")
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            sending.cancel()
            leaving.cancel()

    async def _send(self, after: str, send: Callable[[MutableMapping[str, Any]], Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        async with aclosing(self._stream(after)) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
