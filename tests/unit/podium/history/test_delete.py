"""Deleting agents, and forks that stand on their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.ids import IdSource
from coordinator.verification import Verifier
from podium.address import Address
from podium.agent_record import list_agents, read_agent
from podium.errors import AgentAwake, AgentInUse, UnknownAgent, UnknownMoment
from podium.history.archive import Archive, export_agent
from podium.history.archive_import import import_agent
from podium.history.branching import fork_agent, rewind_agent
from podium.history.delete import Deleted, delete_agent
from podium.testing import AgentHarness
from tests.unit.podium.history.notes_agent import Notes

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.journal.port import JournalStore


def delete(agent: AgentHarness, *, key: str | None = None, detach: bool = False) -> Deleted:
    address = agent.address if key is None else Address("notes", key)
    return delete_agent(agent.store, agent.blobs, address, IdSource(), agent.clock.now_ms(), detach=detach)


def fork(agent: AgentHarness, source: str, turn: int | None, key: str) -> None:
    fork_agent(agent.store, Address.parse(source), turn, Address("notes", key), IdSource(), agent.clock.now_ms())


async def test_what_is_deleted_is_gone_and_its_address_free(store: JournalStore, tmp_path: Path) -> None:
    async with AgentHarness(Notes, "a", store=store) as agent:
        await agent.send("one")
        with pytest.raises(AgentAwake):
            delete(agent)
        await agent.sleep()
        deleted = delete(agent)
        assert (deleted.tombstone.name, deleted.tombstone.events) == ("notes/a", 3)
        assert list_agents(store) == []
        with pytest.raises(UnknownAgent):
            delete(agent)
        async with AgentHarness(Notes, "a", store=store, blobs=agent.blobs) as again:
            assert again.state == {"said": []}


async def test_forks_are_named_and_detached_when_asked(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as agent:
        await agent.send("one")
        await agent.send("two")
        await agent.sleep()
        fork(agent, "notes/a", 1, "b")
        fork(agent, "notes/a", 2, "c")
        async with AgentHarness(Notes, "b", store=store, blobs=agent.blobs) as child:
            await child.send("three")
            fork(agent, "notes/b", 2, "d")
            with pytest.raises(AgentInUse, match="notes/b, notes/c") as caught:
                delete(agent)
            assert caught.value.forks == ("notes/b", "notes/c")
            with pytest.raises(AgentAwake, match="notes/b"):
                delete(agent, detach=True)
            await child.sleep()
            assert set(delete(agent, detach=True).detached) == {"notes/b", "notes/c"}
        assert [session.name for session in list_agents(store)] == ["notes/b", "notes/c", "notes/d"]
        verifier = Verifier(store, agent.blobs)
        assert [verifier.check(session).problem for session in store.sessions()] == [None] * 3
        said = {"b": ["one", "three"], "c": ["one", "two"], "d": ["one", "three"]}
        for key, texts in said.items():
            async with AgentHarness(Notes, key, store=store, blobs=agent.blobs) as kept:
                assert kept.state == {"said": texts}
                assert (kept.workspace / "notes.txt").read_text() == "\n".join(texts)
                turn = kept.activation.turn
                await kept.send("more")
                assert kept.state == {"said": [*texts, "more"]}
                assert kept.activation.turn == turn + 1
                versions = kept.activation.workspace.history("notes.txt")
                assert [version.iteration for version in versions] == [1, 2, 3]
                with pytest.raises(UnknownMoment, match="not kept any more"):
                    read_agent(store, kept.blobs, kept.address, 1)
                with pytest.raises(UnknownMoment, match="not kept any more"):
                    fork(agent, f"notes/{key}", 1, "x")
                await kept.sleep()
                rewind_agent(store, kept.blobs, kept.address, turn, None, IdSource(), agent.clock.now_ms())
                assert kept.state == {"said": texts}


async def test_what_only_an_import_brought_goes_with_it(store: JournalStore, tmp_path: Path) -> None:
    async with AgentHarness(Notes, "a") as agent:
        await agent.send("one")
        fork(agent, "notes/a", None, "b")
        export_agent(agent.store, agent.blobs, Address("notes", "b"), tmp_path / "b")
        async with AgentHarness(Notes, "z", store=store, blobs=agent.blobs) as other:
            with Archive(tmp_path / "b") as archive:
                import_agent(store, agent.blobs, archive, Address("notes", "b"), IdSource(), 0)
            assert len(store.sessions()) == 3
            delete(other, key="b")
            assert [session.name for session in store.sessions()] == ["notes/z"]
