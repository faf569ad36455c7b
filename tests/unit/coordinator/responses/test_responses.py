"""Responses without a session: their records, repetitions, failures, and what readers that leave do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import IdempotencyConflict, StorageRefused
from coordinator.home import Home
from coordinator.operations.errors import EmptyContext, ResponseFailed, UnknownResponse
from coordinator.operations.stores import HomeStores
from podium.models.errors import ModelError
from podium.models.port import LLMMessage, TextDelta
from tests.unit.coordinator.responses.model_calls import TestModels
from tests.unit.coordinator.responses.served import body, served, streamed
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from coordinator.responses.responses import HomeResponses


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home").create()
    home.journal().close()
    return home


@pytest.fixture
def models() -> TestModels:
    return TestModels()


@pytest.fixture
async def responses(home: Home, models: TestModels) -> AsyncIterator[HomeResponses]:
    async with served(home, models) as found:
        yield found


async def test_a_response_and_its_record(responses: HomeResponses, models: TestModels) -> None:
    """S0.24: `output_text` is a field of the answer."""
    run = await responses.respond("acme", body(instructions="be brief", metadata={"a": "b"}))
    answer = await run.result()
    assert answer["id"].startswith("rsp_")
    assert (answer["object"], answer["status"], answer["output_text"]) == ("response", "completed", "echo: hi")
    assert answer["model"] == "code.fast"
    assert answer["usage"] is not None
    assert answer["usage"]["total_tokens"] == 10
    (request,) = models.requests
    assert request.messages == [LLMMessage("system", "be brief"), LLMMessage("user", "hi")]
    assert (request.tenant, request.owner) == ("acme", answer["id"])
    kept = await responses.response("acme", answer["id"])
    assert kept == {**answer, "input": [{"type": "message", "role": "user", "content": "hi"}]}
    with pytest.raises(UnknownResponse):
        await responses.response("other", answer["id"])
    with pytest.raises(UnknownResponse):
        await responses.delete("other", answer["id"])
    assert (await responses.delete("acme", answer["id"]))["deleted"]
    with pytest.raises(UnknownResponse):
        await responses.response("acme", answer["id"])


async def test_a_stream_ends_with_the_stored_response(responses: HomeResponses) -> None:
    run = await responses.respond("acme", body())
    events = await streamed(run)
    assert [event["type"] for event in events][-1] == "response.completed"
    kept = await responses.response("acme", run.response_id)
    del kept["input"]
    assert events[-1]["response"] == kept
    assert "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta") == "echo: hi"


async def test_unknown_profiles_and_empty_inputs_begin_nothing(responses: HomeResponses, models: TestModels) -> None:
    with pytest.raises(ModelError, match="code.fast") as refused:
        await responses.respond("acme", body(model="nope"))
    assert refused.value.kind == "unknown_profile"
    with pytest.raises(EmptyContext):
        await responses.respond("acme", body([]))
    assert models.requests == []


async def test_a_repetition_gets_the_same_response(home: Home, models: TestModels) -> None:
    async with served(home, models) as responses:
        first = await (await responses.respond("acme", body(), "k")).result()
        again = await responses.respond("acme", body(stream=True), "k")
        assert await again.result() == first
        events = await streamed(again)
        assert events[-1]["response"] == first
        with pytest.raises(IdempotencyConflict):
            await responses.respond("acme", body("other"), "k")
        other = await (await responses.respond("other", body(), "k")).result()
        assert other["id"] != first["id"]
    async with served(home, models) as responses:  # the gateway was started again
        assert await (await responses.respond("acme", body(), "k")).result() == first
    assert len(models.requests) == 2


async def test_repetitions_of_a_running_response_join_it(responses: HomeResponses, models: TestModels) -> None:
    models.go_on.clear()
    runs = await asyncio.gather(*(responses.respond("acme", body(), "k") for _ in range(5)))
    assert len(set(runs)) == 1
    with pytest.raises(IdempotencyConflict):
        await responses.respond("acme", body("other"), "k")
    models.go_on.set()
    assert len({(await run.result())["id"] for run in runs}) == 1
    assert len(models.requests) == 1


async def test_a_failure_is_recorded_and_tried_again_by_a_repetition(
    responses: HomeResponses, models: TestModels
) -> None:
    models.answer = lambda _: [TextDelta("half"), ModelError("gone", "unavailable", retry_after_s=3)]
    run = await responses.respond("acme", body(), "k")
    with pytest.raises(ResponseFailed) as failed:
        await run.result()
    assert (failed.value.code, failed.value.retry_after_s, failed.value.response_id) == (
        "unavailable",
        3,
        run.response_id,
    )
    kept = await responses.response("acme", run.response_id)
    assert (kept["status"], kept["output_text"]) == ("failed", "half")
    assert kept["error"] == {"code": "unavailable", "message": "gone"}
    models.answer = lambda _: [TextDelta("all of it")]
    assert (await (await responses.respond("acme", body(), "k")).result())["output_text"] == "all of it"


@pytest.mark.parametrize("kind", ["rate_limited", "timeout", "protocol", "auth", "deadline_exceeded"])
async def test_a_stream_ends_with_an_event_whatever_fails(
    responses: HomeResponses, models: TestModels, kind: Any
) -> None:
    models.answer = lambda _: [ModelError("no", kind)]
    events = await streamed(await responses.respond("acme", body()))
    assert [event["type"] for event in events] == ["response.created", "response.in_progress", "response.failed"]
    assert events[-1]["response"]["error"] == {"code": kind, "message": "no"}
    outcome = events[-1]["response"]["qos_outcome"]
    assert (outcome["profile"], outcome["attempts"]) == (None, 1), "what the record says of the call that failed"
    assert (outcome["reason_code"], outcome["deadline_met"]) == (kind, None)


@pytest.mark.parametrize("deadline_ms", [0, -5])
async def test_a_deadline_in_the_past_calls_no_model(
    responses: HomeResponses, models: TestModels, deadline_ms: int
) -> None:
    run = await responses.respond("acme", body(qos={"deadline_ms": deadline_ms}))
    with pytest.raises(ResponseFailed) as failed:
        await run.result()
    assert failed.value.code == "deadline_exceeded"
    assert models.requests == []


async def test_a_model_gateway_that_hangs_ends_with_the_deadline(responses: HomeResponses, models: TestModels) -> None:
    models.go_on.clear()
    run = await responses.respond("acme", body(qos={"deadline_ms": 1}))
    with pytest.raises(ResponseFailed) as failed:
        await run.result()
    assert failed.value.code == "deadline_exceeded"
    assert models.running == 0


async def test_a_reader_that_leaves_ends_the_response(responses: HomeResponses, models: TestModels) -> None:
    models.go_on.clear()
    run = await responses.respond("acme", body())
    with run.open() as reader:
        await reader.next()
    await until(lambda: run.is_done)
    assert models.running == 0
    kept = await responses.response("acme", run.response_id)
    assert kept["error"] is not None
    assert kept["error"]["code"] == "cancelled"


async def test_with_a_key_it_goes_on_when_its_reader_leaves(responses: HomeResponses, models: TestModels) -> None:
    models.go_on.clear()
    run = await responses.respond("acme", body(), "k")
    with run.open() as reader:
        await reader.next()
    models.go_on.set()
    assert (await (await responses.respond("acme", body(), "k")).result())["status"] == "completed"


async def test_the_end_of_the_gateway_ends_streams_with_an_event(home: Home, models: TestModels) -> None:
    models.go_on.clear()
    async with served(home, models) as responses:
        run = await responses.respond("acme", body())
        reading = asyncio.ensure_future(streamed(run))
        await until(lambda: models.running == 1)
        responses.close()
        events = await reading
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "shutting_down"


class FullDisk(HomeStores):
    """The stores of a home whose disk is full."""

    async def write(self, call: object, *_: object, **__: object) -> Any:
        raise StorageRefused("the disk is full")


async def test_a_response_that_cannot_be_stored_has_failed(
    home: Home, models: TestModels, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(home, models, FullDisk(home)) as responses:
        events = await streamed(await responses.respond("acme", body()))
        assert events[-1]["type"] == "response.failed"
        assert events[-1]["response"]["error"]["code"] == "not_stored"
        assert "response_not_stored" in caplog.text
        caplog.clear()
