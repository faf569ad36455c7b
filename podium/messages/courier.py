"""The courier: delivers messages from the journal's outbox to the receivers' inboxes.

Delivery follows the commit that sent a message, at least once: any process may deliver a message in the outbox, and a
courier that crashes between the two steps leaves it there for the next one. A message's id is its idempotency key, so
the receiver's inbox drops duplicates.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import ChronicleError, InboxFull, Unavailable
from chronicle.journal.records import NewMessage
from podium.address import Address, label

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.clock import Clock
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore

__all__ = ["Courier", "deliver_outbox"]

_BATCH: Final = 1000
_MOST_AT_ONCE: Final = 50
"""Messages delivered before their receivers are woken: two transactions each, some 5 ms with their syncs."""
_LOOK_EVERY_S: Final = 2.0
"""Interval of looks into the outbox that nobody asked for: a notice may be lost with its process."""

_log = structlog.stdlib.get_logger("podium.messages.courier")


class Courier:
    """Delivers the outbox in a task of its own: a long outbox, or a slow store, delays nothing else.

    Args:
        arrived: awaited for each receiver of new messages, which may have to be woken.
    """

    def __init__(
        self, store: JournalStore, ids: IdSource, clock: Clock, arrived: Callable[[Address], Awaitable[None]]
    ) -> None:
        self._store = store
        self._ids = ids
        self._clock = clock
        self._arrived = arrived
        self._filled = asyncio.Event()

    def notice(self) -> None:
        """Have the outbox looked into at once: a turn that sent messages was committed."""
        self._filled.set()

    async def run(self) -> None:
        """Deliver messages as they come, until the task is cancelled; each receiver is told of its own soon."""
        while True:
            self._filled.clear()
            try:
                while receivers := await self._deliver():
                    for address in receivers:
                        await self._arrived(address)
            except Exception:  # noqa: BLE001  a bug must not end the task: no message would be delivered again
                _log.exception("courier_failed")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._filled.wait()

    async def _deliver(self) -> list[Address]:
        store, ids, now_ms = self._store, self._ids, self._clock.now_ms()
        try:
            return await asyncio.to_thread(lambda: deliver_outbox(store, ids, now_ms, most=_MOST_AT_ONCE))
        except ChronicleError as error:
            _log.warning("outbox_not_delivered", error=str(error))
            return []


def deliver_outbox(
    store: JournalStore, ids: IdSource, now_ms: int, inbox_limit: int = 1000, most: int = _BATCH
) -> list[Address]:
    """Deliver the messages of the outbox, oldest first.

    Messages that a full inbox refuses stay in the outbox for the next delivery.

    Args:
        most: messages to deliver now; further ones wait for the next call.

    Returns:
        the receivers with new messages, each once: the caller wakes them.

    Raises:
        Unavailable: the store is unavailable and nothing was delivered; nothing is lost.
    """
    receivers: dict[Address, None] = {}
    try:
        for message in store.outbox(_BATCH):
            session = store.ensure_session(
                message.target, ids.session(now_ms), ids.branch(now_ms), now_ms, message.namespace
            )
            arriving = NewMessage(
                message.message_id, message.body, now_ms, message.message_id, message.sender, message.headers
            )
            try:
                store.admit(session.session_id, arriving, limit=inbox_limit)
            except InboxFull as error:
                _log.warning("inbox_full", agent_id=label(session), sender=message.sender, error=str(error))
                continue
            receivers[Address.of(session)] = None
            store.outbox_delivered(message.message_id)
            most -= 1
            if not most:
                break
    except Unavailable as error:
        # Return the receivers so far: their messages are no longer in the outbox at the next delivery.
        if not receivers:
            raise
        _log.warning("outbox_delivered_in_part", receivers=len(receivers), error=str(error))
    return list(receivers)
