"""The home behind a gateway, reached over HTTP."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from chronicle.canonical import decode
from chronicle.errors import InvalidInput
from coordinator.client.backends.connection import Connection, path_of
from coordinator.client.backends.reconnecting import persistently, reconnecting
from coordinator.client.errors import BadAnswer, InvalidRequest, error_of_wire, not_a
from podium.address import DEFAULT_TENANT
from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence

    import httpx

    from coordinator.client.backends.port import Chunks, Frames, Wire
    from coordinator.client.sse_parser import ServerSentEvent
    from coordinator.telemetry.recorder import Series, Value
    from podium.address import Address

__all__ = ["HttpBackend"]

_EVENT_STREAM: Final = "text/event-stream"
_NO_CONTENT: Final = 204
_LAST_FRAME: Final = "agent_end"


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

    async def agents(
        self, agent_type: str | None, tenant: str | None, limit: int, cursor: str | None, *, awake: bool
    ) -> Wire:
        """Return a page of the home's agents, by address."""
        return await self._get(
            path_of("agents"), type=agent_type, tenant=tenant, awake=awake or None, limit=limit, cursor=cursor
        )

    async def agent(self, agent: Address) -> Wire:
        """Return one agent."""
        return await self._get(_path(agent))

    async def why(self, agent: Address) -> Wire:
        """Return what an agent waits for."""
        return await self._get(_path(agent, "why"))

    async def nodes(self) -> Wire:
        """Return the nodes of the home's service."""
        return await self._get(path_of("nodes"))

    async def delete(self, agent: Address, *, detach: bool) -> Wire:
        """Delete an agent."""
        return _object(
            await self._connection.json("DELETE", _path(agent), query={"detach": "true"} if detach else None)
        )

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

    async def send(self, agent: Address, message: Mapping[str, Any], idempotency_key: str, when_busy: str) -> Wire:
        """Admit a message; return its receipt. A repetition after a loss has the same idempotency key."""

        async def attempt() -> Wire:
            headers = {"Prefer": "respond-async", "Idempotency-Key": idempotency_key}
            body = _message_body(message, when_busy)
            return _object(await self._connection.json("POST", _path(agent, "messages"), body=body, headers=headers))

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

        async with aclosing(self._frames(reconnecting(source, after="", limit_s=self._reconnect_s))) as frames:
            async for position, frame in frames:
                message_id = message_id or frame.get("message_id")
                yield position, frame

    async def follow(self, agent: Address, message_id: str, after: str) -> Frames:
        """Yield the frames of a message after a position; from the beginning if that is empty."""
        path = _path(agent, "messages", message_id)
        events = reconnecting(lambda last: self._stream(path, last), after=after, limit_s=self._reconnect_s)
        async with aclosing(self._frames(events)) as frames:
            async for position, frame in frames:
                yield position, frame

    async def message(self, agent: Address, message_id: str) -> Wire:
        """Return a message and its outcome."""
        return await self._get(_path(agent, "messages", message_id))

    async def cancel(self, agent: Address, message_id: str) -> None:
        """Cancel a pending, running or parked message."""
        await self._post(_path(agent, "messages", message_id, "cancel"))

    async def retry(self, agent: Address, message_id: str, *, drop_steps: bool) -> None:
        """Make a parked message pending, and drop its steps if so asked."""
        await self._post(_path(agent, "messages", message_id, "retry"), {"drop_steps": True} if drop_steps else None)

    async def drop(self, agent: Address, message_id: str) -> None:
        """Remove a pending or parked message."""
        await self._post(_path(agent, "messages", message_id, "drop"))

    async def inbox(self, agent: Address, limit: int, cursor: str | None) -> Wire:
        """Return a page of the pending and parked messages, by position."""
        return await self._get(_path(agent, "inbox"), limit=limit, cursor=cursor)

    async def reminders(self, agent: Address, limit: int, cursor: str | None) -> Wire:
        """Return a page of the reminders, by name."""
        return await self._get(_path(agent, "reminders"), limit=limit, cursor=cursor)

    async def cancel_reminder(self, agent: Address, name: str) -> None:
        """Cancel a reminder."""
        await self._connection.json("DELETE", _path(agent, "reminders", name))

    # -- history --------------------------------------------------------------------------------------------------

    async def events(self, agent: Address, after: int, types: Sequence[str], cursor: str | None) -> Wire:
        """Return a page of the recorded events after a ``seq``, oldest first."""
        return await self._get(_path(agent, "events"), after=after, type=list(types), cursor=cursor)

    async def tail(self, agent: Address, after: int) -> AsyncGenerator[Wire]:
        """Yield the recorded events after a ``seq``, and new ones as they are recorded, without an end."""
        path = _path(agent, "events")
        stream = reconnecting(lambda last: self._stream(path, last), after=str(after), limit_s=self._reconnect_s)
        async with aclosing(stream) as events:
            async for event in events:
                yield _frame_of(event)

    async def state(self, agent: Address, at: int | None) -> Wire:
        """Return the state at the end of a turn."""
        return await self._get(_path(agent, "state"), at=at)

    async def difference(self, agent: Address, before: int | None, after: int | None, other: Address | None) -> Wire:
        """Return the differences between two turns, of an agent or of two."""
        named = None if other is None else _own_tenant(other).name
        return await self._get(_path(agent, "diff"), **{"from": before, "to": after, "with": named})

    async def fold(self, agent: Address, keep_turns: int | None, keep_days: float | None, *, dry_run: bool) -> Wire:
        """Drop the older history of an agent."""
        body = {"keep_turns": keep_turns, "keep_days": keep_days, "dry_run": dry_run}
        return _object(await self._post(_path(agent, "fold"), body))

    async def erase(self, agent: Address, events: Sequence[str]) -> Wire:
        """Erase the content of events of an agent."""
        return _object(await self._post(_path(agent, "erase"), {"events": list(events)}))

    async def export(self, agent: Address) -> Chunks:
        """Yield the archive of an agent."""
        async with self._connection.response("GET", _path(agent, "archive"), timeout_s=None) as answer:
            async for chunk in self._connection.chunks(answer):
                yield chunk

    async def import_archive(self, agent: Address, content: bytes | AsyncIterator[bytes]) -> Wire:
        """Create an agent from an archive."""
        path = _path(agent, "archive")
        return _object(await self._connection.json("PUT", path, content=content, timeout_s=None))

    async def fork(self, agent: Address, key: str, at: int | None) -> Wire:
        """Make an agent that continues another one."""
        return _object(await self._post(_path(agent, "fork"), {"key": key} | ({} if at is None else {"at": at})))

    async def rewind(self, agent: Address, turn: int, only: Sequence[str]) -> Wire:
        """Return an agent to an earlier turn."""
        body = {"turn": turn} | ({"only": list(only)} if only else {})
        return _object(await self._post(_path(agent, "rewind"), body))

    async def passivate(self, agent: Address) -> None:
        """Put an agent to sleep after its running turn."""
        await self._post(_path(agent, "passivate"))

    async def verify(self, agent: Address) -> Wire:
        """Check an agent's stored data."""
        return _object(await self._post(_path(agent, "verify")))

    # -- files and artifacts --------------------------------------------------------------------------------------

    async def read_file(self, agent: Address, path: str, turn: int | None, iteration: int | None) -> Chunks:
        """Yield the content of a file."""
        query = {"turn": turn, "iteration": iteration}
        async with aclosing(self._content(_file_path(agent, path), query, path)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def directory(self, agent: Address, path: str, turn: int | None) -> Wire:
        """Return a directory of the workspace."""
        if not path:
            return await self._get(_path(agent, "files"), turn=turn)
        async with self._connection.response("GET", _file_path(agent, path), query={"turn": turn}) as answer:
            if _is_content(answer):
                raise not_a(path, "directory")
            found = await self._connection.value(answer)
        if found["type"] != "directory":
            raise not_a(path, "directory")
        return _object(found)

    async def file_history(self, agent: Address, path: str, turn: int | None, limit: int, cursor: str | None) -> Wire:
        """Return a page of the versions of a path, oldest first."""
        return await self._get(_path(agent, "history", os.fsencode(path)), turn=turn, limit=limit, cursor=cursor)

    async def upload(self, agent: Address, path: str, content: bytes | AsyncIterator[bytes]) -> Wire:
        """Write a file, as a turn of its own."""
        return _object(await self._connection.json("PUT", _file_path(agent, path), content=content, timeout_s=None))

    async def delete_file(self, agent: Address, path: str) -> Wire:
        """Delete a file, as a turn of its own."""
        return _object(await self._connection.json("DELETE", _file_path(agent, path), timeout_s=None))

    async def artifacts(self, agent: Address, turn: int | None, limit: int, cursor: str | None) -> Wire:
        """Return a page of the artifacts, oldest first."""
        return await self._get(_path(agent, "artifacts"), turn=turn, limit=limit, cursor=cursor)

    async def read_artifact(self, agent: Address, artifact_id: str) -> Chunks:
        """Yield the content of an artifact."""
        async with aclosing(self._content(_path(agent, "artifacts", artifact_id), {}, artifact_id)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def find_artifact(self, artifact_id: str) -> Wire:
        """Return an artifact by its id, and an agent that has it."""
        return await self._get(path_of("artifacts", artifact_id))

    # -- inside ---------------------------------------------------------------------------------------------------

    async def _get(self, path: str, **query: object) -> Wire:
        """Return the object that a route answers with; the request is repeated after a loss."""

        async def attempt() -> Wire:
            return _object(await self._connection.json("GET", path, query=query))

        return await persistently(attempt, self._reconnect_s)

    async def _post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Make a request whose answer may have to wait for a turn to end."""
        return await self._connection.json("POST", path, body=body or {}, timeout_s=None)

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
                frame = _frame_of(event)
                yield event.id, frame
                if frame.get("type") == _LAST_FRAME:
                    return

    async def _content(self, path: str, query: Mapping[str, object], name: str) -> Chunks:
        async with AsyncExitStack() as stack:
            answer = await stack.enter_async_context(self._connection.response("GET", path, query=query))
            if not _is_content(answer):
                raise not_a(name, "file")
            async for chunk in self._connection.chunks(answer):
                yield chunk


def _is_content(answer: httpx.Response) -> bool:
    """Whether an answer is the bytes of a file; directories and symlinks are described as JSON."""
    return "Accept-Ranges" in answer.headers


def _own_tenant(agent: Address) -> Address:
    if agent.tenant != DEFAULT_TENANT:
        raise InvalidRequest(f"{agent} names a tenant; over HTTP the key does", code="invalid_address", param="agent")
    return agent


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
