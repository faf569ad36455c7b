"""The encoding of streams, as another reader of server-sent events has it."""

from __future__ import annotations

import httpx
import httpx_sse

from coordinator.streams.sse import KEEP_ALIVE, OPENING, encode_event


def read(body: bytes) -> list[httpx_sse.ServerSentEvent]:
    response = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=body)
    return list(httpx_sse.EventSource(response).iter_sse())


def test_a_keep_alive_is_no_event() -> None:
    first, second = encode_event({"n": 1}, "a"), encode_event({"n": 2}, None)
    events = read(OPENING + first + KEEP_ALIVE + KEEP_ALIVE + second + KEEP_ALIVE)
    assert [(event.event, event.id, event.json()) for event in events] == [
        ("message", "a", {"n": 1}),
        ("message", "a", {"n": 2}),
    ]


def test_any_json_object_is_encoded() -> None:
    value = {"large": 2**70, "half": "\ud83d", "line": "a\nb\r\nc", "text": "ä"}
    (event,) = read(encode_event(value, None))
    assert event.json() == value
