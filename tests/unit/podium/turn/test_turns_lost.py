"""An activation whose turns the journal has lost: a restored database, or a promoted standby that lacked them."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import pytest

from chronicle.ids import IdSource
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.workspace.trees.tree import entry_at
from podium.errors import TurnsLost
from podium.history.fold import fold_agent
from podium.testing import AgentHarness
from podium.turn.message_loop import Ending, MessageLoop
from tests.unit.podium.turn.test_turn import Counter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.journal.port import JournalStore


class Restorable:
    """A journal that can be restored as it was at a moment."""

    def __init__(self, directory: Path) -> None:
        self._backup = directory / "backup.db"
        self._now = SqliteJournalStore(directory / "journal.db")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._now, name)

    def back_up(self) -> None:
        self._now.copy_to(self._backup)

    def restore(self) -> None:
        self._now.close()
        self._now = SqliteJournalStore(self._backup)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Restorable]:
    with closing(Restorable(tmp_path)) as journal:
        yield journal


async def test_nothing_follows_a_head_that_the_journal_lacks_and_its_files_are_kept(journal: Restorable) -> None:
    async with AgentHarness(Counter, store=cast("JournalStore", journal)) as agent:
        await agent.send("one")
        journal.back_up()
        lost = [await agent.send(text) for text in ("two", "three")]
        assert [answer.ok for answer in lost] == [True, True]
        journal.restore()
        agent.admit("four")
        with pytest.raises(TurnsLost, match="has lost turn 3, event evt_"):
            await agent.activation.handle_next()
        await agent.kill("TurnsLost")
        ((_, failed),) = agent.events("turn.failed")
        assert "TurnsLost" in str(failed["error"])
        entry = entry_at(agent.blobs, cast("Any", failed["tree_id"]), b"out.txt")
        assert entry is not None
        assert entry.content is not None
        assert agent.blobs.get(entry.content.id).startswith(b"4: four"), "with what the last turn did to it"
        assert (await agent.send("five")).ok
        assert agent.state == {"count": 3, "history": ["one", "four", "five"]}
        assert (agent.workspace / "out.txt").read_text() == "3: five\n"


async def test_files_of_lost_turns_are_kept_though_no_turn_ran(journal: Restorable) -> None:
    """The agent was asleep when the journal was restored."""
    async with AgentHarness(Counter, store=cast("JournalStore", journal)) as agent:
        await agent.send("one")
        await agent.sleep()
        journal.back_up()
        await agent.send("two")
        await agent.sleep()
        journal.restore()
        assert (await agent.send("again")).ok
        ((_, failed),) = agent.events("turn.failed")
        entry = entry_at(agent.blobs, cast("Any", failed["tree_id"]), b"out.txt")
        assert entry is not None
        assert entry.content is not None
        assert agent.blobs.get(entry.content.id) == b"2: two\n"
        assert agent.state == {"count": 2, "history": ["one", "again"]}


async def test_an_idle_activation_that_loses_its_lease_says_so(journal: Restorable) -> None:
    async with AgentHarness(Counter, store=cast("JournalStore", journal)) as agent, asyncio.timeout(30):
        await agent.send("one")
        journal.back_up()
        await agent.send("two")
        journal.restore()
        loop = MessageLoop(agent.activation, idle_timeout_s=1e6)
        loop.evict()
        with pytest.raises(TurnsLost):
            await loop.run()


async def test_turns_that_another_holder_has_folded_are_not_lost() -> None:
    async with AgentHarness(Counter) as agent, asyncio.timeout(30):
        await agent.send("one")
        head = agent.store.head(agent.store.session(agent.address.name).main_branch_id)
        agent.clock.advance(1e6)  # its lease has ended
        fold_agent(agent.store, agent.blobs, agent.address, None, IdSource(), agent.clock.now_ms())
        assert agent.store.find_event(cast("Any", head.event_id)) is None
        loop = MessageLoop(agent.activation, idle_timeout_s=1e6)
        loop.evict()
        assert await loop.run() is Ending.EVICTED
