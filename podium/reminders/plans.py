"""Plan of a reminder, as the journal keeps it besides name and time: the agent, the rule, and the message."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from chronicle.canonical import decode, encode
from chronicle.errors import InvalidInput
from chronicle.ids import MessageId
from podium.address import Address
from podium.caller import Caller
from podium.errors import InvalidAddress
from podium.reminders.reminder import ScheduledReminder
from podium.reminders.schedule import Cron, Every, rule_from_json
from podium.reminders.times import from_ms

if TYPE_CHECKING:
    from typing import Any

    from chronicle.canonical import Json, JsonObject
    from chronicle.journal.records import Reminder, SetReminder
    from podium.reminders.schedule import Rule

__all__ = ["Plan", "agent_of", "caller_of", "scheduled"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The body of a reminder."""

    address: Address
    """The agent that set it, and gets the message."""
    rule: Rule
    message: JsonObject
    sent: MessageId | None = None
    """The message of its last time, if it is a repeated one that has fired."""
    caller: Caller | None = None
    """Who asked the turn that set it; ``None`` if a version set it that did not record it."""

    @classmethod
    def from_body(cls, body: bytes) -> Plan:
        """Return the plan of a stored reminder.

        Raises:
            InvalidInput: a newer version wrote it, or its time zone is not known here.
        """
        match decode(body):
            case {"agent": str(agent), "rule": dict(rule), "message": dict(message), **others}:
                try:
                    address = Address.parse(agent)
                except InvalidAddress as error:
                    raise InvalidInput(f"the reminder is of an agent with another kind of address: {error}") from error
                sent = others.get("sent")
                last = MessageId(sent) if isinstance(sent, str) else None
                sends = cast("JsonObject", message)
                return cls(address, rule_from_json(cast("JsonObject", rule)), sends, last, caller_of(body))
            case _:
                raise InvalidInput("the reminder is of a form that this version does not know")

    def to_body(self) -> bytes:
        """Return the body to store.

        Raises:
            InvalidInput: the message is not JSON.
        """
        more: JsonObject = {} if self.sent is None else {"sent": self.sent}
        if self.caller is not None:
            more["caller"] = self.caller.to_json()
        return encode({"agent": str(self.address), "rule": self.rule.to_json(), "message": self.message, **more})


def agent_of(body: bytes) -> str | None:
    """Return the address in the body of any reminder, the end of a pause included; ``None`` without one."""
    match decode(body):
        case {"agent": str(agent)}:
            return agent
        case _:
            return None


def caller_of(body: bytes) -> Caller | None:
    """Return the caller in the body of any reminder, even of one that cannot be fired here; ``None`` without one."""
    match decode(body):
        case {"caller": caller}:
            return Caller.from_json(cast("Json", caller))
        case _:
            return None


def scheduled(stored: Reminder | SetReminder) -> ScheduledReminder:
    """Return a stored reminder as users see it.

    Raises:
        InvalidInput: as `Plan.from_body`.
    """
    plan = Plan.from_body(stored.body)
    rule = plan.rule
    return ScheduledReminder(
        stored.name,
        from_ms(stored.due_ms),
        cast("dict[str, Any]", plan.message),
        every=timedelta(milliseconds=rule.every_ms) if isinstance(rule, Every) else None,
        cron=rule.line if isinstance(rule, Cron) else None,
        tz=rule.tz if isinstance(rule, Cron) else None,
    )
