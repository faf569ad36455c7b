"""Cache hints of messages, as breakpoints on the blocks of a request. Pure.

A breakpoint says: keep what was computed up to the end of this block. Not every block can carry one, so a hint goes to
the last block that can, at or before the end of its message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.canonical import JsonObject
    from podium.models.port import CacheHint, LLMMessage

__all__ = ["Markable", "last_response_id"]


@dataclass
class Markable:
    """The blocks of a request that can carry a breakpoint, in order."""

    _blocks: list[tuple[int, JsonObject]] = field(default_factory=list)

    def add(self, index: int, block: JsonObject) -> None:
        """Take a block of the message at an index."""
        self._blocks.append((index, block))

    def marked(self, messages: Sequence[LLMMessage], most: int | None = None) -> list[tuple[JsonObject, CacheHint]]:
        """Return the blocks to mark, in order, each with its hint.

        A prefix is kept no longer than what comes before it, so a short hint before a long one becomes long: Anthropic
        refuses it otherwise.

        Args:
            most: how many breakpoints a request may have; the last ones stay.
        """
        found: dict[int, CacheHint] = {}
        for index, message in enumerate(messages):
            if message.cache is None:
                continue
            place = max((at for at, (of, _) in enumerate(self._blocks) if of <= index), default=None)
            if place is not None:
                found[place] = "long" if found.get(place) == "long" else message.cache
        places = sorted(found)
        last_long = max((place for place in places if found[place] == "long"), default=-1)
        if most is not None:
            places = places[-most:]
        return [(self._blocks[place][1], "long" if place <= last_long else "short") for place in places]


def last_response_id(messages: Sequence[LLMMessage], prefix: str) -> str | None:
    """Return the id of the last answer among messages, if it begins as the ids of a provider do."""
    for message in reversed(messages):
        if message.role == "assistant" and message.response_id is not None:
            return message.response_id if message.response_id.startswith(prefix) else None
    return None
