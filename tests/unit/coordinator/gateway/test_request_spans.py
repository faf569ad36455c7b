"""The spans of requests, at a real receiver: names, statuses, and the trace that the application finds."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from coordinator.gateway.request_spans import RequestSpans
from coordinator.telemetry.tracing import Tracing
from tests.otlp_receiver import OtlpReceiver, otlp_receiver

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
app = FastAPI()


@app.get("/v1/agents/{key}")
async def found(key: str, request: Request) -> dict[str, object]:
    return {"key": key, "traceparents": request.headers.getlist("traceparent")}


@app.get("/v1/streams")
async def streamed() -> StreamingResponse:
    return StreamingResponse(iter(["a", "b"]))


@app.get("/v1/broken")
async def broken() -> None:
    raise ValueError("no")


@app.get("/metrics")
async def scraped(request: Request) -> list[str]:
    return request.headers.getlist("traceparent")


async def get(
    monkeypatch: pytest.MonkeyPatch, *paths: str, **headers: str
) -> tuple[OtlpReceiver, list[httpx.Response]]:
    """GET paths, and return the receiver of their spans, and the answers."""
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        tracing = Tracing("gateway")
        transport = httpx.ASGITransport(RequestSpans(app, tracing.tracer), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://podium", headers=headers) as client:
            answers = [await client.get(path) for path in paths]
        await tracing.flush()
    return receiver, answers


async def test_the_application_finds_the_span_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver, (answer,) = await get(monkeypatch, "/v1/agents/alice", traceparent=PARENT)
    (span,) = receiver.spans
    assert (span.name, span.kind, span.trace_id, span.parent_id) == ("GET /v1/agents/{key}", "SERVER", TRACE, SPAN)
    assert span.attributes == {
        "http.request.method": "GET",
        "url.path": "/v1/agents/alice",
        "http.route": "/v1/agents/{key}",
        "http.response.status_code": 200,
    }
    assert not span.failed
    assert answer.json() == {"key": "alice", "traceparents": [f"00-{TRACE}-{span.span_id}-01"]}


async def test_requests_without_a_trace_begin_one(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver, answers = await get(monkeypatch, "/v1/agents/alice", "/v1/nothing", "/v1/streams", traceparent="none")
    assert [answer.status_code for answer in answers] == [200, 404, 200]
    first, unknown, stream = receiver.spans
    (own,) = answers[0].json()["traceparents"]
    assert own.startswith(f"00-{first.trace_id}-{first.span_id}-")
    assert (first.parent_id, unknown.name, unknown.attributes["http.response.status_code"]) == ("", "GET", 404)
    assert (stream.name, stream.failed, answers[2].text) == ("GET /v1/streams", False, "ab")


async def test_what_the_application_fails_at_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver, (answer,) = await get(monkeypatch, "/v1/broken")
    (span,) = receiver.spans
    assert answer.status_code == 500
    assert (span.name, span.failed, span.attributes["http.response.status_code"]) == ("GET /v1/broken", True, 500)


async def test_scrapes_are_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver, (answer,) = await get(monkeypatch, "/metrics", traceparent=PARENT)
    assert receiver.spans == []
    assert answer.json() == [PARENT]
