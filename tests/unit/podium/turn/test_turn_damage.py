"""What user code can do to a turn's record: it may fail the turn, and never the activation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chronicle.journal.records import MessageStatus
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.testing import AgentHarness
from podium.turn.journal.snapshot_policy import MAX_TURNS

NOT_UNICODE = "\udcff"


class Careless(BaseAgent):
    """Puts text that no JSON can hold where the message says."""

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        match message["text"]:
            case "raise":
                raise ValueError(f"no {NOT_UNICODE}")
            case "event":
                await ctx.emit("seen", {"name": NOT_UNICODE})
        ctx.state.count += 1


@pytest.mark.parametrize("where", ["raise", "event"])
async def test_text_that_is_not_unicode_fails_its_turn_only(where: str) -> None:
    async with AgentHarness(Careless) as agent:
        answer = await agent.send(where)
        assert answer.error is not None
        assert agent.store.message(answer.receipt.message_id).status is MessageStatus.PARKED
        assert (await agent.send("fine")).ok
        assert agent.state == {"count": 1}


class Restless(BaseAgent):
    """Has a task that goes on changing the state after its turn."""

    class State(DeltaState):
        ticks: list[int] = []

    ticking: asyncio.Task[None] | None = None

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if self.ticking is None:
            self.ticking = asyncio.ensure_future(self.tick(ctx))

    async def tick(self, ctx: AgentContext[Any]) -> None:
        while True:
            ctx.state.ticks.append(len(ctx.state.ticks))
            await asyncio.sleep(0)

    async def on_shutdown(self, ctx: AgentContext[Any]) -> None:
        if self.ticking is not None:
            self.ticking.cancel()


async def test_a_snapshot_holds_its_turn_and_not_what_came_after_it() -> None:
    async with AgentHarness(Restless) as agent:
        for _ in range(MAX_TURNS + 2):
            assert (await agent.send("go on")).ok
        await agent.sleep()
        head = agent.store.head(agent.store.session(str(agent.address)).main_branch_id)
        assert agent.store.snapshot(head.branch_id) is not None
        ticks = agent.state["ticks"]
        assert ticks == list(range(len(ticks)))  # type: ignore[arg-type]


async def test_an_end_read_back_is_that_of_the_last_commit_even_before_its_answer() -> None:
    class Failing(Careless):
        max_attempts = 1

    async with AgentHarness(Failing) as agent:
        receipt = agent.admit("raise")
        ledger_head = agent.activation._runner.ledger.head
        await agent.activation.handle_next()
        agent.activation._runner.ledger.head = ledger_head  # as it is while the answer is on its way
        (frame,) = await agent.activation.settled(receipt.message_id)
        assert frame["error"]["type"] == "ValueError"
