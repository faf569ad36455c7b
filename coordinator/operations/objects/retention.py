"""What is kept of agents: folds, erasures, deletions, and archives."""

from __future__ import annotations

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from coordinator.operations.objects.documented import documented

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


@documented
class Deleted(TypedDict):
    """A deleted agent."""

    agent: str
    events: int
    """The number of events that were deleted with it."""
    detached: list[str]
    """Addresses of the forks that were detached."""


@documented
class DroppedCounts(TypedDict):
    """A part of an agent's history."""

    events: int
    """Of the agent's own branch."""
    turns: int
    """Turns that cannot be read without it."""
    bytes: int
    """Of the payloads in the journal."""


@documented
class DroppedLater(DroppedCounts):
    """What of an agent's history can be dropped later."""

    from_turn: int | None
    """From this turn on; null if it does not depend on turns."""
    from_ms: int | None
    """From this time on; null if it does not depend on time."""


@documented
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


@documented
class ErasedEvent(TypedDict):
    """An event whose content was erased."""

    event_id: str
    type: str
    turn: int
    had_blob: bool
    """Whether the content was in a blob, which `podium gc` frees."""


@documented
class Erased(TypedDict):
    """What was erased of an agent."""

    agent: str
    erased: list[ErasedEvent]
    """Without those that were erased before."""


@documented
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


@documented
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
