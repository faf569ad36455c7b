"""The harness itself: what it leaves when an agent cannot be woken, and agents that tell each other something."""

from __future__ import annotations

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
