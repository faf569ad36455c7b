"""The courier: delivers messages from the journal's outbox to the receivers' inboxes.

Delivery follows the commit that sent a message, at least once: any process may deliver a message in the outbox, and a
courier that crashes between the two steps leaves it there for the next one. A message's id is its idempotency key, so
the receiver's inbox drops duplicates.

A message that cannot be delivered now, because its receiver's inbox is full or a limit forbids to make the receiver,
is *held*: it stays in the outbox with all later ones to the same receiver, so that their order is kept. Other receivers
are not delayed, nor are answers to promises (`podium.messages.promised`). A message that no inbox can take, such as one
whose id is taken, stays alone. Held messages are looked at again with each look into the outbox.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog

from chronicle.errors import ChronicleError, IdempotencyConflict, InboxFull, InvalidInput, Unavailable
from chronicle.journal.records import NewMessage
from podium.address import Address
from podium.answer_message import is_answer
from podium.errors import InvalidAddress
from podium.messages.promised import deliver_answer
from podium.polling import LOOK_EVERY_S, Poller

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from chronicle.clock import Clock
    from chronicle.ids import IdSource, MessageId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.outbox import OutboxRecords
    from chronicle.journal.records import OutboxEnvelope, OutboxMessage

    Check: TypeAlias = Callable[[Address], str | None]
    """Returns why no message may be delivered to a receiver now; ``None`` if one may, and then one is delivered."""

__all__ = ["Courier", "deliver_outbox"]

_BATCH: Final = 1000
_MAX_AT_ONCE: Final = 50
"""Messages delivered before their receivers are woken: two transactions each, some 5 ms with their syncs."""

_log = structlog.stdlib.get_logger("podium.messages.courier")


class Courier(Poller):
    """Delivers the outbox in a task of its own: a long outbox, or a slow store, delays nothing else.

    Args:
        arrived: awaited for each receiver of new messages, which may have to be woken.
        inbox_limit: messages that may be pending for one agent; further ones are held.
        checks: called at the begin of each look into the outbox; what it returns tells which receivers' messages are to
            be held. By default none.
    """

    def __init__(
        self,
        store: JournalStore,
        ids: IdSource,
        clock: Clock,
        arrived: Callable[[Address], Awaitable[None]],
        inbox_limit: int = 1000,
        checks: Callable[[], Check] = lambda: _never,
    ) -> None:
        super().__init__("courier", _log)
        self._store = store
        self._ids = ids
        self._clock = clock
        self._arrived = arrived
        self._inbox_limit = inbox_limit
        self._checks = checks
        self.held: Mapping[Address, str] = {}
        """The receivers whose messages were held at the last look, and why."""

    async def look(self) -> float:
        """Deliver the messages that there are; each receiver is notified of its own soon."""
        goes_on = True
        while goes_on:
            done = await asyncio.to_thread(self._deliver)
            goes_on = done.delivered > 0 and done.complete
            for address in done.receivers:
                await self._arrived(address)
        return LOOK_EVERY_S  # what holds messages ends without a notification

    def _deliver(self) -> _Delivery:
        """Deliver some messages; what was delivered before a failure counts: its receivers have to be woken."""
        done = _Delivery()
        try:
            check, now_ms = self._checks(), self._clock.now_ms()
            _empty(self._store, self._ids, now_ms, self._inbox_limit, _MAX_AT_ONCE, check, done)
        except ChronicleError as error:
            done.complete = False
            _log.warning("outbox_not_delivered", delivered=done.delivered, error=str(error))
        else:
            self._note_held(done)
        return done

    def _note_held(self, done: _Delivery) -> None:
        # A look that has delivered as many as it may has not seen all messages.
        found = {**done.alone, **done.held}
        held = {**self.held, **found} if done.delivered >= _MAX_AT_ONCE else found
        for address, why in found.items():
            if self.held.get(address) != why:
                _log.info("messages_held", agent_id=str(address), why=why)
        self.held = held


@dataclass(slots=True)
class _Delivery:
    """Result of a look into the outbox."""

    receivers: dict[Address, None] = field(default_factory=dict)
    """The receivers of new messages, each once."""
    held: dict[Address, str] = field(default_factory=dict)
    """The receivers whose messages stay in the outbox, and why."""
    alone: dict[Address, str] = field(default_factory=dict)
    """The receivers for which an answer, or a message that can never be taken, stays there; others are delivered."""
    delivered: int = 0
    """Messages."""
    complete: bool = True
    """Whether nothing failed."""


def deliver_outbox(
    store: JournalStore,
    ids: IdSource,
    now_ms: int,
    inbox_limit: int = 1000,
    most: int = _BATCH,
    check: Check | None = None,
) -> list[Address]:
    """Deliver the messages of the outbox, oldest first.

    Messages that a full inbox or a check refuses stay in the outbox for the next delivery, with all later ones to the
    same receiver.

    Args:
        most: messages to deliver now; further ones wait for the next call.
        check: which receivers get none now; by default each gets its messages.

    Returns:
        the receivers with new messages, each once: the caller wakes them.

    Raises:
        Unavailable: the store is unavailable and nothing was delivered; nothing is lost.
    """
    done = _Delivery()
    try:
        _empty(store, ids, now_ms, inbox_limit, most, check or _never, done)
    except Unavailable as error:
        # Return the receivers so far: their messages are no longer in the outbox at the next delivery.
        if not done.receivers:
            raise
        _log.warning("outbox_delivered_in_part", receivers=len(done.receivers), error=str(error))
    return list(done.receivers)


def _empty(
    store: JournalStore,
    ids: IdSource,
    now_ms: int,
    inbox_limit: int,
    most: int,
    check: Check,
    done: _Delivery,
) -> None:
    deliverable = _deliverable(store, check, done.held)
    while left := most - done.delivered:
        chosen = list(islice(deliverable, left))
        if not chosen:
            return
        for message in store.outbox(limit=len(chosen), among=chosen):
            receiver = Address.parse(message.target, message.namespace)
            if receiver in done.held and not is_answer(message.message_id):
                continue
            try:
                if not is_answer(message.message_id):
                    _admit(store, ids, message, now_ms, inbox_limit)
                elif (why := deliver_answer(store, message, now_ms)) is not None:
                    done.alone[receiver] = why
                    continue
            except InboxFull as error:
                done.held[receiver] = f"its inbox is full: {error}"
                continue
            except Unavailable:
                raise
            except ChronicleError as error:  # it must not stop the others
                _log.warning("not_delivered", agent_id=str(receiver), message_id=message.message_id, error=str(error))
                is_alone = is_answer(message.message_id) or isinstance(error, InvalidInput | IdempotencyConflict)
                (done.alone if is_alone else done.held)[receiver] = str(error)
                continue
            except Exception as error:  # noqa: BLE001  a bug, or a forged message: others must not wait for it
                _log.exception("delivery_failed", agent_id=str(receiver), message_id=message.message_id)
                done.alone[receiver] = repr(error)
                continue
            done.receivers[receiver] = None  # before the next write: if that fails, the message is in the inbox
            store.outbox_delivered(message.message_id)
            done.delivered += 1


def _deliverable(store: OutboxRecords, check: Check, held: dict[Address, str]) -> Iterator[MessageId]:
    """Yield the ids of the messages that are not held, oldest first; those held meanwhile are left out, too."""
    free: set[Address] = set()
    for envelope in store.outbox_envelopes():
        receiver = _receiver(envelope)
        if receiver is None:
            continue
        if is_answer(envelope.message_id):
            yield envelope.message_id
            continue
        if receiver in held:
            continue
        if receiver not in free:
            why = check(receiver)
            if why is not None:
                held[receiver] = why
                continue
            free.add(receiver)
        yield envelope.message_id


def _receiver(envelope: OutboxEnvelope) -> Address | None:
    try:
        return Address.parse(envelope.target, envelope.namespace)
    except InvalidAddress as error:  # of another version: it must not stop the others
        _log.warning("receiver_not_usable", message_id=envelope.message_id, error=str(error))
        return None


def _admit(store: JournalStore, ids: IdSource, message: OutboxMessage, now_ms: int, inbox_limit: int) -> None:
    session = store.ensure_session(message.target, ids.session(now_ms), ids.branch(now_ms), now_ms, message.namespace)
    arriving = NewMessage(message.message_id, message.body, now_ms, message.message_id, message.sender, message.headers)
    store.admit(session.session_id, arriving, limit=inbox_limit)


def _never(_: Address) -> None:
    return None
