"""Cancelling messages and preempting turns wherever the agent is."""

from __future__ import annotations

import asyncio

import pytest

from chronicle.clock import ManualClock
from chronicle.errors import NotFound
from chronicle.ids import IdSource, MessageId
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import MessageStatus, NewMessage
from coordinator.fleet.cancellation import Withdrawals
from podium.address import Address
from podium.messages.inbox import drop_message
from podium.turn.busy import BusyPolicy

ALICE = Address("hello", "alice")
LIMIT_S = 30.0


class Hosts:
    """No host has the agent, unless a subclass says otherwise."""

    async def cancel(self, address: Address, message_id: MessageId) -> bool:
        return False

    async def preempt(self, address: Address, message_id: MessageId, policy: BusyPolicy) -> MessageId | None:
        return None


class Agent:
    """An agent with messages, and what withdraws them."""

    def __init__(self, hosts: Hosts | None = None) -> None:
        self.store = MemoryJournalStore()
        self.clock = ManualClock()
        self.ids = IdSource()
        self.session = self.store.ensure_session(str(ALICE), self.ids.session(0), self.ids.branch(0), 0)
        self.hosts = hosts or Hosts()
        self.withdrawals = Withdrawals(self.store, self.clock, self.ids)

    def admit(self) -> MessageId:
        message_id = self.ids.message(0)
        self.store.admit(self.session.session_id, NewMessage(message_id, b"{}", 0))
        return message_id

    def status(self, message_id: MessageId) -> MessageStatus:
        return self.store.message(message_id).status


async def test_of_an_agent_that_sleeps() -> None:
    agent = Agent()
    message_id, other = agent.admit(), agent.admit()
    await agent.withdrawals.cancel(agent.hosts, ALICE, message_id, LIMIT_S)
    assert agent.status(message_id) is MessageStatus.CANCELLED
    assert agent.status(other) is MessageStatus.PENDING
    await agent.withdrawals.cancel(agent.hosts, ALICE, message_id, LIMIT_S)
    with pytest.raises(NotFound):
        await agent.withdrawals.cancel(agent.hosts, ALICE, MessageId("msg_no"), LIMIT_S)


async def test_a_lease_that_someone_has_for_a_moment_is_waited_for() -> None:
    agent = Agent()
    message_id = agent.admit()
    lease = agent.store.acquire_lease(agent.session.session_id, "host_gone", agent.clock.now_ms(), 15_000)
    cancelling = asyncio.ensure_future(agent.withdrawals.cancel(agent.hosts, ALICE, message_id, LIMIT_S))
    with pytest.raises(TimeoutError):
        await agent.withdrawals.cancel(agent.hosts, ALICE, agent.admit(), 0.3)
    assert not cancelling.done()
    assert await agent.withdrawals.withdrawn(ALICE) == [message_id]
    agent.store.release_lease(agent.session.session_id, lease.epoch)
    await cancelling
    assert agent.status(message_id) is MessageStatus.CANCELLED
    assert await agent.withdrawals.withdrawn(ALICE) == []


async def test_cancel_returns_only_when_the_journal_records_it() -> None:
    asked = 0

    class DyingHosts(Hosts):
        """Two calls have no effect; at the third the next activation drops the withdrawn message."""

        async def cancel(self, address: Address, message_id: MessageId) -> bool:
            nonlocal asked
            asked += 1
            assert await agent.withdrawals.withdrawn(address) == [message_id]
            if asked == 3:
                drop_message(agent.store, agent.session, message_id, agent.ids, agent.clock.now_ms())
            return True

    agent = Agent(DyingHosts())
    message_id = agent.admit()
    await agent.withdrawals.cancel(agent.hosts, ALICE, message_id, LIMIT_S)
    assert asked == 3
    assert agent.status(message_id) is MessageStatus.CANCELLED


async def test_a_stopped_message_is_withdrawn_while_the_one_that_stopped_it_waits() -> None:
    class BusyHosts(Hosts):
        async def preempt(self, address: Address, message_id: MessageId, policy: BusyPolicy) -> MessageId | None:
            return stopped.pop()

    agent = Agent(BusyHosts())
    first, second, third, fourth = (agent.admit() for _ in range(4))
    stopped = [second, first]
    await agent.withdrawals.preempt(agent.hosts, ALICE, third, BusyPolicy.INTERRUPT)
    await agent.withdrawals.preempt(agent.hosts, ALICE, fourth, BusyPolicy.INTERRUPT)
    assert await agent.withdrawals.withdrawn(ALICE) == [first, second]
    drop_message(agent.store, agent.session, first, agent.ids, agent.clock.now_ms())
    assert await agent.withdrawals.withdrawn(ALICE) == [second], "the first one is settled"
    drop_message(agent.store, agent.session, fourth, agent.ids, agent.clock.now_ms())
    await agent.withdrawals.prune_settled(ALICE)
    assert agent.withdrawals._preempted == {}, "an agent that sleeps leaves nothing behind"
    assert await agent.withdrawals.withdrawn(ALICE) == [], "what stopped the second one is settled"


async def test_an_idle_agent_has_nothing_withdrawn_for_a_policy() -> None:
    agent = Agent()
    agent.admit()
    await agent.withdrawals.preempt(agent.hosts, ALICE, agent.admit(), BusyPolicy.STEER)
    assert await agent.withdrawals.withdrawn(ALICE) == []
