"""The headers of a message, as typed values: what travels with it beside its body, from sender to receiver.

The journal keeps them as a JSON object. Keys that this version does not know, and values of a form that it does not
know, are kept as they are, so that another version finds them. Who needs one header reads that one alone: a turn looks
at several, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from podium.caller import Caller

if TYPE_CHECKING:
    from chronicle.canonical import Json, JsonObject

__all__ = [
    "AskHeader",
    "Headers",
    "ReminderHeader",
    "ask_in",
    "caller_in",
    "failed_in",
    "question_key",
    "reminder_in",
    "trace_in",
]


@dataclass(frozen=True, slots=True)
class AskHeader:
    """Of a question: who waits for its answer, and how long."""

    path: tuple[str, ...]
    """The addresses of the agents that wait, the first asker first, the sender last."""
    deadline_ms: int
    """When the sender stops waiting."""

    @classmethod
    def from_json(cls, value: Json) -> AskHeader | None:
        """Return the header of a JSON value; ``None`` if the value has another form."""
        match value:
            case {"path": [*path], "deadline_ms": int(deadline_ms)} if all(isinstance(each, str) for each in path):
                return cls(tuple(str(each) for each in path), deadline_ms)
            case _:
                return None

    def to_json(self) -> JsonObject:
        """Return it as JSON."""
        return {"path": list(self.path), "deadline_ms": self.deadline_ms}


@dataclass(frozen=True, slots=True)
class ReminderHeader:
    """Of a message that a reminder sent."""

    name: str
    due_ms: int
    """When it was due: before the message was admitted, if no service ran then."""
    missed: int
    """Of a repeated reminder: the times after ``due_ms`` that have passed as well, for which no message comes."""

    @classmethod
    def from_json(cls, value: Json) -> ReminderHeader | None:
        """Return the header of a JSON value; ``None`` if the value has another form."""
        match value:
            case {"name": str(name), "due_ms": int(due_ms), "missed": int(missed)}:
                return cls(name, due_ms, missed)
            case _:
                return None

    def to_json(self) -> JsonObject:
        """Return it as JSON."""
        return {"name": self.name, "due_ms": self.due_ms, "missed": self.missed}


@dataclass(frozen=True, slots=True)
class Headers:
    """All headers of a message."""

    ask: AskHeader | None = None
    reminder: ReminderHeader | None = None
    trace: str | None = None
    """The ``traceparent`` of W3C Trace Context under which it was sent."""
    caller: Caller | None = None
    """Who asks; ``None`` if nobody has recorded it."""
    failed: str | None = None
    """Of the message for which `on_failed` runs: the id of the message that was parked."""
    others: JsonObject = field(default_factory=dict)
    """Headers that this version does not know."""

    @classmethod
    def from_json(cls, stored: JsonObject | None) -> Headers:
        """Return the headers that the journal holds."""
        if not stored:
            return _NONE
        known = {
            "ask": ask_in(stored),
            "reminder": reminder_in(stored),
            "trace": trace_in(stored),
            "caller": caller_in(stored),
            "failed": failed_in(stored),
        }
        others = {key: value for key, value in stored.items() if known.get(key) is None}
        return cls(**known, others=others)  # type: ignore[arg-type]  # each is of its header's type

    def to_json(self) -> JsonObject | None:
        """Return them for the journal; ``None`` if there are none."""
        found: JsonObject = dict(self.others)
        if self.ask is not None:
            found["ask"] = self.ask.to_json()
        if self.reminder is not None:
            found["reminder"] = self.reminder.to_json()
        if self.trace is not None:
            found["trace"] = self.trace
        if self.caller is not None:
            found["caller"] = self.caller.to_json()
        if self.failed is not None:
            found["failed"] = self.failed
        return found or None


_NONE: Final = Headers()


def ask_in(stored: JsonObject | None) -> AskHeader | None:
    """Return the header of a question in the headers that the journal holds; ``None`` without one."""
    return AskHeader.from_json(stored["ask"]) if stored and "ask" in stored else None


def reminder_in(stored: JsonObject | None) -> ReminderHeader | None:
    """Return the header of a reminder; likewise."""
    return ReminderHeader.from_json(stored["reminder"]) if stored and "reminder" in stored else None


def trace_in(stored: JsonObject | None) -> str | None:
    """Return the ``traceparent``; likewise."""
    return _text_in(stored, "trace")


def caller_in(stored: JsonObject | None) -> Caller | None:
    """Return who asks; likewise."""
    return Caller.from_json(stored["caller"]) if stored and "caller" in stored else None


def failed_in(stored: JsonObject | None) -> str | None:
    """Return the id of the message for which `on_failed` runs; likewise."""
    return _text_in(stored, "failed")


def _text_in(stored: JsonObject | None, key: str) -> str | None:
    value = stored.get(key) if stored else None
    return value if isinstance(value, str) else None


def question_key(message_id: str, step_key: str) -> str:
    """Return the idempotency key of a question, by the message whose turn asks it and its step."""
    return f"ask:{message_id}:{step_key}"
