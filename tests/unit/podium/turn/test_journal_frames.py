"""The frames of a settled message, read from the journal: the last attempt as a live reader got it, in whole texts."""

from __future__ import annotations

import asyncio
from typing import Any

from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.testing.harness import AgentHarness
from podium.turn.busy import BusyPolicy
from podium.turn.stream import Frame


class Speaker(BaseAgent):
    agent_type = "speaker"

    class State(DeltaState):
        pass

    def __init__(self) -> None:
        self.attempts = 0
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        self.attempts += 1
        outer = await ctx.send_message("begun first")
        inner = await ctx.send_message("begun second")
        await ctx.emit("progress")
        await inner.finish()
        await ctx.add_artifact("a.txt", "content")
        if message.get("fail", 0) >= self.attempts:
            raise ValueError("as told")
        if message.get("wait"):
            self.begun.set()
            await self.go_on.wait()
        await outer.stream_token(", ended second")

    async def on_steer(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await ctx.send_message("steered")
        self.go_on.set()


def speaker_of(agent: AgentHarness) -> Speaker:
    speaker: Speaker = agent.activation._agent  # type: ignore[assignment]
    return speaker


def of_type(frames: Any, *types: str) -> list[Frame]:
    return [frame for frame in frames if frame["type"] in types]


async def test_replies_come_in_the_order_in_which_they_were_begun() -> None:
    async with AgentHarness(Speaker) as agent:
        live = await agent.send({})
        settled = await agent.activation.settled(live.receipt.message_id)
        recorded = [payload["text"] for _, payload in agent.events("assistant_message")]
    assert recorded == ["begun second", "begun first, ended second"]
    starts = of_type(settled, "message_start")
    assert starts == of_type(live.frames, "message_start")
    assert [start["ordinal"] for start in starts] == [1, 2]
    ends = {frame["reply_id"]: frame for frame in of_type(live.frames, "message_end")}
    assert of_type(settled, "message_end") == [ends[start["reply_id"]] for start in starts]
    for kind in ("turn_start", "artifact", "turn_end"):
        assert of_type(settled, kind) == of_type(live.frames, kind), kind


async def test_the_attempt_has_its_number_and_the_id_of_the_message_event() -> None:
    async with AgentHarness(Speaker) as agent:
        live = await agent.send({"fail": 2})
        settled = await agent.activation.settled(live.receipt.message_id)
        ((event, _),) = agent.events("user_message")
    *void, valid = of_type(live.frames, "turn_start")
    assert [start["attempt"] for start in (*void, valid)] == [1, 2, 3]
    assert len({start["event_id"] for start in (*void, valid)}) == 3
    assert of_type(settled, "turn_start") == [valid]
    assert valid["event_id"] == event.event_id


async def test_a_steered_message_has_an_attempt_of_its_own() -> None:
    async with AgentHarness(Speaker) as agent:
        working = asyncio.create_task(agent.send({"wait": True}))
        await speaker_of(agent).begun.wait()
        steering = await agent.send({}, when_busy=BusyPolicy.STEER)
        steered = await working
        for exchange in (steering, steered):
            settled = await agent.activation.settled(exchange.receipt.message_id)
            for kind in ("turn_start", "message_start", "turn_end"):
                assert of_type(settled, kind) == of_type(exchange.frames, kind), kind
        (start,) = of_type(steering.frames, "turn_start")
        assert start["steered"]


async def test_what_an_interrupted_turn_had_said_is_shown() -> None:
    async with AgentHarness(Speaker) as agent:
        working = asyncio.create_task(agent.send({"wait": True}))
        await speaker_of(agent).begun.wait()
        speaker_of(agent).go_on = asyncio.Event()
        taking = asyncio.create_task(agent.send({}, when_busy=BusyPolicy.INTERRUPT))
        stopped = await working
        await taking
        settled = await agent.activation.settled(stopped.receipt.message_id)
    for kind in ("turn_start", "message_start"):
        assert of_type(settled, kind) == of_type(stopped.frames, kind), kind
    assert settled[-1]["error"] == stopped.error
    assert [frame["delta"] for frame in of_type(settled, "message_update")] == ["begun first"]
    assert [frame["text"] for frame in of_type(settled, "message_end")] == ["begun second"]
