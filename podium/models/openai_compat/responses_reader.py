"""The stream of the Responses API, read to chunks. Pure.

Items that only the provider understands (encrypted reasoning, calls of tools that run there, compactions) are handed on
whole when they are done. Open Responses' names of reasoning events are read, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

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

__all__ = ["ResponsesReader"]

_REASONING: Final = frozenset(
    {"response.reasoning_text.delta", "response.reasoning_summary_text.delta", "response.reasoning.delta"}
)
_INCOMPLETE: Final[dict[str, FinishReason]] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
    "context_length_exceeded": "context_overflow",
    "model_context_window_exceeded": "context_overflow",
}
_CALL_FIELDS: Final = frozenset({"id", "type", "call_id", "name", "arguments", "status"})


class ResponsesReader:
    """Reads the events of one answer.

    Args:
        provider: the name of the provider object.
        model: what was asked for.
    """

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self._indices: dict[int, int] = {}
        self._calls = 0
        self._refused = False
        self._response: dict[str, Any] = {}
        self.failure: dict[str, Any] | None = None
        """Report of the provider when the answer failed."""

    @property
    def complete(self) -> bool:
        """True if the answer has ended."""
        return self._response.get("status") in {"completed", "incomplete"}

    @property
    def ended(self) -> bool:
        """True if no event follows."""
        return self.complete

    def feed(self, event: dict[str, Any]) -> Iterator[LLMStreamChunk]:
        """Read an event, and yield what it says."""
        kind = text_of(event, "type")
        delta = text_of(event, "delta")
        if kind == "response.output_text.delta" and delta:
            yield TextDelta(delta)
        elif kind == "response.refusal.delta" and delta:
            self._refused = True
            yield TextDelta(delta)
        elif kind in _REASONING and delta:
            yield ReasoningDelta(delta)
        elif kind == "response.reasoning_summary_part.added" and count_of(event, "summary_index"):
            yield ReasoningDelta("\n\n")
        elif kind == "response.output_item.added":
            yield from self._item_added(count_of(event, "output_index"), object_of(event, "item"))
        elif kind == "response.function_call_arguments.delta":
            yield ToolCallDelta(self._indices[count_of(event, "output_index")], delta)
        elif kind == "response.output_item.done":
            yield from self._item_done(object_of(event, "item"))
        elif kind in {"response.completed", "response.incomplete"}:
            self._response = object_of(event, "response")
            self._response.setdefault("status", kind.removeprefix("response."))
        elif kind == "response.failed":
            self.failure = object_of(event, "response", "error")
        elif kind == "error":
            self.failure = object_of(event, "error") or event

    def end(self) -> Iterator[LLMStreamChunk]:
        """Yield what follows the last event of a complete answer."""
        usage = object_of(self._response, "usage")
        read = object_of(usage, "input_tokens_details")
        diagnosis = object_of(self._response, "prompt_cache_diagnostics")
        if usage:
            yield Usage(
                input_tokens=count_of(usage, "input_tokens"),
                output_tokens=count_of(usage, "output_tokens"),
                cached_tokens=count_of(read, "cached_tokens"),
                cache_write_tokens=count_of(read, "cache_write_tokens"),
                cache_miss_reason=text_of(diagnosis, "reason") or None,
                reasoning_tokens=count_of(object_of(usage, "output_tokens_details"), "reasoning_tokens"),
            )
        yield Finished(
            self._finish_reason(),
            text_of(self._response, "model") or self._model,
            text_of(self._response, "id") or None,
        )

    def _item_added(self, place: int, item: dict[str, Any]) -> Iterator[LLMStreamChunk]:
        if item.get("type") == "function_call":
            index = self._indices[place] = self._calls
            self._calls += 1
            yield ToolCallDelta(index, "", text_of(item, "call_id"), text_of(item, "name"))
        elif item.get("type") == "message" and item.get("phase"):
            yield ProviderBlock(self._provider, {"type": "message", "phase": item["phase"]})

    def _item_done(self, item: dict[str, Any]) -> Iterator[LLMStreamChunk]:
        kind = item.get("type")
        if kind == "function_call":
            extra = {name: value for name, value in item.items() if name not in _CALL_FIELDS and value is not None}
            call_id = text_of(item, "call_id")
            if extra:
                yield ProviderBlock(self._provider, {"type": "function_call", "call_id": call_id, **extra})
            yield ToolCallDone(tool_call(call_id, text_of(item, "name"), text_of(item, "arguments")))
        elif kind is not None and kind != "message":
            yield ProviderBlock(self._provider, item)

    def _finish_reason(self) -> FinishReason:
        if self._response["status"] == "incomplete":
            return _INCOMPLETE.get(text_of(object_of(self._response, "incomplete_details"), "reason"), "other")
        if self._refused:
            return "content_filter"
        return "tool_calls" if self._calls else "stop"
