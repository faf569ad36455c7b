"""A run as an ASGI response: served by uvicorn, returned from an endpoint of Starlette, read by other clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import httpx
import httpx_sse
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coordinator.client import AsyncPodium
from coordinator.client.asgi import StreamResponse, with_heartbeats
from coordinator.streams.sse import KEEP_ALIVE, encode_event
from coordinator.testing import (
    ScriptedRequest,
    ScriptedResponse,
    ScriptedServer,
    Wait,
    parse_sse_stream,
    scripted_sse_response,
)
from tests.unit.coordinator.client.message_script import ACCEPTED, AGENT, HEL, STREAM, TURN
from tests.waiting import until

Script = Iterable[ScriptedResponse] | Callable[[ScriptedRequest], ScriptedResponse]


@asynccontextmanager
async def served(app: Starlette) -> AsyncIterator[str]:
    """An application behind a real socket; its URL."""
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve())
        await until(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True


def app_of(podium: AsyncPodium) -> Starlette:
    async def chat(request: Request) -> Response:
        run = await podium.stream(AGENT, request.query_params["text"])
        return run.to_response()  # type: ignore[return-value]  # an ASGI application, as Starlette asks for

    async def resume(request: Request) -> Response:
        return podium.follow(AGENT, request.path_params["message_id"]).to_response()  # type: ignore[return-value]

    return Starlette(routes=[Route("/chat", chat), Route("/runs/{message_id}", resume)])


@asynccontextmanager
async def front(script: Script) -> AsyncIterator[tuple[ScriptedServer, str]]:
    """A gateway, and the URL of an application that serves runs of it."""
    async with ScriptedServer(script) as gateway, AsyncPodium(url=gateway.url) as podium, served(app_of(podium)) as url:
        yield gateway, url


# S4.14, S4.15, S4.35
async def test_an_endpoint_returns_a_run_and_httpx_sse_reads_it() -> None:
    async with (
        front([scripted_sse_response(*STREAM)]) as (_, url),
        httpx.AsyncClient() as client,
        httpx_sse.aconnect_sse(client, "GET", f"{url}/chat", params={"text": "hi"}) as source,
    ):
        events = [event async for event in source.aiter_sse()]
    assert [event.json() for event in events] == [frame for _, frame in STREAM]
    assert [event.id for event in events] == [position for position, _ in STREAM]


# S4.29
async def test_a_reader_resumes_by_last_event_id() -> None:
    async with front([scripted_sse_response(*STREAM[4:])]) as (gateway, url), httpx.AsyncClient() as client:
        answer = await client.get(f"{url}/runs/msg_1", headers={"Last-Event-ID": HEL[0]})
        assert gateway.requests[0].headers["last-event-id"] == HEL[0]
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert [event.id for event in parse_sse_stream(answer.content)] == [position for position, _ in STREAM[4:]]


async def test_a_reader_that_leaves_ends_the_stream_from_the_gateway() -> None:
    def script(_: ScriptedRequest) -> ScriptedResponse:
        return scripted_sse_response(ACCEPTED, TURN, Wait(asyncio.Event()))

    async with front(script) as (gateway, url), httpx.AsyncClient() as client:
        async with client.stream("GET", f"{url}/chat?text=hi") as answer:
            assert await anext(answer.aiter_bytes())
            assert gateway.open_connections == 1
        await until(lambda: not gateway.open_connections)


async def test_a_stream_that_fails_breaks_the_response_off() -> None:
    async def failing(after: str) -> AsyncIterator[bytes]:
        yield encode_event({"after": after}, None)
        raise ValueError("gone")

    sent: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    with pytest.raises(ExceptionGroup) as caught:
        await StreamResponse(failing)({"type": "http", "headers": []}, receive, send)  # type: ignore[arg-type]
    assert [str(error) for error in caught.value.exceptions] == ["gone"]
    assert [message.get("more_body") for message in sent] == [None, True]


async def test_heartbeats_fill_the_gaps_and_lose_nothing() -> None:
    gate = asyncio.Event()
    closed = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        try:
            yield b"a"
            await gate.wait()
            yield b"b"
            await asyncio.Event().wait()
        finally:
            closed.set()

    chunks = with_heartbeats(slow(), interval_s=0.01)  # type: ignore[arg-type]  # it is a generator
    assert await anext(chunks) == b"a"
    assert await anext(chunks) == KEEP_ALIVE
    gate.set()
    while (chunk := await anext(chunks)) != b"b":
        assert chunk == KEEP_ALIVE
    assert await anext(chunks) == KEEP_ALIVE
    await chunks.aclose()
    assert closed.is_set()
