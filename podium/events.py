"""The names of Podium's events and the shapes of their payloads, in one place for writers and readers.

Payloads are plain JSON objects; these ``TypedDict`` classes give their keys. What a reader does not know it ignores;
a key, once written, keeps its meaning.
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
    "HOOKS",
    "STATE_EVENTS",
    "TURN_CANCELLED",
    "TURN_COMMITTED",
    "TURN_FAILED",
    "USER_MESSAGE",
    "WHOLE_STATES",
    "AgentCreated",
    "AgentDetached",
    "AgentForked",
    "AgentRewound",
    "AgentSnapshot",
    "ArtifactAdded",
    "AssistantMessage",
    "Cause",
    "ErrorInfo",
    "ForkPoint",
    "Part",
    "StateDelta",
    "TreeKeys",
    "TurnCancelled",
    "TurnCommitted",
    "TurnFailed",
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
TURN_COMMITTED: Final = "turn.committed"
TURN_FAILED: Final = "turn.failed"
TURN_CANCELLED: Final = "turn.cancelled"

STATE_EVENTS: Final = (AGENT_CREATED, TURN_COMMITTED, AGENT_REWOUND, AGENT_DETACHED, AGENT_SNAPSHOT)
"""The events that say what an agent's state and tree are: what replay needs. Each turn ends with one of them; one or
more ``agent.snapshot`` of the same turn may follow it, which change nothing."""

WHOLE_STATES: Final = (AGENT_CREATED, AGENT_DETACHED, AGENT_SNAPSHOT)
"""Those that hold the whole state: history can begin with each."""

EVENT_TYPES: Final = frozenset(
    {
        USER_MESSAGE,
        ASSISTANT_MESSAGE,
        "tool_result",
        "retrieval_result",
        "checkpoint",
        "note",
        AGENT_CREATED,
        AGENT_DETACHED,
        AGENT_FORKED,
        AGENT_REWOUND,
        AGENT_SNAPSHOT,
        ARTIFACT_ADDED,
        TURN_COMMITTED,
        TURN_FAILED,
        TURN_CANCELLED,
    }
)
"""All types that are written, those for others to write among them."""

Cause = Literal["message", "init", "idle", "shutdown"]
"""What a turn was for: a message, or a hook whose changes were committed as a turn of their own."""

HOOKS: Final[Mapping[Cause, str]] = {
    "message": "on_message",
    "init": "on_init",
    "idle": "on_idle_timeout",
    "shutdown": "on_shutdown",
}
"""The hook that runs for each cause."""

Part = Literal["state", "files"]
"""A half of an agent that can go back without the other."""


class AgentCreated(TypedDict):
    """``agent.created``: the first event of an agent, turn 0."""

    agent: str
    entity_type: str
    version: int
    """The state class's ``_version``."""
    state: JsonObject
    """The whole initial state."""
    tree_id: str | None
    oplog_id: str | None


class ForkPoint(TypedDict):
    """The moment that a fork continues."""

    agent: str
    branch: str
    """The branch that has the event among its own; an ancestor of the agent's if the agent is a fork itself."""
    turn: int
    seq: int
    """Of the event that ended this turn."""


# Written as a call: one of its keys is a keyword.
AgentForked = TypedDict("AgentForked", {"agent": str, "from": ForkPoint})
"""``agent.forked``: the first event of a fork's own. Its turn is the one that it continues; it changes nothing."""


class UserMessage(TypedDict):
    """``user_message``: the message that a turn handled."""

    message_id: str
    position: int
    sender: str | None
    message: JsonObject


class AssistantMessage(TypedDict):
    """``assistant_message``: one message the agent sent, whole."""

    message_id: str
    text: str
    partial: NotRequired[bool]
    """True when its turn was interrupted before it was finished."""


class ArtifactAdded(TypedDict):
    """``artifact.added``: a named piece of content that a turn hands out; see :mod:`podium.artifacts.artifacts`."""

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


class StateDelta(TypedDict):
    """How a turn changed the state."""

    entity_type: str
    version: int
    patch: list[Json]
    """RFC 6902, from the state after the turn before to the state after this one."""


class TurnCommitted(TypedDict):
    """``turn.committed``: the end of a turn; with its prev_hash it covers state, files and transcript."""

    cause: Cause
    state: StateDelta
    tree_id: str | None
    oplog_id: str | None
    consumed: list[str]
    sent: list[str]
    """The ids of the messages that go to other agents."""
    sent_to: NotRequired[list[str]]
    """Their addresses, in the same order; not there without messages, and in older journals."""
    epoch: int


class AgentRewound(TypedDict):
    """``agent.rewound``: a turn that makes state, files or both what they were at the end of an earlier turn."""

    to: int
    """The turn gone back to."""
    only: Part | None
    """What went back; ``None`` for both."""
    state: StateDelta
    tree_id: str | None
    oplog_id: str | None
    epoch: int


class TreeKeys(TypedDict):
    """A tree, and the log that goes with it."""

    tree_id: str
    oplog_id: str


class AgentSnapshot(TypedDict):
    """``agent.snapshot``: all that an agent is at the end of a turn, so that the events before it can be dropped."""

    agent: str
    entity_type: str
    version: int
    state: JsonObject
    """The whole state."""
    tree_id: str | None
    oplog_id: str | None
    given_up: list[TreeKeys]
    """Trees of tries that were rolled back since the tree became what it is: the numbers of versions in them are not
    given out again."""
    epoch: int


class AgentDetached(AgentSnapshot):
    """``agent.detached``: the same, of a fork that is to stand on its own, as a turn that changes nothing."""


class ErrorInfo(TypedDict):
    """An error as it is recorded and shown."""

    type: str
    message: str


class TurnFailed(TypedDict):
    """``turn.failed``: a try that was rolled back, and the tree as the agent had left it."""

    error: ErrorInfo
    hook: NotRequired[str | None]
    """The name of the hook that failed; ``None`` if it is not known, such as of a lost process."""
    attempt: int
    message_id: str | None
    parked: bool
    tree_id: str | None
    oplog_id: str | None
    epoch: int


class TurnCancelled(TypedDict):
    """``turn.cancelled``: a message that is not handled, or not to its end, and the tree as its turn had left it.

    Of an interrupted one, ``user_message`` and ``assistant_message`` events come before it in the same commit.
    """

    message_id: str
    policy: Literal["interrupt", "rollback"] | None
    """What the message that took its place asked for; ``None`` when its own sender took it back."""
    by: str | None
    """The id of the message that took its place."""
    tree_id: str | None
    oplog_id: str | None
    epoch: int
