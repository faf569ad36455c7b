"""`ModelAgent`: the loop of calls of a model and of tools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from podium.agent import ModelAgent
from podium.events import ASSISTANT_MESSAGE, TOOL_RESULT
from podium.models import LLMMessage
from podium.models.context import ContextWindow
from podium.testing import AgentHarness
from podium.tools import ToolResult, ToolRouter, tool
from tests.unit.podium.agent.model_agents import Begun, Model, calling


def agent_of(router: ToolRouter | None = None, **attributes: Any) -> type[ModelAgent]:
    return type("Acting", (ModelAgent,), {"router": router, "instructions": "Be brief.", **attributes})


def adding() -> ToolRouter:
    router = ToolRouter()

    @tool(router=router)
    async def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    return router


async def test_the_model_gets_the_results_of_its_tools_and_the_client_its_text() -> None:
    model = Model({"reasoning": "Easy.", **calling(("add", {"a": 1, "b": 2}), text="I add.")}, "It is 3.")
    async with AgentHarness(agent_of(adding()), models={"chat": model}) as agent:
        answer = await agent.send("1 + 2?")
        assert answer.text == "I add.It is 3."
        assert [payload["text"] for _, payload in agent.events(ASSISTANT_MESSAGE)] == ["I add.", "It is 3."]
        first, second = model.asked
        assert first == [LLMMessage("system", "Be brief."), LLMMessage("user", "1 + 2?")]
        assert second[:2] == first
        assert [(message.role, message.text) for message in second[2:]] == [("assistant", "I add."), ("tool", "3")]
        assert second[2].tool_calls[0].id == second[3].tool_call_id
        assert [tools[0]["name"] for tools in model.tools if tools] == ["add", "add"]
        kinds = [frame["type"] for frame in answer.frames if frame["type"] != "message_update"]
        reply = ["message_start", "message_end"]
        told = ["event", *reply, "tool_execution_start", "tool_execution_end", *reply]
        assert kinds == ["turn_start", *told, "turn_end"]
        (thought,) = [frame for frame in answer.frames if frame["type"] == "event"]
        assert (thought["name"], thought["data"]) == ("reasoning", {"text": "Easy."})


async def test_calls_that_only_read_overlap() -> None:
    router, both = ToolRouter(), asyncio.Barrier(2)

    @tool(router=router, mode="read")
    async def look(place: str) -> str:
        await both.wait()
        return f"{place}!"

    model = Model(calling(("look", {"place": "a"}), ("look", {"place": "b"})), "Done.")
    async with AgentHarness(agent_of(router), models={"chat": model}) as agent:
        assert (await agent.send("look")).text == "Done."
        assert model.said[-2:] == [("tool", "a!"), ("tool", "b!")]


async def test_calls_that_cannot_be_made_reach_the_model_as_text() -> None:
    router = adding()

    @tool(router=router, mode="destructive")
    async def erase() -> None:
        raise AssertionError

    @tool(router=router, requires_approval=True)
    async def pay() -> None:
        raise AssertionError

    calls = calling(("nothing", {}), ("add", {"a": "x"}), ("erase", {}), ("pay", {}))
    model = Model(calls, "I cannot.")
    async with AgentHarness(agent_of(router), models={"chat": model}) as agent:
        assert (await agent.send("go")).text == "I cannot."
        unknown, wrong, unconsented, unapproved = [text for role, text in model.said if role == "tool"]
        assert unknown.startswith("Error: Unknown tool: nothing. Available tools: add")
        assert "the arguments of 'add' do not fit" in wrong
        assert "consent" in unconsented
        assert "approval" in unapproved
        assert [payload["success"] for _, payload in agent.events(TOOL_RESULT)] == [False] * 4


async def test_an_agent_without_tools_still_answers_a_model_that_calls_one() -> None:
    model = Model(calling(("add", {})), "Done.")
    async with AgentHarness(agent_of(), models={"chat": model}) as agent:
        assert (await agent.send("go")).text == "Done."
        assert model.tools == [None, None]
        assert "Unknown tool: add" in model.said[-1][1]


async def test_a_model_that_calls_for_ever_is_stopped_and_goes_on_with_the_next_message() -> None:
    model = Model(calling(("add", {"a": 1, "b": 2})))
    async with AgentHarness(agent_of(adding(), max_calls=3), models={"chat": model}) as agent:
        assert (await agent.send("go")).text == "Stopped after 3 calls of the model, before it was done."
        assert len(model.asked) == 3
        await agent.send("on")
        roles = [role for role, _ in model.said]
        assert roles == ["system", "user", *["assistant", "tool"] * 3, "user", *["assistant", "tool"] * 2]
        assert {text for role, text in model.said if role == "tool"} == {"3"}


async def test_a_result_that_is_the_end_ends_the_loop() -> None:
    class Ends(ModelAgent):
        async def run_tools(self, ctx: Any, calls: Any) -> list[ToolResult]:
            del ctx
            return [ToolResult(True, terminal=True, message="bye") for _ in calls]

    model = Model(calling(("leave", {})), "Hello again.")
    async with AgentHarness(Ends, models={"chat": model}) as agent:
        assert (await agent.send("go")).text == ""
        assert len(model.asked) == 1
        await agent.send("on")
        assert [role for role, _ in model.said] == ["user", "assistant", "tool", "user"], "each call has a result"


class Weather(BaseModel):
    city: str
    degrees: int


async def test_a_result_has_the_type_that_is_asked_for() -> None:
    model = Model(calling(("add", {"a": 1, "b": 2})), '```json\n{"city": "Oslo", "degrees": "3"}\n```')
    async with AgentHarness(agent_of(adding(), result_type=Weather), models={"chat": model}) as agent:
        answer = await agent.send("Oslo?")
        assert (answer.data, answer.text) == ({"city": "Oslo", "degrees": 3}, "")
        assert '"degrees"' in model.said[0][1], "the schema is in the system prompt"


async def test_a_result_of_another_type_is_asked_for_once_more_with_the_error() -> None:
    model = Model('{"city": "Oslo"}', '{"city": "Oslo", "degrees": 3}')
    async with AgentHarness(agent_of(result_type=Weather), models={"chat": model}) as agent:
        assert (await agent.send("Oslo?")).data == {"city": "Oslo", "degrees": 3}
        role, text = model.said[-1]
        assert role == "user"
        assert "degrees: Field required" in text


@pytest.mark.parametrize("script", [["no JSON"], [calling(("add", {"a": 1, "b": 2}))]], ids=["wrong", "none"])
async def test_without_a_result_of_the_type_the_message_is_parked_at_once(script: list[Any]) -> None:
    model = Model(*script)
    async with AgentHarness(agent_of(adding(), result_type=Weather, max_calls=2), models={"chat": model}) as agent:
        error = (await agent.send("Oslo?")).error
        assert error is not None
        assert error["type"] == "AnswerInvalid"
        assert len(model.asked) == 2


async def test_an_error_of_the_model_is_the_error_of_the_turn() -> None:
    model = Model({"error": {"kind": "auth", "message": "no key"}})
    async with AgentHarness(agent_of(max_attempts=1), models={"chat": model}) as agent:
        error = (await agent.send("hi")).error
        assert error is not None
        assert "no key" in str(error["message"])


async def test_a_message_without_text_is_sent_as_json() -> None:
    model = Model("Noted.")
    async with AgentHarness(agent_of(), models={"chat": model}) as agent:
        await agent.send({"kind": "alarm", "level": 3})
        assert model.said[-1] == ("user", '{"kind": "alarm", "level": 3}')


async def test_summaries_of_a_long_conversation_are_not_told_to_the_client() -> None:
    window = ContextWindow(soft_cap_chars=300, hard_cap_chars=10_000, min_tail_turns=1)
    model = Model({"when": "Summarise", "text": "the gist"}, "x" * 100)
    async with AgentHarness(agent_of(window=window), models={"chat": model}) as agent:
        texts = [(await agent.send(f"{number} " + "y" * 100)).text for number in range(4)]
        assert texts == ["x" * 100] * 4
        assert any("Summarise" in request[-1].text for request in model.asked)
        assert model.said[1] == ("user", "What happened before, in your own words:\n\nthe gist")
        assert len(model.said) < 6


STEPS = 6


@pytest.mark.parametrize("hangs_at", range(STEPS))
async def test_killed_at_each_step_no_call_that_had_ended_is_made_again(hangs_at: int) -> None:
    begun, router = Begun(hangs_at), ToolRouter()

    @tool(router=router)
    async def add(ctx: Any, number: int) -> int:
        await begun.begin(f"add {number}")
        with (ctx.workspace / "sum.txt").open("a") as file:
            file.write(f"{number}\n")
        return number

    calls = calling(("add", {"number": 1}), ("add", {"number": 2})), calling(("add", {"number": 3}))
    model = Model(*calls, "Done.", begun=begun)
    async with AgentHarness(agent_of(router), models={"chat": model}) as agent, asyncio.TaskGroup() as group:
        sending = group.create_task(agent.send("go"), name="send")
        async with asyncio.timeout(60):
            await begun.hangs.wait()
        sending.cancel()
        await agent.kill()
        await agent.receive()
        whole = ["model", "add 1", "add 2", "model", "add 3", "model"]
        assert len(whole) == STEPS
        assert begun.names == [*whole[: hangs_at + 1], *whole[hangs_at:]], "the call that ran is made again, no other"
        assert (agent.workspace / "sum.txt").read_text() == "1\n2\n3\n"
        assert [payload["text"] for _, payload in agent.events(ASSISTANT_MESSAGE)] == ["Done."]
        assert model.said == [
            ("system", "Be brief."),
            ("user", "go"),
            ("assistant", ""),
            ("tool", "1"),
            ("tool", "2"),
            ("assistant", ""),
            ("tool", "3"),
        ]
