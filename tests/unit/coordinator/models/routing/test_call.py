"""Calls with attempts, fallbacks, targets and deadlines, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.models.routing.call import RoutedCall
from podium.models.errors import ModelError
from podium.models.port import Finished, LLMStreamChunk, TextDelta, Usage
from tests.unit.coordinator.models.routing.models import Attempt, Model, clock, fails, in_virtual_time, route, text_of


async def fill(model: Model, seconds: float) -> asyncio.Task[str]:
    """Saturate a model: a call has all of its places for some time."""
    model.attempts = [Attempt(ttft_s=seconds, words=("busy",), gap_s=0), *model.attempts]
    task = asyncio.create_task(text_of(route(model)))
    while not model.asked_at_s:
        await asyncio.sleep(0)
    return task


async def read_into(read: list[LLMStreamChunk], call: RoutedCall) -> None:
    async for chunk in call.stream():
        read.append(chunk)  # noqa: PERF401  what was read before an error counts


def test_a_call_without_wishes() -> None:
    async def run() -> None:
        model = Model("a")
        call = route(model)
        chunks = [chunk async for chunk in call.stream()]
        assert chunks == [
            Usage(3),
            TextDelta("Hello"),
            TextDelta(" you"),
            Usage(3, 2),
            Finished("stop", "a-1"),
        ]
        (attempt,) = call.attempts
        assert (attempt.profile, attempt.model, attempt.ttft_ms, attempt.error) == ("a", "a-1", 100, None)
        assert attempt.ended_ms - attempt.started_ms == 300
        assert call.qos_outcome == {
            "class": "standard",
            "priority": 128,
            "profile": "a",
            "degraded": False,
            "degraded_because": None,
            "target_ttft_ms": None,
            "ttft_ms": 100,
            "ttft_met": None,
            "deadline_ms": None,
            "deadline_met": None,
            "queued_ms": 0,
            "attempts": 1,
        }
        assert model.admission.running == 0

    in_virtual_time(run)


# S0.27, S0.28
def test_a_saturated_primary_degrades_to_a_fallback_and_the_call_does_not_fail() -> None:
    async def run() -> None:
        primary, fallback = Model("fast", concurrent=1), Model("cheap")
        busy = await fill(primary, 60)
        call = route(primary, fallback, qos_class="interactive", target_ttft_ms=500, deadline_ms=8000)
        assert await text_of(call) == "Hello you"
        outcome = call.qos_outcome
        assert outcome["profile"] == "cheap"
        assert (outcome["degraded"], outcome["degraded_because"]) == (True, "saturated")
        assert (outcome["ttft_ms"], outcome["ttft_met"]) == (350, True)  # half of the target, and the fallback's 100 ms
        assert outcome["deadline_met"] is True
        assert [attempt.profile for attempt in call.attempts] == ["cheap"]
        assert primary.admission.waiting == 0
        assert await busy == "busy"
        assert len(primary.asked_at_s) == 1

    in_virtual_time(run)


# S0.28
def test_without_permission_to_degrade_a_saturated_primary_is_waited_for_until_the_deadline() -> None:
    async def run() -> None:
        primary, fallback = Model("fast", concurrent=1), Model("cheap")
        busy = await fill(primary, 60)
        call = route(primary, fallback, target_ttft_ms=500, deadline_ms=8000, degrade_policy="forbid")
        started_s = clock().monotonic_s()
        with pytest.raises(ModelError, match="the deadline of 8000 ms passed") as caught:
            await text_of(call)
        assert caught.value.kind == "deadline_exceeded"
        assert clock().monotonic_s() - started_s == pytest.approx(8)
        assert fallback.asked_at_s == []
        assert call.qos_outcome["deadline_met"] is False
        assert call.qos_outcome["profile"] is None
        patient = route(primary, fallback, target_ttft_ms=500, degrade_policy="forbid")
        assert await text_of(patient) == "Hello you"
        assert patient.qos_outcome["ttft_met"] is False
        assert patient.qos_outcome["queued_ms"] == 52_000
        await busy

    in_virtual_time(run)


def test_a_slow_primary_is_overtaken_and_left() -> None:
    async def run() -> None:
        primary, fallback = Model("slow", [Attempt(ttft_s=30)]), Model("quick")
        call = route(primary, fallback, target_ttft_ms=500)
        assert await text_of(call) == "Hello you"
        assert call.qos_outcome["degraded_because"] == "slow"
        assert call.ttft_ms == 600
        lost, won = call.attempts
        assert (lost.profile, lost.error, lost.ttft_ms) == ("slow", "superseded: quick answered first", None)
        assert (won.profile, won.error) == ("quick", None)
        assert (primary.open_now, primary.admission.running) == (0, 0)

    in_virtual_time(run)


def test_a_primary_that_is_only_late_keeps_the_call_if_it_is_first() -> None:
    async def run() -> None:
        primary, fallback = Model("late", [Attempt(ttft_s=0.55)]), Model("other", [Attempt(ttft_s=2)])
        call = route(primary, fallback, target_ttft_ms=500)
        await text_of(call)
        assert call.qos_outcome["profile"] == "late"
        assert (call.qos_outcome["degraded"], call.qos_outcome["ttft_met"]) == (False, False)
        assert [attempt.profile for attempt in call.attempts] == ["other", "late"]

    in_virtual_time(run)


def test_several_fallbacks_in_their_order() -> None:
    async def run() -> None:
        models = [Model(name, concurrent=1) for name in ("a", "b", "c")]
        busy = [await fill(model, 60) for model in models[:2]]
        call = route(*models, target_ttft_ms=1000)
        await text_of(call)
        assert call.qos_outcome["profile"] == "c"
        assert call.ttft_ms == 1100  # b began at half of the target, c at the target
        for task in busy:
            await task

    in_virtual_time(run)


def test_a_failed_attempt_is_repeated_with_back_off() -> None:
    async def run() -> None:
        model = Model("a", [fails("unavailable"), fails("protocol"), Attempt()])
        call = route(model)
        assert await text_of(call) == "Hello you"
        first, second, third = model.asked_at_s
        assert 0.35 <= second - first <= 0.6  # 0.1 s to the failure, and 0.25 to 0.5 s
        assert 0.6 <= third - second <= 1.1
        assert [attempt.error for attempt in call.attempts] == [
            "unavailable: unavailable it is",
            "protocol: protocol it is",
            None,
        ]

    in_virtual_time(run)


def test_attempts_end() -> None:
    async def run() -> None:
        model = Model("a", [fails("unavailable")])
        with pytest.raises(ModelError, match="unavailable it is"):
            await text_of(route(model))
        assert len(model.asked_at_s) == 3
        assert model.admission.running == 0

    in_virtual_time(run)


def test_a_wait_gives_the_place_to_others() -> None:
    async def run() -> None:
        model = Model("a", [fails("rate_limited", retry_after_s=20), Attempt()], concurrent=1)
        limited = asyncio.create_task(text_of(route(model)))
        await asyncio.sleep(1)
        other = asyncio.create_task(text_of(route(model)))  # the provider wants no call for 20 s
        await asyncio.sleep(1)
        assert (model.admission.running, model.admission.waiting) == (0, 1)
        assert [await limited, await other] == ["Hello you", "Hello you"]
        assert min(model.asked_at_s[1:]) == pytest.approx(20.1)
        assert model.most_open == 1

    in_virtual_time(run)


# S0.28
@pytest.mark.parametrize(
    ("kind", "why"), [("rate_limited", "saturated"), ("overloaded", "saturated"), ("auth", "failed")]
)
def test_a_fallback_takes_over_at_once(kind: str, why: str) -> None:
    async def run() -> None:
        primary, fallback = Model("a", [fails(kind)]), Model("b")
        call = route(primary, fallback)
        assert await text_of(call) == "Hello you"
        assert call.ttft_ms == 200
        assert call.qos_outcome["degraded_because"] == why
        assert len(primary.asked_at_s) == 1

    in_virtual_time(run)


@pytest.mark.parametrize("kind", ["bad_request", "context_overflow"])
def test_a_request_that_no_model_can_answer_fails_at_once(kind: str) -> None:
    async def run() -> None:
        primary, fallback = Model("a", [fails(kind)]), Model("b")
        with pytest.raises(ModelError) as caught:
            await text_of(route(primary, fallback))
        assert caught.value.kind == kind
        assert fallback.asked_at_s == []

    in_virtual_time(run)


def test_if_all_fail_the_error_is_the_primarys_with_notes_of_the_others() -> None:
    async def run() -> None:
        models = Model("a", [fails("overloaded")]), Model("b", [fails("auth")]), Model("c", [fails("bad_request")])
        with pytest.raises(ModelError, match="overloaded it is") as caught:
            await text_of(route(*models))
        assert caught.value.__notes__ == [
            "b failed, too: auth: auth it is",
            "c failed, too: bad_request: bad_request it is",
        ]

    in_virtual_time(run)


# S0.31
@pytest.mark.parametrize("kind", ["unavailable", "timeout", "protocol"])
def test_the_emergency_is_asked_when_the_primary_is_broken_and_the_fallbacks_have_failed(kind: str) -> None:
    async def run() -> None:
        primary, other = Model("fast", [fails(kind)]), Model("cheap", [fails("unavailable")])
        emergency = Model("openrouter")
        call = route(primary, other, emergency=emergency)
        assert await text_of(call) == "Hello you"
        assert [attempt.profile for attempt in call.attempts][-1] == "openrouter"
        assert len(primary.asked_at_s) == 2
        assert len(other.asked_at_s) == 3, "it may be the last one that can answer"
        assert (call.qos_outcome["profile"], call.qos_outcome["degraded_because"]) == ("openrouter", "failed")

    in_virtual_time(run)


# S0.31
@pytest.mark.parametrize("kind", ["rate_limited", "overloaded", "auth", "bad_request", "context_overflow"])
def test_the_emergency_is_not_asked_when_the_primary_works(kind: str) -> None:
    async def run() -> None:
        emergency = Model("openrouter")
        with pytest.raises(ModelError, match=kind):
            await text_of(route(Model("fast", [fails(kind)]), emergency=emergency))
        slow = Model("slow", [Attempt(ttft_s=60)])
        assert await text_of(route(slow, emergency=emergency, target_ttft_ms=10)) == "Hello you"
        forbidden = route(Model("fast", [fails("unavailable")]), emergency=emergency, degrade_policy="forbid")
        with pytest.raises(ModelError, match="unavailable"):
            await text_of(forbidden)
        assert emergency.asked_at_s == []

    in_virtual_time(run)


def test_if_the_emergency_fails_too_the_error_is_the_primarys() -> None:
    async def run() -> None:
        emergency = Model("openrouter", [fails("auth")])
        with pytest.raises(ModelError, match="timeout") as caught:
            await text_of(route(Model("fast", [fails("timeout")]), emergency=emergency))
        assert caught.value.__notes__ == ["openrouter failed, too: auth: auth it is"]

    in_virtual_time(run)


def test_after_the_first_token_a_failure_is_the_calls() -> None:
    async def run() -> None:
        broken = Attempt(error=ModelError("cut", "unavailable"), error_after=1)
        primary, fallback = Model("a", [broken]), Model("b")
        call = route(primary, fallback)
        read: list[LLMStreamChunk] = []
        with pytest.raises(ModelError, match="cut"):
            await read_into(read, call)
        assert read == [Usage(3), TextDelta("Hello")]
        assert fallback.asked_at_s == []
        assert [attempt.error for attempt in call.attempts] == ["unavailable: cut"]

    in_virtual_time(run)


# S0.28
def test_the_deadline_holds_in_the_middle_of_an_answer() -> None:
    async def run() -> None:
        model = Model("a", [Attempt(words=("x",) * 100, gap_s=0.5)])
        call = route(model, deadline_ms=2000)
        read: list[LLMStreamChunk] = []
        with pytest.raises(ModelError) as caught:
            await read_into(read, call)
        assert caught.value.kind == "deadline_exceeded"
        assert clock().monotonic_s() == pytest.approx(2)
        assert len([chunk for chunk in read if isinstance(chunk, TextDelta)]) == 4
        assert (model.open_now, model.admission.running) == (0, 0)
        assert call.attempts[0].error == "deadline_exceeded: the deadline of 2000 ms passed"

    in_virtual_time(run)


@pytest.mark.parametrize("deadline_ms", [0, -5])
def test_a_deadline_in_the_past_asks_nobody(deadline_ms: int) -> None:
    async def run() -> None:
        model = Model("a")
        with pytest.raises(ModelError) as caught:
            await text_of(route(model, deadline_ms=deadline_ms))
        assert caught.value.kind == "deadline_exceeded"
        assert model.asked_at_s == []

    in_virtual_time(run)


def test_with_a_deadline_alone_half_of_it_is_left_for_the_fallback() -> None:
    async def run() -> None:
        primary, fallback = Model("a", [Attempt(ttft_s=60)]), Model("b")
        call = route(primary, fallback, deadline_ms=4000)
        assert await text_of(call) == "Hello you"
        assert call.ttft_ms == 2100

    in_virtual_time(run)


def test_leaving_ends_all_attempts() -> None:
    async def run() -> None:
        primary, fallback = Model("a", [Attempt(ttft_s=60)]), Model("b", [Attempt(ttft_s=60)])
        call = route(primary, fallback, target_ttft_ms=100)
        task = asyncio.create_task(text_of(call))
        await asyncio.sleep(1)
        assert (primary.open_now, fallback.open_now) == (1, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (primary.open_now, fallback.open_now) == (0, 0)
        assert {attempt.error for attempt in call.attempts} == {"cancelled: the caller left"}
        async with aclosing(route(fallback).stream()) as stream:
            await anext(stream)
            assert fallback.open_now == 1
        assert (fallback.open_now, fallback.admission.running) == (0, 0)

    in_virtual_time(run)


def test_a_caller_that_leaves_as_the_first_token_comes_keeps_no_place() -> None:
    async def run(cancel_after: int) -> None:
        model = Model("a", [Attempt(ttft_s=1)])
        task = asyncio.create_task(text_of(route(model)))
        await asyncio.sleep(1)
        for _ in range(cancel_after):  # iterations of the loop
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert (model.open_now, model.admission.running) == (0, 0)

    for cancel_after in range(12):
        in_virtual_time(partial(run, cancel_after))


def test_a_bug_is_not_an_attempt_that_failed() -> None:
    async def run() -> None:
        model = Model("a", [Attempt(error=ValueError("a bug"))])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="a bug"):
            await text_of(route(model))
        assert (model.open_now, model.admission.running) == (0, 0)

    in_virtual_time(run)


attempts = st.builds(
    Attempt,
    st.sampled_from([0.0, 0.1, 1.0, 40.0]),
    st.sampled_from([(), ("Hello", " you")]),
    st.sampled_from([0.0, 0.2]),
    st.none()
    | st.builds(
        ModelError,
        st.just("no"),
        st.sampled_from(["rate_limited", "overloaded", "unavailable", "auth", "bad_request"]),
        retry_after_s=st.none() | st.just(2.0),
    ),
    st.integers(0, 1),
)
wishes = st.fixed_dictionaries(
    {
        "qos_class": st.sampled_from(["interactive", "standard", "background", "batch"]),
        "target_ttft_ms": st.none() | st.sampled_from([100, 1000]),
        "deadline_ms": st.none() | st.sampled_from([1, 500, 5000]),
        "degrade_policy": st.sampled_from(["forbid", "allow_compatible_fallback"]),
    }
)


@given(
    st.lists(st.tuples(st.lists(attempts, max_size=3), st.none() | st.integers(1, 2)), min_size=1, max_size=3),
    st.lists(st.tuples(wishes, st.none() | st.sampled_from([0.0, 0.05, 0.5, 3.0])), min_size=1, max_size=5),
)
def test_whatever_happens_places_come_back_and_one_model_is_heard(
    plans: list[tuple[list[Attempt], int | None]],
    calls: list[tuple[dict[str, Any], float | None]],
) -> None:
    async def one(models: list[Model], qos: dict[str, Any], cancel_s: float | None) -> None:
        call = route(*models, **qos)
        task = asyncio.create_task(text_of(call))
        await asyncio.wait([task], timeout=cancel_s)
        task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            assert isinstance(error, ModelError)
            return
        assert task.result() in {"", "Hello you"}
        served = [attempt.profile for attempt in call.attempts if attempt.error is None]
        assert served == [call.qos_outcome["profile"]]
        if qos["degrade_policy"] == "forbid":
            assert served == ["m0"]
        if qos["deadline_ms"] is not None:
            assert call.qos_outcome["deadline_met"] is True

    async def run() -> None:
        models = [Model(f"m{number}", list(plan), limit) for number, (plan, limit) in enumerate(plans)]
        async with asyncio.TaskGroup() as group:
            for qos, cancel_s in calls:
                group.create_task(one(models, qos, cancel_s))
        for model in models:
            assert (model.open_now, model.admission.running, model.admission.waiting) == (0, 0, 0)
            if model.concurrent is not None:
                assert model.most_open <= model.concurrent

    in_virtual_time(run)
