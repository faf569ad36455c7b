"""Types and payloads of Podium's events, for writers and readers.

Payloads are plain JSON objects; the ``TypedDict`` classes give their keys. A reader ignores unknown keys; a key keeps
its meaning for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NotRequired, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.canonical import Json, JsonObject

__all__ = [
    "AGENT_CREATED",
    "AGENT_DETACHED",
    "AGENT_FORKED",
    "AGENT_REWOUND",
    "AGENT_SNAPSHOT",
    "ARTIFACT_ADDED",
    "ASSISTANT_MESSAGE",
    "EVENT_TYPES",
    "FULL_STATE_EVENTS",
    "HOOKS",
    "MESSAGE_ANSWERED",
    "MODEL_CALLED",
    "PARTS",
    "STATE_EVENTS",
    "TOOL_RESULT",
    "TRANSCRIPT_EVENTS",
    "TURN_CANCELLED",
    "TURN_COMMITTED",
    "TURN_FAILED",
    "TURN_PAUSED",
    "USER_MESSAGE",
    "AgentCreated",
    "AgentDetached",
    "AgentForked",
    "AgentRewound",
    "AgentSnapshot",
    "ArtifactAdded",
    "AssistantMessage",
    "Cause",
    "ErrorInfo",
    "FileChange",
    "FiredReminder",
    "ForkPoint",
    "MessageAnswered",
    "ModelAnswer",
    "ModelCalled",
    "Part",
    "StateDelta",
    "StepsSummary",
    "ToolCalled",
    "TreeKeys",
    "TurnCancelled",
    "TurnCommitted",
    "TurnFailed",
    "TurnPaused",
    "UserMessage",
]

USER_MESSAGE: Final = "user_message"
ASSISTANT_MESSAGE: Final = "assistant_message"
AGENT_CREATED: Final = "agent.created"
AGENT_DETACHED: Final = "agent.detached"
AGENT_FORKED: Final = "agent.forked"
AGENT_REWOUND: Final = "agent.rewound"
AGENT_SNAPSHOT: Final = "agent.snapshot"
ARTIFACT_ADDED: Final = "artifact.added"
MESSAGE_ANSWERED: Final = "message.answered"
TOOL_RESULT: Final = "tool_result"
MODEL_CALLED: Final = "model.called"
TURN_COMMITTED: Final = "turn.committed"
TURN_FAILED: Final = "turn.failed"
TURN_CANCELLED: Final = "turn.cancelled"
TURN_PAUSED: Final = "turn.paused"

STATE_EVENTS: Final = (AGENT_CREATED, TURN_COMMITTED, AGENT_REWOUND, AGENT_DETACHED, AGENT_SNAPSHOT)
"""The events that replay reads: they carry an agent's state or its patch, and its tree. Each turn ends with one of
them; one or more ``agent.snapshot`` of the same turn may follow, which change nothing."""

FULL_STATE_EVENTS: Final = (AGENT_CREATED, AGENT_DETACHED, AGENT_SNAPSHOT)
"""Those that carry the whole state: history can begin with any of them."""

TRANSCRIPT_EVENTS: Final = (
    USER_MESSAGE,
    ASSISTANT_MESSAGE,
    TOOL_RESULT,
    "retrieval_result",
    "note",
    ARTIFACT_ADDED,
    MESSAGE_ANSWERED,
)
"""The events that a transcript consists of: what was said, and what was handed out."""

EVENT_TYPES: Final = frozenset(
    {
        USER_MESSAGE,
        ASSISTANT_MESSAGE,
        TOOL_RESULT,
        "retrieval_result",
        "checkpoint",
        "note",
        AGENT_CREATED,
        AGENT_DETACHED,
        AGENT_FORKED,
        AGENT_REWOUND,
        AGENT_SNAPSHOT,
        ARTIFACT_ADDED,
        MESSAGE_ANSWERED,
        MODEL_CALLED,
        TURN_COMMITTED,
        TURN_FAILED,
        TURN_CANCELLED,
        TURN_PAUSED,
    }
)
"""All event types, including public ones that podium itself does not write."""

Cause = Literal["message", "init", "config", "idle", "shutdown", "upload"]
"""Why a turn ran: for a message, for a hook whose changes were committed as a turn of its own, or because a client
uploaded or deleted a file, which runs no code of the agent."""

HOOKS: Final[Mapping[Cause, str]] = {
    "message": "on_message",
    "init": "on_init",
    "config": "on_config_change",
    "idle": "on_idle_timeout",
    "shutdown": "on_shutdown",
}
"""The hook that runs for each cause."""

Part = Literal["state", "files", "transcript"]
"""A part of an agent that a rewind can restrict itself to."""

PARTS: Final[tuple[Part, ...]] = ("state", "files", "transcript")
"""All of them, in the order of records and messages."""


class AgentCreated(TypedDict):
    """``agent.created``: the first event of an agent, turn 0; failed attempts may be before it."""

    agent: str
    entity_type: str
    version: int
    """The state class's ``_version``."""
    state: JsonObject
    """The whole initial state."""
    tree_id: str | None
    oplog_id: str | None
    config: NotRequired[JsonObject]
    """The configuration of its first activation; absent if it was empty."""


class ForkPoint(TypedDict):
    """The turn that a fork continues."""

    agent: str
    branch: str
    """The branch that owns the event; an ancestor of the agent's branch if the agent is a fork itself."""
    turn: int
    seq: int
    """Of the event that ended this turn."""


# Written as a call: one of its keys is a keyword.
AgentForked = TypedDict("AgentForked", {"agent": str, "from": ForkPoint})
"""``agent.forked``: the first event that a fork owns. Its turn is the one that the fork continues."""


class FiredReminder(TypedDict):
    """The reminder that sent a message."""

    name: str
    due_ms: int
    """When it was due, in epoch milliseconds."""
    missed: int
    """Later times that had passed as well, for which no message comes."""


class UserMessage(TypedDict):
    """``user_message``: the message that a turn handled."""

    message_id: str
    position: int
    sender: str | None
    message: JsonObject
    reminder: NotRequired[FiredReminder]
    """Of a message that a reminder sent."""


class AssistantMessage(TypedDict):
    """``assistant_message``: one message the agent sent, whole."""

    message_id: str
    text: str
    partial: NotRequired[bool]
    """True when its turn was interrupted before it was finished."""


class ArtifactAdded(TypedDict):
    """``artifact.added``: a named piece of content that a turn publishes; see :mod:`podium.artifacts.artifacts`."""

    artifact_id: str
    """The event's id, with ``art_`` in place of ``evt_``."""
    name: str
    media_type: str
    size: int
    """Bytes."""
    content_id: str
    """The blob of the bytes, or the root of their chunk list."""
    chunked: bool
    """Whether it is a chunk list."""


class MessageAnswered(TypedDict):
    """``message.answered``: the JSON result of a message; at most one for each message that a turn consumed."""

    data: Json


class ToolCalled(TypedDict):
    """``tool_result``: a call of a tool that has ended, in the order of the ends."""

    call_id: str
    """The model's id of the call."""
    name: str
    arguments: JsonObject
    success: bool
    output: str
    """What the model gets: the result as text, its beginning if it is large, or the error."""
    value: NotRequired[Json]
    """The result, unless it is the text; ``{"artifact_id", "name", "media_type", "size"}`` of a large one."""
    duration_ms: NotRequired[int]
    """Absent if the call was refused."""


class ModelAnswer(TypedDict):
    """What a model answered, as far as the agent read it."""

    message: JsonObject
    """Text, tool calls and the provider's own blocks, in the form of `podium.models.codec`."""
    reasoning: NotRequired[str]
    """What it thought, as far as it can be read; absent without any."""
    usage: JsonObject
    """Tokens, those from the provider's cache and its reason for a miss; `podium.models.Usage`."""
    finished: JsonObject | None
    """Why it ended, the model, the provider's id of the answer, the cost; ``None`` if it was cut."""


class ModelCalled(TypedDict):
    """``model.called``: a call of a model in a turn: what was sent, and what came back.

    Messages, tools and texts that the record has already are named, not repeated, by events of the same branch behind
    the last one with the full state: so folding, deletion and export keep a call with what it refers to, or drop both.
    `podium.history.model_calls` reads it.
    """

    profile: str
    digest: str
    """Of what was asked, as in `ModelCallSummary`."""
    status: Literal["done", "failed", "left", "cancelled"]
    prompt: list[JsonObject]
    """See `podium.history.prompts`. A message's ``content`` may be ``{"event", "at"}``: the text at that place of the
    payload of an event of the same turn."""
    depth: NotRequired[int]
    """Calls that are read one after the other to find a message of the prompt; absent if it is 0."""
    cache: NotRequired[list[Json]]
    """``[index, hint]`` of the messages with a cache hint; absent without any."""
    tools: NotRequired[Json]
    """The tools; ``{"call"}`` if they are those of another call; absent without any."""
    temperature: NotRequired[float]
    max_output_tokens: NotRequired[int]
    conversation: NotRequired[str]
    """The name of the conversation that the call belongs to; absent if the agent named none."""
    answer: ModelAnswer
    error: NotRequired[JsonObject]
    """Of a failed call: `podium.models.ModelError`, or the class and text of another exception."""


class StateDelta(TypedDict):
    """A turn's change of the state."""

    entity_type: str
    version: int
    patch: list[Json]
    """RFC 6902, from the state after the turn before to the state after this one."""


class FileChange(TypedDict):
    """A file that a client uploaded or deleted."""

    path: str
    """Bytes that are not UTF-8 are escaped with a backslash."""
    op: Literal["write", "delete"]
    size: int
    """Bytes; 0 for a deletion."""
    content_id: str | None
    """The id of the content; ``None`` for a deletion."""
    iteration: int
    """The version of the path."""


class ModelCallSummary(TypedDict):
    """The call of a model that a step was."""

    profile: str
    digest: str
    """BLAKE3 of what was asked: profile, digests of the messages, tools and parameters, as canonical JSON."""
    model: NotRequired[str]
    """The model that answered, in the provider's words; absent if the answer has no end."""
    input_tokens: NotRequired[int]
    """All input tokens, those from the provider's cache included; absent if the provider did not say."""
    output_tokens: NotRequired[int]
    cached_tokens: NotRequired[int]
    cost: NotRequired[str]
    """A decimal number in the unit of the profile's prices; absent without a price."""


class PauseSummary(TypedDict):
    """The pause of a turn at a step, and how it ended."""

    kind: Literal["decide", "promise", "sleep", "program"]
    outcome: Literal["answered", "expired", "rejected"]
    by: str | None
    """Who answered; ``None`` if unknown, and without an answer."""


class StepSummary(TypedDict):
    """A step of a turn."""

    key: str
    """Its name and occurrence, ``name#1``; after ``MESSAGE_ID:`` for a step of ``on_steer``."""
    name: str
    status: Literal["done", "failed", "cancelled", "left", "dropped"]
    """``left``: the program did not read a streamed answer to its end. ``dropped``: it was done, and a person dropped
    it, as it did not fit the program any more."""
    started: int
    """Epoch milliseconds."""
    ended: int
    attempts: int
    """Calls of its function."""
    result_bytes: NotRequired[int]
    """Of its result as JSON; absent unless it is done."""
    changes: NotRequired[int]
    """Operations of the patch of the state since the step before; likewise."""
    changes_files: NotRequired[bool]
    """Whether the files at its end differed from those at the beginning of the turn; likewise."""
    error: NotRequired[str]
    """The class of the exception of a failed one, whose text `turn.failed` or the program has."""
    model_call: NotRequired[ModelCallSummary]
    pause: NotRequired[PauseSummary]
    """Of a step at which the turn paused; its end is the end of the pause."""


class StepsSummary(TypedDict):
    """The steps of a turn; their records are dropped with its commit."""

    count: int
    """Of those that are done."""
    digest: str
    """BLAKE3 of the BLAKE3 of the record of each step that is done, in the order of their ends."""
    steps: list[StepSummary]
    """In the order of their ends, those that the program went on without included."""


class TurnCommitted(TypedDict):
    """``turn.committed``: the end of a turn; its hash chain covers state, files and transcript."""

    cause: Cause
    state: StateDelta
    tree_id: str | None
    oplog_id: str | None
    consumed: list[str]
    sent: list[str]
    """The ids of the messages that go to other agents."""
    sent_to: NotRequired[list[str]]
    """Their addresses, in the same order; absent without messages."""
    files: NotRequired[list[FileChange]]
    """Of the cause ``upload`` only."""
    epoch: int
    config: NotRequired[JsonObject]
    """The configuration that the agent has seen from this turn on; absent if it is that of the turn before."""
    steps: NotRequired[StepsSummary]
    """Absent without steps."""


class AgentRewound(TypedDict):
    """``agent.rewound``: a turn that restores state, files and transcript, or some of them, from the end of a turn."""

    to: int
    """The turn that was restored."""
    only: Part | list[Part] | None
    """The part that was restored, or the parts; ``None`` for all."""
    transcript: int
    """The turn whose visible transcript this one continues: `to`, or the turn before this one if the transcript was not
    restored."""
    state: StateDelta
    tree_id: str | None
    oplog_id: str | None
    epoch: int
    config: NotRequired[JsonObject]
    """The configuration that the restored state has seen; absent if it is that of the turn before."""


class TreeKeys(TypedDict):
    """A tree and its operation log."""

    tree_id: str
    oplog_id: str


class AgentSnapshot(TypedDict):
    """``agent.snapshot``: the whole agent at the end of a turn, so that the events before it can be dropped."""

    agent: str
    entity_type: str
    version: int
    state: JsonObject
    """The whole state."""
    tree_id: str | None
    oplog_id: str | None
    given_up: list[TreeKeys]
    """Trees of attempts that were rolled back since the tree last changed: the iteration numbers in them are not
    reused."""
    epoch: int
    config: NotRequired[JsonObject]
    """The configuration that the agent has seen; absent if it was empty."""


class AgentDetached(AgentSnapshot):
    """``agent.detached``: the same, for a fork that is detached from its parent, as a turn that changes nothing."""


class ErrorInfo(TypedDict):
    """An error as it is recorded and shown."""

    type: str
    message: str


class TurnFailed(TypedDict):
    """``turn.failed``: an attempt that was rolled back, and the tree as the attempt left it."""

    error: ErrorInfo
    hook: NotRequired[str | None]
    """The name of the hook that failed; ``None`` if unknown, for example after the loss of a process."""
    attempt: int
    message_id: str | None
    parked: bool
    tree_id: str | None
    oplog_id: str | None
    epoch: int


class TurnCancelled(TypedDict):
    """``turn.cancelled``: a message that was cancelled, and the tree as its turn left it.

    If it was interrupted, its ``user_message`` and ``assistant_message`` events precede it in the same commit.
    """

    message_id: str
    policy: Literal["interrupt", "rollback"] | None
    """The busy policy of the message that preempted it; ``None`` if its own sender cancelled it."""
    by: str | None
    """The id of the message that preempted it."""
    given_up: NotRequired[bool]
    """Whether a person gave it up, as its recorded steps did not fit any more; absent otherwise."""
    tree_id: str | None
    oplog_id: str | None
    epoch: int


class TurnPaused(TypedDict):
    """``turn.paused``: an attempt that ended because its turn waits, and the tree as the attempt left it.

    State and files are as after the turn before; what the attempt had made of them is in the steps of its message.
    """

    message_id: str
    """The run."""
    call_id: str
    """The key of the step that waits."""
    number: int
    """Of that step."""
    kind: Literal["decide", "promise", "sleep", "program"]
    reason: str
    schema: Json
    """The JSON Schema of an answer."""
    args_hash: str
    """BLAKE3 of schema and reason, as of a step's arguments."""
    agents: NotRequired[list[str]]
    """The agents that may answer a promise; absent without any."""
    expires: int | None
    """Epoch milliseconds; ``None`` if it waits for ever."""
    tree_id: str | None
    oplog_id: str | None
    epoch: int
