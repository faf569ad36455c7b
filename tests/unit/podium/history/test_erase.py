"""Erasing what was said, through the real activation, on each journal store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import InvalidInput, NotFound
from chronicle.ids import EventId, IdSource
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.agent_record import read_agent
from podium.errors import UnknownAgent
from podium.history.archive import Archive, export_agent
from podium.history.archive_import import import_agent
from podium.history.branching import fork_agent, rewind_agent
from podium.history.compare import compare
from podium.history.erase import erase_messages
from podium.history.fold import fold_agent
from podium.history.reachability import reachable_blobs
from podium.testing import AgentHarness
from tests.unit.podium.history.notes_agent import problems

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event

SECRET = "a secret " * 10_000
"""More than is kept in an event."""


class Counter(BaseAgent):
    """Counts what it is told, and repeats it."""

    class State(DeltaState):
        _entity_type = "counter"
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        (ctx.workspace / "count").write_text(f"{ctx.state.count}")
        await ctx.send_message(message["text"])


def said(agent: AgentHarness, turn: int | None = None) -> list[Event]:
    branch_id = agent.store.session(str(agent.address)).main_branch_id
    return [
        event
        for event in agent.store.events(branch_id, types=("user_message", "assistant_message"))
        if turn is None or event.turn == turn
    ]


@pytest.fixture
async def agent(store: JournalStore) -> Any:
    """An agent that was told a secret in its second turn of three; asleep."""
    async with AgentHarness(Counter, "a", store=store) as made:
        for text in ("one", SECRET, "three"):
            await made.send(text, idempotency_key=text[:10])
        await made.sleep()
        yield made


def erase(agent: AgentHarness, turn: int = 2) -> list[EventId]:
    return [
        event.event_id
        for event in erase_messages(agent.store, agent.address, [event.event_id for event in said(agent, turn)])
    ]


def bodies(agent: AgentHarness, blobs: MemoryBlobStore | None = None) -> Iterator[bytes]:
    """Everything that is kept of an agent, but what a collection would free."""
    reader = blobs or agent.blobs
    yield from (event.payload for event in said(agent) if event.payload is not None)
    yield from (reader.get(identifier) for identifier in reachable_blobs(agent.store, reader, []))


async def test_what_was_said_is_gone_and_all_else_is_there(agent: AgentHarness) -> None:
    before = read_agent(agent.store, agent.blobs, agent.address)
    assert any(b"a secret" in body for body in bodies(agent))
    erased = erase(agent)
    assert erased == [event.event_id for event in said(agent, 2)]
    assert len(erased) == 2
    assert all(event.erased and event.payload is None for event in said(agent, 2))
    assert not any(b"a secret" in body for body in bodies(agent))
    assert read_agent(agent.store, agent.blobs, agent.address) == before
    assert problems(agent.store, agent.blobs) == []
    assert erase(agent) == []  # doing it twice is harmless
    refs = {event.payload_ref for event in said(agent, 2)}
    assert None not in refs
    assert not refs & reachable_blobs(agent.store, agent.blobs, [])


async def test_an_agent_goes_on_after_it(agent: AgentHarness) -> None:
    erase(agent)
    again = await agent.send(SECRET, idempotency_key=SECRET[:10])
    assert (again.receipt.repeated, again.ok, again.text) == (True, True, "")
    assert (await agent.send("four")).text == "four"
    await agent.sleep()
    ids, now_ms = IdSource(), agent.clock.now_ms()
    rewind_agent(agent.store, agent.blobs, agent.address, 2, None, ids, now_ms)
    assert agent.state == {"count": 2}
    twin = Address("counter", "b")
    fork_agent(agent.store, agent.address, 3, twin, ids, now_ms)
    compared = compare(agent.store, agent.blobs, (agent.address, 1), (twin, None))
    assert [event.erased for event in compared.added] == [True, True, False, False]
    assert problems(agent.store, agent.blobs) == []
    with pytest.raises(InvalidInput, match="belongs to another agent than counter/b; erase it there"):
        erase_messages(agent.store, twin, [said(agent, 1)[0].event_id])


async def test_what_was_erased_stays_erased_elsewhere(agent: AgentHarness, tmp_path: Path) -> None:
    erase(agent)
    export_agent(agent.store, agent.blobs, agent.address, tmp_path / "a.podium")
    async with AgentHarness(Counter, "other") as elsewhere:
        blobs = MemoryBlobStore()
        with Archive(tmp_path / "a.podium") as archive:
            import_agent(elsewhere.store, blobs, archive, agent.address, IdSource(), 0)
            assert not any(b"a secret" in archive.get(identifier) for identifier in archive.blob_ids())
        assert problems(elsewhere.store, blobs) == []
        assert read_agent(elsewhere.store, blobs, agent.address).state == {"count": 3}


async def test_history_is_folded_over_it(agent: AgentHarness) -> None:
    erase(agent)
    erased = said(agent, 2)[0].event_id
    fold_agent(agent.store, agent.blobs, agent.address, None, IdSource(), agent.clock.now_ms())
    assert agent.state == {"count": 3}
    assert problems(agent.store, agent.blobs) == []
    with pytest.raises(NotFound, match=f"counter/a has no event {erased}"):
        erase_messages(agent.store, agent.address, [erased])


async def test_what_an_agent_is_read_from_is_not_erased(agent: AgentHarness) -> None:
    message = said(agent, 1)[0].event_id
    for event, _ in agent.events():
        if "." in event.type:
            with pytest.raises(InvalidInput, match=f"{event.type}, which replay reads"):
                erase_messages(agent.store, agent.address, [message, event.event_id])
    with pytest.raises(NotFound):
        erase_messages(agent.store, agent.address, [message, EventId("evt_no")])
    with pytest.raises(UnknownAgent):
        erase_messages(agent.store, Address("counter", "b"), [message])
    assert not any(event.erased for event in said(agent))
