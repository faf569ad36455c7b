"""`AnswerMessage`: an agent's answer to a promise of another one, as it is in the outbox.

It has an id of its own kind, so that it is known without its body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from chronicle.canonical import decode, encode
from chronicle.errors import InvalidInput

if TYPE_CHECKING:
    from chronicle.canonical import Json

__all__ = ["ANSWER_PREFIX", "AnswerMessage", "is_answer"]

ANSWER_PREFIX: Final = "ans_"
"""Of the ids of answers."""


@dataclass(frozen=True, slots=True)
class AnswerMessage:
    """The body of the message."""

    run_id: str
    promise: str
    """The name of the promise."""
    value: Json
    rejection: str | None = None
    """Why the promise is rejected, in place of the value."""

    @classmethod
    def from_body(cls, body: bytes) -> AnswerMessage:
        """Return the answer that the outbox has.

        Raises:
            InvalidInput: another version wrote it.
        """
        match decode(body):
            case {"run_id": str(run_id), "promise": str(promise), "value": value, "rejection": str() | None as why}:
                return cls(run_id, promise, cast("Json", value), why)
            case _:
                raise InvalidInput("the answer is of a form that this version does not know")

    def to_body(self) -> bytes:
        """Return the body for the outbox.

        Raises:
            InvalidInput: the value is not JSON.
        """
        return encode(
            {"run_id": self.run_id, "promise": self.promise, "value": self.value, "rejection": self.rejection}
        )


def is_answer(message_id: str) -> bool:
    """Whether a message of the outbox answers a promise."""
    return message_id.startswith(ANSWER_PREFIX)
