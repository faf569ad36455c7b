"""Setting a reminder: checks what an agent's code asks for, and makes the change for the commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.errors import InvalidInput
from chronicle.journal.records import SetReminder
from podium.reminders.plans import Plan
from podium.reminders.schedule import new_rule
from podium.reminders.times import from_ms
from podium.state.plain_json import sent_object

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from chronicle.canonical import JsonObject
    from podium.address import Address
    from podium.caller import Caller

__all__ = ["Setter", "check_reminder_name", "new_reminder"]

_LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class Setter:
    """Who sets a reminder, and when."""

    address: Address
    """The agent."""
    caller: Caller
    """Who asks for what it sends."""
    now_ms: int
    since_ms: int
    """The time before which ``at`` is in the past."""


def new_reminder(
    setter: Setter,
    name: str,
    message: JsonObject,
    *,
    at: datetime | str | None,
    every: timedelta | float | None,
    cron: str | None,
    tz: str | None,
) -> tuple[SetReminder, datetime]:
    """Return the change that sets a reminder, and when it is due first.

    Raises:
        InvalidInput: an argument cannot be used.
    """
    check_reminder_name(name)
    if not isinstance(message, dict):
        raise InvalidInput(f"the message of a reminder is a dict, not {type(message).__name__}")
    message = sent_object(message, "remind")
    rule, due_ms = new_rule(setter.now_ms, at, every, cron, tz, setter.since_ms)
    return SetReminder(name, due_ms, Plan(setter.address, rule, message, caller=setter.caller).to_body()), from_ms(
        due_ms
    )


def check_reminder_name(name: object) -> None:
    """Check the name of a reminder.

    Raises:
        InvalidInput: it cannot be used.
    """
    if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise InvalidInput(
            f"{name!r} cannot name a reminder: take 1 to {_LONGEST_NAME} characters without control characters"
        )
