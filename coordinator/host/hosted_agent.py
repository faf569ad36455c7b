"""An agent that is awake in a host: its activation, the loop that runs it, and the calls from outside.

Calls come from the host's two event loops: that of the agents, on which user code runs and may block, and that for
calls which must reach the host all the same.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import structlog

from chronicle.errors import NotFound
from podium.errors import AgentAsleep, Evicted, TurnsLost
from podium.turn.busy import BusyPolicy, may_preempt
from podium.turn.message_loop import MessageLoop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from chronicle.ids import MessageId
    from chronicle.journal.port import JournalStore
    from podium.address import Address
    from podium.turn.activation import Activation
    from podium.turn.journal.ledger import Offer
    from podium.turn.message_loop import Ending
    from podium.turn.reading import Read
    from podium.turn.stream import Frame

__all__ = ["HostedAgent"]

_log = structlog.stdlib.get_logger("coordinator.host")


class HostedAgent:
    """An awake agent. It is made on the agents' event loop.

    Args:
        activation: started by the caller.
        idle_timeout_s: as of `MessageLoop`.
        store: the journal.
    """

    def __init__(self, activation: Activation, idle_timeout_s: float, store: JournalStore) -> None:
        self.activation = activation
        self._loop = MessageLoop(activation, idle_timeout_s)
        self._store = store
        self._event_loop = asyncio.get_running_loop()

    @property
    def address(self) -> Address:
        """The agent's address."""
        return self.activation.address

    async def run(self) -> Ending:
        """Run the activation to its end; see `MessageLoop.run`. The caller releases the lease."""
        return await self._loop.run()

    # -- calls on the agents' event loop ---------------------------------------------------------------------------

    def poke(self) -> None:
        """Check the inbox for a new message."""
        self._loop.poke()

    def stop(self, grace_s: float | None = None) -> None:
        """End in order after the running turn.

        Args:
            grace_s: limit of the turn from now on; then it is interrupted, its message stays pending, and no attempt is
                counted. ``None``: no limit.
        """
        self._loop.stop()
        if grace_s is not None:
            self._event_loop.call_later(grace_s, self.activation.interrupt)

    async def deliver(
        self, message_id: MessageId, position: int | None = None, offer: Offer | None = None
    ) -> AsyncGenerator[list[Frame], None]:
        """Yield a message's frames in batches, up to its terminal frame; see `Activation.follow`.

        Args:
            offer: the message, if it was admitted a moment ago.

        Raises:
            AgentAsleep: the activation is ending; deliver the message to the next one.
        """
        if offer is not None:
            self.activation.offer(offer)
        self._loop.poke()
        try:
            async with aclosing(self.activation.follow(message_id, position)) as batches:
                async for batch in batches:
                    yield batch
        except NotFound as error:  # the agent may be another one in the journal now, or that of another host
            try:
                await self.activation.check_head()
            except (TurnsLost, Evicted):
                self._loop.evict()
                raise AgentAsleep(f"{self.address} is ending") from error
            raise

    async def read(self, message: dict[str, Any]) -> Read:
        """Call a read-only handler; see `Activation.read`. The agent stays awake meanwhile."""
        return await self.activation.read(message)

    # -- calls from any thread ------------------------------------------------------------------------------------

    def evict(self) -> None:
        """End at once, without writing: the lease is lost."""
        self._event_loop.call_soon_threadsafe(self._loop.evict)

    def doing(self, now_s: float) -> tuple[MessageId | None, float | None]:
        """Return the message on whose behalf a hook runs, and the seconds left to the hook; ``None`` if none runs.

        Args:
            now_s: by the clock's ``monotonic_s``.
        """
        message_id, deadline_s = self.activation.running_message_id, self.activation.deadline_s
        if message_id is None or deadline_s is None:
            return message_id, None
        return message_id, deadline_s - now_s

    def retire(self, grace_s: float | None = None) -> None:
        """End in order after the running turn, as `stop`, and begin no other turn.

        The latter takes effect before it returns, even if the agent's code blocks.
        """
        self._loop.request_stop()
        self._event_loop.call_soon_threadsafe(self.stop, grace_s)

    async def cancel(self, message_id: MessageId) -> None:
        """Cancel a pending, running, paused or parked message; durable on return, unless the message is handled first.

        If the turn of the message blocks the agents' event loop, it has a grace period of some seconds; then the
        process is ended.
        """
        self.activation.expire_deadline(message_id)
        cancelling = asyncio.run_coroutine_threadsafe(self._cancel(message_id), self._event_loop)
        await asyncio.shield(asyncio.wrap_future(cancelling))  # the caller's cancellation must not stop it half-way

    async def _cancel(self, message_id: MessageId) -> None:
        await self.activation.cancel(message_id)
        self._loop.poke()
        async for _ in self.activation.follow(message_id):
            pass

    def preempt(self, message_id: MessageId, policy: BusyPolicy) -> MessageId | None:
        """Apply the policy of an admitted message if the agent is busy with another one.

        Code that blocks has the same grace period as with `cancel`.

        Returns:
            the message whose running turn is stopped in favour of the admitted one, if there is one. If that requires
            the end of this process, the next activation drops the message.
        """
        stopped = self._stopped_for(message_id) if policy in {BusyPolicy.INTERRUPT, BusyPolicy.ROLLBACK} else None
        if stopped is not None:
            self.activation.expire_deadline(stopped)
        preempting = asyncio.run_coroutine_threadsafe(self._preempt(message_id, policy), self._event_loop)
        preempting.add_done_callback(_log_failure)  # not awaited: code that blocks would delay the sender's stream
        return stopped

    async def _preempt(self, message_id: MessageId, policy: BusyPolicy) -> None:
        await self.activation.preempt(message_id, policy)
        self._loop.poke()  # a paused turn may have held up the inbox

    def _stopped_for(self, message_id: MessageId) -> MessageId | None:
        """Return the message of the running turn, if the given one may preempt it."""
        running = self.activation.running_message_id
        if running is None or running == message_id:
            return None
        return running if may_preempt(self._store.message(message_id), self._store.message(running)) else None


def _log_failure(preempting: concurrent.futures.Future[None]) -> None:
    """Log why a turn could not be preempted; the message then stays pending."""
    error = None if preempting.cancelled() else preempting.exception()
    if error is not None:
        _log.warning("not_preempted", error=str(error))
