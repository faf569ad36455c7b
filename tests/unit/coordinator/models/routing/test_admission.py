"""Who may begin, by class and priority, under limits."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.models.routing.admission import Admission
from podium.models.errors import ModelError
from podium.models.quality import QosClass, QualityOfService
from tests.unit.coordinator.models.routing.models import clock, in_virtual_time

CLASSES = get_args(QosClass)


class Calls:
    """Calls that take places, and in which order they did."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.begun: list[str] = []
        self.begun_at_s: dict[str, float] = {}
        self.running: set[str] = set()

    async def call(self, name: str, seconds: float, **qos: Any) -> None:
        async with self.admission.place(QualityOfService(**qos)):
            self.begun.append(name)
            self.begun_at_s[name] = round(clock().monotonic_s(), 6)
            self.running.add(name)
            await asyncio.sleep(seconds)
            self.running.remove(name)


# S0.27
def test_the_better_class_goes_first_then_the_higher_priority_then_the_earlier_call() -> None:
    async def run() -> list[str]:
        calls = Calls(Admission(clock(), concurrent=1))
        async with asyncio.TaskGroup() as group:
            group.create_task(calls.call("first", 1))
            await asyncio.sleep(0)
            for name, qos_class, priority in [
                ("batch", "batch", 255),
                ("background", "background", 128),
                ("standard", "standard", 128),
                ("low", "interactive", 1),
                ("early", "interactive", 128),
                ("late", "interactive", 128),
                ("high", "interactive", 255),
            ]:
                group.create_task(calls.call(name, 1, qos_class=qos_class, priority=priority))
                await asyncio.sleep(0)
        return calls.begun

    begun = in_virtual_time(run)
    assert begun == ["first", "high", "early", "late", "low", "standard", "background", "batch"]


def test_a_class_that_waits_long_moves_up() -> None:
    async def run() -> float:
        calls = Calls(Admission(clock(), concurrent=1))
        async with asyncio.TaskGroup() as group:
            group.create_task(calls.call("first", 10))
            await asyncio.sleep(0)
            group.create_task(calls.call("batch", 1, qos_class="batch"))
            for number in range(40):  # always one that waits
                group.create_task(calls.call(f"i{number}", 10, qos_class="interactive"))
                await asyncio.sleep(10)
        return calls.begun_at_s["batch"]

    assert 90 <= in_virtual_time(run) <= 130


def test_background_calls_leave_places() -> None:
    async def run() -> tuple[int, int, float]:
        admission = Admission(clock(), concurrent=4)
        calls = Calls(admission)
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(calls.call(f"b{number}", 10, qos_class="batch"))
            await asyncio.sleep(1)
            batches = admission.running
            for number in range(4):
                group.create_task(calls.call(f"g{number}", 10, qos_class="background"))
            await asyncio.sleep(1)
            with_background = admission.running
            group.create_task(calls.call("interactive", 1, qos_class="interactive"))
        return batches, with_background, calls.begun_at_s["interactive"]

    assert in_virtual_time(run) == (2, 3, 2.0)


def test_calls_in_a_minute() -> None:
    async def run() -> list[float]:
        calls = Calls(Admission(clock(), per_minute=2))
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(calls.call(str(number), 0))
                await asyncio.sleep(1)
        return list(calls.begun_at_s.values())

    assert in_virtual_time(run) == [0, 1, 60, 61, 120]


def test_a_pause_that_the_provider_asked_for() -> None:
    async def run() -> list[float]:
        admission = Admission(clock())
        calls = Calls(admission)
        await calls.call("before", 0)
        admission.pause(7)
        admission.pause(3)
        await calls.call("after", 0)
        admission.pause(10_000)
        await calls.call("much later", 0)
        return list(calls.begun_at_s.values())

    assert in_virtual_time(run) == [0, 7, 67]


def test_new_limits_hold_at_once() -> None:
    async def run() -> tuple[int, int]:
        admission = Admission(clock(), concurrent=1)
        calls = Calls(admission)
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(calls.call(str(number), 5))
            await asyncio.sleep(1)
            before = admission.running
            admission.limit(concurrent=3, per_minute=None)
            return before, admission.running

    assert in_virtual_time(run) == (1, 3)


def test_too_many_that_wait_are_refused() -> None:
    async def run() -> None:
        admission = Admission(clock(), concurrent=1, most_waiting=2)
        calls = Calls(admission)
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(calls.call(str(number), 5))
            await asyncio.sleep(1)
            with pytest.raises(ModelError, match="2 calls wait") as caught:
                await calls.call("one too many", 1)
            assert caught.value.kind == "overloaded"
        assert (admission.running, admission.waiting) == (0, 0)

    in_virtual_time(run)


@given(
    st.lists(
        st.tuples(st.sampled_from(CLASSES), st.integers(0, 255), st.integers(0, 9), st.none() | st.integers(0, 12)),
        max_size=20,
    ),
    st.integers(1, 4),
)
def test_places_are_never_exceeded_and_none_is_lost(
    plans: list[tuple[QosClass, int, int, int | None]], concurrent: int
) -> None:
    async def run() -> None:
        admission = Admission(clock(), concurrent=concurrent)
        calls = Calls(admission)

        async def one(number: int, qos_class: QosClass, priority: int, seconds: int, cancel_s: int | None) -> None:
            task = asyncio.create_task(calls.call(str(number), seconds, qos_class=qos_class, priority=priority))
            if cancel_s is not None:
                await asyncio.sleep(cancel_s)
                task.cancel()
            await asyncio.wait([task])

        async with asyncio.TaskGroup() as group:
            for number, plan in enumerate(plans):
                group.create_task(one(number, *plan))
            for _ in range(10):
                assert admission.running <= concurrent
                await asyncio.sleep(1)
        assert (admission.running, admission.waiting) == (0, 0)
        async with asyncio.TaskGroup() as group:  # all places are there again
            for number in range(concurrent):
                group.create_task(calls.call(f"then {number}", 1))
            await asyncio.sleep(0.5)
            assert admission.running == concurrent

    in_virtual_time(run)
