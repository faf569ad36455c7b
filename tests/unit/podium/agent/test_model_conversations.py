"""Conversations with models, rebuilt from the record of the turns (S2.50)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from podium.address import Address
from podium.agent import BaseAgent, ModelAgent
from podium.history.branching import fork_agent, rewind_agent
from podium.history.erase import erase_messages
from podium.models import Finished, LLMMessage, ProviderBlock, TextDelta, ToolCall, ToolCallDone, Usage
from podium.models.context import ContextWindow
from podium.testing import AgentHarness
from podium.tools import ToolRouter, tool
from podium.turn.busy import BusyPolicy
from tests.unit.podium.agent.model_agents import Begun, Model, calling

router = ToolRouter()


@tool(router=router, mode="read")
async def look(size: int) -> str:
    return "x" * size


class Talks(ModelAgent):
    router = router
    instructions = "Be brief."


def texts(model: Model) -> list[str]:
    return [text for role, text in model.said if role != "system"]


async def back(agent: AgentHarness, turn: int, only: Any = None) -> None:
    """Rewind an agent."""
    await agent.sleep()
    rewind_agent(agent.store, agent.blobs, agent.address, turn, only, IdSource(), agent.clock.now_ms())


# S2.50
async def test_each_call_is_sent_all_that_was_said_before_over_sleep_and_death() -> None:
    model = Model("one", calling(("look", {"size": 3})), "two", "three", "four")
    async with AgentHarness(Talks, models={"chat": model}) as agent:
        await agent.send("first")
        await agent.send("second")
        before = model.asked[-1]
        await agent.sleep()
        await agent.send("third")
        assert model.asked[-1][: len(before)] == before
        await agent.kill()
        await agent.send("fourth")
        assert texts(model) == ["first", "one", "second", "", "xxx", "two", "third", "three", "fourth"]
        assert agent.state == {}, "nothing of it is in the state"


async def test_a_masked_result_stays_as_it_was_sent() -> None:
    class Masks(Talks):
        window = ContextWindow(observation_window=1)

    model = Model(*[calling(("look", {"size": 500})), "ok"] * 4)
    async with AgentHarness(Masks, models={"chat": model}) as agent:
        for number in range(3):
            await agent.send(f"go {number}")
        await agent.kill()
        before = model.asked[-1]
        await agent.send("last")
        assert model.asked[-2][: len(before) - 1] == before[:-1], "only the last result can be masked meanwhile"
        masked = [message for message in model.asked[-1] if message.note]
        assert [message.text for message in masked] == ["(left out: 500 characters, an older result)"] * 3


async def test_blocks_of_the_provider_come_back_unchanged() -> None:
    thinking = ProviderBlock("anthropic", {"type": "thinking", "signature": "EqQB", "n": 1.5})
    call = ToolCallDone(ToolCall("toolu_1", "look", {"size": 2}))

    class Thinks:
        asked: list[list[LLMMessage]] = []

        async def stream(self, messages: Any, *, tools: Any = None, temperature: Any = None) -> Any:
            del tools, temperature
            self.asked.append([*messages])
            for chunk in (thinking, TextDelta("hm"), *([call] if len(self.asked) == 1 else [])):
                yield chunk
            yield Usage(1, 1)
            yield Finished("stop", "m", "resp_1")

    model = Thinks()
    async with AgentHarness(Talks, models={"chat": model}) as agent:
        await agent.send("first")
        await agent.kill()
        await agent.send("second")
        _, second, third = model.asked
        assert third[: len(second)] == second
        assert [message.blocks[0] for message in third if message.role == "assistant"] == [thinking, thinking]
        assert third[2].tool_calls == (ToolCall("toolu_1", "look", {"size": 2}, after_blocks=2),)


async def test_a_conversation_follows_rewinds_and_forks() -> None:
    store, model = MemoryJournalStore(), Model("one", "two", "three", "four", "five", "six")
    async with AgentHarness(Talks, "a", store=store, models={"chat": model}) as agent:
        for text in ("first", "second"):
            await agent.send(text)
        fork_agent(store, agent.address, 1, Address("talks", "b"), IdSource(), agent.clock.now_ms())
        await back(agent, 1)
        await agent.send("instead")
        assert texts(model) == ["first", "one", "instead"]
        await back(agent, 2)
        await agent.send("after all")
        assert texts(model) == ["first", "one", "second", "two", "after all"]
        await back(agent, 4, only={"state"})
        await agent.send("the transcript is kept")
        assert texts(model) == ["first", "one", "second", "two", "after all", "four", "the transcript is kept"]
        async with AgentHarness(Talks, "b", store=store, blobs=agent.blobs, models={"chat": model}) as child:
            await child.send("of the fork")
            assert texts(model) == ["first", "one", "of the fork"]


@pytest.mark.parametrize("policy", [BusyPolicy.INTERRUPT, BusyPolicy.ROLLBACK])
async def test_what_a_cancelled_turn_said_is_not_in_the_conversation(policy: BusyPolicy) -> None:
    begun, tools = Begun(hangs_at=0), ToolRouter()

    @tool(router=tools)
    async def wait() -> None:
        await begun.begin("wait")

    class Waits(Talks):
        router = tools

    model = Model("one", calling(("wait", {})), "three", "four")
    async with AgentHarness(Waits, models={"chat": model}) as agent, asyncio.TaskGroup() as group:
        await agent.send("first")
        cancelled = group.create_task(agent.send("second"), name="second")
        async with asyncio.timeout(60):
            await begun.hangs.wait()
        assert (await agent.send("third", when_busy=policy)).ok
        assert not (await cancelled).ok
        assert texts(model) == ["first", "one", "third"]
        await agent.send("fourth")
        assert texts(model) == ["first", "one", "third", "three", "fourth"]


async def test_what_is_erased_is_told_no_more() -> None:
    model = Model(calling(("look", {"size": 40})), "I have looked at it.", "three")
    async with AgentHarness(Talks, models={"chat": model}) as agent:
        await agent.send("my secret is a long one")
        found = [agent.events(kind)[0][0].event_id for kind in ("user_message", "tool_result")]
        erase_messages(agent.store, agent.address, found)
        await agent.kill()
        await agent.send("second")
        assert texts(model) == [
            "",
            "(no result: the call was not made, or its result was erased)",
            "I have looked at it.",
            "second",
        ]


async def test_calls_of_other_conversations_are_not_in_it() -> None:
    class Titles(Talks):
        async def finish(self, ctx: Any, answered: Any) -> None:
            await ctx.llm("chat").answer([LLMMessage("user", f"a title for {answered.message.text}")])

    model = Model("one", "A title", "two", "Another title")
    async with AgentHarness(Titles, models={"chat": model}) as agent:
        await agent.send("first")
        await agent.send("second")
        assert [message.text for message in model.asked[2]] == ["Be brief.", "first", "one", "second"]


async def test_only_a_conversation_with_a_name_is_read() -> None:
    class Reads(BaseAgent):
        async def on_message(self, ctx: Any, message: Any) -> None:
            del message
            await ctx.llm("chat").said()

    async with AgentHarness(Reads) as agent:
        error = (await agent.send("hi")).error
        assert error is not None
        assert error["type"] == "ContextMisuse"
