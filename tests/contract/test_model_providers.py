"""The providers of models against a server that speaks their formats: answers, and all the ways in which they fail."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.models.anthropic.provider import AnthropicProvider
from podium.models.collecting import Answered, Collector, collect
from podium.models.errors import ModelError
from podium.models.openai_compat.provider import OpenAICompatProvider, OpenAIResponsesProvider
from podium.models.port import (
    Finished,
    LLMMessage,
    LLMStreamChunk,
    ProviderBlock,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallDone,
    Usage,
)
from tests.model_server.answers import WIRES, Answer, Call, Wire
from tests.model_server.replies import (
    Hold,
    Reply,
    cut_at,
    end_at,
    failing_stream,
    hold_after,
    overloaded,
    page,
    rate_limited,
    refusal,
    replaced,
    split_at,
)
from tests.model_server.server import ModelServer
from tests.model_server.wires import frames

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from chronicle.canonical import JsonObject

Provider = OpenAICompatProvider | AnthropicProvider
HELLO = [LLMMessage("user", "Hello?")]
RICH = Answer(
    "I add ä and 日本.",
    "Let me think. It is easy.",
    [Call("c1", "add", '{"a": 1, "b": "ü"}'), Call("c2", "now", "{}")],
)


def make(wire: Wire, server_url: str, **options: Any) -> Provider:
    """The provider that speaks a format, with an address of a server."""
    if wire == "messages":
        return AnthropicProvider("m-1", base_url=server_url, **options)
    made = OpenAICompatProvider if wire == "chat" else OpenAIResponsesProvider
    return made("m-1", base_url=f"{server_url}/v1", **options)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
async def provider(wire: Wire, server: ModelServer) -> AsyncIterator[Provider]:
    made = make(wire, server.url, api_key="key-1")
    yield made
    await made.aclose()


async def chunks_of(provider: Provider, messages: list[LLMMessage] = HELLO) -> list[LLMStreamChunk]:
    return [chunk async for chunk in provider.stream(messages)]


# -- answers -----------------------------------------------------------------------------------------------------------


# S1.37
async def test_tools_and_temperature_are_sent(provider: Provider, server: ModelServer, wire: Wire) -> None:
    tool: JsonObject = {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}
    await collect(provider.stream(HELLO, tools=[tool], temperature=0.25))
    await collect(provider.stream(HELLO, temperature=0.0))
    await collect(provider.stream(HELLO))
    told, zero, silent = (request.body for request in server.requests)
    assert (told["temperature"], zero["temperature"]) == (0.25, 0.0)
    (sent,) = told["tools"]
    assert sent.get("function", sent)["name"] == "add", wire
    assert silent.keys().isdisjoint({"temperature", "tools"})


# S1.37, S1.38, S1.39
async def test_text_comes_as_it_is_written(provider: Provider, server: ModelServer) -> None:
    server.will(Answer("Good morning, Ann.", cached_tokens=4, cache_write_tokens=2))
    chunks = await chunks_of(provider)
    assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == ["Good", " morning,", " Ann."]
    usages = [chunk for chunk in chunks if isinstance(chunk, Usage)]
    assert usages[-1] == Usage(input_tokens=12, output_tokens=5, cached_tokens=4, cache_write_tokens=2)
    assert isinstance(chunks[-1], Finished)
    assert (chunks[-1].reason, chunks[-1].model) == ("stop", "test-1")
    assert [isinstance(chunk, Finished) for chunk in chunks].count(True) == 1


async def test_a_chunk_is_there_before_the_next_one_is_written(provider: Provider, server: ModelServer) -> None:
    going_on = threading.Event()
    server.will(Reply(Answer("Good morning"), shape=lambda body: [*body[:-4], Hold(going_on), *body[-4:]]))
    async with aclosing(provider.stream(HELLO)) as stream:
        async for chunk in stream:
            if isinstance(chunk, TextDelta):
                going_on.set()  # only now are the last frames sent
    assert isinstance(chunk, Finished)


async def test_reasoning_text_and_calls_in_their_order(provider: Provider, server: ModelServer, wire: Wire) -> None:
    server.will(RICH)
    chunks = await chunks_of(provider)
    answered = collected(chunks)
    assert answered.reasoning == RICH.reasoning
    assert answered.message.text == RICH.text
    calls = [ToolCall(c.id, c.name, c.arguments, None, None) for c in answered.message.tool_calls]
    assert calls == [ToolCall("c1", "add", {"a": 1, "b": "ü"}), ToolCall("c2", "now")]
    assert answered.finished is not None
    assert answered.finished.reason == "tool_calls"
    deltas = [chunk for chunk in chunks if isinstance(chunk, ToolCallDelta)]
    assert [(delta.index, delta.id, delta.name) for delta in deltas if delta.id] == [(0, "c1", "add"), (1, "c2", "now")]
    written = "".join(delta.arguments_json for delta in deltas if delta.index == 0)
    assert json.loads(written) == {"a": 1, "b": "ü"}
    kinds = [type(chunk) for chunk in chunks]
    assert kinds.index(ReasoningDelta) < kinds.index(TextDelta) < kinds.index(ToolCallDone)
    assert (ProviderBlock in kinds) is True, wire


async def test_what_only_the_provider_understands_goes_back_unchanged(
    provider: Provider, server: ModelServer, wire: Wire
) -> None:
    server.will(RICH, "done")
    answered = await collect(provider.stream(HELLO))
    results = [LLMMessage("tool", "3", tool_call_id="c1"), LLMMessage("tool", "noon", tool_call_id="c2")]
    await chunks_of(provider, [*HELLO, answered.message, *results])
    body = server.requests[1].body
    if wire == "chat":
        assert body["messages"][1]["reasoning_content"] == RICH.reasoning
        assert body["messages"][1]["tool_calls"][0] == {
            "id": "c1",
            "type": "function",
            "function": {"name": "add", "arguments": '{"a": 1, "b": "ü"}'},
        }
    elif wire == "responses":
        summary = [{"type": "summary_text", "text": RICH.reasoning}]
        reasoning, text, first, second, *_ = body["input"][1:]
        assert reasoning == {
            "id": "rs_1",
            "type": "reasoning",
            "summary": summary,
            "encrypted_content": RICH.signature,
        }
        assert text == {"role": "assistant", "content": RICH.text}
        assert (first["call_id"], second["call_id"]) == ("c1", "c2")
        assert body["store"] is False
    else:
        thinking, text, first, second = body["messages"][1]["content"]
        assert thinking == {"type": "thinking", "thinking": RICH.reasoning, "signature": RICH.signature}
        assert text == {"type": "text", "text": RICH.text}
        assert first == {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1, "b": "ü"}}
        assert second["id"] == "c2"
        results_sent = body["messages"][2]["content"]
        assert [result["tool_use_id"] for result in results_sent] == ["c1", "c2"]


async def test_blocks_of_one_server_do_not_go_to_another(wire: Wire, provider: Provider, server: ModelServer) -> None:
    server.will(RICH)
    answered = await collect(provider.stream(HELLO))
    with ModelServer() as other:
        elsewhere = make(wire, other.url)
        await chunks_of(elsewhere, [*HELLO, answered.message, LLMMessage("tool", "3", tool_call_id="c1")])
        await elsewhere.aclose()
        sent = json.dumps(other.requests[0].body, ensure_ascii=False)
    assert RICH.signature not in sent
    assert RICH.reasoning not in sent
    assert RICH.text in sent


async def test_a_call_whose_arguments_are_no_json_keeps_their_text(provider: Provider, server: ModelServer) -> None:
    server.will(Answer(calls=[Call("c1", "add", '{"a": 1')]))
    answered = await collect(provider.stream(HELLO))
    (call,) = answered.message.tool_calls
    assert (call.arguments, call.invalid_arguments) == ({}, '{"a": 1')


FINISHES = [
    ("chat", "length", "length"),
    ("chat", "content_filter", "content_filter"),
    ("chat", "something new", "other"),
    ("responses", "max_output_tokens", "length"),
    ("responses", "content_filter", "content_filter"),
    ("responses", "steered", "other"),
    ("messages", "max_tokens", "length"),
    ("messages", "stop_sequence", "stop"),
    ("messages", "refusal", "content_filter"),
    ("messages", "model_context_window_exceeded", "context_overflow"),
    ("messages", "pause_turn", "other"),
]


@pytest.mark.parametrize(("wire", "said", "reason"), FINISHES)
async def test_why_an_answer_ended(provider: Provider, server: ModelServer, said: str, reason: str) -> None:
    server.will(Answer("So far", finish=said))
    answered = await collect(provider.stream(HELLO))
    assert answered.finished is not None
    assert answered.finished.reason == reason


@pytest.mark.parametrize("wire", ["responses", "messages"])
async def test_why_the_cache_had_less(provider: Provider, server: ModelServer) -> None:
    server.will(Answer("Hi", cache_miss_reason="tools_changed"))
    assert (await collect(provider.stream(HELLO))).usage.cache_miss_reason == "tools_changed"


async def test_the_key_goes_to_the_server_and_no_other(
    wire: Wire, server: ModelServer, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "secret-of-the-environment")
    without_key = make(wire, server.url)
    await chunks_of(provider)
    await chunks_of(without_key)
    await without_key.aclose()
    with_key, without = server.requests
    assert with_key.headers["authorization"] == "Bearer key-1"
    assert "secret-of-the-environment" not in str(without.headers)


async def test_connections_are_used_again(provider: Provider, server: ModelServer) -> None:
    for _ in range(4):
        await chunks_of(provider)
    assert len({request.headers["x-connection"] for request in server.requests}) == 1


async def test_a_provider_for_a_call_has_its_own_limit(provider: Provider, server: ModelServer, wire: Wire) -> None:
    await chunks_of(provider.for_call(max_output_tokens=77))
    name = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}[wire]
    assert server.requests[0].body[name] == 77


# -- bytes -------------------------------------------------------------------------------------------------------------


class Running:
    """One loop, one server and one provider of each format, for the many examples of a property."""

    def __init__(self) -> None:
        self.server = ModelServer()
        self.runner = asyncio.Runner()
        self.providers: dict[Wire, Provider] = {}

    def collect(self, wire: Wire, reply: Reply) -> Answered:
        self.server.will(reply)
        return self.runner.run(collect(self.providers[wire].stream(HELLO)))

    def outcome(self, wire: Wire, reply: Reply) -> Answered | ModelError:
        try:
            return self.collect(wire, reply)
        except ModelError as error:
            return error


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    made = Running()
    with made.server, made.runner:
        made.providers = {wire: make(wire, made.server.url) for wire in WIRES}
        yield made
        for provider in made.providers.values():
            made.runner.run(provider.aclose())


answers = st.builds(
    Answer,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.sampled_from(["", "Hm.", "ありがとう, I think…"]),
    st.lists(
        st.builds(Call, st.sampled_from(["c1", "c2"]), st.just("add"), st.sampled_from(['{"ä": 1}', ""])), max_size=2
    ),
)


@given(
    st.sampled_from(WIRES), answers, st.lists(st.integers(0, 5000), max_size=25), st.sampled_from(["\n", "\r\n", "\r"])
)
def test_bytes_may_come_in_any_pieces(
    running: Running, wire: Wire, answer: Answer, positions: list[int], newline: str
) -> None:
    answered = running.collect(wire, Reply(answer, shape=split_at(positions), newline=newline))
    assert answered.message.text == answer.text
    assert answered.reasoning == answer.reasoning
    assert [call.id for call in answered.message.tool_calls] == [call.id for call in answer.calls]
    assert answered == running.collect(wire, Reply(answer))


@pytest.mark.parametrize("wire", WIRES)
def test_each_byte_alone(running: Running, wire: Wire) -> None:
    whole = running.collect(wire, Reply(RICH))
    assert running.collect(wire, Reply(RICH, shape=split_at(range(100_000)))) == whole


@given(st.sampled_from(WIRES), st.floats(0, 1), st.booleans())
def test_an_answer_that_is_cut_is_an_error_or_whole(running: Running, wire: Wire, part: float, is_cut: bool) -> None:
    size = len(b"".join(frames(wire, RICH)))
    position = int(part * size)
    shape = cut_at(position) if is_cut else end_at(position)
    whole = running.collect(wire, Reply(RICH))
    outcome = running.outcome(wire, Reply(RICH, shape=shape))
    if isinstance(outcome, ModelError):
        assert outcome.kind in ({"unavailable", "protocol"} if is_cut else {"protocol"})
        assert outcome.retryable
    else:
        assert outcome.message == whole.message


@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_a_cut_behind_the_models_end_loses_nothing(running: Running, wire: Wire) -> None:
    whole = running.collect(wire, Reply(RICH))
    without_last = len(b"".join(frames(wire, RICH)[:-1]))  # [DONE], or message_stop
    assert running.collect(wire, Reply(RICH, shape=cut_at(without_last))) == whole
    assert running.collect(wire, Reply(RICH, shape=end_at(without_last))) == whole


@given(
    st.sampled_from(WIRES), st.integers(0, 20), st.sampled_from([b'data: {"id": "x\n\n', b"data: [1]\n\n", b"\xff\n\n"])
)
def test_what_is_no_event_is_an_error_of_the_protocol_or_passed_over(
    running: Running, wire: Wire, place: int, garbage: bytes
) -> None:
    named = b"event: message_delta\n" + garbage if wire == "messages" else garbage
    outcome = running.outcome(wire, Reply(RICH, shape=replaced(place, named)))
    if isinstance(outcome, ModelError):
        assert outcome.kind == "protocol"
    else:
        assert outcome.finished is not None


# -- failures ----------------------------------------------------------------------------------------------------------

REFUSALS = [
    (rate_limited("7"), "rate_limited", 429, 7.0),
    (rate_limited(None), "rate_limited", 429, None),
    (refusal(429, "rate_limit_error", "wait", {"retry-after-ms": "250"}), "rate_limited", 429, 0.25),
    (
        refusal(429, "rate_limit_error", "wait", {"Retry-After": "Fri, 01 Jan 2010 00:00:00 GMT"}),
        "rate_limited",
        429,
        0,
    ),
    (refusal(429, "insufficient_quota", "pay first"), "auth", 429, None),
    (overloaded(), "overloaded", 529, None),
    (refusal(503, "server_is_overloaded", "slow down"), "overloaded", 503, None),
    (refusal(500, "server_error", "a bug"), "unavailable", 500, None),
    (refusal(401, "invalid_api_key", "no such key"), "auth", 401, None),
    (refusal(403, "permission_error", "not for you"), "auth", 403, None),
    (refusal(400, "context_length_exceeded", "too long"), "context_overflow", 400, None),
    (refusal(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), "context_overflow", 400, None),
    (refusal(400, "invalid_request_error", "no such field"), "bad_request", 400, None),
    (refusal(404, "not_found_error", "model: m-1"), "bad_request", 404, None),
    (page(502), "unavailable", 502, None),
    (page(503, "503 Service Temporarily Unavailable"), "overloaded", 503, None),
    (page(504, "504 Gateway Time-out"), "timeout", 504, None),
]


@pytest.mark.parametrize(("reply", "kind", "status", "retry_after_s"), REFUSALS)
async def test_a_refusal_has_its_kind_and_is_not_repeated(
    provider: Provider, server: ModelServer, reply: Reply, kind: str, status: int, retry_after_s: float | None
) -> None:
    server.will(reply)
    with pytest.raises(ModelError) as caught:
        await chunks_of(provider)
    error = caught.value
    assert (error.kind, error.status, error.retry_after_s) == (kind, status, retry_after_s)
    assert error.provider == provider.name
    assert "<" not in str(error)
    assert len(server.requests) == 1


async def test_a_page_instead_of_a_stream(provider: Provider, server: ModelServer) -> None:
    server.will(page(200, "Welcome to our wifi"))
    with pytest.raises(
        ModelError, match="text/html and no stream; is its base URL right.*Welcome to our wifi"
    ) as caught:
        await chunks_of(provider)
    assert caught.value.kind == "protocol"


async def test_a_wrong_base_url(wire: Wire, server: ModelServer) -> None:
    elsewhere = make(wire, f"{server.url}/nothing")
    with pytest.raises(ModelError, match="404: is its base URL right") as caught:
        await chunks_of(elsewhere)
    assert caught.value.kind == "bad_request"
    await elsewhere.aclose()


@pytest.mark.parametrize(
    ("code", "kind"),
    [("overloaded_error", "overloaded"), ("rate_limit_exceeded", "rate_limited"), ("server_error", "unavailable")],
)
async def test_an_error_in_the_stream(
    provider: Provider, server: ModelServer, wire: Wire, code: str, kind: str
) -> None:
    server.will(failing_stream(wire, code, "too much to do", RICH))
    with pytest.raises(ModelError, match="too much to do") as caught:
        await chunks_of(provider)
    assert (caught.value.kind, caught.value.status) == (kind, None)


@pytest.mark.parametrize("wire", ["responses"])
async def test_a_response_that_failed(provider: Provider, server: ModelServer) -> None:
    error = {"code": "rate_limit_exceeded", "message": "later"}
    event = {"type": "response.failed", "response": {"status": "failed", "error": error}}
    frame = f"event: response.failed\ndata: {json.dumps(event)}\n\n".encode()
    server.will(Reply(RICH, shape=lambda body: [*body[:4], frame]))
    with pytest.raises(ModelError, match="later") as caught:
        await chunks_of(provider)
    assert caught.value.kind == "rate_limited"


@pytest.mark.parametrize("frames_before", [None, 0, 4], ids=["no head", "no frame", "in the middle"])
async def test_a_stall_ends_with_a_timeout(wire: Wire, server: ModelServer, frames_before: int | None) -> None:
    never = threading.Event()
    if frames_before is None:
        server.will(Reply(RICH, before=[Hold(never)]))
    else:
        server.will(Reply(RICH, shape=hold_after(frames_before, never)))
    impatient = make(wire, server.url, silence_timeout_s=0.3)
    with pytest.raises(ModelError, match=r"was silent for 0\.3 s") as caught:
        await chunks_of(impatient)
    assert caught.value.kind == "timeout"
    await impatient.aclose()
    assert server.requests[0].left.wait(30)


async def test_a_server_that_is_away(wire: Wire) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        away = make(wire, f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ModelError, match="no connection to") as caught:
            await chunks_of(away)
        await away.aclose()
    assert (caught.value.kind, caught.value.retryable) == ("unavailable", True)


async def test_leaving_ends_the_request(provider: Provider, server: ModelServer) -> None:
    never = threading.Event()
    server.will(Reply(RICH, shape=hold_after(5, never)))
    async with aclosing(provider.stream(HELLO)) as stream:
        await anext(stream)
    assert server.requests[0].left.wait(30)


async def test_cancelling_ends_the_request(provider: Provider, server: ModelServer) -> None:
    never = threading.Event()
    server.will(Reply(RICH, before=[Hold(never)]))
    task = asyncio.create_task(chunks_of(provider))
    await asyncio.to_thread(server.wait_for_requests, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.requests[0].left.wait(30)


@pytest.mark.parametrize("made", [OpenAICompatProvider, OpenAIResponsesProvider, AnthropicProvider])
async def test_without_a_key_the_vendor_is_not_asked(made: type[Provider]) -> None:
    provider = made("m-1")
    with pytest.raises(ModelError, match="there is no API key") as caught:
        await chunks_of(provider)
    assert (caught.value.kind, caught.value.may_succeed_elsewhere) == ("auth", True)
    await provider.aclose()


async def test_a_tool_that_is_none_is_refused_before_the_request(provider: Provider, server: ModelServer) -> None:
    with pytest.raises(ModelError, match="a tool has no name") as caught:
        await collect(provider.stream(HELLO, tools=[{"description": "adds"}]))
    assert caught.value.kind == "bad_request"
    assert server.requests == []


def collected(chunks: list[LLMStreamChunk]) -> Answered:
    """A list of chunks as an answer."""
    collector = Collector()
    for chunk in chunks:
        collector.add(chunk)
    return collector.answered()
