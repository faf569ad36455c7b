"""An agent's reminders and delayed messages: those that are set, and cancelling one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import InvalidInput, NotFound
from coordinator.operations import objects
from coordinator.operations.cursors import place_after, rest_of
from podium.agent_record import find_session
from podium.reminders.delayed import DelayedMessage, delayed_name, is_delayed
from podium.reminders.expiries import EXPIRY
from podium.reminders.plans import scheduled

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Reminder
    from podium.address import Address

__all__ = ["cancel", "reminder_object", "reminder_page"]


def reminder_page(
    store: JournalStore, address: Address, limit: int, cursor: str | None
) -> objects.Page[objects.Reminder]:
    """Return a page of an agent's reminders: first its delayed messages, by id, then the others, by name.

    Raises:
        UnknownAgent: there is no such agent.
        InvalidCursor: it is of another list.
    """
    of = [str(address)]
    after = place_after(cursor, "reminders", of, "")
    reminders = store.reminders(find_session(store, address).session_id)
    found = [each for each in reminders if each.name > after and each.name != EXPIRY]
    return objects.Page(
        items=[reminder_object(each) for each in found[:limit]],
        **rest_of(found, limit, "reminders", of, lambda each: each.name),
    )


def reminder_object(reminder: Reminder) -> objects.Reminder:
    """Return a reminder as a JSON object; one that this version cannot read has no rule and no message."""
    try:
        if is_delayed(reminder.name):
            delayed = DelayedMessage.from_reminder(reminder)
            name, due = delayed.message_id, reminder.due_ms
            return objects.Reminder(name=name, due=due, to=delayed.receiver, message=delayed.message)
        shown = scheduled(reminder)
    except InvalidInput:
        return objects.Reminder(name=reminder.name, due=reminder.due_ms)
    every_s = shown.every.total_seconds() if shown.every is not None else None
    return objects.Reminder(
        name=reminder.name,
        due=reminder.due_ms,
        every_s=every_s,
        cron=shown.cron,
        tz=shown.tz,
        message=shown.message,
    )


def cancel(store: JournalStore, address: Address, name: str) -> None:
    """Cancel a reminder, or a delayed message by its id, durably.

    Raises:
        UnknownAgent: there is no such agent.
        NotFound: it has no such reminder.
    """
    session_id = find_session(store, address).session_id
    if not name.isprintable() or not any(
        store.cancel_reminder(session_id, each) for each in (name, delayed_name(name))
    ):
        raise NotFound(f"{address} has no reminder {name!r}")
