"""Agents whose history has states of several versions of their class: forks and rewinds, by newer and older code."""

from __future__ import annotations

from typing import Any

import pytest

from chronicle.ids import IdSource
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState, migration
from podium.agent_record import read_agent
from podium.history.branching import fork_agent, rewind_agent
from podium.state import StateTooNew
from podium.testing import AgentHarness

_IDS = IdSource()


class First(BaseAgent):
    agent_type = "person"

    class State(DeltaState):
        _version = 1
        first: str = ""
        last: str = ""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.first, ctx.state.last = message["text"].split()


class Second(BaseAgent):
    agent_type = "person"

    class State(DeltaState):
        _version = 2
        name: str = ""

        @migration(from_version=1)
        def join_names(doc: dict[str, Any]) -> dict[str, Any]:  # noqa: N805  a static method
            doc["name"] = f"{doc.pop('first')} {doc.pop('last')}"
            return doc

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.name = message["text"]


async def with_two_versions() -> AgentHarness:
    """An agent that sleeps, with a turn of version 1, then the migration and a turn of version 2."""
    async with AgentHarness(First, "ann") as first:
        await first.send("Ann Smith")
    async with AgentHarness(Second, "ann", store=first.store, blobs=first.blobs) as agent:
        await agent.send("Ann Jones")
        assert agent.state == {"name": "Ann Jones"}
    return agent


async def test_a_fork_of_an_older_version_is_moved_up_when_it_wakes() -> None:
    agent = await with_two_versions()
    store, blobs = agent.store, agent.blobs
    fork_agent(store, agent.address, 1, Address("person", "bob"), _IDS, agent.clock.now_ms())
    assert read_agent(store, blobs, Address("person", "bob")).state == {"first": "Ann", "last": "Smith"}
    async with AgentHarness(Second, "bob", store=store, blobs=blobs) as fork:
        assert (await fork.send("Bob Smith")).ok
        assert fork.state == {"name": "Bob Smith"}
        moved: Any = fork.events("turn.committed")[1][1]["state"]
        assert moved["patch"][-1] == {"op": "add", "path": "/name", "value": "Ann Smith"}


@pytest.mark.parametrize("code", [First, Second])
async def test_going_back_to_an_older_version(code: type[BaseAgent]) -> None:
    agent = await with_two_versions()
    store, blobs = agent.store, agent.blobs
    with pytest.raises(StateTooNew):
        async with AgentHarness(First, "ann", store=store, blobs=blobs):
            pass
    rewind_agent(store, blobs, agent.address, 1, None, _IDS, agent.clock.now_ms())
    assert read_agent(store, blobs, agent.address).state == {"first": "Ann", "last": "Smith"}
    async with AgentHarness(code, "ann", store=store, blobs=blobs) as again:
        assert (await again.send("Ann Brown")).ok
        assert again.state == ({"name": "Ann Brown"} if code is Second else {"first": "Ann", "last": "Brown"})
    rewind_agent(store, blobs, agent.address, 3, None, _IDS, agent.clock.now_ms())
    assert read_agent(store, blobs, agent.address).state == {"name": "Ann Jones"}
