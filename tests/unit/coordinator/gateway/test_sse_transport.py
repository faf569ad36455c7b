"""The transport of events: its port, its wire, and a client that reads it over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import get_args

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.responses import Response

from chronicle.errors import InvalidInput
from coordinator.client import parse_sse
from coordinator.gateway.sse_transport import FastAPISseTransport
from coordinator.streams.transport import EventType, SSEEvent, TransportAdapter, decode_event, encode_transport_event
from coordinator.testing import parse_sse_stream
from tests.waiting import until

EVENTS = [SSEEvent(kind, {"n": number, "text": "a\nb"}) for number, kind in enumerate(get_args(EventType)[:-1])]


@asynccontextmanager
async def served(transport: FastAPISseTransport) -> AsyncIterator[str]:
    app = FastAPI()

    @app.get("/events")
    async def events() -> Response:
        return transport.response()

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve())
        await until(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/events"
        server.should_exit = True


# S1.46
async def test_all_events_reach_a_client_over_http_and_done_is_the_last() -> None:
    transport = FastAPISseTransport()
    adapter: TransportAdapter = transport
    async with served(transport) as url, httpx.AsyncClient() as client, client.stream("GET", url) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        with pytest.raises(InvalidInput):  # here, and not in the response, which it would cut
            await adapter.emit(SSEEvent("content", object()))  # type: ignore[arg-type]  # it is not JSON
        for event in [*EVENTS, SSEEvent("done")]:
            await adapter.emit(event)
        data = [event.data async for event in parse_sse(answer.aiter_bytes())]
    assert data[-1] == "[DONE]"
    assert [decode_event(each) for each in data] == [*EVENTS, SSEEvent("done")]


# S1.46
async def test_a_reader_receives_in_order_and_a_slow_one_holds_the_producer_back() -> None:
    transport = FastAPISseTransport(limit=2)

    async def produce() -> None:
        for event in [*EVENTS, SSEEvent("done")]:
            await transport.emit(event)

    producing = asyncio.create_task(produce())
    await until(transport._events.full)
    assert not producing.done()
    assert [event async for event in transport.receive()] == [*EVENTS, SSEEvent("done")]
    await producing
    with pytest.raises(InvalidInput, match="after done"):
        await transport.emit(SSEEvent("content", "late"))


async def test_a_reader_that_leaves_frees_the_producer() -> None:
    transport = FastAPISseTransport(limit=1)
    async with served(transport) as url, httpx.AsyncClient() as client:
        async with client.stream("GET", url) as answer:
            await transport.emit(EVENTS[0])
            assert parse_sse_stream([await anext(answer.aiter_bytes())])
        async with asyncio.timeout(60):
            for _ in range(100):
                await transport.emit(EVENTS[0])
            await until(lambda: transport._left)


async def test_silence_is_filled_with_keepalive_events() -> None:
    transport = FastAPISseTransport(keep_alive_s=0.01)
    events = transport.receive()
    assert await anext(events) == SSEEvent("keepalive")
    await events.aclose()


def test_what_is_no_event_is_refused() -> None:
    for wrong in ("{", "[]", '{"type": "other"}', '{"data": 1}'):
        with pytest.raises(InvalidInput):
            decode_event(wrong)
    with pytest.raises(InvalidInput):
        encode_transport_event(SSEEvent("content", float("nan")))
