"""The harness itself: what it leaves when an agent cannot be woken, and agents that tell each other something."""

from __future__ import annotations

import os
from typing import Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.journal.memory import MemoryJournalStore
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.state import StateTooNew
from podium.testing import AgentHarness


class Newer(BaseAgent):
    agent_type = "person"

    class State(DeltaState):
        _version = 2

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        pass


class Older(Newer):
    class State(DeltaState):
        _version = 1


async def test_a_waking_that_fails_leaves_the_agent_to_the_next_harness() -> None:
    store, blobs = MemoryJournalStore(), MemoryBlobStore()
    async with AgentHarness(Newer, store=store, blobs=blobs):
        pass
    for _ in range(2):
        with pytest.raises(StateTooNew):
            async with AgentHarness(Older, store=store, blobs=blobs):
                pass
    async with AgentHarness(Newer, store=store, blobs=blobs) as agent:
        assert (await agent.send("hello")).ok


class Pupil(BaseAgent):
    max_attempts = 2

    class State(DeltaState):
        heard: list[str] = []

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.heard.append(message["text"])
        if message["text"] == "bad":
            raise ValueError("as told")
        if "tell" in message:
            await ctx.tell(message["tell"], {"text": f"from {ctx.key}"})


async def test_what_agents_tell_each_other_is_received(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        AgentHarness(Pupil, "a") as first,
        AgentHarness(Pupil, "b", store=first.store, blobs=first.blobs) as second,
    ):
        await first.send({"text": "one", "tell": "pupil/b"})
        await first.send({"text": "two", "tell": "pupil/b"})
        await second.sleep()
        assert await second.receive() == 2
        assert second.state == {"heard": ["from a", "from a"]}
        assert await second.receive() == 0
        second.admit("bad")
        second.admit("good")
        assert await second.receive() == 2
        assert second.state == {"heard": ["from a", "from a", "good"]}
        assert [payload["parked"] for _, payload in second.events("turn.failed")] == [False, True]


class Finding(BaseAgent):
    """Notes in each hook where its workspace is by the environment."""

    idle_timeout_s = 10

    async def on_init(self, ctx: AgentContext[Any]) -> None:
        await self._note(ctx, "init")

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await self._note(ctx, "message")

    async def on_idle_timeout(self, ctx: AgentContext[Any]) -> bool:
        await self._note(ctx, "idle")
        return True

    async def on_shutdown(self, ctx: AgentContext[Any]) -> None:
        await self._note(ctx, "shutdown")

    async def _note(self, ctx: AgentContext[Any], hook: str) -> None:
        found.append((hook, os.environ["AGENT_WORKSPACE"] == str(ctx.workspace)))


found: list[tuple[str, bool]] = []


async def test_each_agent_finds_its_own_workspace_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_WORKSPACE", "/before")
    found.clear()
    async with AgentHarness(Finding, "a") as first, AgentHarness(Finding, "b") as second:
        for agent in (first, second, first):
            await agent.send("where")
        assert not await first.advance(20)
        await second.send("where")
        await first.send("where")
    assert [hook for hook, _ in found] == [
        *("init", "message"),
        *("init", "message"),
        *("message", "idle", "shutdown"),
        *("message", "init", "message"),
        *("shutdown", "shutdown"),
    ]
    assert all(right for _, right in found)
    assert os.environ["AGENT_WORKSPACE"] == "/before"
    monkeypatch.delenv("AGENT_WORKSPACE")
    async with AgentHarness(Finding, "a"):
        assert "AGENT_WORKSPACE" in os.environ
    assert "AGENT_WORKSPACE" not in os.environ


class Ordered(BaseAgent):
    class State(DeltaState):
        ages: dict[str, int] = {}
        seen: list[list[str]] = []

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.ages[message["text"]] = 1
        ctx.state.seen.append(list(ctx.state.ages))


async def test_the_keys_of_a_dict_are_sorted_when_the_agent_wakes() -> None:
    async with AgentHarness(Ordered) as agent:
        await agent.send("b")
        await agent.send("a")
        await agent.sleep()
        await agent.send("c")
        assert agent.state["seen"] == [["b"], ["b", "a"], ["a", "b", "c"]]
