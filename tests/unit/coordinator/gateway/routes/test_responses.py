"""Responses over HTTP: statuses, streams, and the OpenAI client as it is."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

import httpx2
import openai
import pytest

from podium.models.errors import ModelError
from podium.models.port import ProviderBlock, ReasoningDelta, TextDelta, ToolCall, ToolCallDone
from tests.unit.coordinator.gateway.agent_classes import Notes
from tests.unit.coordinator.gateway.served_home import served_home
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from podium.models.errors import ModelErrorKind
    from tests.unit.coordinator.gateway.served_home import ServedHome

ASK = {"model": "code.fast", "input": "hi"}


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[ServedHome]:
    async with served_home(tmp_path / "home", Notes) as served:
        yield served


@pytest.fixture
async def client(home: ServedHome) -> AsyncIterator[openai.AsyncOpenAI]:
    """The OpenAI client, whose requests go to the application."""
    transport = httpx2.ASGITransport(home.app)
    async with (
        httpx2.AsyncClient(transport=transport) as http,
        openai.AsyncOpenAI(base_url="http://localhost/v2", api_key="none", http_client=http, max_retries=0) as found,
    ):
        yield found


async def post(home: ServedHome, path: str, body: Any, **headers: str) -> Any:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await home.http.post(path, json=body, headers=sent)
    assert answer.is_success, answer.text
    return answer.json()


async def test_a_response_without_a_session(home: ServedHome) -> None:
    answer = await post(home, "/v2/responses", ASK)
    assert answer["output_text"] == "echo: hi"
    kept = (await home.http.get(f"/v2/responses/{answer['id']}")).json()
    assert kept.pop("input") == [{"type": "message", "role": "user", "content": "hi"}]
    assert kept == answer
    deleted = (await home.http.delete(f"/v2/responses/{answer['id']}")).json()
    assert deleted == {"id": answer["id"], "object": "response", "deleted": True}
    error = await home.error("GET", f"/v2/responses/{answer['id']}", 404)
    assert error["code"] == "unknown_response"


async def test_the_model_is_the_name_of_a_profile(home: ServedHome) -> None:
    """S0.25"""
    answer = await post(home, "/v2/responses", ASK)
    (request,) = home.models.requests
    assert (answer["model"], request.profile, answer["qos_outcome"]["profile"]) == ("code.fast",) * 3
    error = await home.error("POST", "/v2/responses", 404, json={**ASK, "model": "test-model"})
    assert error["code"] == "unknown_profile", "the provider's name of the model is none of a profile"
    assert len(home.models.requests) == 1


async def test_headers_say_who_answered(home: ServedHome) -> None:
    """S0.24a, S0.31"""
    answer = await home.http.post("/v2/responses", json=ASK)
    assert answer.headers["Agent-Execution-Profile"] == "managed"
    assert answer.headers["Agent-Resolved-Provider"] == "scripted"


async def test_the_loop_of_a_session(home: ServedHome) -> None:
    """S0.4, S0.8, S0.9, S0.10, S0.23, S0.24, S0.26: append, respond, append; the model remembers."""
    session = await post(home, "/v2/sessions", {})
    branch = f"/v2/sessions/{session['id']}/branches/{session['default_branch_id']}"
    where = {"session_id": session["id"], "branch_id": session["default_branch_id"]}
    version, head = 0, None
    for text in ("I am Ann", "who am I?"):
        for event_type in ("user_message", "assistant_message"):
            position = {"expected_version": version, "expected_head_event_id": head}
            event = await post(home, f"{branch}/events", {**position, "event": {"event_type": event_type}})
            version, head = event["sequence"], event["id"]
            if event_type == "user_message":
                answer = await post(home, "/v2/responses", {"model": "code.fast", "input": text, **where})
                assert answer["output_text"] == f"echo: {text}"
    sent = [message.text for message in home.models.requests[-1].messages]
    assert sent == ["I am Ann", "echo: I am Ann", "who am I?"]


async def test_the_openai_client_gets_a_response(home: ServedHome, client: openai.AsyncOpenAI) -> None:
    session = await post(home, "/v2/sessions", {})
    extra = {"session_id": session["id"], "branch_id": session["default_branch_id"], "qos": {"class": "interactive"}}
    response = await client.responses.create(model="code.fast", input="hi", extra_body=extra)
    assert response.output_text == "echo: hi"
    assert (response.status, response.usage and response.usage.total_tokens) == ("completed", 10)
    assert response.model_extra is not None
    assert response.model_extra["session_id"] == session["id"]
    again = await client.responses.retrieve(response.id)
    assert again.output_text == "echo: hi"
    await client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(response.id)


async def test_the_openai_client_gets_a_stream(home: ServedHome, client: openai.AsyncOpenAI) -> None:
    home.models.answer = lambda _: [
        ReasoningDelta("hm"),
        ProviderBlock("anthropic", {"type": "thinking"}),
        TextDelta("Hel"),
        TextDelta("lo"),
        ToolCallDone(ToolCall("c1", "find", {"a": 1})),
    ]
    kinds, text, last = [], "", None
    stream = await client.responses.create(model="code.fast", input="hi", stream=True, extra_body={"qos": {}})
    async for event in stream:
        kinds.append(event.type)
        if event.type == "response.output_text.delta":
            text += event.delta
        last = event
    assert last is not None
    assert last.type == "response.completed"
    assert (text, last.response.output_text) == ("Hello", "Hello")
    call = last.response.output[-1]
    assert (call.type, call.type == "function_call" and call.arguments) == ("function_call", '{"a":1}')
    assert kinds[:2] == ["response.created", "response.in_progress"]
    async with client.responses.stream(model="code.fast", input="hi") as helper:
        async for _ in helper:
            pass
        assert (await helper.get_final_response()).output_text == "Hello"


async def test_the_openai_client_reads_a_stored_response_as_a_stream(
    home: ServedHome, client: openai.AsyncOpenAI
) -> None:
    made = await client.responses.create(model="code.fast", input="hi")
    stream = await client.responses.retrieve(made.id, stream=True)
    events = [event async for event in stream]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "echo: hi"
    assert events[-1].type == "response.completed"
    assert events[-1].response.model_dump() == made.model_dump()
    home.models.answer = lambda _: [TextDelta("half"), ModelError("gone", "unavailable")]
    error = await home.error("POST", "/v2/responses", 503, json=ASK)
    stream = await client.responses.retrieve(error["response_id"], stream=True)
    replayed: list[Any] = [event async for event in stream]
    begun, *_, failed = replayed
    assert (begun.type, failed.type) == ("response.created", "response.failed")
    assert (begun.response.error, begun.response.usage) == (None, None), "as they were when it began"
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("rsp_none", stream=True)
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.retrieve(made.id, stream=True, starting_after=3)
    assert (refused.value.code, refused.value.param) == ("unsupported_field", "starting_after")


async def test_another_base_url_is_told_where_models_answer(home: ServedHome) -> None:
    for path in ("/v1/chat/completions", "/v1/responses", "/v2/chat/completions"):
        error = await home.error("POST", path, 404, json=ASK)
        assert error["code"] == "unknown_path"
        assert "POST /v2/responses" in error["message"]
    assert "/v2/responses" not in (await home.error("GET", "/v1/nothing", 404))["message"]


async def test_the_output_goes_back_as_input(home: ServedHome, client: openai.AsyncOpenAI) -> None:
    home.models.answer = lambda _: [TextDelta("I look."), ToolCallDone(ToolCall("c1", "find", {"a": 1}))]
    tools: Any = [{"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": None}]
    asked: list[Any] = [{"role": "user", "content": "find it"}]
    first = await client.responses.create(model="code.fast", input=asked, tools=tools)
    asked += [item.model_dump(exclude_none=True) for item in first.output]
    asked.append({"type": "function_call_output", "call_id": "c1", "output": "42"})
    await client.responses.create(model="code.fast", input=asked, tools=tools)
    user, said, result = home.models.requests[-1].messages
    assert (user.text, said.text, result.text) == ("find it", "I look.", "42")
    assert said.tool_calls == (ToolCall("c1", "find", {"a": 1}, None, 1),)


async def test_failures_of_the_openai_client_are_its_own(home: ServedHome, client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.responses.create(model="nope", input="hi", stream=True)
    assert unknown.value.code == "unknown_profile"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model="code.fast", input="hi", top_p=0.5)
    assert (refused.value.code, refused.value.param) == ("unsupported_field", "top_p")
    home.models.answer = lambda _: [TextDelta("half"), ModelError("slow down", "rate_limited", retry_after_s=2)]
    with pytest.raises(openai.RateLimitError) as limited:
        await client.responses.create(model="code.fast", input="hi")
    assert limited.value.response.headers["Retry-After"] == "2"
    stream = await client.responses.create(model="code.fast", input="hi", stream=True)
    events = [event async for event in stream]
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert events[-1].response.error.message == "slow down"


STATUSES: Final[list[tuple[ModelErrorKind, int, str]]] = [
    ("rate_limited", 429, "rate_limited"),
    ("overloaded", 503, "overloaded"),
    ("unavailable", 503, "model_unavailable"),
    ("timeout", 504, "model_timeout"),
    ("protocol", 502, "model_protocol"),
    ("bad_request", 400, "model_bad_request"),
    ("auth", 502, "model_auth"),
    ("context_overflow", 400, "context_overflow"),
    ("deadline_exceeded", 504, "deadline_exceeded"),
    ("budget_exceeded", 403, "budget_exceeded"),
]


async def test_each_failure_of_a_model_has_its_status(home: ServedHome) -> None:
    for kind, status, code in STATUSES:
        failure = ModelError("why", kind)
        home.models.answer = lambda _, failure=failure: [failure]  # type: ignore[misc]
        error = await home.error("POST", "/v2/responses", status, json=ASK)
        assert (error["code"], error["message"]) == (code, "why")
        kept = (await home.http.get(f"/v2/responses/{error['response_id']}")).json()
        assert (kept["status"], kept["error"]["code"]) == ("failed", kind)


@pytest.mark.parametrize(("kind", "status", "code"), STATUSES)
async def test_the_openai_client_repeats_only_what_may_succeed(
    home: ServedHome, client: openai.AsyncOpenAI, kind: ModelErrorKind, status: int, code: str
) -> None:
    home.models.answer = lambda _: [ModelError("why", kind)]
    may_succeed = kind in {"rate_limited", "overloaded", "unavailable"}
    with pytest.raises(openai.APIStatusError) as failed:
        await client.with_options(max_retries=0 if may_succeed else 2).responses.create(model="code.fast", input="hi")
    assert (failed.value.status_code, failed.value.code) == (status, code)
    assert failed.value.response.headers.get("Retry-After") == ("1" if may_succeed else None)
    assert "x-should-retry" not in failed.value.response.headers or not may_succeed
    assert len(home.models.requests) == 1


async def test_the_openai_client_can_repeat_by_a_key_of_its_own(home: ServedHome, client: openai.AsyncOpenAI) -> None:
    key = {"Idempotency-Key": "mine"}
    first = await client.responses.create(model="code.fast", input="hi", extra_headers=key)
    again = await client.responses.create(model="code.fast", input="hi", extra_headers=key)
    assert again.model_dump() == first.model_dump()
    assert len(home.models.requests) == 1
    with pytest.raises(openai.ConflictError) as other:
        await client.with_options(max_retries=2).responses.create(model="code.fast", input="other", extra_headers=key)
    assert other.value.response.headers["x-should-retry"] == "false"


async def test_a_deadline_in_the_past_is_over(home: ServedHome) -> None:
    """S0.28"""
    error = await home.error("POST", "/v2/responses", 504, json={**ASK, "qos": {"deadline_ms": 0}})
    assert error["code"] == "deadline_exceeded"
    assert home.models.requests == []


async def test_a_deadline_counts_from_the_requests_arrival(home: ServedHome) -> None:
    """S0.28"""
    text = json.dumps({**ASK, "qos": {"deadline_ms": 300_000}}).encode()

    async def slowly() -> AsyncIterator[bytes]:
        yield text[:20]
        home.fleet.clock.advance(300)
        yield text[20:]

    headers = {"Content-Type": "application/json"}
    error = await home.error("POST", "/v2/responses", 504, content=slowly(), headers=headers)
    assert error["code"] == "deadline_exceeded"
    assert home.models.requests == []
    kept = (await home.http.get(f"/v2/responses/{error['response_id']}")).json()
    assert (kept["qos_outcome"]["latency_ms"], kept["qos_outcome"]["deadline_ms"]) == (300_000, 300_000)


REFUSED: Final[list[tuple[dict[str, Any], str, str]]] = [
    ({"top_p": 1}, "unsupported_field", "top_p"),
    ({"previous_response_id": "rsp_1"}, "unsupported_field", "previous_response_id"),
    ({"nonsense": 1}, "unknown_field", "nonsense"),
    ({"store": False}, "invalid_parameter", "store"),
    ({"input": 7}, "invalid_parameter", "input"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "invalid_parameter", "input.0"),
    ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "invalid_parameter", "input.0.content.0"),
    ({"input": [{"role": "user"}]}, "missing_field", "input.0.content"),
    ({"input": [{"role": "user", "content": "x", "name": "y"}]}, "unknown_field", "input.0.name"),
    ({"input": []}, "missing_input", "input"),
    ({"qos": {"class": "urgent"}}, "invalid_parameter", "qos.class"),
    ({"qos": {"target": 1}}, "unknown_field", "qos.target"),
    ({"tools": [{"type": "web_search"}]}, "invalid_parameter", "tools.0.type"),
    ({"text": {"format": {"type": "json_schema"}}}, "invalid_parameter", "text.format.type"),
]


async def test_what_is_not_supported_is_refused_by_name(home: ServedHome) -> None:
    for fields, code, param in REFUSED:
        error = await home.error("POST", "/v2/responses", 400, json={**ASK, **fields})
        assert (error["code"], error["param"]) == (code, param)
    assert home.models.requests == []


async def test_what_was_erased_of_an_agents_session_is_told_no_more(home: ServedHome) -> None:
    await home.send("notes/alice", "my secret")
    (session,) = (await home.http.get("/v2/sessions?kind=agent")).json()["items"]
    ask = {**ASK, "session_id": session["id"]}
    await post(home, "/v2/responses", ask)
    assert "my secret" in str(home.models.requests[-1].messages)
    events = [
        event["event_id"]
        for kind in ("user_message", "assistant_message")
        for event in (await home.get("/agents/notes/alice/events", type=kind))["items"]
    ]
    assert len(events) == 2
    await home.fleet.sleep("notes/alice")
    await post(home, "/v1/agents/notes/alice/erase", {"events": events})
    await post(home, "/v2/responses", ask)
    assert "my secret" not in str(home.models.requests[-1].messages)


async def test_what_a_session_does_not_have_is_unknown(home: ServedHome) -> None:
    one, two = await post(home, "/v2/sessions", {}), await post(home, "/v2/sessions", {})
    foreign = {"session_id": one["id"], "branch_id": two["default_branch_id"]}
    error = await home.error("POST", "/v2/responses", 404, json={**ASK, **foreign})
    assert error["code"] == "unknown_branch"
    error = await home.error("POST", "/v2/responses", 404, json={**ASK, "session_id": "ses_none"})
    assert error["code"] == "unknown_session"
    head = {"session_id": one["id"], "head_event_id": "evt_none"}
    error = await home.error("POST", "/v2/responses", 404, json={**ASK, **head})
    assert (error["code"], error["param"]) == ("unknown_event", "head_event_id")


async def test_a_repetition_over_http(home: ServedHome) -> None:
    first = await post(home, "/v2/responses", ASK, Idempotency_Key="k")
    assert await post(home, "/v2/responses", ASK, Idempotency_Key="k") == first
    error = await home.error(
        "POST", "/v2/responses", 409, json={**ASK, "input": "other"}, headers={"Idempotency-Key": "k"}
    )
    assert error["code"] == "idempotency_conflict"
    assert len(home.models.requests) == 1


async def test_a_client_that_leaves_ends_the_response(home: ServedHome) -> None:
    home.models.go_on.clear()
    asking = asyncio.ensure_future(home.http.post("/v2/responses", json=ASK))
    await until(lambda: home.models.running == 1)
    home.leaving.set()
    await asking
    await until(lambda: home.models.running == 0)


async def test_names_of_events_are_their_types(home: ServedHome) -> None:
    answer = await home.http.post("/v2/responses", json={**ASK, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *frames, end = answer.text.removeprefix("retry: 1000\n").strip().split("\n\n")
    assert end == "data: [DONE]"
    for number, frame in enumerate(frames):
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number


async def test_a_pattern_is_shown_as_it_is(home: ServedHome) -> None:
    body = {"model": "code.fast", "input": "hi", "tools": [{"type": "function", "name": "two words"}]}
    error = await home.error("POST", "/v2/responses", 400, json=body)
    assert error["message"].endswith("string should match pattern '^[a-zA-Z0-9_-]{1,64}$'")
