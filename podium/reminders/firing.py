"""What sends reminders: a task that looks for those that are due, and has their agents woken.

A reminder fires in one transaction of the journal, which admits its message and moves the reminder to its next time.
So it fires once for each time, whoever sends it and whatever dies meanwhile, and the message is handled as any other.
Times that passed while nothing ran come as one message.

If many are due at once, after an outage or on the hour, each gets a random moment in a span that grows with their
number, so that neither the journal nor the wakes are flooded.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.canonical import encode
from chronicle.errors import ChronicleError, InvalidInput
from chronicle.journal.records import NewMessage
from podium.messages.headers import Headers, ReminderHeader
from podium.reminders.plans import Plan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from chronicle.clock import Clock
    from chronicle.ids import IdSource, SessionId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Reminder
    from podium.address import Address
    from podium.blocking import BlockingRunner

__all__ = ["ReminderTask", "Spread", "fire_reminder"]

_FEW: Final = 50
"""Reminders that fire at once without a delay."""
_EACH_MS: Final = 20
"""Span for each further one: a fire and a wake take some milliseconds each."""
_LONGEST_SPAN_MS: Final = 300_000
_MOST_DUE: Final = 20_000
"""Due reminders that are looked at; later ones wait until some of these have fired."""
_SOONEST_S: Final = 0.005
_LOOK_EVERY_S: Final = 2.0
"""Longest interval of looks: a notice may be lost with its process, and the machine's clock may be set."""

_log = structlog.stdlib.get_logger("podium.reminders")


def fire_reminder(store: JournalStore, ids: IdSource, reminder: Reminder, now_ms: int) -> Address | None:
    """Send the message of a due reminder to its agent, and move the reminder to its next time. Durable on return.

    Returns:
        the agent, which may have to be woken; ``None`` if the reminder was fired, replaced or cancelled meanwhile.

    Raises:
        InvalidInput: the reminder cannot be read; it stays as it is.
    """
    plan = Plan.from_body(reminder.body)
    following = plan.rule.next(reminder.due_ms, now_ms)
    headers = Headers(reminder=ReminderHeader(reminder.name, reminder.due_ms, following.missed))
    message = NewMessage(ids.message(now_ms), encode(plan.message), now_ms, headers=headers.to_json())
    receipt = store.fire_reminder(reminder.session_id, reminder.name, reminder.due_ms, message, following.due_ms)
    return plan.address if receipt is not None else None


class Spread:
    """Spreads reminders that are due at once over a span of time.

    Args:
        generator: draws the moments.
    """

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator
        self._moments: dict[tuple[SessionId, str, int], int] = {}
        """When each due reminder fires: by session, name and due time."""

    def ready(self, due: Sequence[Reminder], now_ms: int) -> list[Reminder]:
        """Return those of the due reminders that fire now.

        Args:
            due: all that are due.
        """
        keys = {_key(reminder): reminder for reminder in due}
        self._moments = {key: moment for key, moment in self._moments.items() if key in keys}
        new = [key for key in keys if key not in self._moments]
        span_ms = min(max(len(new) - _FEW, 0) * _EACH_MS, _LONGEST_SPAN_MS)
        for key in new:
            self._moments[key] = now_ms + round(span_ms * self._generator.random())
        return [reminder for key, reminder in keys.items() if self._moments[key] <= now_ms]

    def next_ms(self) -> int | None:
        """Return the first moment of a reminder that does not fire yet; ``None`` without one."""
        return min(self._moments.values(), default=None)

    def fired(self, reminder: Reminder) -> None:
        """Forget a reminder that fired."""
        self._moments.pop(_key(reminder), None)


class ReminderTask:
    """Fires reminders as they become due.

    Args:
        arrived: awaited for each agent that was reminded; it may have to be woken.
        generator: for the spread.
        run_blocking: makes calls of the journal.
    """

    def __init__(
        self,
        store: JournalStore,
        ids: IdSource,
        clock: Clock,
        arrived: Callable[[Address], Awaitable[None]],
        generator: random.Random | None = None,
        run_blocking: BlockingRunner = asyncio.to_thread,
    ) -> None:
        self._store = store
        self._ids = ids
        self._clock = clock
        self._arrived = arrived
        self._run_blocking = run_blocking
        self._spread = Spread(generator or random.Random())
        self._changed = asyncio.Event()
        self._unreadable: set[tuple[SessionId, str, int]] = set()

    def notice(self) -> None:
        """Look at once: a commit may have set a reminder that is due soon."""
        self._changed.set()

    async def run(self) -> None:
        """Fire reminders until the task is cancelled."""
        while True:
            self._changed.clear()
            try:
                wait_s = await self.fire_due()
            except ChronicleError as error:
                _log.warning("reminders_not_read", error=str(error))
                wait_s = _LOOK_EVERY_S
            except Exception:  # noqa: BLE001  a bug must not end the task: no reminder would fire again
                _log.exception("reminders_failed")
                wait_s = _LOOK_EVERY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    async def fire_due(self) -> float:
        """Fire what is due now, and return the seconds until the next look.

        Raises:
            ChronicleError: the journal cannot be read.
        """
        store, now_ms = self._store, self._clock.now_ms()
        due = await self._run_blocking(store.due_reminders, now_ms, _MOST_DUE)
        readable = [reminder for reminder in due if _key(reminder) not in self._unreadable]
        failed = [reminder for reminder in self._spread.ready(readable, now_ms) if not await self._fire(reminder)]
        if failed or self._unreadable:
            return _LOOK_EVERY_S
        delayed_ms = self._spread.next_ms()
        next_ms = delayed_ms if delayed_ms is not None else await self._run_blocking(store.next_reminder_ms)
        if next_ms is None:
            return _LOOK_EVERY_S
        return min(max((next_ms - self._clock.now_ms()) / 1000, _SOONEST_S), _LOOK_EVERY_S)

    async def _fire(self, reminder: Reminder) -> bool:
        """Fire a reminder; return whether it was fired, by this task or another."""
        try:
            address = await self._run_blocking(fire_reminder, self._store, self._ids, reminder, self._clock.now_ms())
        except ChronicleError as error:
            _log.warning("reminder_not_fired", name=reminder.name, session_id=reminder.session_id, error=str(error))
            if isinstance(error, InvalidInput):
                self._unreadable.add(_key(reminder))  # until the next start: another version may read it
            return False
        self._spread.fired(reminder)
        if address is not None:
            await self._arrived(address)
        return True


def _key(reminder: Reminder) -> tuple[SessionId, str, int]:
    return reminder.session_id, reminder.name, reminder.due_ms
