"""Promises: a turn waits until something outside has happened, which another program says by name, once."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from chronicle.errors import InvalidInput
from chronicle.journal.verify import verify_session
from podium.agent import AgentContext, BaseAgent, DeltaState
from podium.errors import DecisionExpired, DecisionInvalid, PromiseRejected, RunNotPaused
from podium.events import TURN_COMMITTED, TURN_PAUSED
from podium.testing.harness import AgentHarness, Exchange


class Payment(BaseModel):
    """What has come in."""

    cents: int


class Shop(BaseAgent):
    """Waits for a payment."""

    max_attempts = 1
    reserved: ClassVar[list[str]]

    class State(DeltaState):
        """What was sold."""

        sold: list[str] = []

    async def on_message(self, ctx: AgentContext[State], message: dict[str, Any]) -> None:
        match message["text"]:
            case "buy":
                await ctx.step("reserve", lambda: self.reserved.append("tea"))
                (ctx.workspace / "order.txt").write_text("tea")
                try:
                    paid = await ctx.promise("payment", schema=Payment, timeout=message.get("timeout"))
                except PromiseRejected as error:
                    ctx.reply(f"rejected: {error}")
                    return
                ctx.state.sold.append(f"{(ctx.workspace / 'order.txt').read_text()} for {paid.cents}")
            case "two":
                ctx.reply([await ctx.promise("a"), await ctx.promise("b"), await ctx.promise("a")])
            case "default":
                ctx.reply(await ctx.promise("payment", schema={"type": "integer"}, timeout="1h", default=None))
            case "decide":
                ctx.reply(await ctx.decide(bool, reason="yes?"))
            case name:
                await ctx.promise(name)


@pytest.fixture
async def agent() -> Any:
    Shop.reserved = []
    async with AgentHarness(Shop) as harness:
        yield harness
        assert verify_session(harness.store, harness.store.session(harness.address.name)).ok


def run_of(exchange: Exchange) -> str:
    return exchange.receipt.message_id


async def test_a_promise_is_resolved_once_by_its_name(agent: AgentHarness) -> None:
    asked = await agent.send("buy")
    pending, paused = asked.frames[-2:]
    assert (pending["type"], pending["call_id"], paused["kind"]) == (
        "tool_decision_pending",
        "promise payment#1",
        "promise",
    )
    ((_, record),) = agent.events(TURN_PAUSED)
    assert (record["kind"], record["call_id"]) == ("promise", "promise payment#1")
    await agent.sleep()
    for name in ("pay", "payment#1", "promise payment", "Payment"):
        with pytest.raises(RunNotPaused, match="does not wait for the promise"):
            await agent.resume(run_of(asked), {"cents": 1}, promise=name)
    with pytest.raises(DecisionInvalid, match="/cents"):
        await agent.resume(run_of(asked), {"cents": "many"}, promise="payment")
    assert agent.state == {"sold": []}
    done = await agent.resume(run_of(asked), {"cents": 500}, promise="payment", by="key_1")
    assert done.ok
    assert agent.state == {"sold": ["tea for 500"]}
    assert Shop.reserved == ["tea"], "no step ran twice"
    committed: Any
    ((_, committed),) = agent.events(TURN_COMMITTED)
    (step,) = [step for step in committed["steps"]["steps"] if "pause" in step]
    assert step["pause"] == {"kind": "promise", "outcome": "answered", "by": "key_1"}
    with pytest.raises(RunNotPaused):
        await agent.resume(run_of(asked), {"cents": 1}, promise="payment")
    with pytest.raises(RunNotPaused):
        await agent.resume(run_of(asked), None, promise="payment", rejection="no")


async def test_a_promise_is_rejected_once(agent: AgentHarness) -> None:
    asked = await agent.send("buy")
    done = await agent.resume(run_of(asked), None, promise="payment", rejection="card refused", by="key_1")
    assert done.data == "rejected: card refused"
    (resumed,) = [frame for frame in done.frames if frame["type"] == "agent_resume"]
    assert (resumed["outcome"], resumed["by"]) == ("rejected", "key_1")
    with pytest.raises(RunNotPaused):
        await agent.resume(run_of(asked), {"cents": 1})


async def test_a_rejection_that_nobody_handles_fails_the_turn(agent: AgentHarness) -> None:
    asked = await agent.send("gift")
    done = await agent.resume(run_of(asked), None, rejection="none left")
    assert done.error == {"type": "PromiseRejected", "message": "none left"}


async def test_promises_come_one_after_the_other(agent: AgentHarness) -> None:
    asked = await agent.send("two")
    run = run_of(asked)
    with pytest.raises(RunNotPaused):
        await agent.resume(run, 2, promise="b")
    assert (await agent.resume(run, 1, promise="a")).paused
    with pytest.raises(RunNotPaused, match="promise b#1"):
        await agent.resume(run, 1, promise="a")
    assert (await agent.resume(run, 2, promise="b")).frames[-1]["call_id"] == "promise a#2"
    with pytest.raises(RunNotPaused):
        await agent.resume(run, 3, call_id="promise a#1")
    assert (await agent.resume(run, 3, promise="a")).data == [1, 2, 3]


async def test_time_ends_a_promise(agent: AgentHarness) -> None:
    asked = await agent.send({"text": "buy", "timeout": "1h"})
    await agent.advance(3600)
    with pytest.raises((RunNotPaused, DecisionExpired)):
        await agent.resume(run_of(asked), {"cents": 1}, promise="payment")
    asked = await agent.send("default")
    await agent.advance(3600)
    assert (await agent.activation.settled(asked.receipt.message_id))[-1]["data"] is None


async def test_a_decision_is_not_rejected(agent: AgentHarness) -> None:
    asked = await agent.send("decide")
    with pytest.raises(DecisionInvalid, match="only a promise"):
        await agent.resume(run_of(asked), None, rejection="no")
    with pytest.raises(RunNotPaused):
        await agent.resume(run_of(asked), True, promise="decide")
    assert (await agent.resume(run_of(asked), True)).data is True


@pytest.mark.parametrize("name", ["1st", "with space", "a#1", "a/b", "x" * 101, "é", "a\n"])
async def test_names_that_are_refused(agent: AgentHarness, name: str) -> None:
    done = await agent.send(name)
    assert done.error is not None
    assert done.error["type"] == InvalidInput.__name__
