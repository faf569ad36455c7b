"""The step at which a turn pauses: it has no result until an answer or a time gives it one.

An attempt that asks for it ends there. What the agent is at that moment becomes the step's record, whose result is
still open; whoever answers completes the record in the journal. To the next attempt it is a step as any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from podium.history.step_record import step_of

if TYPE_CHECKING:
    from chronicle.canonical import Json
    from podium.history.step_record import PauseKind, StepRecord

__all__ = ["Pause", "PauseRequest"]


@dataclass(frozen=True, slots=True)
class PauseRequest:
    """What a hook pauses its turn for."""

    kind: PauseKind
    reason: str
    schema: Json
    """The JSON Schema of an answer."""
    expires_ms: int | None
    """Epoch milliseconds; ``None`` if it waits for ever. A further attempt may ask with another one."""
    promise: str = ""
    """The name of a promise."""
    agents: tuple[str, ...] = ()
    """The agents that may answer it, ``type/key``."""

    @property
    def step(self) -> str:
        """The name of its step."""
        return step_of(self.promise) if self.kind == "promise" else self.kind


@dataclass(frozen=True, slots=True)
class Pause:
    """The pause of a turn, durable as a step that is open."""

    number: int
    """Of the step."""
    record: StepRecord
