"""Results of changes to what is kept of agents: folds, erasures, deletions, and archives."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.operations.objects.result import Result

__all__ = [
    "Deleted",
    "DroppedCounts",
    "DroppedLater",
    "Erased",
    "ErasedEvent",
    "Exported",
    "Folded",
    "Imported",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted(Result):
    """A deleted agent."""

    agent: str
    events: int
    """The number of events that were deleted with it."""
    detached: tuple[str, ...]
    """Addresses of the forks that were detached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedCounts(Result):
    """A part of an agent's history."""

    events: int
    """Of the agent's own branch."""
    turns: int
    """Turns that cannot be read without it."""
    bytes: int
    """Of the payloads in the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedLater(DroppedCounts):
    """The part of an agent's history that can be dropped later."""

    from_turn: int | None
    """From this turn on; null if it does not depend on turns."""
    from_ms: int | None
    """From this time on; null if it does not depend on time."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """The part that can be dropped once the newest mark is old enough; null if there is nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedEvent(Result):
    """An event whose content was erased."""

    event_id: str
    type: str
    turn: int
    had_blob: bool
    """Whether the content was in a blob, which `podium gc` frees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased(Result):
    """The erased content of an agent."""

    agent: str
    erased: tuple[ErasedEvent, ...]
    """Without those that were erased before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported(Result):
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
