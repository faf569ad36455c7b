"""The results of the client's methods, as frozen models of the wire's JSON objects.

Keys that this release does not know are ignored, so that a newer server can add some. Times are epoch milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coordinator.client.errors import BadAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Agent",
    "Answer",
    "AnswerArtifact",
    "AnswerReply",
    "Artifact",
    "Deleted",
    "Difference",
    "DifferenceSide",
    "DirectoryEntry",
    "DroppedCounts",
    "DroppedLater",
    "Erased",
    "ErasedEvent",
    "Event",
    "FileChanged",
    "FileVersion",
    "Folded",
    "ForkPoint",
    "Forked",
    "FoundArtifact",
    "Imported",
    "InboxMessage",
    "LastError",
    "Message",
    "MessageError",
    "Node",
    "Outbox",
    "Receipt",
    "Reminder",
    "Result",
    "Rewound",
    "State",
    "TranscriptDifference",
    "Verification",
    "Why",
    "read_result",
]


class Result(BaseModel):
    """A JSON object of the wire."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Agent(Result):
    """An agent of a home."""

    agent: str
    """Its address."""
    type: str
    key: str
    turn: int
    """Its last committed turn."""
    version: int
    """The number of its events, inherited ones included."""
    status: str
    """``awake`` or ``asleep``."""
    isolation: str | None = None
    """``process`` or ``shared``; ``None`` while it sleeps."""
    memory: int | None = None
    """Memory of its process, bytes, in a shared process its share; ``None`` while it sleeps, or if it is not known."""
    pending: int
    """Messages that wait, the one being handled included."""
    parked: int
    """Messages that failed their last attempt and wait for a retry."""
    created_at: int
    updated_at: int
    """The time of its last event."""


class LastError(Result):
    """The error of an agent's last failed attempt."""

    type: str
    """The name of the error's class in the agent."""
    message: str
    message_id: str | None
    """The message that was attempted; ``None`` for a hook without one."""
    attempt: int
    at: int


class Outbox(Result):
    """Messages of other agents to an agent that are not in its inbox yet."""

    messages: int
    oldest_at: int
    """When the oldest of them was sent."""
    held_by: str | None
    """Why they are held; ``None`` while they are being delivered, or no service runs. For people."""


class Why(Result):
    """What an agent waits for, and what is known of it."""

    agent: str
    status: str
    """``awake`` or ``asleep``."""
    waits_for: str
    """For people; its words may change."""
    service: bool
    """Whether a service runs: without one, all that only it knows is ``None``."""
    turn: int
    """Its last committed turn."""
    pending: int
    """Messages that wait, the one being handled included."""
    parked: int
    outbox: Outbox | None = None
    """Messages to it that are not in its inbox yet. An agent that other agents have sent messages to is told of
    although it does not exist yet, while they are held."""
    message_id: str | None
    """The message whose turn runs."""
    host_id: str | None
    """Its host."""
    isolation: str | None
    """How its host is separated from other agents: ``process`` or ``shared``."""
    quarantine: str | None
    """Why it gets a process of its own although its class is shared."""
    epoch: int | None
    """Of its lease."""
    holder: str | None
    """Who has its lease: a host, or a command."""
    lease_expires_at: int | None
    held: bool
    """Whether an operation keeps it asleep, such as a rewind."""
    problem: str | None
    """Why its class cannot be loaded."""
    retry_at: int | None
    """When its wake is tried again, after failures that may pass."""
    failed_wakes: int
    """Failed wakes in a row."""
    wake_error: str | None
    """The error of the last one."""
    last_death: str | None
    """How the process of its last host died, until another host has activated it."""
    last_error: LastError | None


class Node(Result):
    """A node and its hosts."""

    node: str
    problem: str | None
    """Why it is not ready for agents; ``None`` if it is."""
    presentation: str
    """How workspaces are presented there: ``fuse`` or ``dir``."""
    cpus: int
    memory: int
    """Of the machine, bytes."""
    memory_available: int
    mounts: int
    """Mounted workspaces."""
    starting: int
    """Hosts whose processes start."""
    warm: int
    """Hosts that are ready for an agent."""
    assigned: int
    """Hosts that have an agent."""
    agents: int = 0
    """Agents on them; many may share one."""


class Deleted(Result):
    """A deleted agent."""

    agent: str
    events: int
    """The number of events that were deleted with it."""
    detached: tuple[str, ...]
    """Addresses of the forks that were detached."""


class DroppedCounts(Result):
    """A part of an agent's history."""

    events: int
    """Of the agent's own branch."""
    turns: int
    """Turns that cannot be read without it."""
    bytes: int
    """Of the payloads in the journal."""


class DroppedLater(DroppedCounts):
    """What of an agent's history can be dropped later."""

    from_turn: int | None
    """From this turn on; ``None`` if it does not depend on turns."""
    from_ms: int | None
    """From this time on; ``None`` if it does not depend on time."""


class Folded(Result):
    """An agent whose older history was dropped."""

    agent: str
    version: int
    turn: int
    marked: bool
    """Whether a mark was made now, an event with the whole state, with which its history can begin."""
    dropped: DroppedCounts
    first_turn: int
    """The oldest turn that is kept."""
    later: DroppedLater | None
    """What can be dropped once the newest mark is old enough."""


class ErasedEvent(Result):
    """An event whose content was erased."""

    event_id: str
    type: str
    turn: int
    had_blob: bool
    """Whether the content was in a blob, which ``podium gc`` frees."""


class Erased(Result):
    """What was erased of an agent."""

    agent: str
    erased: tuple[ErasedEvent, ...]
    """Without those that were erased before."""


class Imported(Result):
    """An agent that was created from an archive."""

    agent: str
    exported_as: str
    """The address of the agent that was exported."""
    branch: str
    version: int
    turn: int
    hash: str
    """The hash of its last event, equal to that of the export."""
    events: int
    new_blobs: int
    """Blobs that the home did not have."""


class State(Result):
    """An agent's committed state at the end of a turn."""

    agent: str
    turn: int
    version: int
    """The number of events up to the end of the turn."""
    state: dict[str, Any]


class ForkPoint(Result):
    """The turn that a fork continues."""

    agent: str
    turn: int
    seq: int
    """Of the event that ended the turn."""


class Forked(Result):
    """A new agent that continues another one."""

    agent: str
    turn: int
    version: int
    source: ForkPoint = Field(alias="from")


class Rewound(Result):
    """The result of a rewind."""

    agent: str
    before: int = Field(alias="from")
    """The last turn before the rewind."""
    to: int
    """The turn that was restored."""
    only: tuple[str, ...]
    """The restored parts."""
    turn: int | None
    """The new turn; ``None`` if nothing had to change."""


class Verification(Result):
    """The result of the check of an agent's stored data."""

    agent: str
    ok: bool
    events: int
    """Events checked."""
    blobs: int
    """Blobs read."""
    problem: str | None
    """The first damage found; ``None`` if there is none."""


class DifferenceSide(Result):
    """One side of a comparison."""

    agent: str
    turn: int
    version: int


class TranscriptDifference(Result):
    """Visible messages, replies and artifacts that one side alone has, as events."""

    removed: tuple[dict[str, Any], ...]
    added: tuple[dict[str, Any], ...]


class Difference(Result):
    """The differences between two turns."""

    before: DifferenceSide
    after: DifferenceSide
    common_version: int
    """The version up to which the histories of both are the same."""
    state: tuple[dict[str, Any], ...]
    """RFC 6902, from the state before to the state after."""
    files: tuple[dict[str, Any], ...]
    """Changed paths."""
    diff: str
    """Unified diff of the files' text."""
    transcript: TranscriptDifference


class Receipt(Result):
    """A message that is durably in an agent's inbox."""

    message_id: str
    agent: str
    position: int
    """Its place in the inbox, from 1; never reused."""
    before: int
    """Messages ahead of it when it was admitted, the one being handled included."""


class Reminder(Result):
    """A reminder that an agent has set."""

    name: str
    due: int
    """When it is due next, in epoch milliseconds."""
    every_s: float | None = None
    """The interval of a repeated one, in seconds."""
    cron: str | None = None
    """The cron line of a repeated one."""
    tz: str | None = None
    """The time zone of the cron line."""
    message: Any = None
    """What the agent gets."""


class AnswerReply(Result):
    """One message that the agent sent."""

    reply_id: str
    text: str


class AnswerArtifact(Result):
    """An artifact that the turn added."""

    artifact_id: str
    name: str
    media_type: str
    size: int


class Answer(Result):
    """The answer to a message, whose turn is committed."""

    message_id: str
    agent: str
    turn: int
    version: int
    text: str
    """The texts of all replies, a line break between two."""
    data: Any = None
    """The JSON result that the agent set with ``ctx.reply``; ``None`` without one."""
    replies: tuple[AnswerReply, ...]
    artifacts: tuple[AnswerArtifact, ...]


class MessageError(Result):
    """The error of a failed attempt, or of a cancellation."""

    type: str
    """The name of the error's class in the agent."""
    message: str


class Message(Result):
    """A message, whatever its status."""

    message_id: str
    agent: str
    position: int
    status: str
    """``pending``, ``consumed``, ``cancelled`` or ``parked``."""
    attempts: int
    """Failed attempts."""
    admitted_at: int
    answer: Answer | None
    """Of a consumed message; ``None`` while its events are not kept."""
    error: MessageError | None
    """Of a cancelled or parked message, and of the last attempt of a pending one."""


class Step(Result):
    """A step that an attempt of a message ended; further attempts do not run it again."""

    message_id: str
    number: int
    """From 1, in the order of their ends."""
    name: str
    key: str
    """The name and the occurrence in the turn: ``fetch#1``."""
    started: int
    """Epoch milliseconds."""
    ended: int
    result_bytes: int
    tree_id: str
    """The files at its end."""


class InboxMessage(Result):
    """A pending or parked message."""

    message_id: str
    position: int
    status: str
    """``pending`` or ``parked``."""
    attempts: int
    admitted_at: int
    sender: str | None
    """The agent that sent it; ``None`` for a client's."""
    message: Any
    error: MessageError | None
    """Of its last attempt; ``None`` before the first one failed."""
    steps: list[Step] = []
    """In order."""


class Event(Result):
    """An event of an agent's history."""

    branch_id: str
    seq: int
    """From 1."""
    event_id: str
    type: str
    turn: int
    ts: int
    payload: Any
    """``None`` if it was erased."""
    payload_ref: str | None
    """The blob of a large payload."""
    correlation_id: str | None
    """The message that its turn handled."""
    causation_id: str | None
    prev_hash: str
    hash: str
    visible: bool
    """Whether it is part of the transcript now: false for what a rewind of the transcript left behind."""


class DirectoryEntry(Result):
    """One name in a directory of a workspace."""

    name: str
    type: str
    """``file``, ``directory``, ``symlink`` or ``other``."""
    size: int
    mode: str
    """Permission bits, octal."""
    modified_at: int
    hash: str | None
    """The content's id; equal content has equal ids."""
    target: str | None = None
    """Of a symlink."""


class FileVersion(Result):
    """One version of a path."""

    iteration: int
    """From 1; never used again for another version."""
    timestamp: int
    size: int
    hash: str
    """The content's id; empty for a deletion."""
    op: str
    """The operation that made it, such as ``write`` or ``rename``."""
    turn: int
    mode: str | None = None
    source: str | None = None
    """For ``rename`` and ``link``, the path it came from."""


class FileChanged(Result):
    """A file that was uploaded or deleted, as a turn of its own."""

    agent: str
    turn: int
    """The new turn; the last one if nothing had to change."""
    version: int
    path: str
    size: int
    hash: str | None
    """The content's id; ``None`` after a deletion."""
    iteration: int
    """The new version of the path."""


class Artifact(Result):
    """A published artifact."""

    artifact_id: str
    name: str
    media_type: str
    size: int
    hash: str
    """The content's id; equal content has equal ids."""
    branch: str
    seq: int
    """Of its event."""
    turn: int
    timestamp: int
    message_id: str | None
    """The message that was being handled; ``None`` in other hooks."""


class FoundArtifact(Result):
    """An artifact that was found by its id."""

    agent: str
    """An agent that has it: the one that published it, unless that was deleted."""
    artifact: Artifact


_R = TypeVar("_R", bound=Result)


def read_result(kind: type[_R], value: Mapping[str, Any]) -> _R:
    """Return a JSON object of the wire as a result.

    Raises:
        BadAnswer: a key is missing or has another type.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadAnswer(
            f"the answer is no {kind.__name__}: {place}: {first['msg'].lower()}; is there a podium of another version?"
        ) from error
