"""Chunks put together: the answer as a message, to be sent back in the next request."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from podium.models.port import (
    ContentBlock,
    Finished,
    LLMMessage,
    ProviderBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallDone,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

    from podium.models.port import LLMStreamChunk

__all__ = ["Answered", "Collector", "collect"]


@dataclass(frozen=True, slots=True)
class Answered:
    """A complete answer.

    Attributes:
        message: the answer as a message of the role ``assistant``, with all blocks and calls in their order.
        reasoning: the readable reasoning, for people; it is no part of the message.
        usage: the tokens used.
        finished: why the answer ended; ``None`` if the stream was cut short.
    """

    message: LLMMessage
    reasoning: str = ""
    usage: Usage = field(default_factory=Usage)
    finished: Finished | None = None


class Collector:
    """Puts the chunks of one answer together, also of one that is not complete."""

    def __init__(self) -> None:
        self._blocks: list[ContentBlock] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[ToolCall] = []
        self._usage = Usage()
        self._finished: Finished | None = None

    def add(self, chunk: LLMStreamChunk) -> None:
        """Take the next chunk."""
        match chunk:
            case TextDelta():
                self._text.append(chunk.text)
            case ReasoningDelta():
                self._reasoning.append(chunk.text)
            case ProviderBlock():
                self._end_text()
                self._blocks.append(chunk)
            case ToolCallDelta():
                self._end_text()
            case ToolCallDone():
                self._end_text()
                self._calls.append(replace(chunk.call, after_blocks=len(self._blocks)))
            case Usage():
                self._usage = chunk
            case Finished():
                self._finished = chunk

    def answered(self) -> Answered:
        """Return what there is. A message that is only text has it as its content, not as a block."""
        self._end_text()
        content: str | tuple[ContentBlock, ...] = tuple(self._blocks)
        match self._blocks:
            case []:
                content = ""
            case [TextBlock(text)]:
                content = text
        response_id = self._finished.response_id if self._finished is not None else None
        message = LLMMessage("assistant", content, tuple(self._calls), response_id=response_id)
        return Answered(message, "".join(self._reasoning), self._usage, self._finished)

    def _end_text(self) -> None:
        if self._text:
            self._blocks.append(TextBlock("".join(self._text)))
            self._text.clear()


async def collect(chunks: AsyncIterable[LLMStreamChunk]) -> Answered:
    """Read a stream to its end, and return the answer.

    Raises:
        ModelError: as the stream does.
    """
    collector = Collector()
    async for chunk in chunks:
        collector.add(chunk)
    return collector.answered()
