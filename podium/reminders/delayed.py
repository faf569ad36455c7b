"""Messages to other agents that are sent at a later time (``ctx.tell(after=)``).

Each is a row of the journal as any reminder of its sender, so the task that fires those finds it, it is set with a
commit, forks have none, and it goes with the sender. When it is due it moves to the outbox in one transaction, and is
there as if the turn had sent it then: the sender is not woken. It has a name that no program can give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from chronicle.canonical import decode, encode
from chronicle.errors import InvalidInput
from chronicle.ids import MessageId
from chronicle.journal.records import OutboxMessage, SetReminder
from podium.address import Address
from podium.caller import Caller
from podium.messages.headers import Headers

if TYPE_CHECKING:
    from chronicle.canonical import Json, JsonObject
    from chronicle.journal.records import Reminder, Session

__all__ = ["DelayedMessage", "delayed_name", "is_delayed"]

_PREFIX: Final = "\x1ftell "


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that is sent when its time has come."""

    message_id: MessageId
    receiver: str
    """The name of the receiver, ``type/key``, in the sender's tenant."""
    message: JsonObject
    due_ms: int
    caller: Caller | None
    """Who asks for it."""
    trace: str | None = None
    """The ``traceparent`` of the turn that sent it."""

    @classmethod
    def from_reminder(cls, reminder: Reminder | SetReminder) -> DelayedMessage:
        """Return the message of a stored reminder, or of one that is to be stored.

        Raises:
            InvalidInput: another version wrote it.
        """
        match decode(reminder.body):
            case {"tell": {"message_id": str(message_id), "to": str(to), "message": dict(message), **tell}, **more}:
                trace, caller = tell.get("trace"), cast("Json", more.get("caller"))
                return cls(
                    MessageId(message_id),
                    to,
                    cast("JsonObject", message),
                    reminder.due_ms,
                    Caller.from_json(caller),
                    trace if isinstance(trace, str) else None,
                )
            case _:
                raise InvalidInput("the delayed message is of a form that this version does not know")

    def to_reminder(self) -> SetReminder:
        """Return the change that stores it.

        Raises:
            InvalidInput: the message is not JSON.
        """
        tell: JsonObject = {"message_id": self.message_id, "to": self.receiver, "message": self.message}
        if self.trace is not None:
            tell["trace"] = self.trace
        caller: JsonObject = {} if self.caller is None else {"caller": self.caller.to_json()}
        return SetReminder(delayed_name(self.message_id), self.due_ms, encode({"tell": tell, **caller}))

    def to_outbox(self, sender: Session, now_ms: int) -> OutboxMessage:
        """Return the message for the outbox.

        Args:
            sender: the session that set the reminder, whatever its body says.
        """
        headers = Headers(trace=self.trace, caller=self.caller).to_json()
        body, address = encode(self.message), str(Address.of(sender))
        return OutboxMessage(self.message_id, self.receiver, body, now_ms, address, sender.namespace, headers)


def delayed_name(message_id: str) -> str:
    """Return the name of the reminder that sends a message."""
    return _PREFIX + message_id


def is_delayed(name: str) -> bool:
    """Whether a reminder of this name is a delayed message."""
    return name.startswith(_PREFIX)
