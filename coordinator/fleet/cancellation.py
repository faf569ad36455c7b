"""Cancelling messages and preempting turns, wherever the agent is: asleep, awake, or dying at this moment.

Both may have to end a host whose code blocks. So the message that is to be dropped is recorded here first, and the next
activation drops it before it does anything else (`Withdrawals.withdrawn`). This is the only record of such messages;
docs/internals/fleet.md has the order of events. It knows no Ray: hosts are reached through `HostCalls`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from chronicle.errors import NotFound
from chronicle.journal.records import MessageStatus
from coordinator.fleet.leases import LEASE_POLL_S
from podium.agent_record import find_session
from podium.errors import AgentAwake
from podium.messages.inbox import drop_message, is_open, message_of

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from chronicle.clock import Clock
    from chronicle.ids import IdSource, MessageId
    from chronicle.journal.port import JournalStore
    from podium.address import Address
    from podium.turn.busy import BusyPolicy

__all__ = ["HostCalls", "Withdrawals"]


class HostCalls(Protocol):
    """Calls to the host that has an agent."""

    async def cancel(self, address: Address, message_id: MessageId) -> bool:
        """Cancel a message in its agent's host, or wait a moment if the host is just activating the agent or ending.

        Returns:
            ``False`` if no host has the agent.
        """
        ...

    async def preempt(self, address: Address, message_id: MessageId, policy: BusyPolicy) -> MessageId | None:
        """Apply the policy of a waiting message to the turn that runs, if one does.

        Returns:
            the message whose turn is stopped for it.
        """
        ...


class Withdrawals:
    """Messages that are being cancelled, or whose turns are being stopped for others.

    Args:
        hosts: reaches agents that are awake.
    """

    def __init__(self, store: JournalStore, clock: Clock, ids: IdSource, hosts: HostCalls) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._hosts = hosts
        self._cancelled: dict[Address, set[MessageId]] = {}
        self._preempted: dict[Address, dict[MessageId, MessageId]] = {}
        """Messages whose turns are stopped, and for which message each is."""

    async def cancel(self, address: Address, message_id: MessageId, timeout_s: float) -> None:
        """Cancel a message that waits, is being handled or is parked; durable on return.

        Raises:
            NotFound: the agent never got it, or has handled it.
            TimeoutError: the agent's code would not stop, or its lease is a dead one's.
        """
        cancelled = self._cancelled.setdefault(address, set())
        cancelled.add(message_id)
        try:
            async with asyncio.timeout(timeout_s):
                while await asyncio.to_thread(self._is_open, address, message_id):
                    if not await self._hosts.cancel(address, message_id):
                        await self._drop(address, message_id)
        finally:
            cancelled.discard(message_id)
            if not cancelled and self._cancelled.get(address) is cancelled:
                del self._cancelled[address]

    async def preempt(self, address: Address, message_id: MessageId, policy: BusyPolicy) -> None:
        """Apply the policy of an admitted message to the turn that runs, if its agent is busy; harmless if repeated."""
        stopped = await self._hosts.preempt(address, message_id, policy)
        if stopped is not None:
            await self.withdrawn(address)  # forgets those that are settled
            self._preempted.setdefault(address, {})[stopped] = message_id

    async def withdrawn(self, address: Address) -> list[MessageId]:
        """Return the messages that an activation of an agent has to drop first, in order.

        A message that was stopped for another one is among them only while that one waits: once that one is settled,
        the stopped one is, too, or its turn could not be stopped any more.
        """
        cancelled = {*self._cancelled.get(address, ())}
        preempted = {**self._preempted.get(address, {})}
        waiting = await asyncio.to_thread(self._waiting, cancelled | preempted.keys() | {*preempted.values()})
        kept = {
            stopped: message_id
            for stopped, message_id in self._preempted.pop(address, {}).items()
            if stopped not in preempted or (stopped in waiting and message_id in waiting)
        }
        if kept:
            self._preempted[address] = kept
        return sorted((cancelled | preempted.keys() & kept.keys()) & waiting.keys(), key=waiting.__getitem__)

    def _waiting(self, message_ids: AbstractSet[MessageId]) -> dict[MessageId, int]:
        """Return the positions of those messages that wait in an inbox."""
        found: dict[MessageId, int] = {}
        for message_id in message_ids:
            with suppress(NotFound):  # settled so long ago that its record was pruned
                message = self._store.message(message_id)
                if message.status is MessageStatus.PENDING:
                    found[message_id] = message.position
        return found

    async def _drop(self, address: Address, message_id: MessageId) -> None:
        session = await asyncio.to_thread(find_session, self._store, address)
        now_ms = self._clock.now_ms()
        try:
            await asyncio.to_thread(drop_message, self._store, session, message_id, self._ids, now_ms)
        except AgentAwake:  # a command holds the lease for a moment, or a dead host's has not expired
            await asyncio.sleep(LEASE_POLL_S)

    def _is_open(self, address: Address, message_id: MessageId) -> bool:
        return is_open(message_of(self._store, find_session(self._store, address), message_id))
