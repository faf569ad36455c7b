"""Deliveries of admitted messages: one task for each message, and any number of followers of its frames.

A message is delivered whether or not anyone follows it. A follower may come at any time: while the message is
delivered it gets the frames so far first; after a restart of the service it makes the delivery begin again; and once
the message is settled, its frames are read from the journal.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog

from chronicle.errors import ChronicleError
from coordinator.fleet.services.handover import HandedOver
from podium.errors import PodiumError
from podium.state import StateError
from podium.tasks import BackgroundTasks
from podium.turn.stream import TERMINAL_FRAMES, StreamHub

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from chronicle.ids import MessageId
    from coordinator.client_messages import Admitted
    from coordinator.fleet.model import Code
    from coordinator.service.agent_types import AgentTypes
    from podium.address import Address
    from podium.turn.stream import Frame

    Deliver: TypeAlias = Callable[[Address, Code, Admitted], AsyncGenerator[list[Frame], None]]

__all__ = ["Deliveries"]

_LINGER_S: Final = 5.0
"""Time for which the frames of a settled message are kept: a client that admits a message and then follows it gets the
same frames as one that followed from the start. The journal has no increments of text and no emitted events."""

_log = structlog.stdlib.get_logger(__name__)


class Deliveries:
    """The messages that are being delivered.

    Args:
        deliver: yields the frames of a message until it is settled; see `MessageDelivery.deliver`.
        types: the codes of agents, for messages that somebody follows and nobody delivers.
    """

    def __init__(self, deliver: Deliver, types: AgentTypes) -> None:
        self._deliver_to_host = deliver
        self._types = types
        self._hub = StreamHub()
        self._running: set[MessageId] = set()
        """The messages whose streams have not ended."""
        self._tasks = BackgroundTasks()
        self._ended: dict[MessageId, list[Frame]] = {}
        """The frames of messages that were settled a moment ago."""

    def __len__(self) -> int:
        """Return the number of messages that are being delivered."""
        return len(self._running)

    def begin(self, address: Address, code: Code, message: Admitted) -> None:
        """Deliver a message in a task of its own, unless it is being delivered."""
        message_id = message.message_id
        if message_id in self._running:
            return
        self._running.add(message_id)
        self._ended.pop(message_id, None)
        _ = self._tasks.start(self._deliver(address, code, message), f"deliver {message_id}")

    async def follow(self, address: Address, message: Admitted) -> AsyncGenerator[list[Frame], None]:
        """Yield the frames of a message in batches, from the beginning of its attempt, the terminal frame last.

        A pending message that is not being delivered is delivered.

        Raises:
            UnknownAgentType: the message is pending, and the code of its agent is not known.
            PodiumError, ChronicleError, StateError, TimeoutError: the agent cannot be woken; the message stays in its
                inbox.
        """
        message_id = message.message_id
        with self._hub.subscribe(message_id) as subscription:
            if message_id not in self._running:
                frames = self._ended.get(message_id) or await _settled(message)
                if frames:
                    yield frames
                    return
                self.begin(address, await self._types.code_of(address.agent_type), message)
            async for batch in subscription.batches():
                yield batch

    async def cancel(self) -> None:
        """Stop delivering. The messages stay in their inboxes."""
        await self._tasks.close()

    async def _deliver(self, address: Address, code: Code, message: Admitted) -> None:
        message_id = message.message_id
        try:
            async with aclosing(self._deliver_to_host(address, code, message)) as batches:
                async for batch in batches:
                    for frame in batch:
                        self._publish(message_id, frame)
        except HandedOver as error:  # followers ask the service that has the home now
            self._fail(message_id, error)
        except (PodiumError, ChronicleError, StateError, TimeoutError) as error:
            _log.warning("message_not_delivered", message_id=message_id, agent_id=str(address), error=str(error))
            self._fail(message_id, error)
        except Exception as error:  # noqa: BLE001  a bug: its traceback is in the log, and followers are told
            _log.exception("delivery_failed", message_id=message_id)
            self._fail(message_id, error)

    def _publish(self, message_id: MessageId, frame: Frame) -> None:
        if frame["type"] in TERMINAL_FRAMES:
            self._running.discard(message_id)
            if not frame.get("parked") and frame["type"] != "turn_paused":  # these may go on
                self._ended[message_id] = [*self._hub.so_far(message_id), frame]
                asyncio.get_running_loop().call_later(_LINGER_S, self._ended.pop, message_id, None)
        self._hub.publish(message_id, frame)

    def _fail(self, message_id: MessageId, error: Exception) -> None:
        self._running.discard(message_id)
        self._hub.fail(message_id, error)


async def _settled(message: Admitted) -> list[Frame]:
    """Return the frames of a settled message, its failed attempts included; none while it is pending."""
    frames = await message.settled()
    return [*await message.failed_tries(), *frames] if frames else []
