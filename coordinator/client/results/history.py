"""Agents' committed states and events, forks, rewinds and differences."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from coordinator.client.results.result import Result

__all__ = [
    "Difference",
    "DifferenceSide",
    "Event",
    "ForkPoint",
    "Forked",
    "Rewound",
    "State",
    "TranscriptDifference",
    "Verification",
]


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
