"""The stream of Anthropic's Messages API, read to chunks. Pure.

Blocks that only the provider understands (thinking with its signature, redacted thinking, tools that run there and
their results) are put together from their deltas and handed on whole when they end.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from chronicle.canonical import decode_input
from podium.models.json_fields import count_of, object_of, text_of, tool_call
from podium.models.port import (
    Finished,
    FinishReason,
    ProviderBlock,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallDone,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from podium.models.port import LLMStreamChunk

__all__ = ["MessagesReader"]

_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
    "model_context_window_exceeded": "context_overflow",
}
_TOOL_USE_FIELDS: Final = frozenset({"type", "id", "name", "input"})


class MessagesReader:
    """Reads the events of one answer.

    Args:
        provider: the name of the provider object.
        model: what was asked for.
    """

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self._response_id: str | None = None
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._indices: dict[int, int] = {}
        self._usage: dict[str, Any] = {}
        self._miss_reason: str | None = None
        self._reason: str | None = None
        self.ended = False
        """True if no event follows."""
        self.failure: dict[str, Any] | None = None
        """Report of the provider when the answer failed."""

    @property
    def complete(self) -> bool:
        """True if the model has ended its answer."""
        return self._reason is not None

    def feed(self, event: dict[str, Any]) -> Iterator[LLMStreamChunk]:
        """Read an event, and yield what it says."""
        place = count_of(event, "index")
        match event.get("type"):
            case "message_start":
                yield from self._start(object_of(event, "message"))
            case "content_block_start":
                yield from self._start_block(place, object_of(event, "content_block"))
            case "content_block_delta":
                yield from self._delta(place, object_of(event, "delta"))
            case "content_block_stop":
                yield from self._end_block(place)
            case "message_delta":
                self._reason = text_of(object_of(event, "delta"), "stop_reason") or self._reason
                yield from self._more_usage(object_of(event, "usage"))
            case "message_stop":
                self.ended = True
            case "error":
                self.failure = object_of(event, "error") or event

    def end(self) -> Iterator[LLMStreamChunk]:
        """Yield what follows the last event of a complete answer."""
        yield Finished(_REASONS.get(self._reason or "", "other"), self._model, self._response_id)

    def _start(self, message: dict[str, Any]) -> Iterator[LLMStreamChunk]:
        self._model = text_of(message, "model") or self._model
        self._response_id = text_of(message, "id") or None
        self._miss_reason = text_of(object_of(message, "diagnostics", "cache_miss_reason"), "type") or None
        yield from self._more_usage(object_of(message, "usage"))

    def _more_usage(self, usage: dict[str, Any]) -> Iterator[LLMStreamChunk]:
        """Counts are totals, and only those that changed need be there."""
        if not usage:
            return
        self._usage |= {name: value for name, value in usage.items() if value is not None}
        read, written = (
            count_of(self._usage, "cache_read_input_tokens"),
            count_of(self._usage, "cache_creation_input_tokens"),
        )
        yield Usage(
            input_tokens=count_of(self._usage, "input_tokens") + read + written,
            output_tokens=count_of(self._usage, "output_tokens"),
            cached_tokens=read,
            cache_write_tokens=written,
            cache_miss_reason=self._miss_reason,
            reasoning_tokens=count_of(object_of(self._usage, "output_tokens_details"), "thinking_tokens"),
        )

    def _start_block(self, place: int, block: dict[str, Any]) -> Iterator[LLMStreamChunk]:
        self._blocks[place] = dict(block)
        self._inputs[place] = []
        match block.get("type"):
            case "text" if text := text_of(block, "text"):
                yield TextDelta(text)
            case "thinking" if thinking := text_of(block, "thinking"):
                yield ReasoningDelta(thinking)
            case "tool_use":
                index = self._indices[place] = len(self._indices)
                yield ToolCallDelta(index, "", text_of(block, "id"), text_of(block, "name"))

    def _delta(self, place: int, delta: dict[str, Any]) -> Iterator[LLMStreamChunk]:
        block = self._blocks[place]
        match delta.get("type"):
            case "text_delta" if text := text_of(delta, "text"):
                yield TextDelta(text)
            case "thinking_delta":
                thinking = text_of(delta, "thinking")
                block["thinking"] = text_of(block, "thinking") + thinking
                if thinking:
                    yield ReasoningDelta(thinking)
            case "signature_delta":
                block["signature"] = text_of(block, "signature") + text_of(delta, "signature")
            case "input_json_delta":
                more = text_of(delta, "partial_json")
                self._inputs[place].append(more)
                if place in self._indices and more:
                    yield ToolCallDelta(self._indices[place], more)

    def _end_block(self, place: int) -> Iterator[LLMStreamChunk]:
        block = self._blocks.pop(place)
        written = "".join(self._inputs.pop(place))
        if block.get("type") == "text":
            return
        if block.get("type") != "tool_use":
            if written:
                block["input"] = decode_input(written.encode())
            yield ProviderBlock(self._provider, block)
            return
        call_id = text_of(block, "id")
        extra = {name: value for name, value in block.items() if name not in _TOOL_USE_FIELDS and value is not None}
        if extra:
            yield ProviderBlock(self._provider, {"type": "tool_use", "id": call_id, **extra})
        yield ToolCallDone(tool_call(call_id, text_of(block, "name"), written or json.dumps(block.get("input") or {})))
