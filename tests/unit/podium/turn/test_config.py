"""The configuration of agents: what hooks read, and the turn that reacts to its changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.agent_record import read_agent
from podium.history.branching import fork_agent, rewind_agent
from podium.history.fold import fold_agent
from podium.state import InvalidValue
from podium.testing import AgentHarness

if TYPE_CHECKING:
    from chronicle.canonical import Json, JsonObject

NOW_MS = 1_700_000_000_000


class Configured(BaseAgent):
    """Notes each change of its configuration."""

    agent_type = "configured"
    max_attempts = 2

    class State(DeltaState):
        changes: list[dict[str, Any]] = []
        order: list[str] = []

    async def on_init(self, ctx: AgentContext[Any]) -> None:
        ctx.state.order.append("init")

    async def on_config_change(self, ctx: AgentContext[Any], changes: dict[str, tuple[Any, Any]]) -> None:
        ctx.state.order.append("config")
        ctx.state.changes.append({key: list(values) for key, values in changes.items()})
        await ctx.emit("configured", {"keys": list(changes)})
        if ctx.get_config("broken"):
            raise ValueError("cannot use it")

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.order.append("message")
        ctx.reply({"config": dict(ctx.config), "model": ctx.get_config("model", "none")})


class Unaware(BaseAgent):
    """Reads its configuration and reacts to no change."""

    agent_type = "configured"

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.reply(ctx.get_config("model"))


def causes(agent: AgentHarness) -> list[Json]:
    return [payload["cause"] for _, payload in agent.events("turn.committed")]


# S3.30
async def test_a_hook_reads_the_configuration() -> None:
    async with AgentHarness(Configured, config={"model": "small", "limits": {"tokens": 5}}) as agent:
        answer = await agent.send("hi")
        assert answer.data == {"config": {"model": "small", "limits": {"tokens": 5}}, "model": "small"}
    async with AgentHarness(Configured) as agent:
        assert (await agent.send("hi")).data == {"config": {}, "model": "none"}


# S3.30
async def test_a_change_is_a_turn_of_its_own_before_the_next_message() -> None:
    async with AgentHarness(Configured, config={"model": "small", "same": 1, "gone": True}) as agent:
        await agent.send("one")
        await agent.configure({"model": "large", "same": 1, "new": [1]})
        assert not agent.awake
        answer = await agent.send("two")
        assert answer.data == {"config": {"model": "large", "same": 1, "new": [1]}, "model": "large"}
        change = {"gone": [True, None], "model": ["small", "large"], "new": [None, [1]]}
        assert agent.state == {"changes": [change], "order": ["init", "message", "init", "config", "message"]}
        assert causes(agent) == ["init", "message", "init", "config", "message"]
        emitted = [frame["data"] for frame in answer.frames if frame["type"] == "event"]
        assert emitted == [{"keys": ["gone", "model", "new"]}]
        await agent.sleep()
        await agent.send("three")
        assert len(agent.state["changes"]) == 1  # type: ignore[arg-type]


async def test_a_new_agent_has_no_change() -> None:
    async with AgentHarness(Configured, config={"model": "small"}) as agent:
        await agent.send("one")
        await agent.sleep()
        await agent.send("two")
        assert agent.state["changes"] == []


async def test_an_agent_that_never_had_a_configuration_gets_it_as_a_change() -> None:
    async with AgentHarness(Configured) as agent:
        await agent.send("one")
        await agent.configure({"model": "small"})
        await agent.send("two")
        assert agent.state["changes"] == [{"model": [None, "small"]}]


async def test_no_event_of_an_agent_without_configuration_names_one() -> None:
    async with AgentHarness(Configured) as agent:
        await agent.send("one")
        await agent.sleep()
        await agent.send("two")
        assert all("config" not in payload for _, payload in agent.events())


async def test_a_failed_change_counts_an_attempt_and_runs_again() -> None:
    async with AgentHarness(Configured, config={"model": "small"}) as agent:
        await agent.send("one")
        await agent.configure({"broken": True})
        answer = await agent.send("two")
        assert answer.error == {"type": "ValueError", "message": "cannot use it"}
        assert [frame["hook"] for frame in answer.frames if "hook" in frame] == ["on_config_change"] * 2
        assert agent.state["changes"] == []
        await agent.configure({"model": "large"})
        assert (await agent.send("three")).ok
        assert agent.state["changes"] == [{"model": ["small", "large"]}]


async def test_a_kill_before_the_change_is_committed_runs_it_again() -> None:
    async with AgentHarness(Configured, config={"model": "small"}) as agent:
        await agent.send("one")
        await agent.configure({"model": "large"})
        agent.admit("two")
        await agent._wake(unclean=False)
        await agent.kill()
        await agent.receive()
        assert agent.state["changes"] == [{"model": ["small", "large"]}]
        await agent.kill()
        await agent.send("three")
        assert len(agent.state["changes"]) == 1


async def test_a_class_without_the_hook_records_what_it_has_seen_with_its_next_turn() -> None:
    store, blobs = MemoryJournalStore(), MemoryBlobStore()
    async with AgentHarness(Unaware, store=store, blobs=blobs, config={"model": "small"}) as agent:
        await agent.send("one")
        await agent.configure({"model": "large"})
        assert (await agent.send("two")).data == "large"
        assert causes(agent) == ["message", "message"]
        assert [payload.get("config") for _, payload in agent.events("turn.committed")] == [None, {"model": "large"}]
        assert read_agent(store, blobs, agent.address).config == {"model": "large"}


async def test_a_fork_and_a_rewind_have_seen_what_their_turn_has() -> None:
    store, blobs, ids = MemoryJournalStore(), MemoryBlobStore(), IdSource()
    async with AgentHarness(Configured, "a", store=store, blobs=blobs, config={"model": "small"}) as agent:
        await agent.send("one")  # turn 2
        await agent.configure({"model": "large"})
        await agent.send("two")  # turns 3 to 5
        await agent.sleep()
        fork = Address("configured", "b")
        fork_agent(store, agent.address, 2, fork, ids, NOW_MS)
        assert read_agent(store, blobs, fork).config == {"model": "small"}
        rewind_agent(store, blobs, agent.address, 2, ["files"], ids, agent.clock.now_ms())
        assert read_agent(store, blobs, agent.address).config == {"model": "large"}
        rewind_agent(store, blobs, agent.address, 2, ["state"], ids, agent.clock.now_ms())
        assert read_agent(store, blobs, agent.address).config == {"model": "small"}
        await agent.send("three")
        assert agent.state["changes"] == [{"model": ["small", "large"]}]
    async with AgentHarness(Configured, "b", store=store, blobs=blobs, config={"model": "large"}) as forked:
        await forked.send("mine")
        assert forked.state["changes"] == [{"model": ["small", "large"]}]


async def test_what_was_seen_is_in_snapshots() -> None:
    async with AgentHarness(Unaware, config={"model": "small"}) as agent:
        while agent.store.snapshot(agent.store.session(str(agent.address)).main_branch_id) is None:
            await agent.send("go")
        await agent.send("more")
        record = read_agent(agent.store, agent.blobs, agent.address)
        assert (record.replayed_turns, record.config) == (1, {"model": "small"})


async def test_what_was_seen_outlives_folds() -> None:
    store, blobs = MemoryJournalStore(), MemoryBlobStore()
    async with AgentHarness(Configured, store=store, blobs=blobs, config={"model": "small"}) as agent:
        for number in range(3):
            await agent.configure({"model": f"m{number}"})
            await agent.send("go")
        await agent.sleep()
        fold_agent(store, blobs, agent.address, None, IdSource(), agent.clock.now_ms())
        assert read_agent(store, blobs, agent.address).config == {"model": "m2"}
        await agent.send("more")
        assert len(agent.state["changes"]) == 3  # type: ignore[arg-type]


class Meddling(BaseAgent):
    """Changes what it can of its configuration."""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.config["list"].append(2)
        try:
            ctx.config["new"] = 1  # type: ignore[index]
        except TypeError:
            ctx.reply({"list": ctx.get_config("list"), "refused": True})


async def test_a_configuration_is_read_only_and_changes_of_its_lists_last_for_a_turn() -> None:
    given: JsonObject = {"list": [1]}
    async with AgentHarness(Meddling, config=given) as agent:
        for _ in range(2):
            assert (await agent.send("go")).data == {"list": [1, 2], "refused": True}
    assert given == {"list": [1]}


async def test_a_configuration_that_is_not_json_is_refused() -> None:
    with pytest.raises(InvalidValue, match="/where: a .*Path is not JSON"):
        AgentHarness(Configured, config={"where": Path()})  # type: ignore[dict-item]
