"""Taking agents back, through the real activation, on each journal store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import StaleEpoch
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.verify import verify_session
from podium.address import Address
from podium.agent_record import find_session, read_agent
from podium.errors import AgentAwake, UnknownAgent, UnknownMoment
from podium.history.branching import plan_rewind, rewind_agent
from podium.testing import AgentHarness
from tests.unit.podium.history.notes_agent import Notes, told

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Head
    from podium.events import Part
    from podium.history.branching import Rewind


def rewind(agent: AgentHarness, turn: int, *only: Part) -> tuple[Rewind, Head | None]:
    return rewind_agent(agent.store, agent.blobs, agent.address, turn, only or None, IdSource(), agent.clock.now_ms())


async def test_going_back_is_a_turn_and_can_be_undone(store: JournalStore) -> None:
    async with AgentHarness(Notes, store=store) as agent:
        await told(agent, "one", "two", "three")
        plan, head = rewind(agent, 1)
        assert head is not None
        assert head.turn == 4
        assert plan.patch == [{"op": "remove", "path": "/said/1"}, {"op": "remove", "path": "/said/1"}]
        assert agent.state == {"said": ["one"]}
        await told(agent, "four")
        assert agent.state == {"said": ["one", "four"]}
        rewind(agent, 3)
        assert agent.state == {"said": ["one", "two", "three"]}
        await agent.send("seven")
        assert (agent.workspace / "notes.txt").read_text() == "one\ntwo\nthree\nseven"
        versions = agent.activation.workspace.history("notes.txt")
        assert [(version.iteration, version.op, version.turn) for version in versions] == [
            (1, "write", 1),
            (2, "write", 2),
            (3, "write", 3),
            (4, "restore", 4),
            (5, "write", 5),
            (6, "restore", 6),
            (7, "write", 7),
        ]
        assert agent.events("turn.failed") == []
        assert [payload["to"] for _, payload in agent.events("agent.rewound")] == [1, 3]
        for turn, said in enumerate([[], ["one"], ["one", "two"], ["one", "two", "three"], ["one"]]):
            assert read_agent(store, agent.blobs, agent.address, turn).state == {"said": said}
        assert verify_session(store, find_session(store, agent.address)).ok


@pytest.mark.parametrize("only", ["state", "files"])
async def test_only_state_or_only_files(store: JournalStore, only: Part) -> None:
    async with AgentHarness(Notes, store=store) as agent:
        await told(agent, "one", "two")
        plan, _ = rewind(agent, 1, only)
        assert agent.state == {"said": ["one"] if only == "state" else ["one", "two"]}
        assert bool(plan.patch) == (only == "state")
        await agent._wake(unclean=False)
        assert (agent.workspace / "notes.txt").read_text() == ("one\ntwo" if only == "state" else "one")


async def test_back_to_the_time_before_the_first_turn(store: JournalStore) -> None:
    async with AgentHarness(Notes, store=store) as agent:
        await told(agent, "one")
        rewind(agent, 0)
        await agent._wake(unclean=False)
        assert agent.state == {"said": []}
        assert list(agent.workspace.iterdir()) == []
        assert [version.op for version in agent.activation.workspace.history("notes.txt")] == ["write", "delete"]


async def test_numbers_of_tries_that_failed_are_not_given_out_again(store: JournalStore) -> None:
    async with AgentHarness(Notes, store=store) as agent:
        await told(agent, "one", "two", "fail")
        rewind(agent, 1)
        await agent._wake(unclean=False)
        versions = agent.activation.workspace.history("notes.txt")
        assert [(version.iteration, version.op) for version in versions] == [(1, "write"), (2, "write"), (6, "restore")]


async def test_a_fork_goes_back_to_turns_that_it_inherited(store: JournalStore) -> None:
    from podium.history.branching import fork_agent

    async with AgentHarness(Notes, "a", store=store) as parent:
        await told(parent, "one", "two")
        fork_agent(store, parent.address, None, Address("notes", "b"), IdSource(), 0)
        async with AgentHarness(Notes, "b", store=store, blobs=parent.blobs) as child:
            await told(child, "three")
            rewind(child, 1)
            assert child.state == {"said": ["one"]}
            await child._wake(unclean=False)
            assert (child.workspace / "notes.txt").read_text() == "one"
        assert parent.state == {"said": ["one", "two"]}


async def test_where_there_is_nothing_to_change_nothing_is_written(store: JournalStore) -> None:
    async with AgentHarness(Notes, store=store) as agent:
        await told(agent, "one")
        before = agent.events()
        assert rewind(agent, 1)[1] is None
        assert agent.events() == before
        assert store.lease(find_session(store, agent.address).session_id) is None


async def test_an_agent_that_is_awake_is_refused(store: JournalStore) -> None:
    async with AgentHarness(Notes, store=store) as agent:
        await agent.send("one")
        before = agent.events()
        with pytest.raises(AgentAwake, match="notes/test is awake"):
            rewind(agent, 0)
        assert agent.events() == before
        assert (await agent.send("two")).ok


async def test_after_a_death_the_next_activation_still_learns_of_it(store: JournalStore) -> None:
    async with AgentHarness(Notes, store=store) as agent:
        await agent.send("one")
        await agent.activation.abandon()
        agent.clock.advance(3600)
        rewind(agent, 0)
        session_id = find_session(store, agent.address).session_id
        lease = store.lease(session_id)
        assert lease is not None
        assert lease.expires_ms <= agent.clock.now_ms()
        await agent._wake(unclean=True)
        assert agent.state == {"said": []}


async def test_what_is_not_there_is_said(store: JournalStore) -> None:
    async with AgentHarness(Notes, store=store) as agent:
        await told(agent, "one")
        with pytest.raises(UnknownMoment, match="there is no turn 2"):
            rewind(agent, 2)
        with pytest.raises(UnknownAgent):
            plan_rewind(store, agent.blobs, Address("notes", "nobody"), 0)
        assert plan_rewind(store, agent.blobs, agent.address, 0, ["files"]).patch == []


class WokenMeanwhile(MemoryJournalStore):
    """Another one takes the lease just before a rewind commits."""

    armed = False

    def commit(self, commit: Any) -> Any:
        """Commit, unless armed."""
        if self.armed:
            self.armed = False
            raise StaleEpoch(commit.epoch, commit.epoch + 1)
        return super().commit(commit)


async def test_an_agent_that_is_woken_meanwhile_is_left_alone() -> None:
    store = WokenMeanwhile()
    async with AgentHarness(Notes, store=store) as agent:
        await told(agent, "one")
        store.armed = True
        with pytest.raises(AgentAwake, match="woken at this moment"):
            rewind(agent, 0)
        assert agent.state == {"said": ["one"]}
