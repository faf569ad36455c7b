"""Messages with their receipts, answers and steps; reminders."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from coordinator.operations.objects.documented import documented

__all__ = [
    "Answer",
    "AnswerArtifact",
    "AnswerReply",
    "CancelledReminder",
    "ChatMessages",
    "ErrorObject",
    "InboxMessageObject",
    "InboxPage",
    "MessageObject",
    "Receipt",
    "ReminderObject",
    "ReminderPage",
    "StepObject",
]


@documented
class Receipt(TypedDict):
    """A message that is durably in an agent's inbox."""

    message_id: str
    agent: str
    position: int
    """Its place in the inbox, from 1; never reused."""
    before: int
    """Messages ahead of it, the one being handled included."""


@documented
class ChatMessages(TypedDict):
    """What was said, as the AI SDK has it."""

    agent: str
    messages: list[dict[str, Any]]
    """`UIMessage` objects, oldest first. The id of an assistant's message is podium's id of the message it answers."""
    earlier: bool
    """Whether there are earlier ones."""


@documented
class AnswerReply(TypedDict):
    """One message that the agent sent."""

    reply_id: str
    text: str


@documented
class AnswerArtifact(TypedDict):
    """An artifact that the turn added."""

    artifact_id: str
    name: str
    media_type: str
    size: int


@documented
class Answer(TypedDict):
    """The answer to a message, whose turn is committed."""

    message_id: str
    agent: str
    turn: int
    version: int
    text: str
    """The texts of all replies, a line break between two."""
    data: Any
    """The JSON result that the agent set with ctx.reply; null without one."""
    replies: list[AnswerReply]
    artifacts: list[AnswerArtifact]


@documented
class ErrorObject(TypedDict):
    """The error of a failed attempt."""

    type: str
    """The name of the error's class in the agent."""
    message: str


@documented
class MessageObject(TypedDict):
    """A message, whatever its status."""

    message_id: str
    agent: str
    position: int
    status: Literal["pending", "consumed", "cancelled", "parked"]
    attempts: int
    """Failed attempts."""
    admitted_at: int
    answer: Answer | None
    """Of a consumed message; null while its events are not kept."""
    error: ErrorObject | None
    """Of a cancelled or parked message, and of the last attempt of a pending one."""


@documented
class StepObject(TypedDict):
    """A step that an attempt of a message ended; further attempts do not run it again."""

    message_id: str
    number: int
    """From 1, in the order of their ends."""
    name: str
    key: str
    """The name and the occurrence in the turn: `fetch#1`."""
    started: int
    """Epoch milliseconds."""
    ended: int
    result_bytes: int
    tree_id: str
    """The files at its end."""


@documented
class InboxMessageObject(TypedDict):
    """A pending or parked message."""

    message_id: str
    position: int
    status: Literal["pending", "parked"]
    attempts: int
    admitted_at: int
    sender: str | None
    """The agent that sent it; null for a client's."""
    message: Any
    error: ErrorObject | None
    """Of its last attempt; null before the first one failed."""
    steps: list[StepObject]
    """In order."""


@documented
class InboxPage(TypedDict):
    """Pending and parked messages, by position."""

    items: list[InboxMessageObject]
    next_cursor: str | None
    """The cursor of the next page; null at the end."""
    remaining: int
    """Items after this page."""


@documented
class ReminderObject(TypedDict):
    """A reminder that is set."""

    name: str
    due: int
    """When it is due next, in epoch milliseconds."""
    every_s: float | None
    """The interval of a repeated one, in seconds."""
    cron: str | None
    """The cron line of a repeated one."""
    tz: str | None
    """The time zone of the cron line."""
    message: Any
    """What the agent gets."""


@documented
class ReminderPage(TypedDict):
    """Reminders, by name."""

    items: list[ReminderObject]
    next_cursor: str | None
    """The cursor of the next page; null at the end."""
    remaining: int
    """Items after this page."""


@documented
class CancelledReminder(TypedDict):
    """A reminder that was cancelled."""

    agent: str
    name: str
