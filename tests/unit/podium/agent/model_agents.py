"""A model for tests of `ModelAgent`: scripted, and counted with the calls of tools."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from podium.models.scripted import ScriptedProvider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from podium.models import LLMMessage, LLMStreamChunk


class Begun:
    """What was begun, in its order; one of them never ends."""

    def __init__(self, hangs_at: int = -1) -> None:
        self.names: list[str] = []
        self.hangs = asyncio.Event()
        self._hangs_at = hangs_at

    async def begin(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) - 1 == self._hangs_at:
            self.hangs.set()
            await asyncio.Event().wait()


class Model:
    """Answers from a script; `asked` are the requests."""

    def __init__(self, *script: Any, begun: Begun | None = None) -> None:
        self.asked: list[list[LLMMessage]] = []
        self.tools: list[list[Any] | None] = []
        self._provider = ScriptedProvider([*script])
        self._begun = begun or Begun()

    async def stream(
        self, messages: Sequence[LLMMessage], *, tools: Iterable[Any] | None = None, temperature: float | None = None
    ) -> AsyncIterator[LLMStreamChunk]:
        await self._begun.begin("model")
        self.asked.append([*messages])
        self.tools.append(None if tools is None else [*tools])
        async with aclosing(self._provider.stream(messages, tools=tools, temperature=temperature)) as chunks:
            async for chunk in chunks:
                yield chunk

    @property
    def said(self) -> list[tuple[str, str]]:
        """Role and text of the messages of the last request."""
        return [(message.role, message.text) for message in self.asked[-1]]


def calling(*calls: tuple[str, dict[str, Any]], text: str = "") -> dict[str, Any]:
    """Return an answer that calls tools."""
    return {"text": text, "tool_calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}
