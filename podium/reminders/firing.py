"""Firing of reminders: a task that looks for those that are due, and has their agents woken.

A reminder fires in one transaction of the journal, which admits its message and moves the reminder to its next time.
So it fires once for each time, whichever process sends it and whatever dies meanwhile, and the message is handled as
any other. Times that passed while nothing ran, or while the message of an earlier time was pending, come as one
message.

If many are due at once, after an outage or on the hour, each gets a random moment in a span that grows with their
number, so that neither the journal nor the wakes are flooded.
"""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog

from chronicle.canonical import encode
from chronicle.errors import ChronicleError, InvalidInput, NotFound
from chronicle.journal.records import MessageStatus, NewMessage, PauseEnd
from podium.address import Address
from podium.history.step_record import closed, open_pause
from podium.messages.headers import Headers, ReminderHeader
from podium.polling import LOOK_EVERY_S, Poller
from podium.reminders.delayed import DelayedMessage, is_delayed
from podium.reminders.expiries import EXPIRY, expiry_of
from podium.reminders.plans import Plan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from chronicle.clock import Clock
    from chronicle.ids import IdSource, MessageId, SessionId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.inbox import InboxRecords
    from chronicle.journal.records import Reminder
    from podium.blocking import BlockingRunner

__all__ = ["Jitter", "NotFired", "ReminderTask", "fire_reminder"]

Key: TypeAlias = "tuple[SessionId, str, int]"
"""Session, name and due time of a reminder."""

_MAX_WITHOUT_JITTER: Final = 50
"""Reminders that fire at once without a delay."""
_JITTER_PER_REMINDER_MS: Final = 20
"""Span for each further one: a fire and a wake take some milliseconds each."""
_MAX_JITTER_MS: Final = 300_000
_MAX_DUE: Final = 20_000
"""Due reminders that are looked at, besides those that are held; later ones wait until some of these have fired."""
_SOONEST_S: Final = 0.005

_log = structlog.stdlib.get_logger("podium.reminders")


class NotFired(Enum):
    """Why a reminder sent nothing."""

    GONE = "gone"
    """It was fired, replaced or cancelled meanwhile."""
    WAITS = "waits"
    """It is a repeated one, and the message of an earlier time is still pending; or the end of a pause that has ended
    or does not end yet, by the journal's clock."""


def fire_reminder(store: JournalStore, ids: IdSource, reminder: Reminder, now_ms: int) -> Address | NotFired | None:
    """Send the message of a due reminder to its agent, and move the reminder to its next time. Durable on return.

    A repeated reminder whose last message is pending stays as it is, so that an agent which cannot run, or is slower
    than its reminder, has one message of it. The times that pass meanwhile are missed ones of the next message.

    The reminder of a paused turn sends nothing, but ends its pause. A delayed message moves to the outbox.

    Returns:
        the agent, which may have to be woken; ``None`` for a message that is in the outbox now; otherwise why nothing
        was done.

    Raises:
        InvalidInput: the reminder cannot be read; it stays as it is.
    """
    if reminder.name == EXPIRY:
        return _end_pause(store, reminder, now_ms)
    if is_delayed(reminder.name):
        return _send(store, reminder, now_ms)
    plan = Plan.from_body(reminder.body)
    if plan.sent is not None and _is_pending(store, plan.sent):
        return NotFired.WAITS
    following = plan.rule.next(reminder.due_ms, now_ms)
    headers = Headers(reminder=ReminderHeader(reminder.name, reminder.due_ms, following.missed), caller=plan.caller)
    message = NewMessage(ids.message(now_ms), encode(plan.message), now_ms, headers=headers.to_json())
    body = replace(plan, sent=message.message_id).to_body() if following.due_ms is not None else None
    receipt = store.fire_reminder(reminder.session_id, reminder.name, reminder.due_ms, message, following.due_ms, body)
    return plan.address if receipt is not None else NotFired.GONE


def _end_pause(store: JournalStore, reminder: Reminder, now_ms: int) -> Address | NotFired:
    """End the pause of a turn at its time; the turn goes on without an answer. Durable on return."""
    address, message_id, number = expiry_of(reminder.body)
    step = next((each for each in store.steps(message_id) if each.number == number), None)
    if step is None or open_pause(step.body) is None:
        return NotFired.WAITS
    body = closed(step.body, "expired", None, None, reminder.due_ms)
    end = PauseEnd(message_id, number, step.body, body, from_ms=reminder.due_ms, reminder=EXPIRY)
    return address if store.end_pause(reminder.session_id, end, now_ms) else NotFired.WAITS


def _send(store: JournalStore, reminder: Reminder, now_ms: int) -> NotFired | None:
    """Move a delayed message to the outbox. Durable on return."""
    delayed = DelayedMessage.from_reminder(reminder)
    try:
        sender = store.session_of_id(reminder.session_id)
    except NotFound:  # it was deleted
        return NotFired.GONE
    message = delayed.to_outbox(sender, now_ms)
    sent = store.send_reminder(reminder.session_id, reminder.name, reminder.due_ms, message)
    return None if sent else NotFired.GONE


def _address_of(reminder: Reminder) -> Address | None:
    """Return the agent that a reminder wakes; ``None`` for a delayed message."""
    if is_delayed(reminder.name):
        return None
    return expiry_of(reminder.body)[0] if reminder.name == EXPIRY else Plan.from_body(reminder.body).address


def _is_pending(store: InboxRecords, message_id: MessageId) -> bool:
    try:
        return store.message(message_id).status is MessageStatus.PENDING
    except NotFound:  # its record was pruned
        return False


class Jitter:
    """Spreads reminders that are due at once over a span of time.

    Args:
        generator: draws the moments.
    """

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator
        self._moments: dict[Key, int] = {}
        """When each due reminder fires."""

    def due(self, due: Sequence[Reminder], now_ms: int) -> list[Reminder]:
        """Return those of the due reminders that fire now.

        Args:
            due: all that are due.
        """
        keys = {_key(reminder): reminder for reminder in due}
        self._moments = {key: moment for key, moment in self._moments.items() if key in keys}
        new = [key for key in keys if key not in self._moments]
        span_ms = min(max(len(new) - _MAX_WITHOUT_JITTER, 0) * _JITTER_PER_REMINDER_MS, _MAX_JITTER_MS)
        for key in new:
            self._moments[key] = now_ms + round(span_ms * self._generator.random())
        return [reminder for key, reminder in keys.items() if self._moments[key] <= now_ms]

    def next_ms(self) -> int | None:
        """Return the first moment of a reminder that does not fire yet; ``None`` without one."""
        return min(self._moments.values(), default=None)

    def forget(self, reminder: Reminder) -> None:
        """Forget a reminder that fired, or was tried."""
        self._moments.pop(_key(reminder), None)


class ReminderTask(Poller):
    """Fires reminders as they become due.

    Args:
        arrived: awaited for each agent that was reminded; it may have to be woken.
        generator: for the spread.
        run_blocking: makes calls of the journal.
        sent: called when a delayed message was put into the outbox.
    """

    def __init__(
        self,
        store: JournalStore,
        ids: IdSource,
        clock: Clock,
        arrived: Callable[[Address], Awaitable[None]],
        generator: random.Random | None = None,
        run_blocking: BlockingRunner = asyncio.to_thread,
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("reminders", _log)
        self._store = store
        self._ids = ids
        self._clock = clock
        self._arrived = arrived
        self._run_blocking = run_blocking
        self._sent = sent
        generator = generator or random.Random()
        self._jitter = Jitter(generator)
        self._again = Jitter(generator)
        """Those that were held before: a spread of their own, so that many of them delay no other."""
        self._ahead_ms = 0
        """By how much the clock of the journal is ahead of this machine's, as of the last look."""
        self._held: dict[Key, float] = {}
        """When each reminder that is due, and did not fire, may be tried again, in epoch milliseconds."""
        self._unsure: dict[Key, Address] = {}
        """The agents of reminders that failed: a store that did not answer may have fired them, or do so late."""

    async def look(self) -> float:
        """Fire what is due now, and return the seconds until the next look.

        A reminder that fails, or waits, is tried again after two seconds; others do not wait for it. The agent
        of one that failed is told also if it is not due any more.

        Raises:
            ChronicleError: the journal cannot be read.
        """
        store, machine_ms = self._store, self._clock.now_ms()
        self._ahead_ms = await self._run_blocking(store.now_ms, machine_ms) - machine_ms
        now_ms = self._now_ms()
        due = {_key(each): each for each in await self._run_blocking(store.due_reminders, now_ms, self._most())}
        self._held = {key: moment_ms for key, moment_ms in self._held.items() if key in due}
        for key in [key for key in self._unsure if key not in due]:  # it fired all the same, or was cancelled
            await self._arrived(self._unsure.pop(key))
        first = [reminder for key, reminder in due.items() if key not in self._held]
        again = [due[key] for key, moment_ms in self._held.items() if moment_ms <= now_ms]
        for reminder in (*self._jitter.due(first, now_ms), *self._again.due(again, now_ms)):
            await self._fire(reminder)
        moments_ms = (
            self._jitter.next_ms(),
            self._again.next_ms(),
            min((moment_ms for moment_ms in self._held.values() if moment_ms > now_ms), default=None),
            await self._run_blocking(store.next_reminder_ms, now_ms),
        )
        next_ms = min((moment_ms for moment_ms in moments_ms if moment_ms is not None), default=math.inf)
        return min(max((next_ms - self._now_ms()) / 1000, _SOONEST_S), LOOK_EVERY_S)

    def _now_ms(self) -> int:
        """Return the time that reminders go by: machines that have the coordinator one after another have one clock."""
        return self._clock.now_ms() + self._ahead_ms

    def _most(self) -> int:
        """Return how many due reminders to read: those that are held are among the first, and take nobody's place."""
        return _MAX_DUE + len(self._held)

    async def _fire(self, reminder: Reminder) -> None:
        """Fire a reminder; hold it if that fails, or if the message of an earlier time is pending."""
        key, hold_ms = _key(reminder), self._now_ms() + round(LOOK_EVERY_S * 1000)
        try:
            result = await self._run_blocking(fire_reminder, self._store, self._ids, reminder, self._now_ms())
        except ChronicleError as error:
            _log.warning("reminder_not_fired", name=reminder.name, session_id=reminder.session_id, error=str(error))
            # One that cannot be read is held until the next start: another version may read it.
            self._held[key] = math.inf if isinstance(error, InvalidInput) else hold_ms
            if not isinstance(error, InvalidInput) and (address := _address_of(reminder)) is not None:
                self._unsure[key] = address
            result = NotFired.WAITS
        except Exception:  # noqa: BLE001  a bug, or a time that no calendar has: others must not wait for it
            _log.exception("reminder_failed", name=reminder.name, session_id=reminder.session_id)
            self._held[key] = math.inf
            result = NotFired.WAITS
        else:
            if result is NotFired.WAITS:
                self._held[key] = hold_ms
            else:
                self._held.pop(key, None)
        self._jitter.forget(reminder)
        self._again.forget(reminder)
        if result is None:
            self._sent()
        elif isinstance(result, Address):
            await self._arrived(result)


def _key(reminder: Reminder) -> Key:
    return reminder.session_id, reminder.name, reminder.due_ms
