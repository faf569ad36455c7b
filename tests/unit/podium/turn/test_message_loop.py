"""When a message loop reads the inbox."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.ids import SessionId
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import MessageStatus
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.testing import AgentHarness
from podium.turn import message_loop
from podium.turn.activation import Step
from podium.turn.journal.ledger import Offer
from podium.turn.message_loop import Ending, MessageLoop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.journal.records import InboxMessage

DEADLINE_S = 30


class Counting(BaseAgent):
    """Counts its messages."""

    class State(DeltaState):
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1


class Watched(MemoryJournalStore):
    """A journal that counts the reads of inboxes."""

    reads = 0

    def pending(self, session_id: SessionId, limit: int = 100) -> Sequence[InboxMessage]:
        """As of the journal."""
        self.reads += 1
        return super().pending(session_id, limit)


async def handled(agent: AgentHarness, count: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while agent.activation.turn < count:
            await asyncio.sleep(0.001)


async def test_the_inbox_is_read_once_for_a_message_that_the_loop_is_poked_for() -> None:
    store = Watched()
    async with AgentHarness(Counting, store=store) as agent, asyncio.timeout(DEADLINE_S):
        loop = MessageLoop(agent.activation, idle_timeout_s=1e6)
        running = asyncio.ensure_future(loop.run())
        agent.admit("first")
        await handled(agent, 1)
        before = store.reads
        for number in range(20):
            agent.admit(str(number))
            loop.poke()
            await handled(agent, 2 + number)
        assert store.reads - before <= 22, "one for each message, unless this process had to wait"
        loop.stop()
        assert await running is Ending.STOPPED


async def test_a_poke_during_an_earlier_turn_is_kept_while_messages_were_read_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(Counting):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            await super().on_message(ctx, message)
            if ctx.state.count == 1:
                running.set()
                await go_on.wait()

    monkeypatch.setattr(message_loop, "_UNPOKED_S", 1e6)
    running, go_on = asyncio.Event(), asyncio.Event()
    async with AgentHarness(Slow) as agent, asyncio.timeout(DEADLINE_S):
        loop = MessageLoop(agent.activation, idle_timeout_s=1e6)
        agent.admit("one")
        agent.admit("read with the first")
        ending = asyncio.ensure_future(loop.run())
        await running.wait()
        agent.admit("poked for")
        loop.poke()
        go_on.set()
        await handled(agent, 3)
        loop.stop()
        assert await ending is Ending.STOPPED


async def test_a_message_without_a_poke_is_found_soon_after_the_last_turn() -> None:
    async with AgentHarness(Counting) as agent, asyncio.timeout(DEADLINE_S):
        loop = MessageLoop(agent.activation, idle_timeout_s=1e6)
        running = asyncio.ensure_future(loop.run())
        agent.admit("one")
        await handled(agent, 1)
        agent.admit("nobody pokes for it")
        await handled(agent, 2)
        loop.stop()
        assert await running is Ending.STOPPED
        assert agent.state["count"] == 2


async def test_messages_that_were_admitted_together_need_no_poke() -> None:
    async with AgentHarness(Counting) as agent, asyncio.timeout(DEADLINE_S):
        for number in range(30):
            agent.admit(str(number))
        assert await MessageLoop(agent.activation, idle_timeout_s=0).run() is Ending.IDLE
        assert len(agent.store.pending(agent.store.session(agent.address.name).session_id)) == 0


async def test_a_message_that_is_handed_over_is_not_read_from_the_inbox() -> None:
    store = Watched()
    async with AgentHarness(Counting, store=store) as agent, asyncio.timeout(DEADLINE_S):
        loop = MessageLoop(agent.activation, idle_timeout_s=1e6)
        running = asyncio.ensure_future(loop.run())
        agent.admit("first")
        await handled(agent, 1)
        session_id = store.session(agent.address.name).session_id
        before = store.reads
        for number in range(20):
            message_id = agent.admit(str(number)).message_id
            agent.activation.offer(Offer(store.message(message_id), agent.activation.lease.epoch))
            loop.poke()
            await handled(agent, 2 + number)
        assert store.reads - before <= 2, "none for each message, unless this process had to wait"
        loop.stop()
        assert await running is Ending.STOPPED
        assert not store.pending(session_id)


async def test_only_the_next_message_of_the_agent_is_taken() -> None:
    async with AgentHarness(Counting) as agent, asyncio.timeout(DEADLINE_S):
        store, activation, epoch = agent.store, agent.activation, agent.activation.lease.epoch
        early = store.message(agent.admit("before any read").message_id)
        activation.offer(Offer(early, epoch))
        assert not activation.has_read_ahead
        assert await activation.handle_next() is Step.HANDLED
        activation.offer(Offer(early, epoch))
        assert not activation.has_read_ahead, "it is settled"
        second, third = (store.message(agent.admit(text).message_id) for text in ("second", "third"))
        activation.offer(Offer(third, epoch))
        assert not activation.has_read_ahead, "another one is before it"
        activation.offer(Offer(second, epoch - 1))
        assert not activation.has_read_ahead, "another activation may have settled it before this one"
        of_deleted = replace(second, session_id=SessionId("ses_of_the_agent_that_was_deleted"))
        activation.offer(Offer(of_deleted, epoch))
        assert not activation.has_read_ahead
        for message in (second, third, third):
            activation.offer(Offer(message, epoch))
        assert [await activation.handle_next() for _ in range(3)] == [Step.HANDLED, Step.HANDLED, Step.NOTHING]
        assert agent.state["count"] == 3


async def test_a_message_that_was_cancelled_before_it_was_handed_over_is_not_handled() -> None:
    async with AgentHarness(Counting) as agent, asyncio.timeout(DEADLINE_S):
        store, activation, epoch = agent.store, agent.activation, agent.activation.lease.epoch
        agent.admit("first")
        assert await activation.handle_next() is Step.HANDLED
        cancelled = store.message(agent.admit("cancelled").message_id)
        await activation.cancel(cancelled.message_id)
        activation.offer(Offer(cancelled, epoch))
        assert not activation.has_read_ahead
        last = store.message(agent.admit("last").message_id)
        activation.offer(Offer(last, epoch))
        assert [await activation.handle_next() for _ in range(2)] == [Step.HANDLED, Step.NOTHING]
        assert store.message(cancelled.message_id).status is MessageStatus.CANCELLED
        assert agent.state["count"] == 2


async def test_a_message_that_is_handed_over_and_then_cancelled_is_not_handled() -> None:
    async with AgentHarness(Counting) as agent, asyncio.timeout(DEADLINE_S):
        store, activation, epoch = agent.store, agent.activation, agent.activation.lease.epoch
        agent.admit("first")
        assert await activation.handle_next() is Step.HANDLED
        offered = store.message(agent.admit("cancelled").message_id)
        activation.offer(Offer(offered, epoch))
        assert activation.has_read_ahead
        await activation.cancel(offered.message_id)
        assert await activation.handle_next() is Step.NOTHING
        assert agent.state["count"] == 1
