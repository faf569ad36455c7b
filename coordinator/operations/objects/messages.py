"""Messages with their receipts, answers and steps; reminders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coordinator.operations.objects.result import Result, one_of

__all__ = [
    "Answer",
    "AnswerArtifact",
    "AnswerReply",
    "CancelledReminder",
    "ChatMessages",
    "InboxMessage",
    "LinkAnswered",
    "LinkedQuestion",
    "Message",
    "MessageError",
    "PausedRun",
    "PausedRunFiles",
    "ReadResult",
    "Receipt",
    "Reminder",
    "Resumed",
    "RunLink",
    "Step",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult(Result):
    """The result of a read-only handler."""

    agent: str
    turn: int
    """The turn whose state it has read."""
    data: Any
    """The result; null without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Result):
    """A message that is durably in an agent's inbox."""

    message_id: str
    agent: str
    position: int
    """Its place in the inbox, from 1; never reused."""
    before: int
    """Messages ahead of it when it was admitted, the one being handled included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessages(Result):
    """Parts of the message, as the AI SDK has them."""

    agent: str
    messages: tuple[dict[str, Any], ...]
    """`UIMessage` objects, oldest first. The id of an assistant's message is podium's id of the message it answers."""
    earlier: bool
    """Whether there are earlier ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReply(Result):
    """One message that the agent sent."""

    reply_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerArtifact(Result):
    """An artifact that the turn added."""

    artifact_id: str
    name: str
    media_type: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Result):
    """The answer to a message, whose turn is committed."""

    message_id: str
    agent: str
    turn: int
    version: int
    text: str
    """The texts of all replies, a line break between two."""
    data: Any = None
    """The JSON result that the agent set with ctx.reply; null without one."""
    replies: tuple[AnswerReply, ...]
    artifacts: tuple[AnswerArtifact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageError(Result):
    """The error of a failed attempt, or of a cancellation."""

    type: str
    """The name of the error's class in the agent."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Result):
    """A message, whatever its status."""

    message_id: str
    agent: str
    position: int
    status: str = field(metadata=one_of("pending", "consumed", "cancelled", "parked", "paused"))
    attempts: int
    """Failed attempts."""
    admitted_at: int
    answer: Answer | None
    """Of a consumed message; null while its events are not kept."""
    error: MessageError | None
    """Of a cancelled or parked message, and of the last attempt of a pending one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedRun(Result):
    """A run whose turn is paused, and what it waits for."""

    status: str = field(default="paused", metadata=one_of("paused"))
    run_id: str
    """The id of its message."""
    agent: str
    call_id: str
    """The request: the key of the step at which the turn has paused."""
    kind: str = field(metadata=one_of("decide", "promise", "sleep", "program"))
    """What it waits for: an answer, a time alone, or what becomes of steps that do not fit the program any more."""
    reason: str
    schema: Any
    """The JSON Schema of an answer; false if nobody can answer."""
    args_hash: str | None
    """The hash of schema and reason; null if nobody can answer."""
    expires: int | None
    """When it goes on without an answer, in epoch milliseconds; null for never."""
    agents: tuple[str, ...] = ()
    """The agents that may answer, `type/key`, besides those who have a key or a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedRunFiles(PausedRun):
    """A paused run, with what its turn has made of the files so far."""

    base_turn: int
    """The turn that it began on."""
    files: tuple[dict[str, Any], ...] | None
    """The first 1,000 paths that differ from those of that turn, as in a diff; null if its files are not kept."""
    files_changed: int | None
    """How many there are; null if they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed(Result):
    """A run that was answered, and goes on."""

    run_id: str
    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLink(Result):
    """A link by which its holder answers one question of a paused run."""

    link_id: str
    """`lnk_…`: who answered, as the record has it. The link can be revoked by it."""
    token: str
    """Sent as a key is, to `/v1/answer` alone. It is not shown again."""
    path: str
    """Of the gateway's page for it, with the token."""
    run_id: str
    agent: str
    call_id: str
    """The request that it answers; no other one."""
    expires_at: int
    """When it ends, in epoch milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedQuestion(Result):
    """What the holder of a link is asked."""

    kind: str = field(metadata=one_of("decide", "promise", "program"))
    promise: str | None = None
    """The name of a promise."""
    reason: str
    """What is to be answered, in words."""
    schema: Any
    """The JSON Schema of an answer."""
    expires: int | None = None
    """When the question ends, in epoch milliseconds; null: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkAnswered(Result):
    """A question that was answered by a link, which has ended so."""

    outcome: str = field(metadata=one_of("answered", "rejected"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Result):
    """A step that an attempt of a message ended, and that further attempts do not run; that of a pause may be open."""

    message_id: str
    number: int
    """From 1, in the order of their ends."""
    name: str
    key: str
    """The name and the occurrence in the turn: `fetch#1`."""
    started: int
    """Epoch milliseconds."""
    ended: int
    attempts: int
    """Calls of its function."""
    result: str | None
    """The beginning of its result as JSON; null while it is a pause that is open."""
    result_bytes: int
    changes: int
    """Operations of the patch of the state since the step before."""
    changes_files: bool
    """Whether the files at its end differed from those at the beginning of the turn."""
    tree_id: str
    """The files at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxMessage(Result):
    """A pending, paused or parked message."""

    message_id: str
    position: int
    status: str = field(metadata=one_of("pending", "paused", "parked"))
    attempts: int
    admitted_at: int
    sender: str | None
    """The agent that sent it; null for a client's."""
    message: Any
    error: MessageError | None
    """Of its last attempt; null before the first one failed."""
    steps: tuple[Step, ...] = ()
    """In order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reminder(Result):
    """A reminder that an agent has set, or a message that it sends later."""

    name: str
    """Of a message that is sent later: its id."""
    due: int
    """When it is due next, in epoch milliseconds."""
    every_s: float | None = None
    """The interval of a repeated one, in seconds."""
    cron: str | None = None
    """The cron line of a repeated one."""
    tz: str | None = None
    """The time zone of the cron line."""
    to: str | None = None
    """The agent to which the message is sent; null for a reminder, which is for the agent itself."""
    message: Any = None
    """The argument of the agent's hook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledReminder(Result):
    """A reminder that was cancelled."""

    agent: str
    name: str
