"""Requests that live long and end with the key of their caller: streams, waits, uploads and downloads.

Each is checked once, when it begins; from then on `coordinator.access.caller.Access.watch` says when its key ends.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from starlette.responses import StreamingResponse

from coordinator.access.caller import NotAuthenticated
from coordinator.gateway.dependencies import noting
from coordinator.gateway.event_stream import EventReader, StreamedEvent
from coordinator.operations.problems import problem_of
from podium.tasks import joined_beside

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from starlette.requests import Request
    from starlette.types import Send

    from coordinator.access.caller import Access, Caller
    from podium.turn.stream import Frame

__all__ = ["Download", "body_of", "key_bound", "watching", "while_permitted"]

_Event = TypeVar("_Event", bound=StreamedEvent)
_T = TypeVar("_T")


@contextmanager
def watching(request: Request) -> Iterator[asyncio.Future[NotAuthenticated]]:
    """Watch the key of a request while the context lasts; that it ended is in the audit record.

    The future has the error with which the request is to end.
    """
    access: Access = request.app.state.access
    caller: Caller = request.state.caller
    with access.watch(caller) as ended:
        try:
            yield ended
        finally:
            if ended.done():
                with suppress(NotAuthenticated), noting(request, caller):
                    raise ended.result()


# -- streams ------------------------------------------------------------------------------------------------------


@contextmanager
def key_bound(
    request: Request, opening: AbstractContextManager[EventReader[_Event]], last: Callable[[Frame], _Event]
) -> Iterator[_KeyBoundReader[_Event]]:
    """Open a stream that ends with the key of its reader.

    Args:
        opening: opens the stream.
        last: makes its last event from an ``error`` frame.
    """
    with watching(request) as ended, opening as reader:
        yield _KeyBoundReader(reader, ended, last)


def _error_frame(error: NotAuthenticated) -> Frame:
    """Return the frame that ends a stream with its key; the message, if it is one of a message, is not ended."""
    problem = problem_of(error)
    assert problem is not None
    described = {"type": type(error).__name__, "message": str(error), "code": problem.code}
    return {"type": "error", "error": described, "parked": False}


class _KeyBoundReader(Generic[_Event]):
    """A reader of a stream, which ends with a last event when the key does."""

    def __init__(
        self,
        reader: EventReader[_Event],
        ended: asyncio.Future[NotAuthenticated],
        last: Callable[[Frame], _Event],
    ) -> None:
        self._reader = reader
        self._ended = ended
        self._last: Callable[[Frame], _Event] | None = last
        """``None`` once it was returned."""
        ended.add_done_callback(lambda _: reader.cut_off())

    @property
    def is_complete(self) -> bool:
        return self._reader.is_complete

    async def next(self) -> Sequence[_Event]:
        if not self._ended.done() and (events := await self._reader.next()):
            return events
        if not self._ended.done() or self._last is None or self.is_complete:
            return ()
        last, self._last = self._last(_error_frame(self._ended.result())), None
        return (last,)

    def cut_off(self) -> None:
        self._last = None
        self._reader.cut_off()


# -- waits, uploads, downloads ------------------------------------------------------------------------------------


async def while_permitted(ended: asyncio.Future[NotAuthenticated], waiting: Awaitable[_T]) -> _T:
    """Return a result; if the key ends before, what waits for it is cancelled.

    Raises:
        NotAuthenticated: the key ended.
    """
    async with joined_beside(waiting) as result:
        both: tuple[asyncio.Future[Any], ...] = (result, ended)
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise ended.result()
        return result.result()


async def body_of(request: Request) -> AsyncIterator[bytes]:
    """Yield the body of an upload, in pieces.

    Raises:
        NotAuthenticated: the key ended before the body.
    """
    with watching(request) as ended:
        async with aclosing(request.stream()) as pieces:
            while piece := await while_permitted(ended, anext(pieces, b"")):
                yield piece


class Download(StreamingResponse):
    """A response with the bytes of a file. If the key ends before them, the connection is cut.

    Args:
        request: what it answers.
        pieces: the bytes.
    """

    def __init__(
        self,
        request: Request,
        pieces: AsyncGenerator[bytes],
        status_code: int,
        headers: Mapping[str, str],
        media_type: str | None = None,
    ) -> None:
        super().__init__(pieces, status_code, headers, media_type)
        self._request = request
        self._pieces = pieces

    async def stream_response(self, send: Send) -> None:
        with watching(self._request) as ended, suppress(NotAuthenticated):
            async with aclosing(self._pieces):
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                async for piece in self._pieces:
                    message = {"type": "http.response.body", "body": piece, "more_body": True}
                    await while_permitted(ended, send(message))
                await send({"type": "http.response.body", "body": b"", "more_body": False})
