"""Event streams that outlive their connections, and requests that are repeated after a loss.

A lost connection is replaced by another one, with ``Last-Event-ID``, after a back-off that grows. It ends with an error
when no connection gave anything new for a time limit.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from random import Random
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from coordinator.client.backends.connection import CONNECTION_LOST, is_transient
from coordinator.client.errors import BadAnswer, ClientError, Unreachable
from coordinator.client.sse_parser import EventTooLong, SseParser

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from coordinator.client.sse_parser import ServerSentEvent

__all__ = ["Backoff", "EventSource", "persistently", "reconnecting"]

_FIRST_S: Final = 0.05
_LONGEST_S: Final = 5.0
_JITTER: Final = 0.25
"""A wait is longer or shorter by up to this share, so that the readers of a restarted server do not come at once."""
_STEADY_S: Final = 15.0
"""A connection that lasted so long, the interval of heartbeats, was a good one, also if no event came."""
_REST_S: Final = 0.5
"""Timeout of the end of a connection after its terminal event; the server sends both at once."""

_T = TypeVar("_T")


class EventSource(Protocol):
    """Opens a connection to a stream of events."""

    def __call__(self, last_event_id: str) -> AbstractAsyncContextManager[AsyncIterator[bytes] | None]:
        """Return a connection as a context manager: the bytes that follow an event; ``None`` if none follow."""
        ...


class Backoff:
    """The waits between attempts to connect, since the last success.

    Args:
        limit_s: time after a loss at which retries end.
    """

    def __init__(self, limit_s: float, random: Random | None = None) -> None:
        self._limit_s = limit_s
        self._random = random if random is not None else Random()
        self._next_s = _FIRST_S
        self._lost_at: float | None = None

    def succeed(self) -> None:
        """Note a success: the next loss begins with a short wait."""
        self._next_s = _FIRST_S
        self._lost_at = None

    async def wait(self, error: ClientError, least_s: float = 0.0) -> None:
        """Wait before the next attempt.

        Args:
            error: of the attempt that failed.
            least_s: what the server asked for.

        Raises:
            Unreachable: the time limit has passed.
        """
        now = asyncio.get_running_loop().time()
        if self._lost_at is None:
            self._lost_at = now
        left_s = self._lost_at + self._limit_s - now
        if left_s <= 0:
            raise Unreachable(
                f"no connection: retries ended after {self._limit_s:g} s; the last attempt: {error.message}",
                status=error.status,
                message_id=error.message_id,
            ) from error
        wait_s = max(self._next_s, least_s, error.retry_after_s or 0.0)
        self._next_s = min(2 * self._next_s, _LONGEST_S)
        await asyncio.sleep(min(wait_s * self._random.uniform(1 - _JITTER, 1 + _JITTER), left_s))


async def persistently(attempt: Callable[[], Awaitable[_T]], limit_s: float) -> _T:
    """Make an attempt until it does not fail for a lost connection.

    The first attempt must find the server; its failure to connect is raised at once.

    Args:
        attempt: a request that can be repeated without harm.
        limit_s: time after the first loss at which retries end.

    Raises:
        ClientError: what the attempt raised; `Unreachable` if the limit has passed.
    """
    backoff = Backoff(limit_s)
    repeated = False
    while True:
        try:
            return await attempt()
        except ClientError as error:
            if not (is_transient(error) or (repeated and isinstance(error, Unreachable))):
                raise
            await backoff.wait(error)
            repeated = True


async def reconnecting(
    source: EventSource, *, after: str, limit_s: float, is_last: Callable[[ServerSentEvent], bool] = lambda _: False
) -> AsyncGenerator[ServerSentEvent]:
    """Yield the events of a stream, over as many connections as it takes, up to its terminal event.

    A stream that ends before it counts as lost, unless the source says that no event follows.

    Args:
        source: opens each connection.
        after: the id of the event after which to begin; empty for the beginning.
        limit_s: time without a connection that gives something new after which retries end.
        is_last: whether an event is the terminal one. What the connection has after it is read, so that it can serve
            the next request.

    Raises:
        Unreachable: the limit has passed, or the first connection could not be made.
        ClientError: the server refused the request.
    """
    loop = asyncio.get_running_loop()
    backoff = Backoff(limit_s)
    retry_s = 0.0
    connected = False
    while True:
        opened_at = loop.time()
        lost: ClientError = Unreachable("the stream ended before its last event", code=CONNECTION_LOST)
        try:
            async with source(after) as chunks:
                if chunks is None:
                    return
                connected = True
                async with aclosing(_events(chunks, after)) as events:
                    async for event, wait_ms in events:
                        after, retry_s = event.id, (wait_ms or 0) / 1000
                        backoff.succeed()
                        yield event
                        if is_last(event):
                            await _read_rest(events)
                            return
        except ClientError as error:
            if not (is_transient(error) or (connected and isinstance(error, Unreachable))):
                raise
            lost = error
        if connected and loop.time() - opened_at >= _STEADY_S:
            backoff.succeed()
        await backoff.wait(lost, retry_s)


async def _read_rest(events: AsyncIterator[object]) -> None:
    """Read what follows the terminal event, unless it does not come: then the connection is closed."""
    with suppress(ClientError, TimeoutError):
        async with asyncio.timeout(_REST_S):
            async for _ in events:
                pass


async def _events(chunks: AsyncIterator[bytes], after: str) -> AsyncGenerator[tuple[ServerSentEvent, int | None]]:
    """Yield the events of one connection, each with the reconnection time that the server asked for, milliseconds."""
    parser = SseParser(last_event_id=after)
    async for chunk in chunks:
        try:
            events = parser.feed(chunk)
        except EventTooLong as error:
            raise BadAnswer(str(error)) from error
        for event in events:
            yield event, parser.retry_ms
