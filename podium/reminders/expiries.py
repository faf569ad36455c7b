"""The reminder that ends the pause of a turn at its time.

It is a row of the journal as any reminder, so the task that fires those finds it, and it is set and dropped with
commits. It has a name that no program can give, and sends no message. A session has at most one: a paused turn is the
only one of its agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.canonical import decode, encode
from chronicle.errors import InvalidInput
from chronicle.ids import MessageId
from podium.address import Address
from podium.errors import InvalidAddress

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeVar

    from chronicle.journal.records import Reminder, SetReminder

    R = TypeVar("R", bound=Reminder | SetReminder)

__all__ = ["EXPIRY", "expiry_body", "expiry_of", "of_program"]

EXPIRY: Final = "\x1fpause"
"""Its name. Those of programs are printable."""


def expiry_body(address: Address, message_id: MessageId, number: int) -> bytes:
    """Return its body.

    Args:
        number: of the step at which the turn has paused.
    """
    return encode({"agent": str(address), "paused": {"message_id": message_id, "step": number}})


def expiry_of(body: bytes) -> tuple[Address, MessageId, int]:
    """Return the agent, the message and the number of the step of a body.

    Raises:
        InvalidInput: another version wrote it.
    """
    match decode(body):
        case {"agent": str(agent), "paused": {"message_id": str(message_id), "step": int(number)}}:
            try:
                return Address.parse(agent), MessageId(message_id), number
            except InvalidAddress as error:
                raise InvalidInput(f"the end of a pause is of another kind of address: {error}") from error
        case _:
            raise InvalidInput("the end of a pause is of a form that this version does not know")


def of_program(reminders: Iterable[R]) -> list[R]:
    """Return those reminders that a program has set."""
    return [reminder for reminder in reminders if reminder.name.isprintable()]
