"""The generation of a home: a number that grows when its database may have gone back.

A database that was restored, and a standby that was promoted, may lack turns that were answered. Each has another
identifier, another timeline, or a shorter log than was seen before. What was seen is in the database, beside the
journal, and in the directory of each node that has served the home, since the former goes back with the journal.

The number does nothing for agents that are awake: a commit names the head that it follows, and a database without it
refuses the commit. It makes epochs that the database has lost different from those that it gives now (`least_epoch`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from coordinator.documents import Documents

__all__ = ["GENERATION", "Generation", "GenerationWatch", "least_epoch", "read_generation"]

GENERATION: Final = "generation"
"""The document of the database's record, and the file of a node's."""
_EPOCHS: Final = 1 << 32
"""Epochs of each agent in a generation."""


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of a home."""

    number: int = 1
    since_ms: int | None = None
    """When it began; ``None`` for the first one."""
    why: str | None = None
    """Why the database may have gone back then, as the rest of a sentence about it."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


class GenerationWatch(Protocol):
    """Notices that the database of a home may have gone back."""

    def check(self) -> Generation:
        """Compare the database with what is known of it; begin a new generation if it may have gone back.

        It blocks, may be called from any thread, and costs one statement.

        Raises:
            Unavailable: the database cannot be reached.
            StorageRefused: the home's directory cannot be written.
        """
        ...


def least_epoch(generation: Generation) -> int:
    """Return the lowest epoch of leases in a generation."""
    return (generation.number - 1) * _EPOCHS


def read_generation(documents: Documents) -> Generation:
    """Return the generation of a home as it is recorded."""
    data = documents.read(GENERATION)
    return Generation(**json.loads(data)["generation"]) if data is not None else Generation()
