"""What a model answers, in no format yet."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Wire: TypeAlias = Literal["chat", "responses", "messages"]
WIRES: tuple[Wire, ...] = ("chat", "responses", "messages")
PATHS: dict[str, Wire] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}


@dataclass(frozen=True)
class Call:
    """A tool call."""

    id: str
    name: str
    arguments_json: str


@dataclass(frozen=True)
class Answer:
    """An answer of the model: reasoning, then text, then calls."""

    text: str = ""
    reasoning: str = ""
    calls: Sequence[Call] = ()
    signature: str = "c2lnbmVk"
    """Of the reasoning: what must go back unchanged."""
    finish: str = ""
    """In the words of the wire; by default its ordinary end."""
    input_tokens: int = 12
    output_tokens: int = 5
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_miss_reason: str | None = None
    model: str = "test-1"
    id: str = "1"
    extra: dict[str, Any] = field(default_factory=dict)
    """More of what only the wire knows; see `wires`."""

    @property
    def words(self) -> list[str]:
        return pieces_of(self.text)


def pieces_of(text: str) -> list[str]:
    """A text in words, as models write it."""
    return re.findall(r"\s*\S+\s*$|\s*\S+", text) or ([text] if text else [])


def halves(text: str) -> list[str]:
    """A text in two pieces, if it has two characters."""
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]
