"""Forks of agents, through the real activation, on each journal store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from chronicle.clock import ManualClock
from chronicle.errors import ChronicleError
from chronicle.ids import IdSource
from chronicle.journal.chain import empty_head
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.verify import verify_session
from podium.address import Address
from podium.agent_record import find_session, list_agents, read_agent, turn_end_seq
from podium.errors import AgentExists, UnknownAgent, UnknownMoment
from podium.history.branching import Forked, fork_agent
from podium.testing import AgentHarness
from tests.unit.podium.history.notes_agent import Notes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.journal.port import JournalStore

NOW_MS = 1_700_000_000_000


def fork(store: JournalStore, source: str, turn: int | None, target: str) -> Forked:
    return fork_agent(store, Address.parse(source), turn, Address.parse(target), IdSource(), NOW_MS)


async def test_a_fork_has_the_state_and_files_of_its_turn_and_goes_its_own_way(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as parent:
        for text in ("one", "two", "three"):
            await parent.send(text)
        forked = fork(store, "notes/a", 2, "notes/b")  # while the parent is awake
        await parent.send("four")
        before = [event for event, _ in parent.events()]
        async with AgentHarness(Notes, "b", store=store, blobs=parent.blobs) as child:
            assert child.activation.turn == 2
            assert child.state == {"said": ["one", "two"]}
            assert (child.workspace / "notes.txt").read_text() == "one\ntwo"
            answer = await child.send("other")
            assert answer.ok
            assert child.state == {"said": ["one", "two", "other"]}
            history = child.activation.workspace.history("notes.txt")
            assert [version.iteration for version in history] == [1, 2, 3]
            assert [version.turn for version in history] == [1, 2, 3]
            assert child.activation.workspace.at("notes.txt", 1).read() == b"one"
            assert child.activation.turn == 3
            types = [event.type for event, _ in child.events()][-4:]
            assert types == ["turn.committed", "agent.forked", "user_message", "turn.committed"]
        assert parent.state == {"said": ["one", "two", "three", "four"]}
        assert [event for event, _ in parent.events()] == before
        assert (forked.turn, forked.head.turn, forked.head.seq) == (2, 2, forked.seq + 1)
        for session in store.sessions():
            assert verify_session(store, session).ok
    assert [session.name for session in list_agents(store)] == ["notes/a", "notes/b"]


async def test_the_first_event_of_a_fork_says_where_it_comes_from(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as parent:
        await parent.send("one")
        parent_branch = find_session(store, parent.address).main_branch_id
        forked = fork(store, "notes/a", None, "notes/b")
    async with AgentHarness(Notes, "b", store=store, blobs=parent.blobs) as child:
        ((event, payload),) = child.events("agent.forked")
        assert payload == {
            "agent": "notes/b",
            "from": {"agent": "notes/a", "branch": parent_branch, "turn": 1, "seq": forked.seq},
        }
        assert (event.turn, event.seq) == (1, forked.seq + 1)


async def test_forks_of_forks_continue_the_branch_that_has_the_turn(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as parent:
        await parent.send("one")
        await parent.send("two")
        parent_branch = find_session(store, parent.address).main_branch_id
        fork(store, "notes/a", 2, "notes/b")
        async with AgentHarness(Notes, "b", store=store, blobs=parent.blobs) as child:
            await child.send("three")
        assert fork(store, "notes/b", 1, "notes/c").parent_branch_id == parent_branch
        assert fork(store, "notes/b", 2, "notes/d").parent_branch_id == parent_branch
        assert fork(store, "notes/b", 3, "notes/e").parent_branch_id != parent_branch
        for key, said in {"c": ["one"], "d": ["one", "two"], "e": ["one", "two", "three"]}.items():
            async with AgentHarness(Notes, key, store=store, blobs=parent.blobs) as other:
                assert other.state == {"said": said}
                assert (other.workspace / "notes.txt").read_text() == "\n".join(said)


async def test_a_fork_at_turn_0_starts_anew(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as parent:
        await parent.send("one")
        fork(store, "notes/a", 0, "notes/b")
        async with AgentHarness(Notes, "b", store=store, blobs=parent.blobs) as child:
            assert child.state == {"said": []}
            assert list(child.workspace.iterdir()) == []
            await child.send("two")
            assert (child.workspace / "notes.txt").read_text() == "two"


async def test_a_failed_try_is_not_part_of_a_fork(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as parent:
        await parent.send("one")
        await parent.send("fail")
        fork(store, "notes/a", None, "notes/b")
        async with AgentHarness(Notes, "b", store=store, blobs=parent.blobs) as child:
            assert child.state == {"said": ["one"]}
            assert child.events("turn.failed") == []
            assert len(parent.events("turn.failed")) == 3
    record = read_agent(store, parent.blobs, Address("notes", "a"))
    assert turn_end_seq(store, record.address, record.head, 1) == record.version_seq


async def test_what_cannot_be_forked_is_said(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as parent:
        await parent.send("one")
        with pytest.raises(UnknownAgent, match="no agent notes/nobody"):
            fork(store, "notes/nobody", None, "notes/b")
        with pytest.raises(UnknownMoment, match="there is no turn 7"):
            fork(store, "notes/a", 7, "notes/b")
        with pytest.raises(AgentExists, match="notes/a already"):
            fork(store, "notes/a", None, "notes/a")
        fork(store, "notes/a", 1, "notes/b")
        with pytest.raises(AgentExists, match="notes/b already"):
            fork(store, "notes/a", 1, "notes/b")
        ids = IdSource()
        store.ensure_session("notes/new", ids.session(NOW_MS), ids.branch(NOW_MS), NOW_MS)
        with pytest.raises(AgentExists):
            fork(store, "notes/a", 1, "notes/new")
        with pytest.raises(UnknownAgent, match="never started"):
            fork(store, "notes/new", None, "notes/c")
        head = empty_head(find_session(store, Address("notes", "new")).main_branch_id)
        with pytest.raises(UnknownAgent):
            turn_end_seq(store, Address("notes", "new"), head, 0)


class DiesBeforeCommit(MemoryJournalStore):
    """Fails at commits when told to."""

    broken = False

    def commit(self, commit: Any) -> Any:
        """Commit, or not."""
        if self.broken:
            raise ChronicleError("died")
        return super().commit(commit)


async def test_a_fork_that_died_half_way_works_and_is_completed_by_the_same_call() -> None:
    store = DiesBeforeCommit()
    async with AgentHarness(Notes, "a", store=store) as parent:
        await parent.send("one")
        store.broken = True
        with pytest.raises(ChronicleError, match="died"):
            fork(store, "notes/a", None, "notes/b")
        store.broken = False
        assert read_agent(store, parent.blobs, Address("notes", "b")).state == {"said": ["one"]}
        forked = fork(store, "notes/a", None, "notes/b")
        assert forked.head.seq == forked.seq + 1
        with pytest.raises(AgentExists):
            fork(store, "notes/a", None, "notes/b")


class Counting(MemoryJournalStore):
    """Counts the events that are read."""

    read = 0

    def events(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Yield what the store has, and count it."""
        for event in super().events(*args, **kwargs):
            self.read += 1
            yield event


async def test_what_a_fork_reads_does_not_grow_with_the_turns() -> None:
    store = Counting()
    clock = ManualClock()
    async with AgentHarness(Notes, "a", store=store, clock=clock) as parent:
        for number in range(200):
            await parent.send(str(number))
        for turn in (3, 100, 199):
            store.read = 0
            fork(store, "notes/a", turn, f"notes/at-{turn}")
            assert store.read < 20
            said = [str(number) for number in range(turn)]
            assert read_agent(store, parent.blobs, Address("notes", f"at-{turn}")).state == {"said": said}
