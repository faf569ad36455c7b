"""The courier's task: receivers are woken while further messages are delivered, and no failure ends it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.clock import ManualClock
from chronicle.errors import Unavailable
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.messages import courier as module
from podium.messages.courier import Courier
from podium.testing import AgentHarness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DEADLINE_S = 60
RECEIVERS = [f"echo/{number}" for number in range(6)]


class Teller(BaseAgent):
    """Tells each of the agents that its message names."""

    class State(DeltaState):
        pass

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        for target in message["to"]:
            await ctx.tell(target, {"text": "hello"})


@pytest.fixture
async def store() -> AsyncIterator[MemoryJournalStore]:
    """A store whose outbox has a message for each receiver."""
    store = MemoryJournalStore()
    async with AgentHarness(Teller, "a", store=store) as teller:
        await teller.send({"to": RECEIVERS})
        yield store


async def test_receivers_are_told_before_the_whole_outbox_is_delivered(
    store: MemoryJournalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_AT_ONCE", 2)
    left: list[int] = []

    async def arrived(_: Address) -> None:
        left.append(len(store.outbox()))

    await _run_until(Courier(store, IdSource(), ManualClock(), arrived), lambda: len(left) == len(RECEIVERS))
    assert left == [4, 4, 2, 2, 0, 0]


async def test_a_failing_store_and_a_failing_wake_end_nothing(
    store: MemoryJournalStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_MOST_AT_ONCE", 1)
    told: list[Address] = []
    read, failures = store.outbox, [Unavailable("the disk is busy")]

    def outbox(limit: int = 100) -> Any:
        if failures:
            raise failures.pop()
        return read(limit)

    async def arrived(address: Address) -> None:
        told.append(address)
        if len(told) == 1:
            raise RuntimeError("a bug")

    monkeypatch.setattr(store, "outbox", outbox)
    courier = Courier(store, IdSource(), ManualClock(), arrived)

    def all_told() -> bool:
        courier.notice()
        return len(told) == len(RECEIVERS)

    await _run_until(courier, all_told)
    assert told == [Address("echo", str(number)) for number in range(len(RECEIVERS))]


async def _run_until(courier: Courier, condition: Any) -> None:
    running = asyncio.create_task(courier.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.001)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
