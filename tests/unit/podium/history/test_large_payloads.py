"""Payloads over 64 KiB lie in the blob store: everything that reads an agent finds them there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import Corrupt, Unavailable
from chronicle.ids import BlobId, IdSource
from chronicle.journal.chain import MAX_INLINE
from chronicle.journal.event_codec import event_view
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.payloads import payload_of
from coordinator.cli.views.events import gist
from coordinator.verification import Verifier
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.agent_record import read_agent
from podium.history.archive import Archive, export_agent
from podium.history.archive_import import import_agent
from podium.history.branching import fork_agent, rewind_agent
from podium.history.compare import compare
from podium.history.delete import detach_agent
from podium.history.reachability import reachable_blobs
from podium.testing import AgentHarness

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LARGE = "x" * MAX_INLINE


class Keeper(BaseAgent):
    """Keeps and repeats what it is sent."""

    class State(DeltaState):
        _entity_type = "keeper"
        kept: list[str] = []

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.kept.append(message["text"])
        await ctx.send_message(message["text"])


async def test_a_large_turn_is_out_of_line_and_reads_as_ever() -> None:
    async with AgentHarness(Keeper) as agent:
        small = await agent.send("small")
        large = await agent.send(LARGE)
        assert large.text == LARGE
        events = [event for event, _ in agent.events()]
        assert [event.type for event in events if event.payload_ref is not None] == [
            "user_message",
            "assistant_message",
            "turn.committed",
        ]
        assert all(event.payload is None for event in events if event.payload_ref is not None)
        assert agent.state == {"kept": ["small", LARGE]}
        again = await agent.activation.settled(large.receipt.message_id)
        assert [frame["type"] for frame in again] == ["turn_start", "message_start", "message_end", "turn_end"]
        assert again[-1]["patch"] == [{"op": "add", "path": "/kept/1", "value": LARGE}]
        assert (await agent.activation.settled(small.receipt.message_id))[-1]["patch"] == small.patch
        await agent.kill()
        assert agent.activation.state.model_dump() == {"kept": ["small", LARGE]}
        assert gist(events[-2].type, payload_of(events[-2], agent.blobs)) == LARGE
        assert event_view(events[-2], agent.blobs)["payload"]["text"] == LARGE


async def test_branches_archives_and_collection_know_large_payloads(tmp_path: Path) -> None:
    ids = IdSource()
    async with AgentHarness(Keeper) as agent:
        await agent.send(LARGE)
        await agent.send("small")
        store, blobs = agent.store, agent.blobs
        fork = fork_agent(store, agent.address, 1, Address("keeper", "fork"), ids, 1).session
        forked = Address("keeper", "fork")
        assert read_agent(store, blobs, forked).state == {"kept": [LARGE]}
        assert compare(store, blobs, (agent.address, 0), (agent.address, 1)).patch == [
            {"op": "add", "path": "/kept/0", "value": LARGE}
        ]
        await agent.sleep()
    rewind_agent(store, blobs, agent.address, 0, None, ids, 2)
    rewind_agent(store, blobs, agent.address, 2, None, ids, 3)
    assert read_agent(store, blobs, agent.address).state == {"kept": [LARGE, "small"]}
    detach_agent(store, blobs, fork, ids, 4)
    assert read_agent(store, blobs, forked).state == {"kept": [LARGE]}
    refs = {
        event.payload_ref
        for session in store.sessions()
        for event in store.events(session.main_branch_id)
        if event.payload_ref is not None
    }
    assert len(refs) == 5  # message, reply, turn, the rewind that brings it back, the fork's whole state
    assert refs <= reachable_blobs(store, blobs, [])
    export_agent(store, blobs, agent.address, tmp_path / "keeper")
    other, others = MemoryJournalStore(), MemoryBlobStore()
    with Archive(tmp_path / "keeper") as archive:
        import_agent(other, others, archive, agent.address, ids, 5)
    assert read_agent(other, others, agent.address, 1).state == {"kept": [LARGE]}
    verifier = Verifier(other, others)
    assert [verifier.check(session).problem for session in other.sessions()] == [None]


async def test_a_missing_or_damaged_payload_is_named() -> None:
    async with AgentHarness(Keeper) as agent:
        await agent.send(LARGE)
        (session,) = agent.store.sessions()
        assert Verifier(agent.store, agent.blobs).check(session).problem is None
        with pytest.raises(Corrupt, match="turn.committed|no blob|not here"):
            read_agent(agent.store, MemoryBlobStore(), agent.address)
        problem = Verifier(agent.store, MemoryBlobStore()).check(session).problem
        assert problem is not None
        assert "seq 2" in problem


async def test_a_turn_whose_payload_cannot_be_put_is_tried_again() -> None:
    class Away(MemoryBlobStore):
        left = 0

        def put(self, blobs: Mapping[BlobId, bytes]) -> None:
            if self.left and any(len(data) > MAX_INLINE for data in blobs.values()):
                self.left -= 1
                raise Unavailable("the store is away")
            super().put(blobs)

    blobs = Away()
    async with AgentHarness(Keeper, blobs=blobs) as agent:
        blobs.left = 1
        answer = await agent.send(LARGE)
        assert answer.ok
        assert [frame["type"] for frame in answer.frames].count("turn_retry") == 1
        assert agent.state == {"kept": [LARGE]}
