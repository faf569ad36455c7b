"""Taking a message back wherever its agent is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from chronicle.clock import ManualClock
from chronicle.errors import NotFound
from chronicle.ids import IdSource, MessageId
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import MessageStatus, NewMessage
from coordinator.fleet.cancellation import TakingBack
from podium.address import Address
from podium.messages.inbox import drop_message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ALICE = Address("hello", "alice")
LIMIT_S = 30.0


async def nowhere(address: Address, message_id: MessageId) -> bool:
    """No host has the agent."""
    return False


class Agent:
    """An agent with messages, and what takes them back."""

    def __init__(self, ask_host: Callable[[Address, MessageId], Awaitable[bool]] = nowhere) -> None:
        self.store = MemoryJournalStore()
        self.clock = ManualClock()
        self.ids = IdSource()
        self.session = self.store.ensure_session(str(ALICE), self.ids.session(0), self.ids.branch(0), 0)
        self.taking_back = TakingBack(self.store, self.clock, self.ids, ask_host)

    def admit(self) -> MessageId:
        message_id = self.ids.message(0)
        self.store.admit(self.session.session_id, NewMessage(message_id, b"{}", 0))
        return message_id

    def status(self, message_id: MessageId) -> MessageStatus:
        return self.store.message(message_id).status


async def test_of_an_agent_that_sleeps() -> None:
    agent = Agent()
    message_id, other = agent.admit(), agent.admit()
    await agent.taking_back.cancel(ALICE, message_id, LIMIT_S)
    assert agent.status(message_id) is MessageStatus.CANCELLED
    assert agent.status(other) is MessageStatus.PENDING
    await agent.taking_back.cancel(ALICE, message_id, LIMIT_S)
    with pytest.raises(NotFound):
        await agent.taking_back.cancel(ALICE, MessageId("msg_no"), LIMIT_S)


async def test_a_lease_that_someone_has_for_a_moment_is_waited_for() -> None:
    agent = Agent()
    message_id = agent.admit()
    lease = agent.store.acquire_lease(agent.session.session_id, "host_gone", agent.clock.now_ms(), 15_000)
    cancelling = asyncio.ensure_future(agent.taking_back.cancel(ALICE, message_id, LIMIT_S))
    with pytest.raises(TimeoutError):
        await agent.taking_back.cancel(ALICE, agent.admit(), 0.3)
    assert not cancelling.done()
    assert agent.taking_back.noted(ALICE) == [message_id]
    agent.store.release_lease(agent.session.session_id, lease.epoch)
    await cancelling
    assert agent.status(message_id) is MessageStatus.CANCELLED
    assert agent.taking_back.noted(ALICE) == []


async def test_it_is_not_taken_back_before_the_journal_says_so() -> None:
    asked = 0

    async def host_that_dies(address: Address, message_id: MessageId) -> bool:
        """Twice nothing comes of it; then the next activation drops what is noted."""
        nonlocal asked
        asked += 1
        assert agent.taking_back.noted(address) == [message_id]
        if asked == 3:
            drop_message(agent.store, agent.session, message_id, agent.ids, agent.clock.now_ms())
        return True

    agent = Agent(host_that_dies)
    message_id = agent.admit()
    await agent.taking_back.cancel(ALICE, message_id, LIMIT_S)
    assert asked == 3
    assert agent.status(message_id) is MessageStatus.CANCELLED


def test_what_is_noted_until_it_is_forgotten() -> None:
    agent = Agent()
    first, second = agent.admit(), agent.admit()
    agent.taking_back.note(ALICE, first)
    agent.taking_back.note(ALICE, second)
    assert agent.taking_back.noted(ALICE) == [first, second]
    drop_message(agent.store, agent.session, first, agent.ids, agent.clock.now_ms())
    assert agent.taking_back.noted(ALICE) == [second]  # the other one is settled: nothing is left to be done
    for message_id in (first, second, second):
        agent.taking_back.forget(ALICE, message_id)
    assert agent.taking_back.noted(ALICE) == []
