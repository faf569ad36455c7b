"""The JSON objects that operations return, and that HTTP answers with. Times are epoch milliseconds, sizes bytes.

Each object has one subject; a key that is ``null`` says so in its description. A reader ignores unknown keys.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

__all__ = [
    "AgentObject",
    "AgentPage",
    "Answer",
    "AnswerArtifact",
    "AnswerReply",
    "ArtifactObject",
    "ArtifactPage",
    "CancelledReminder",
    "ChatMessages",
    "Deleted",
    "DiffSide",
    "DiffTranscript",
    "Difference",
    "DirectoryEntry",
    "DirectoryObject",
    "DroppedCounts",
    "DroppedLater",
    "Erased",
    "ErasedEvent",
    "ErrorObject",
    "EventObject",
    "EventPage",
    "Exported",
    "FileChanged",
    "FileHistory",
    "FileVersion",
    "Folded",
    "ForkPointObject",
    "Forked",
    "FoundArtifact",
    "Imported",
    "InboxMessageObject",
    "InboxPage",
    "LastErrorObject",
    "MessageObject",
    "NodeList",
    "NodeObject",
    "OutboxObject",
    "Part",
    "Passivated",
    "Receipt",
    "ReminderObject",
    "ReminderPage",
    "Retried",
    "Rewound",
    "StateObject",
    "StepObject",
    "SymlinkObject",
    "Verification",
    "WhyObject",
]

Part: TypeAlias = Literal["state", "files", "transcript"]
"""A part of an agent that a rewind restores."""

_documented = with_config(ConfigDict(use_attribute_docstrings=True))


# -- agents -----------------------------------------------------------------------------------------------------------


@_documented
class AgentObject(TypedDict):
    """An agent."""

    agent: str
    """Its address, type/key."""
    type: str
    key: str
    turn: int
    """Its last committed turn."""
    version: int
    """The number of its events, inherited ones included."""
    status: Literal["awake", "asleep"]
    isolation: Literal["process", "shared"] | None
    """Whether it has a process of its own; null while it sleeps."""
    memory: int | None
    """Memory of its process, bytes, in a shared process its share; null while it sleeps, or if that is not known."""
    pending: int
    """Messages that wait, the one being handled included."""
    parked: int
    """Messages that failed their last attempt and wait for a retry."""
    created_at: int
    updated_at: int
    """The time of its last event."""


@_documented
class AgentPage(TypedDict):
    """Agents, by address."""

    items: list[AgentObject]
    next_cursor: str | None
    """The cursor of the next page; null at the end."""


@_documented
class Deleted(TypedDict):
    """A deleted agent."""

    agent: str
    events: int
    """The number of events that were deleted with it."""
    detached: list[str]
    """Addresses of the forks that were detached."""


@_documented
class DroppedCounts(TypedDict):
    """A part of an agent's history."""

    events: int
    """Of the agent's own branch."""
    turns: int
    """Turns that cannot be read without it."""
    bytes: int
    """Of the payloads in the journal."""


@_documented
class DroppedLater(DroppedCounts):
    """What of an agent's history can be dropped later."""

    from_turn: int | None
    """From this turn on; null if it does not depend on turns."""
    from_ms: int | None
    """From this time on; null if it does not depend on time."""


@_documented
class Folded(TypedDict):
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
    """What can be dropped once the newest mark is old enough; null if there is nothing."""


@_documented
class ErasedEvent(TypedDict):
    """An event whose content was erased."""

    event_id: str
    type: str
    turn: int
    had_blob: bool
    """Whether the content was in a blob, which `podium gc` frees."""


@_documented
class Erased(TypedDict):
    """What was erased of an agent."""

    agent: str
    erased: list[ErasedEvent]
    """Without those that were erased before."""


@_documented
class Exported(TypedDict):
    """An agent that was written to an archive."""

    agent: str
    branch: str
    version: int
    turn: int
    hash: str
    """The hash of its last event, to which that of an import is equal."""
    events: int
    blobs: int
    bytes: int
    """Of the archive."""


@_documented
class Imported(TypedDict):
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


@_documented
class StateObject(TypedDict):
    """The committed state of an agent at the end of a turn."""

    agent: str
    turn: int
    version: int
    """The number of events up to the end of this turn."""
    state: dict[str, Any]


@_documented
class ForkPointObject(TypedDict):
    """The turn that a fork continues."""

    agent: str
    turn: int
    seq: int
    """Of the event that ended this turn."""


# Written as a call: one of its keys is a keyword.
Forked = TypedDict("Forked", {"agent": str, "turn": int, "version": int, "from": ForkPointObject})
"""A new agent that continues another one."""


Rewound = TypedDict(
    "Rewound",
    {"agent": str, "from": int, "to": int, "only": list[Part], "turn": int | None},
)
"""The result of a rewind: the turn before it, the turn that was restored, the restored parts, and the new turn, null if
nothing had to change."""


@_documented
class Passivated(TypedDict):
    """An agent that sleeps."""

    agent: str


@_documented
class LastErrorObject(TypedDict):
    """The error of an agent's last failed attempt."""

    type: str
    """The name of the error's class in the agent."""
    message: str
    message_id: str | None
    """The message that was attempted; null for a hook without one."""
    attempt: int
    at: int


@_documented
class OutboxObject(TypedDict):
    """Messages of other agents to an agent that are not in its inbox yet."""

    messages: int
    oldest_at: int
    """When the oldest of them was sent."""
    held_by: str | None
    """Why they are held; null while they are being delivered, or no service runs. For people; its words may change."""


@_documented
class WhyObject(TypedDict):
    """What an agent waits for, and what is known of it."""

    agent: str
    status: Literal["awake", "asleep"]
    waits_for: str
    """For people; its words may change."""
    service: bool
    """Whether a service runs: without one, all that only it knows is null."""
    turn: int
    """Its last committed turn."""
    pending: int
    """Messages that wait, the one being handled included."""
    parked: int
    outbox: OutboxObject | None
    """Messages to it that are not in its inbox yet; null without any. An agent that other agents have sent messages to
    is told of although it does not exist yet, while they are held."""
    message_id: str | None
    """The message whose turn runs; null if none runs."""
    host_id: str | None
    """Its host; null if it has none."""
    isolation: str | None
    """How its host is separated from other agents: `process` or `shared`; null if it has none."""
    quarantine: str | None
    """Why it gets a process of its own although its class is shared; null if it does not."""
    epoch: int | None
    """Of its lease; null while none is recorded."""
    holder: str | None
    """Who has its lease: a host, or a command; null while nobody has."""
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
    last_error: LastErrorObject | None


@_documented
class NodeObject(TypedDict):
    """A node and its hosts."""

    node: str
    problem: str | None
    """Why it is not ready for agents; null if it is."""
    presentation: str
    """How workspaces are presented there: `fuse` or `dir`."""
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
    agents: int
    """Agents on them; many may share one."""


@_documented
class NodeList(TypedDict):
    """The nodes of a home's service."""

    items: list[NodeObject]


@_documented
class Verification(TypedDict):
    """The result of the check of an agent's stored data."""

    agent: str
    ok: bool
    events: int
    """Events checked."""
    blobs: int
    """Blobs read."""
    problem: str | None
    """The first damage found; null if there is none."""


@_documented
class DiffSide(TypedDict):
    """One side of a comparison."""

    agent: str
    turn: int
    version: int


@_documented
class DiffTranscript(TypedDict):
    """Visible messages, replies and artifacts that one side alone has, as events."""

    removed: list[dict[str, Any]]
    added: list[dict[str, Any]]


@_documented
class Difference(TypedDict):
    """The differences between two turns."""

    before: DiffSide
    after: DiffSide
    common_version: int
    """The version up to which the histories of both are the same."""
    state: list[dict[str, Any]]
    """RFC 6902 patch, from the state before to the state after."""
    files: list[dict[str, Any]]
    """Changed paths."""
    diff: str
    """Unified diff of the files' text."""
    transcript: DiffTranscript


# -- messages ---------------------------------------------------------------------------------------------------------


@_documented
class Receipt(TypedDict):
    """A message that is durably in an agent's inbox."""

    message_id: str
    agent: str
    position: int
    """Its place in the inbox, from 1; never reused."""
    before: int
    """Messages ahead of it, the one being handled included."""


@_documented
class ChatMessages(TypedDict):
    """What was said, as the AI SDK has it."""

    agent: str
    messages: list[dict[str, Any]]
    """`UIMessage` objects, oldest first. The id of an assistant's message is podium's id of the message it answers."""
    earlier: bool
    """Whether there are earlier ones."""


@_documented
class AnswerReply(TypedDict):
    """One message that the agent sent."""

    reply_id: str
    text: str


@_documented
class AnswerArtifact(TypedDict):
    """An artifact that the turn added."""

    artifact_id: str
    name: str
    media_type: str
    size: int


@_documented
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


@_documented
class ErrorObject(TypedDict):
    """The error of a failed attempt."""

    type: str
    """The name of the error's class in the agent."""
    message: str


@_documented
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


@_documented
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


@_documented
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


@_documented
class InboxPage(TypedDict):
    """Pending and parked messages, by position."""

    items: list[InboxMessageObject]
    next_cursor: str | None


@_documented
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


@_documented
class ReminderPage(TypedDict):
    """Reminders, by name."""

    items: list[ReminderObject]
    next_cursor: str | None


@_documented
class CancelledReminder(TypedDict):
    """A reminder that was cancelled."""

    agent: str
    name: str


@_documented
class Retried(TypedDict):
    """A message that is pending again."""

    message_id: str
    agent: str
    status: Literal["pending"]


# -- history ----------------------------------------------------------------------------------------------------------


@_documented
class EventObject(TypedDict):
    """An event of an agent's history."""

    branch_id: str
    seq: int
    """From 1."""
    event_id: str
    type: str
    turn: int
    ts: int
    payload: Any
    """Null if it was erased."""
    payload_ref: str | None
    """The blob of a large payload."""
    correlation_id: str | None
    """The message that its turn handled."""
    causation_id: str | None
    prev_hash: str
    hash: str
    visible: bool
    """Whether it is part of the transcript now: false for what a rewind of the transcript left behind."""


@_documented
class EventPage(TypedDict):
    """Events, oldest first."""

    items: list[EventObject]
    next_cursor: str | None


# -- files and artifacts ----------------------------------------------------------------------------------------------


@_documented
class DirectoryEntry(TypedDict):
    """One name in a directory."""

    name: str
    type: Literal["file", "directory", "symlink", "other"]
    size: int
    mode: str
    """Permission bits, octal."""
    modified_at: int
    hash: str | None
    """The content's id; equal content has equal ids."""
    target: NotRequired[str]
    """Of a symlink."""


@_documented
class DirectoryObject(TypedDict):
    """A directory of an agent's workspace, at the end of a turn."""

    agent: str
    turn: int
    path: str
    """From the workspace's root, which is the empty string."""
    type: Literal["directory"]
    entries: list[DirectoryEntry]


@_documented
class SymlinkObject(TypedDict):
    """A symlink: it is not followed."""

    agent: str
    turn: int
    path: str
    type: Literal["symlink"]
    target: str


@_documented
class FileVersion(TypedDict):
    """One version of a path."""

    iteration: int
    timestamp: int
    size: int
    hash: str
    """The content's id; empty for a deletion."""
    op: str
    turn: int
    mode: NotRequired[str]
    source: NotRequired[str]
    """For rename and link, the path it came from."""


@_documented
class FileHistory(TypedDict):
    """The versions of a path, oldest first."""

    agent: str
    path: str
    items: list[FileVersion]
    next_cursor: str | None


@_documented
class FileChanged(TypedDict):
    """A file that was uploaded or deleted, as a turn of its own."""

    agent: str
    turn: int
    """The new turn; the last one if nothing had to change."""
    version: int
    path: str
    size: int
    hash: str | None
    """The content's id; null after a deletion."""
    iteration: int
    """The new version of the path."""


@_documented
class ArtifactObject(TypedDict):
    """An artifact."""

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
    """The message that was being handled; null in other hooks."""


@_documented
class FoundArtifact(TypedDict):
    """An artifact that was found by its id."""

    agent: str
    """An agent that has it: the one that published it, unless that was deleted."""
    artifact: ArtifactObject


@_documented
class ArtifactPage(TypedDict):
    """Artifacts, oldest first."""

    items: list[ArtifactObject]
    next_cursor: str | None
