"""What is recorded and told of a hook that fails, and what of a hook that handles no message reaches a client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from podium.agent import AgentContext, BaseAgent
from podium.testing import AgentHarness
from podium.turn.busy import BusyPolicy
from podium.turn.hooks.hook_runner import describe

if TYPE_CHECKING:
    from podium.events import TurnFailed


class Quiet(BaseAgent):
    max_attempts = 1

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        if message.get("text") == "raise":
            raise ValueError("as told")


def hooks_of(agent: AgentHarness) -> list[tuple[str | None, str]]:
    """The hooks of the failures that were recorded, and their errors."""
    failures = [cast("TurnFailed", payload) for _, payload in agent.events("turn.failed")]
    return [(failure["hook"], failure["error"]["type"]) for failure in failures]


# -- which hook failed -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("caplog")
async def test_a_failure_names_its_hook() -> None:
    class Failing(Quiet):
        max_attempts = 2
        bad_init = True

        async def on_init(self, ctx: AgentContext[Any]) -> None:
            if self.bad_init:
                self.bad_init = False
                raise KeyError("key")

        async def on_idle_timeout(self, ctx: AgentContext[Any]) -> bool:
            raise LookupError("idle")

        async def on_shutdown(self, ctx: AgentContext[Any]) -> None:
            raise RuntimeError("end")

    async with AgentHarness(Failing) as agent:
        raised = await agent.send("raise")
        retried = next(frame for frame in raised.frames if frame["type"] == "turn_retry")
        assert (retried["hook"], raised.frames[-1]["hook"]) == ("on_init", "on_message")
        (again,) = await agent.activation.settled(raised.receipt.message_id)
        assert (again["type"], again["hook"]) == ("error", "on_message")
        await agent.advance(Failing.idle_timeout_s)
        assert hooks_of(agent) == [
            ("on_init", "KeyError"),
            ("on_message", "ValueError"),
            ("on_idle_timeout", "LookupError"),
            ("on_shutdown", "RuntimeError"),
        ]
        await agent.send("hi")
        await agent.kill()
        assert hooks_of(agent)[-1] == (None, "HostLost")


async def test_a_message_that_steers_and_fails_names_on_steer() -> None:
    class Steered(Quiet):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            await asyncio.Event().wait()

        async def on_steer(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            raise ValueError("no")

    async with AgentHarness(Steered) as agent:
        running = asyncio.ensure_future(agent.send("long"))
        while agent.activation.running_message_id is None:
            await asyncio.sleep(0)
        steering = agent.admit("aside", when_busy=BusyPolicy.STEER)
        await agent.activation.preempt(steering.message_id, BusyPolicy.STEER)
        assert (await running).frames[-1]["hook"] == "on_steer"
        assert hooks_of(agent) == [("on_steer", "ValueError")]


# -- groups ------------------------------------------------------------------------------------------------------------


async def test_a_task_group_s_exception_is_shown_as_what_was_raised() -> None:
    class Grouped(Quiet):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            async def fails() -> None:
                raise ValueError("inner")

            async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
                _ = outer, inner.create_task(fails())

    async with AgentHarness(Grouped) as agent:
        assert (await agent.send("hi")).error == {"type": "ValueError", "message": "inner"}


def test_a_group_of_several_lists_them() -> None:
    group = ExceptionGroup("unhandled errors", [ValueError("a"), ExceptionGroup("more", [KeyError("b")])])
    assert describe(group) == {"type": "ExceptionGroup", "message": "ValueError: a; KeyError: 'b'"}


# -- what on_init says -------------------------------------------------------------------------------------------------


async def test_replies_of_on_init_are_recorded_and_reach_nobody() -> None:
    class Greets(Quiet):
        async def on_init(self, ctx: AgentContext[Any]) -> None:
            await ctx.emit("loading", {"percent": 50})
            await ctx.send_message("awake")
            await ctx.add_artifact("model.txt", "weights")

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            await ctx.send_message("hello")

    async with AgentHarness(Greets) as agent:
        first = await agent.send("hi")
        kinds = ["turn_start", "event", "message_start", "message_update", "message_end", "turn_end"]
        assert [frame["type"] for frame in first.frames] == kinds
        assert first.text == (await agent.send("hi")).text == "hello"
        settled = await agent.activation.settled(first.receipt.message_id)
        assert [frame["text"] for frame in settled if frame["type"] == "message_end"] == ["hello"]
        replies = [(event.turn, payload["text"]) for event, payload in agent.events("assistant_message")]
        assert replies == [(1, "awake"), (2, "hello"), (3, "hello")]
        assert [found.name for found in agent.artifacts()] == ["model.txt"]


# -- text that UTF-8 cannot hold ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (["a\ud800b"], "a\ufffdb"),
        (["a", "\ud83d", "\ude00", "b"], "a\U0001f600b"),
        (["\ud83d"], "\ufffd"),
        (["\ud83d", "", "x"], "\ufffdx"),
        (["\ud83d", "\ud83d", "\ude00"], "\ufffd\U0001f600"),
        (["\udcff", "é\U0001f600"], "\ufffdé\U0001f600"),
    ],
)
async def test_a_reply_holds_no_half_of_a_surrogate_pair(tokens: list[str], text: str) -> None:
    class Streams(Quiet):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            reply = await ctx.send_message()
            for token in tokens:
                await reply.stream_token(token)

    async with AgentHarness(Streams) as agent:
        answer = await agent.send("hi")
        assert answer.ok
        assert answer.text == text
        assert "".join(frame["delta"] for frame in answer.frames if frame["type"] == "message_update") == text
        assert [payload["text"] for _, payload in agent.events("assistant_message")] == [text]


async def test_a_message_that_an_event_cannot_hold_is_parked_and_the_agent_lives() -> None:
    message: dict[str, Any] = {}
    for _ in range(199):
        message = {"n": message}
    async with AgentHarness(Quiet) as agent:
        refused = await agent.send(message)
        assert refused.error is not None
        assert (refused.error["type"], refused.frames[-1]["parked"]) == ("InvalidInput", True)
        assert "more than 200 levels" in str(refused.error["message"])
        assert (await agent.send("hi")).error is None
