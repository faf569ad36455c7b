"""Streams of the HTTP backend: over a real socket, from a server that breaks them where the test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.client import (
    AnswerTimeout,
    AsyncPodium,
    AsyncRun,
    BadAnswer,
    MessageCancelled,
    MessageFailed,
    RequestConflict,
    Unreachable,
)
from coordinator.testing import (
    Cut,
    ScriptedRequest,
    ScriptedResponse,
    ScriptedServer,
    Wait,
    parse_sse_stream,
    scripted_sse_response,
)
from tests.unit.coordinator.client.message_script import (
    ACCEPTED,
    AGENT,
    COMMIT,
    END,
    HEL,
    LAST,
    LO,
    MESSAGE,
    RECORD,
    START,
    STREAM,
    TURN,
    frame,
)
from tests.waiting import until


@asynccontextmanager
async def client(server: ScriptedServer, reconnect_s: float = 30.0) -> AsyncIterator[AsyncPodium]:
    async with AsyncPodium(url=server.url, key="pk_test", reconnect_s=reconnect_s) as podium:
        yield podium


async def types_of(run: AsyncRun) -> list[str]:
    return [frame["type"] async for frame in run.events()]


# C.6, S4.12, S4.35
async def test_a_run_yields_the_frames_of_one_request() -> None:
    async with ScriptedServer([scripted_sse_response(*STREAM)]) as server, client(server) as podium:
        async with await podium.stream(AGENT, "hi", when_busy="steer") as run:
            assert run.receipt is not None
            assert (run.message_id, run.receipt.position, run.receipt.agent) == (MESSAGE, 1, AGENT)
            frames = [frame async for frame in run.events()]
            assert frames == [frame for _, frame in STREAM]
            assert run.position == "msg_1/end"
        (request,) = server.requests
        assert (request.method, request.target) == ("POST", "/v1/agents/hello/alice/messages")
        assert request.json == {"message": {"text": "hi"}, "when_busy": "steer"}
        assert request.headers["accept"] == "text/event-stream"
        assert request.headers["authorization"] == "Bearer pk_test"
        assert len(request.headers["idempotency-key"]) == 32


# S4.32
async def test_an_answer_is_read_once_from_the_stream() -> None:
    async with ScriptedServer([scripted_sse_response(*STREAM)]) as server, client(server) as podium:
        run = await podium.stream(AGENT, {"n": 2**70})
        assert (await run.answer()).text == await run.text() == "Hello"
        assert (await run.answer()).as_json() == RECORD["answer"]
        (request,) = server.requests
        assert request.target == "/v1/agents/hello/alice/messages"
        assert request.json == {"message": {"n": 2**70}, "when_busy": "enqueue"}


@pytest.mark.parametrize("read", [True, False])
async def test_an_answer_is_fetched_if_its_stream_was_read_or_not_from_its_beginning(read: bool) -> None:
    script = [scripted_sse_response(*(STREAM if read else STREAM[4:])), ScriptedResponse.json(RECORD)]
    async with ScriptedServer(script) as server, client(server) as podium:
        run = await podium.stream(AGENT, "hi") if read else podium.follow(AGENT, MESSAGE, after=STREAM[3][0])
        if read:
            assert len(await types_of(run)) == len(STREAM)
        assert (await run.answer()).as_json() == RECORD["answer"]
        assert server.requests[-1].target == "/v1/agents/hello/alice/messages/msg_1"


# S4.29, S4.34
async def test_a_broken_stream_goes_on_after_the_last_whole_event() -> None:
    script = [
        scripted_sse_response(ACCEPTED, TURN, START, HEL, b"id: lost\ndata: {", Cut()),
        scripted_sse_response(LO, b"id: half"),  # it ends without a terminal frame, too
        ScriptedResponse(503, {"Retry-After": "0"}, (b"gateway restarts",)),
        scripted_sse_response(END, COMMIT, LAST),
    ]
    async with ScriptedServer(script) as server, client(server) as podium:
        run = await podium.stream(AGENT, "hi")
        assert await types_of(run) == [frame["type"] for _, frame in STREAM]
        after = [request.headers.get("last-event-id") for request in server.requests]
        assert after == [None, HEL[0], LO[0], LO[0]]
        assert [request.method for request in server.requests] == ["POST", "GET", "GET", "GET"]


async def test_a_message_whose_receipt_was_lost_is_sent_again_under_the_same_key() -> None:
    script = [scripted_sse_response(b"id: msg_1/0\nda", Cut()), scripted_sse_response(*STREAM)]
    async with ScriptedServer(script) as server, client(server) as podium:
        assert len(await types_of(await podium.stream(AGENT, "hi"))) == len(STREAM)
        first, second = server.requests
        assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
        assert (first.method, first.body) == (second.method, second.body) == ("POST", first.body)


async def test_a_receipt_that_was_lost_is_asked_for_again() -> None:
    receipt = {"message_id": MESSAGE, "agent": AGENT, "position": 1, "before": 0}
    script = [ScriptedResponse(202, {}, (b"{", Cut())), ScriptedResponse.json(receipt, 202)]
    async with ScriptedServer(script) as server, client(server) as podium:
        assert (await podium.send(AGENT, "hi", idempotency_key="k")).message_id == MESSAGE
        assert [request.headers["idempotency-key"] for request in server.requests] == ["k", "k"]
        assert server.requests[0].headers["prefer"] == "respond-async"


# S4.29
async def test_a_run_resumes_by_its_id_and_position_in_another_client() -> None:
    script = [scripted_sse_response(LO, END, COMMIT, LAST), ScriptedResponse(204)]
    async with ScriptedServer(script) as server, client(server) as podium:
        run = podium.follow(AGENT, MESSAGE, after=HEL[0])
        assert await types_of(run) == ["message_update", "message_end", "turn_end", "agent_end"]
        assert server.requests[0].headers["last-event-id"] == HEL[0]
        assert await types_of(podium.follow(AGENT, MESSAGE, after=run.position)) == []
        assert server.requests[1].headers["last-event-id"] == "msg_1/end"


async def test_a_server_that_stays_away_ends_the_stream_with_an_error_that_names_the_message() -> None:
    server = ScriptedServer([scripted_sse_response(ACCEPTED, Cut())])
    async with server:
        url = server.url
        podium = AsyncPodium(url=url, reconnect_s=0.3)
        run = await podium.stream(AGENT, "hi")
    async with podium:
        with pytest.raises(Unreachable, match=r"no connection: retries ended after 0\.3 s; .*cannot connect") as caught:
            await types_of(run)
    assert caught.value.message_id == MESSAGE


async def test_a_server_that_never_gives_anything_new_ends_the_stream_too() -> None:
    def answer(request: ScriptedRequest) -> ScriptedResponse:
        return scripted_sse_response(ACCEPTED) if request.method == "POST" else scripted_sse_response()

    async with ScriptedServer(answer) as server, client(server, reconnect_s=0.3) as podium:
        run = await podium.stream(AGENT, "hi")
        with pytest.raises(Unreachable, match="the stream ended before its last event"):
            await types_of(run)
        assert len(server.requests) > 2


async def test_a_server_that_was_never_there_is_reported_at_once() -> None:
    async with ScriptedServer([]) as server:
        url = server.url
    async with AsyncPodium(url=url) as podium:
        with pytest.raises(Unreachable, match=f"cannot connect to {url}: .*is the server up") as caught:
            await podium.stream(AGENT, "hi")
        assert (caught.value.code, caught.value.status) == ("unreachable", None)


async def test_an_error_of_the_server_while_resuming_is_raised() -> None:
    gone = {
        "error": {"message": "no such message", "type": "not_found_error", "code": "unknown_message", "param": None}
    }
    script = [scripted_sse_response(ACCEPTED, Cut()), ScriptedResponse.json(gone, 404)]
    async with ScriptedServer(script) as server, client(server) as podium:
        run = await podium.stream(AGENT, "hi")
        with pytest.raises(Exception, match="no such message") as caught:
            await types_of(run)
        assert (type(caught.value).__name__, caught.value.code) == ("ResourceNotFound", "unknown_message")  # type: ignore[attr-defined]


async def test_a_refused_message_is_an_error_before_a_run_exists() -> None:
    busy = {"error": {"message": "hello/alice is busy", "type": "conflict_error", "code": "agent_busy", "param": None}}
    async with ScriptedServer([ScriptedResponse.json(busy, 409)]) as server, client(server) as podium:
        with pytest.raises(RequestConflict, match="is busy") as caught:
            await podium.stream(AGENT, "hi", when_busy="reject")
        assert (caught.value.status, caught.value.code, caught.value.kind) == (409, "agent_busy", "AgentBusy")


async def test_a_server_that_is_no_podium_is_reported() -> None:
    page = ScriptedResponse(200, {"Content-Type": "text/html"}, (b"<html>",))
    async with ScriptedServer([page, page]) as server, client(server) as podium:
        with pytest.raises(BadAnswer, match="answered with text/html, not with a stream"):
            await podium.stream(AGENT, "hi")
        with pytest.raises(BadAnswer, match="something else than JSON: '<html>'"):
            await podium.state(AGENT)


@pytest.mark.parametrize(
    ("outcome", "error", "parked", "kind", "code"),
    [
        ("failed", {"type": "ValueError", "message": "no"}, False, MessageFailed, "turn_failed"),
        ("parked", {"type": "ValueError", "message": "no"}, True, MessageFailed, "message_parked"),
        ("cancelled", {"type": "Cancelled", "message": ""}, False, MessageCancelled, "cancelled"),
    ],
)
async def test_a_message_without_an_answer_raises(
    outcome: str, error: dict[str, str], parked: bool, kind: type[MessageFailed], code: str
) -> None:
    ending = [
        ("msg_1/x", frame("error", error=error, parked=parked)),
        ("msg_1/end", frame("agent_end", outcome=outcome)),
    ]
    async with ScriptedServer([scripted_sse_response(ACCEPTED, TURN, *ending)]) as server, client(server) as podium:
        with pytest.raises(kind) as caught:
            await podium.ask(AGENT, "hi")
        assert type(caught.value) is kind
        assert (caught.value.code, caught.value.parked, caught.value.message_id) == (code, parked, MESSAGE)
        assert caught.value.error_type == error["type"]


async def test_a_timeout_names_the_message_and_cancels_nothing() -> None:
    script = [scripted_sse_response(ACCEPTED, Wait(asyncio.Event()))]
    async with ScriptedServer(script) as server, client(server) as podium:
        with pytest.raises(AnswerTimeout, match=r"did not answer msg_1 within 2 s") as caught:
            await podium.ask(AGENT, "hi", timeout=2)
        assert caught.value.message_id == MESSAGE
        assert len(server.requests) == 1


async def test_streams_that_were_read_to_their_ends_share_a_connection() -> None:
    async with ScriptedServer([scripted_sse_response(*STREAM)] * 3) as server, client(server) as podium:
        await podium.ask(AGENT, "hi")
        await podium.ask(AGENT, "hi")
        assert await types_of(podium.follow(AGENT, MESSAGE)) == [frame["type"] for _, frame in STREAM]
        assert [request.connection for request in server.requests] == [1, 1, 1]


async def test_a_terminal_frame_without_an_end_of_the_stream_is_the_end() -> None:
    async with (
        ScriptedServer([scripted_sse_response(*STREAM, Wait(asyncio.Event()))]) as server,
        client(server) as podium,
    ):
        assert (await podium.ask(AGENT, "hi")).text == "Hello"
        await until(lambda: server.open_connections == 0)


async def test_leaving_a_stream_closes_its_connection() -> None:
    script = [scripted_sse_response(ACCEPTED, TURN, Wait(asyncio.Event()))] * 2
    async with ScriptedServer(script) as server, client(server) as podium:
        async with await podium.stream(AGENT, "hi") as run, aclosing(run.events()) as events:
            assert [(await anext(events))["type"], (await anext(events))["type"]] == ["accepted", "turn_start"]
        async with await podium.stream(AGENT, "never read") as unread:
            assert unread.message_id
        await until(lambda: not server.open_connections)


async def test_the_server_decides_how_soon_to_come_again() -> None:
    script = [scripted_sse_response(ACCEPTED, Cut(), retry_ms=400), scripted_sse_response(*STREAM[1:])]
    async with ScriptedServer(script) as server, client(server) as podium:
        began = asyncio.get_running_loop().time()
        assert len(await types_of(await podium.stream(AGENT, "hi"))) == len(STREAM)
        assert asyncio.get_running_loop().time() - began >= 0.4 * 0.75  # the jitter shortens it at most by a quarter


# -- the stream as bytes -----------------------------------------------------------------------------------------------


# S4.13
async def test_a_readable_stream_gives_the_frames_as_server_sent_events() -> None:
    async with ScriptedServer([scripted_sse_response(*STREAM)]) as server, client(server) as podium:
        run = await podium.stream(AGENT, "hi")
        pieces = [piece async for piece in run.to_readable_stream()]
    events = parse_sse_stream(pieces)
    assert [(event.id, json.loads(event.data)) for event in events] == STREAM
    assert all(event.type == "message" for event in events)


# S4.33, S4.34: any cut at any byte
@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 900), max_size=3))
async def test_a_stream_cut_at_any_bytes_gives_every_frame_once(cuts: list[int]) -> None:
    left = list(cuts)

    def answer(request: ScriptedRequest) -> ScriptedResponse:
        after = request.headers.get("last-event-id", "")
        ids = [position for position, _ in STREAM]
        rest = STREAM[ids.index(after) + 1 :] if after else STREAM
        whole = b"".join(step for step in scripted_sse_response(*rest).steps if isinstance(step, bytes))
        return scripted_sse_response(whole[: left.pop()], Cut()) if left else scripted_sse_response(whole)

    async with ScriptedServer(answer) as server, client(server) as podium:
        run = await podium.stream(AGENT, "hi")
        assert [frame async for frame in run.events()] == [frame for _, frame in STREAM]
