"""What a turn collects while its hook runs, in all its scopes together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from chronicle.journal.records import Draft, DropReminder, OutboxMessage, SetReminder
    from podium.address import Address
    from podium.agent.reply import Reply
    from podium.artifacts.writing import ArtifactWriter
    from podium.turn.ports import Asker, Models
    from podium.turn.steps.turn_steps import TurnSteps

__all__ = ["YIELD_INTERVAL_S", "Collected"]

YIELD_INTERVAL_S: Final = 0.002
"""Longest time that a hook which streams without waiting keeps the event loop. A delay of 2 ms is not visible, and an
iteration of the loop for each token would cost more than the token."""


@dataclass(slots=True)
class Collected:
    """What all scopes of a turn share."""

    artifacts: ArtifactWriter
    steps: TurnSteps | None = None
    """The turn's steps; ``None`` in a turn that handles no message."""
    asker: Asker | None = None
    models: Models | None = None
    address: Address | None = None
    """The agent's, in a turn that handles a message."""
    deadline_ms: int = 0
    """The turn's, if it handles a message."""
    replies: list[Reply] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    outbox: list[OutboxMessage] = field(default_factory=list)
    reminders: dict[str, SetReminder | DropReminder] = field(default_factory=dict)
    """The last change of each reminder, by name."""
    results: dict[str, Draft] = field(default_factory=dict)
    """The latest result of each message, by the message's id."""
    traceparent: str | None = None
    """The trace that the turn belongs to."""
    tokens: int = 0
    """Pieces of text that were streamed."""
    over: bool = False
    yield_s: float = field(default_factory=lambda: asyncio.get_running_loop().time() + YIELD_INTERVAL_S)
    """When the next `publish` yields to the event loop, by the loop's clock."""

    def close(self) -> None:
        """Stop collecting."""
        self.over = True
        self.artifacts.close()
