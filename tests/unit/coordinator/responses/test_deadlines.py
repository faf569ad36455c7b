"""Deadlines of responses count from the request's arrival, and outcomes say what the client saw."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.clock import ManualClock
from coordinator.home import Home
from coordinator.operations.errors import ResponseFailed
from coordinator.operations.stores import HomeStores
from podium.models.errors import ModelError
from podium.models.port import TextDelta
from tests.unit.coordinator.responses.model_calls import TestModels
from tests.unit.coordinator.responses.served import body, served, streamed
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from coordinator.models.calls import ModelRequest
    from coordinator.responses.responses import HomeResponses
    from podium.models.port import LLMStreamChunk

# The clock is advanced by minutes, as a timer of a deadline runs by the time of the machine.
QOS = {"class": "interactive", "target_ttft_ms": 100_000, "deadline_ms": 300_000}


class HeldStores(HomeStores):
    """The stores of a home whose writes wait."""

    def __init__(self, home: Home) -> None:
        super().__init__(home)
        self.go_on = asyncio.Event()
        self.held = 0

    async def write(self, call: Any, *of: Any, **by: Any) -> Any:
        self.held += 1
        await self.go_on.wait()
        return await super().write(call, *of, **by)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home").create()
    home.journal().close()
    return home


@pytest.fixture
def models() -> TestModels:
    return TestModels()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def responses(home: Home, models: TestModels, clock: ManualClock) -> AsyncIterator[HomeResponses]:
    async with served(home, models, clock=clock) as found:
        yield found


async def outcome_of(responses: HomeResponses, response_id: str) -> Any:
    return (await responses.response("acme", response_id))["qos_outcome"]


async def test_the_outcome_is_what_the_client_saw(
    responses: HomeResponses, models: TestModels, clock: ManualClock
) -> None:
    """S0.28"""

    def answer(_: ModelRequest) -> Iterator[LLMStreamChunk]:
        clock.advance(20)
        yield TextDelta("Hel")
        clock.advance(100)
        yield TextDelta("lo")

    models.answer = answer
    arrived_s = responses.now_s()
    clock.advance(50)
    run = await responses.respond("acme", body(qos=QOS), arrived_s=arrived_s)
    response = await run.result()
    assert response["qos_outcome"] == {
        "class": "interactive",
        "priority": 128,
        "admission": "admitted",
        "completion": "completed",
        "profile": "code.fast",
        "provider": "scripted",
        "execution": "managed",
        "degraded": False,
        "degraded_because": None,
        "fallback_used": False,
        "target_ttft_ms": 100_000,
        "ttft_ms": 70_000,
        "ttft_met": True,
        "target_met": True,
        "deadline_ms": 300_000,
        "deadline_met": True,
        "latency_ms": 170_000,
        "queued_ms": 0,
        "attempts": 1,
        "reason_code": None,
    }
    (request,) = models.requests
    assert (request.qos.deadline_ms, request.asked_s) == (300_000, arrived_s)


async def test_a_first_token_after_the_target_has_missed_it(
    responses: HomeResponses, models: TestModels, clock: ManualClock
) -> None:
    def answer(_: ModelRequest) -> Iterator[LLMStreamChunk]:
        clock.advance(101)
        yield TextDelta("Hello")

    models.answer = answer
    outcome = (await (await responses.respond("acme", body(qos=QOS))).result())["qos_outcome"]
    assert outcome is not None
    assert (outcome["ttft_ms"], outcome["ttft_met"], outcome["target_met"]) == (101_000, False, False)


async def test_an_answer_that_is_ready_after_the_deadline_is_none(
    responses: HomeResponses, models: TestModels, clock: ManualClock
) -> None:
    def answer(_: ModelRequest) -> Iterator[LLMStreamChunk]:
        yield TextDelta("Hello")
        clock.advance(300)

    models.answer = answer
    run = await responses.respond("acme", body(qos=QOS), "k")
    with pytest.raises(ResponseFailed) as failed:
        await run.result()
    assert failed.value.code == "deadline_exceeded"
    last = (await streamed(run))[-1]
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "deadline_exceeded")
    kept: Any = await responses.response("acme", run.response_id)
    del kept["input"]
    assert kept == last["response"], "what was stored before its deadline does not stay"
    outcome = kept["qos_outcome"]
    assert (outcome["completion"], outcome["deadline_met"]) == ("expired_during_execution", False)
    assert (outcome["reason_code"], outcome["latency_ms"]) == ("deadline_exceeded", 300_000)
    models.answer = lambda _: [TextDelta("in time")]
    again = await (await responses.respond("acme", body(qos=QOS), "k")).result()
    assert again["output_text"] == "in time", "a failure does not bind its key"


async def test_a_failure_after_the_deadline_is_the_deadlines(
    responses: HomeResponses, models: TestModels, clock: ManualClock
) -> None:
    def answer(_: ModelRequest) -> Iterator[LLMStreamChunk | ModelError]:
        clock.advance(300)
        yield ModelError("gone", "unavailable")

    models.answer = answer
    with pytest.raises(ResponseFailed) as failed:
        await (await responses.respond("acme", body(qos=QOS))).result()
    assert failed.value.code == "deadline_exceeded"


async def test_the_deadline_counts_from_the_arrival(
    responses: HomeResponses, models: TestModels, clock: ManualClock
) -> None:
    arrived_s = responses.now_s()
    clock.advance(300)
    run = await responses.respond("acme", body(qos=QOS), arrived_s=arrived_s)
    with pytest.raises(ResponseFailed) as failed:
        await run.result()
    assert failed.value.code == "deadline_exceeded"
    assert models.requests == []
    outcome = await outcome_of(responses, run.response_id)
    assert (outcome["admission"], outcome["completion"]) == ("expired_before_start", None)
    assert (outcome["attempts"], outcome["deadline_ms"], outcome["deadline_met"]) == (0, 300_000, False)


async def test_a_deadline_passes_while_the_model_gateway_starts(responses: HomeResponses, models: TestModels) -> None:
    models.started.clear()
    run = await responses.respond("acme", body(qos={"deadline_ms": 1}))
    with pytest.raises(ResponseFailed) as failed:
        await run.result()
    assert failed.value.code == "deadline_exceeded"
    assert models.requests == []


@pytest.mark.parametrize("answers", [True, False])
async def test_a_deadline_does_not_wait_for_the_disk(home: Home, models: TestModels, *, answers: bool) -> None:
    stores = HeldStores(home)
    async with served(home, models, stores) as responses:
        if not answers:
            models.go_on.clear()
        run = await responses.respond("acme", body(qos={"deadline_ms": 5 if answers else 1}))
        with pytest.raises(ResponseFailed) as failed:
            await run.result()
        assert failed.value.code == "deadline_exceeded"
        await until(lambda: stores.held == 1)
        reading = asyncio.ensure_future(responses.response("acme", run.response_id))
        responses.close()  # what was told is stored nevertheless
        stores.go_on.set()
        kept = await reading
        assert (kept["status"], kept["output_text"]) == ("failed", "echo: hi")
        assert kept["qos_outcome"] is not None
        assert kept["qos_outcome"]["deadline_met"] is False


async def test_an_answer_that_is_being_stored_when_the_gateway_ends_is_handed_out(
    home: Home, models: TestModels
) -> None:
    stores = HeldStores(home)
    async with served(home, models, stores) as responses:
        run = await responses.respond("acme", body())
        answer = asyncio.ensure_future(run.result())
        await until(lambda: stores.held == 1)
        responses.close()
        stores.go_on.set()
        assert (await answer)["output_text"] == "echo: hi"
