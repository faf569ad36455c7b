"""Agents' committed states and events, forks, rewinds and differences."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from coordinator.operations.objects.documented import documented

__all__ = [
    "DiffSide",
    "DiffTranscript",
    "Difference",
    "EventObject",
    "EventPage",
    "ForkPointObject",
    "Forked",
    "Part",
    "Rewound",
    "StateObject",
    "Verification",
]

Part: TypeAlias = Literal["state", "files", "transcript"]
"""A part of an agent that a rewind restores."""


@documented
class StateObject(TypedDict):
    """The committed state of an agent at the end of a turn."""

    agent: str
    turn: int
    version: int
    """The number of events up to the end of this turn."""
    state: dict[str, Any]


@documented
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


@documented
class DiffSide(TypedDict):
    """One side of a comparison."""

    agent: str
    turn: int
    version: int


@documented
class DiffTranscript(TypedDict):
    """Visible messages, replies and artifacts that one side alone has, as events."""

    removed: list[dict[str, Any]]
    added: list[dict[str, Any]]


@documented
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


@documented
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


@documented
class EventPage(TypedDict):
    """Events, oldest first."""

    items: list[EventObject]
    next_cursor: str | None


@documented
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
