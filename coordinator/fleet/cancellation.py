"""Cancellation of messages and preemption of turns, whether the agent sleeps, is awake, or its host is dying.

Both may have to end a host whose code blocks. So the withdrawn message is recorded here first, and the next activation
drops it before anything else (`Withdrawals.withdrawn`). This is the only record of such messages;
docs/internals/fleet.md has the order of events. It does not depend on Ray: hosts are called through `HostCalls`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from chronicle.errors import ChronicleError, NotFound
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
    """Calls to the host of an agent."""

    async def cancel(self, address: Address, message_id: MessageId) -> bool:
        """Cancel a message in its agent's host; wait for a moment if the host is activating the agent, or ending.

        Returns:
            ``False`` if the agent has no host.
        """
        ...

    async def preempt(self, address: Address, message_id: MessageId, policy: BusyPolicy) -> MessageId | None:
        """Apply the policy of a pending message to the running turn, if there is one.

        Returns:
            the message whose turn is stopped.
        """
        ...


class Withdrawals:
    """Messages that are being cancelled, or whose turns are being preempted."""

    def __init__(self, store: JournalStore, clock: Clock, ids: IdSource) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._cancelled: dict[Address, set[MessageId]] = {}
        self._preempted: dict[Address, dict[MessageId, MessageId]] = {}
        """The preempting message of each message whose turn is being stopped."""

    async def cancel(self, hosts: HostCalls, address: Address, message_id: MessageId, timeout_s: float) -> None:
        """Cancel a pending, running or parked message; durable on return.

        Raises:
            NotFound: the agent has no such message, or has handled it.
            TimeoutError: the agent's code did not stop, or the lease of a dead host has not expired.
        """
        cancelled = self._cancelled.setdefault(address, set())
        cancelled.add(message_id)
        try:
            async with asyncio.timeout(timeout_s):
                while await asyncio.to_thread(self._is_open, address, message_id):
                    if not await hosts.cancel(address, message_id):
                        await self._drop(address, message_id)
        finally:
            cancelled.discard(message_id)
            if not cancelled and self._cancelled.get(address) is cancelled:
                del self._cancelled[address]

    async def preempt(self, hosts: HostCalls, address: Address, message_id: MessageId, policy: BusyPolicy) -> None:
        """Apply the policy of an admitted message to the running turn, if its agent is busy; idempotent."""
        stopped = await hosts.preempt(address, message_id, policy)
        if stopped is not None:
            await self.prune_settled(address)
            self._preempted.setdefault(address, {})[stopped] = message_id

    async def withdrawn(self, address: Address) -> list[MessageId]:
        """Return the messages that an activation of an agent has to drop first, in inbox order.

        A preempted message is among them only while the preempting one is pending: once the latter is settled, the
        former is settled too, or its turn could no longer be stopped.
        """
        if address not in self._cancelled and address not in self._preempted:
            return []
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

    async def prune_settled(self, address: Address) -> None:
        """Remove the settled messages of an agent from the record, such as when it falls asleep."""
        if address in self._preempted:
            with suppress(ChronicleError):  # the store cannot be read now; they are removed later
                await self.withdrawn(address)

    def _waiting(self, message_ids: AbstractSet[MessageId]) -> dict[MessageId, int]:
        """Return the inbox positions of those messages that are pending."""
        found: dict[MessageId, int] = {}
        for message_id in message_ids:
            with suppress(NotFound):  # settled, and its record was pruned
                message = self._store.message(message_id)
                if message.status is MessageStatus.PENDING:
                    found[message_id] = message.position
        return found

    async def _drop(self, address: Address, message_id: MessageId) -> None:
        session = await asyncio.to_thread(find_session, self._store, address)
        now_ms = self._clock.now_ms()
        try:
            await asyncio.to_thread(drop_message, self._store, session, message_id, self._ids, now_ms)
        except AgentAwake:  # a command holds the lease briefly, or the lease of a dead host has not expired
            await asyncio.sleep(LEASE_POLL_S)

    def _is_open(self, address: Address, message_id: MessageId) -> bool:
        return is_open(message_of(self._store, find_session(self._store, address), message_id))
