"""Taking messages back wherever their agents are: asleep, awake, or dying at this moment.

It knows no Ray: asking a host is a function that it is given. docs/internals/fleet.md has the order of things.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from chronicle.journal.records import MessageStatus
from coordinator.fleet.leases import LEASE_POLL_S
from podium.agent_record import find_session
from podium.errors import AgentAwake
from podium.messages.inbox import drop_message, is_open, message_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.clock import Clock
    from chronicle.ids import IdSource, MessageId
    from chronicle.journal.port import JournalStore
    from podium.address import Address

__all__ = ["TakingBack"]


class TakingBack:
    """Messages that are being taken back.

    Args:
        ask_host: takes a message back where its agent is awake, or waits a moment if it is just being woken or ending;
            ``False`` if no host has the agent.
    """

    def __init__(
        self,
        store: JournalStore,
        clock: Clock,
        ids: IdSource,
        ask_host: Callable[[Address, MessageId], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._ask_host = ask_host
        self._noted: dict[Address, set[MessageId]] = {}

    async def cancel(self, address: Address, message_id: MessageId, timeout_s: float) -> None:
        """Take a message back, or give a parked one up; that is durable on return.

        Raises:
            NotFound: the agent never got it, or has handled it.
            TimeoutError: the agent's code would not stop, or its lease is a dead one's.
        """
        self.note(address, message_id)  # should its host be ended because the agent's code would not stop
        try:
            async with asyncio.timeout(timeout_s):
                while await asyncio.to_thread(self._is_open, address, message_id):
                    if not await self._ask_host(address, message_id):
                        await self._drop(address, message_id)
        finally:
            self.forget(address, message_id)

    def note(self, address: Address, message_id: MessageId) -> None:
        """Let the next activation of an agent, if one comes before `forget`, drop a message first."""
        self._noted.setdefault(address, set()).add(message_id)

    def forget(self, address: Address, message_id: MessageId) -> None:
        """Forget a message that is settled; harmless when it was not noted."""
        left = self._noted.get(address, set())
        left.discard(message_id)
        if not left:
            self._noted.pop(address, None)

    def noted(self, address: Address) -> list[MessageId]:
        """Return the messages of an agent that its activation is to drop first; reads the journal."""
        found = [self._store.message(message_id) for message_id in self._noted.get(address, ())]
        waiting = [message for message in found if message.status is MessageStatus.PENDING]
        return [message.message_id for message in sorted(waiting, key=lambda message: message.position)]

    async def _drop(self, address: Address, message_id: MessageId) -> None:
        session = await asyncio.to_thread(find_session, self._store, address)
        now_ms = self._clock.now_ms()
        try:
            await asyncio.to_thread(drop_message, self._store, session, message_id, self._ids, now_ms)
        except AgentAwake:  # a command has it for a moment, or a dead host's lease has not run out
            await asyncio.sleep(LEASE_POLL_S)

    def _is_open(self, address: Address, message_id: MessageId) -> bool:
        return is_open(message_of(self._store, find_session(self._store, address), message_id))
