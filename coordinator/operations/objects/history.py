"""Agents' committed states and events, forks, rewinds and differences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from coordinator.operations.objects.result import Result, key, one_of

__all__ = [
    "ContextCall",
    "Difference",
    "DifferenceSide",
    "Event",
    "EventPage",
    "ForkPoint",
    "Forked",
    "ModelContext",
    "Part",
    "Rewound",
    "State",
    "TranscriptDifference",
    "Turn",
    "Verification",
]

Part: TypeAlias = Literal["state", "files", "transcript"]
"""A part of an agent that a rewind restores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State(Result):
    """The committed state of an agent at the end of a turn."""

    agent: str
    turn: int
    version: int
    """The number of events up to the end of this turn."""
    state: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPoint(Result):
    """The turn that a fork continues."""

    agent: str
    turn: int
    seq: int
    """Of the event that ended this turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked(Result):
    """A new agent that continues another one."""

    agent: str
    turn: int
    version: int
    source: ForkPoint = field(metadata=key("from"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound(Result):
    """The result of a rewind."""

    agent: str
    before: int = field(metadata=key("from"))
    """The last turn before the rewind."""
    to: int
    """The turn that was restored."""
    only: tuple[Part, ...]
    """The restored parts."""
    turn: int | None
    """The new turn; null if nothing had to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceSide(Result):
    """One side of a comparison."""

    agent: str
    turn: int
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptDifference(Result):
    """Visible messages, replies and artifacts that one side alone has, as events."""

    removed: tuple[dict[str, Any], ...]
    added: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Result):
    """The differences between two turns."""

    before: DifferenceSide
    after: DifferenceSide
    common_version: int
    """The version up to which the histories of both are the same."""
    state: tuple[dict[str, Any], ...]
    """RFC 6902 patch, from the state before to the state after."""
    files: tuple[dict[str, Any], ...]
    """Changed paths."""
    diff: str
    """Unified diff of the files' text."""
    transcript: TranscriptDifference


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage(Result):
    """Events, oldest first."""

    items: tuple[Event, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(Result):
    """A committed turn of an agent."""

    turn: int
    seq: int
    """Of the event that ended it."""
    cause: str = field(
        metadata=one_of("message", "init", "config", "idle", "shutdown", "upload", "created", "rewound", "detached")
    )
    """Its cause: a message, another hook, or an upload; or the operation that it was."""
    message_id: str | None
    """The message that it handled; null without one."""
    began_at: int
    """The begin of the attempt that was committed; of a turn that recorded nothing before its end, that end."""
    ended_at: int
    patch_bytes: int
    """Of its patch of the state, or of the whole state if it has no patch, as JSON."""
    files_changed: int
    """Paths that differ from those at the end of the turn before; a renamed one counts once."""
    steps: tuple[dict[str, Any], ...] = ()
    """Summaries of its steps and calls of models, in the order of their ends, as its event has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextCall(Result):
    """A call of a model in a turn: what was sent, and what came back."""

    event_id: str
    """Of the event that records it."""
    seq: int
    message_id: str | None
    """The message that the agent handled."""
    ended_at: int
    profile: str
    status: str = field(metadata=one_of("done", "failed", "left", "cancelled"))
    """`left`: the agent stopped reading the answer."""
    messages: tuple[dict[str, Any] | None, ...]
    """What was sent; null for a message that was erased."""
    tools: tuple[dict[str, Any], ...] | None
    """Null without any."""
    temperature: float | None
    """Null: the model's own."""
    max_output_tokens: int | None
    """Null: as the profile says."""
    answer: dict[str, Any]
    """`message`, `usage` with the tokens from the provider's cache, `finished`, and `reasoning` if there was any."""
    error: dict[str, Any] | None
    """Of a failed call; null otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelContext(Result):
    """What an agent's models were sent in a turn, and what they answered."""

    agent: str
    turn: int | None
    """The last one with calls, if none was named; null if there is none."""
    calls: tuple[ContextCall, ...]
    """In the order of their ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(Result):
    """The result of the check of an agent's stored data."""

    agent: str
    ok: bool
    events: int
    """Events checked."""
    blobs: int
    """Blobs read."""
    problem: str | None
    """The first damage found; null if there is none."""
