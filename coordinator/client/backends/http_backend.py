"""The home behind a gateway, reached over HTTP."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chronicle.canonical import decode
from chronicle.errors import InvalidInput
from coordinator.client.backends.connection import Connection, path_of
from coordinator.client.backends.reconnecting import persistently, reconnecting
from coordinator.client.errors import BadAnswer, InvalidRequest, error_of_wire, no_content, not_a
from coordinator.client.reading import read_answer
from coordinator.operations import objects
from podium.address import DEFAULT_TENANT, Address
from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    import httpx

    from coordinator.client.backends.port import Chunks, Frames, Request, Wire
    from coordinator.client.sse_parser import ServerSentEvent
    from coordinator.operations.objects import Directory, Receipt
    from coordinator.operations.objects.result import Result
    from coordinator.telemetry.recorder import Series, Value

__all__ = ["HttpBackend"]

_EVENT_STREAM: Final = "text/event-stream"
_NO_CONTENT: Final = 204
_LAST_FRAME: Final = "agent_end"
_R = TypeVar("_R", bound="Result")


class HttpBackend:
    """A `coordinator.client.backends.port.Backend` over HTTP.

    Args:
        url: the gateway's, such as ``http://127.0.0.1:8700``.
        find_key: returns the API key, empty for none; see `Connection`.
        reconnect_s: time after the loss of a connection at which retries end.

    Raises:
        InvalidRequest: ``url`` is none.
    """

    def __init__(self, url: str, find_key: Callable[[], str], reconnect_s: float) -> None:
        self._connection = Connection(url, find_key)
        self._reconnect_s = reconnect_s

    async def close(self) -> None:
        """Close all connections; streams that are open end."""
        await self._connection.close()

    async def call(self, request: Request[_R], agent: Address | None = None, **arguments: object) -> _R:
        """Make a request, and return its result; a ``GET`` is repeated after a loss."""
        named = {request.names.get(name, name): value for name, value in arguments.items() if value is not None}
        content: Any = named.pop("content", None)
        path = _path_of(request, agent, named)
        sent = {name: _own_tenant(value).name if isinstance(value, Address) else value for name, value in named.items()}

        async def attempt() -> _R:
            found = await self._connection.json(
                request.method,
                path,
                query=sent if request.method != "POST" else None,
                body=sent if request.method == "POST" else None,
                content=content,
                **({} if request.method == "GET" else {"timeout_s": None}),  # it may wait for a turn to end
            )
            return read_answer(request.result(), _object(found))

        return await (persistently(attempt, self._reconnect_s) if request.method == "GET" else attempt())

    async def metrics(self) -> dict[Series, Value]:
        """Return the metrics of the home."""
        from coordinator.telemetry.exposition import parsed  # noqa: PLC0415  few clients need it

        async with self._connection.response("GET", "/metrics", headers={"Accept": "text/plain"}) as answer:
            text = b"".join([chunk async for chunk in self._connection.chunks(answer)])
        try:
            return parsed(text.decode("utf-8", "replace"))
        except PodiumError as error:
            raise BadAnswer(str(error)) from error

    # -- messages -------------------------------------------------------------------------------------------------

    async def send(self, agent: Address, message: Mapping[str, Any], idempotency_key: str, when_busy: str) -> Receipt:
        """Admit a message; return its receipt. A repetition after a loss has the same idempotency key."""

        async def attempt() -> Receipt:
            headers = {"Prefer": "respond-async", "Idempotency-Key": idempotency_key}
            body = _message_body(message, when_busy)
            found = await self._connection.json("POST", _path(agent, "messages"), body=body, headers=headers)
            return read_answer(objects.Receipt, _object(found))

        return await persistently(attempt, self._reconnect_s)

    async def submit(self, agent: Address, message: Mapping[str, Any], idempotency_key: str, when_busy: str) -> Frames:
        """Admit a message and yield its frames. After ``accepted`` a lost connection resumes by the message's id."""
        message_id: str | None = None

        @asynccontextmanager
        async def source(last_event_id: str) -> AsyncIterator[AsyncIterator[bytes] | None]:
            if message_id is not None:
                async with self._stream(_path(agent, "messages", message_id), last_event_id) as chunks:
                    yield chunks
                return
            headers = {"Accept": _EVENT_STREAM, "Idempotency-Key": idempotency_key}
            body = _message_body(message, when_busy)
            async with self._connection.response(
                "POST", _path(agent, "messages"), body=body, headers=headers
            ) as answer:
                yield self._chunks_of(answer)

        events = reconnecting(source, after="", limit_s=self._reconnect_s, is_last=_is_last)
        async with aclosing(self._frames(events)) as frames:
            async for position, frame in frames:
                message_id = message_id or frame.get("message_id")
                yield position, frame

    async def follow(self, agent: Address, message_id: str, after: str) -> Frames:
        """Yield the frames of a message after a position; from the beginning if that is empty."""
        path = _path(agent, "messages", message_id)
        events = reconnecting(
            lambda last: self._stream(path, last), after=after, limit_s=self._reconnect_s, is_last=_is_last
        )
        async with aclosing(self._frames(events)) as frames:
            async for position, frame in frames:
                yield position, frame

    # -- history --------------------------------------------------------------------------------------------------

    async def tail(self, agent: Address, after: int) -> AsyncGenerator[Wire]:
        """Yield the recorded events after a ``seq``, and new ones as they are recorded, without an end."""
        path = _path(agent, "events")
        stream = reconnecting(lambda last: self._stream(path, last), after=str(after), limit_s=self._reconnect_s)
        async with aclosing(stream) as events:
            async for event in events:
                yield _frame_of(event)

    async def export(self, agent: Address) -> Chunks:
        """Yield the archive of an agent."""
        async with self._connection.response("GET", _path(agent, "archive"), timeout_s=None) as answer:
            async for chunk in self._connection.chunks(answer):
                yield chunk

    # -- files and artifacts --------------------------------------------------------------------------------------

    async def read_file(self, agent: Address, path: str, turn: int | None, iteration: int | None) -> Chunks:
        """Yield the content of a file."""
        query = {"turn": turn, "iteration": iteration}
        async with aclosing(self._content(_file_path(agent, path), query)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def directory(self, agent: Address, path: str, turn: int | None) -> Directory:
        """Return a directory of the workspace."""
        where = _file_path(agent, path) if path else _path(agent, "files")

        async def attempt() -> Directory:
            async with self._connection.response("GET", where, query={"turn": turn}) as answer:
                if _is_content(answer):
                    raise not_a(path, "directory")
                found = _object(await self._connection.value(answer))
            if found["type"] != "directory":
                raise not_a(path, "directory")
            return read_answer(objects.Directory, found)

        return await persistently(attempt, self._reconnect_s)

    async def read_artifact(self, agent: Address, artifact_id: str) -> Chunks:
        """Yield the content of an artifact."""
        async with aclosing(self._content(_path(agent, "artifacts", artifact_id), {})) as chunks:
            async for chunk in chunks:
                yield chunk

    # -- inside ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _stream(self, path: str, last_event_id: str) -> AsyncIterator[AsyncIterator[bytes] | None]:
        headers = {"Accept": _EVENT_STREAM} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
        async with self._connection.response("GET", path, headers=headers) as answer:
            yield None if answer.status_code == _NO_CONTENT else self._chunks_of(answer)

    def _chunks_of(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        """Return the bytes of a stream.

        Raises:
            BadAnswer: the answer is no stream.
        """
        media_type = answer.headers.get("Content-Type", "")
        if media_type.partition(";")[0].strip().lower() != _EVENT_STREAM:
            raise BadAnswer(f"{answer.request.url} answered with {media_type or 'no content type'}, not with a stream")
        return self._connection.chunks(answer)

    async def _frames(self, events: AsyncGenerator[ServerSentEvent]) -> Frames:
        async with aclosing(events):
            async for event in events:
                yield event.id, _frame_of(event)

    async def _content(self, path: str, query: Mapping[str, object]) -> Chunks:
        async with AsyncExitStack() as stack:
            answer = await stack.enter_async_context(self._connection.response("GET", path, query=query))
            if not _is_content(answer):
                raise no_content(await self._connection.value(answer))
            async for chunk in self._connection.chunks(answer):
                yield chunk


def _is_last(event: ServerSentEvent) -> bool:
    return _LAST_FRAME in event.data and _frame_of(event).get("type") == _LAST_FRAME


def _is_content(answer: httpx.Response) -> bool:
    """Whether an answer is the bytes of a file; directories and symlinks are described as JSON."""
    return "Accept-Ranges" in answer.headers


def _own_tenant(agent: Address) -> Address:
    if agent.tenant != DEFAULT_TENANT:
        raise InvalidRequest(f"{agent} names a tenant; over HTTP the key does", code="invalid_address", param="agent")
    return agent


def _path_of(request: Request[Any], agent: Address | None, arguments: dict[str, Any]) -> str:
    """Return the path of a request; the arguments that are in it are taken out."""
    parts: list[str | bytes] = []
    for part in request.path.split("/"):
        name = part[1:-1] if part.startswith("{") else None
        value = arguments.pop(name) if name is not None else part
        if value:
            parts.append(os.fsencode(value) if name == "path" else value)
    return path_of(*parts) if agent is None else _path(agent, *parts)


def _path(agent: Address, *parts: str | bytes) -> str:
    _own_tenant(agent)
    return path_of("agents", agent.agent_type, agent.key, *parts)


def _file_path(agent: Address, path: str) -> str:
    return _path(agent, "files", os.fsencode(path))


def _message_body(message: Mapping[str, Any], when_busy: str) -> Wire:
    return {"message": dict(message), "when_busy": when_busy}


def _object(value: object) -> Wire:
    if not isinstance(value, dict):
        raise BadAnswer(f"the server answered with {type(value).__name__}, not with an object")
    return value


def _frame_of(event: ServerSentEvent) -> Wire:
    """Return the JSON object of an event.

    Raises:
        AuthenticationFailed: the event ends the stream with its key.
    """
    frame = _json_of(event)
    if frame.get("type") == "error" and "code" in frame.get("error", {}):
        raise error_of_wire(HTTPStatus.UNAUTHORIZED, frame["error"])
    return frame


def _json_of(event: ServerSentEvent) -> Wire:
    try:
        return _object(decode(event.data.encode()))
    except InvalidInput as error:
        raise BadAnswer(f"an event of the stream is not JSON: {event.data[:200]!r}") from error
