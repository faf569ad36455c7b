"""The stream of a chat completion, read to chunks. Pure.

Servers of many makes speak this format, each a little differently: calls without an index or an id, usage in every
chunk or under other names, reasoning under two names, fields that must come back with the next request. What is known
of them is here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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

__all__ = ["ChatReader"]

_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
_CALL_FIELDS: Final = frozenset({"index", "id", "type", "function"})


@dataclass
class _Call:
    index: int
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)


class ChatReader:
    """Reads the events of one answer.

    Args:
        provider: the name of the provider object.
        model: what was asked for.
    """

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self._response_id: str | None = None
        self._calls: list[_Call] = []
        self._open: dict[int, _Call] = {}
        self._reasoning: list[str] = []
        self._details: list[Any] = []
        self._refused = False
        self._reason: str | None = None
        self._usage: dict[str, Any] = {}
        self.ended: Final = False
        """The usage follows the last chunk, and the library ends the stream at ``[DONE]``."""
        self.failure: Final = None
        """The library raises errors of this format."""

    @property
    def complete(self) -> bool:
        """True if the model has ended its answer."""
        return self._reason is not None

    def feed(self, event: dict[str, Any]) -> Iterator[LLMStreamChunk]:
        """Read an event, and yield what it says."""
        self._model = text_of(event, "model") or self._model
        self._response_id = text_of(event, "id") or self._response_id
        self._usage = object_of(event, "usage") or self._usage
        for choice in event.get("choices") or ():
            if choice.get("index", 0) == 0:
                yield from self._delta(object_of(choice, "delta"))
                self._reason = choice.get("finish_reason") or self._reason

    def end(self) -> Iterator[LLMStreamChunk]:
        """Yield what follows the last event of a complete answer."""
        if fields := self._fields_to_send_back():
            yield ProviderBlock(self._provider, fields)
        for call in self._calls:
            yield ToolCallDone(tool_call(self._id_of(call), call.name, "".join(call.arguments)))
        if self._usage:
            yield self._read_usage()
        yield Finished(self._finish_reason(), self._model, self._response_id)

    def _delta(self, delta: dict[str, Any]) -> Iterator[LLMStreamChunk]:
        if reasoning := text_of(delta, "reasoning_content") or text_of(delta, "reasoning"):
            self._reasoning.append(reasoning)
            yield ReasoningDelta(reasoning)
        self._details += delta.get("reasoning_details") or ()
        if text := text_of(delta, "content"):
            yield TextDelta(text)
        if refusal := text_of(delta, "refusal"):
            self._refused = True
            yield TextDelta(refusal)
        for call in delta.get("tool_calls") or ():
            yield self._call(call)

    def _call(self, delta: dict[str, Any]) -> ToolCallDelta:
        function = object_of(delta, "function")
        place = count_of(delta, "index")
        call = self._open.get(place)
        is_new = call is None or bool(text_of(delta, "id") and call.id and delta["id"] != call.id)
        if call is None or is_new:
            call = self._open[place] = _Call(len(self._calls), text_of(delta, "id"))
            self._calls.append(call)
        call.name += text_of(function, "name") if not call.name else ""
        call.id = call.id or text_of(delta, "id")
        call.extra |= {name: value for name, value in delta.items() if name not in _CALL_FIELDS}
        arguments = text_of(function, "arguments")
        call.arguments.append(arguments)
        if is_new:
            return ToolCallDelta(call.index, arguments, self._id_of(call), call.name)
        return ToolCallDelta(call.index, arguments)

    def _id_of(self, call: _Call) -> str:
        return call.id or f"call_{self._response_id or 'of'}_{call.index}"

    def _fields_to_send_back(self) -> dict[str, Any]:
        """Fields that a server wants back on the message: reasoning that led to calls, and its own fields of calls."""
        fields: dict[str, Any] = {}
        if self._details:
            fields["reasoning_details"] = self._details
        elif self._calls and self._reasoning:
            fields["reasoning_content"] = "".join(self._reasoning)
        if extras := {self._id_of(call): call.extra for call in self._calls if call.extra}:
            fields["tool_calls"] = extras
        return fields

    def _finish_reason(self) -> FinishReason:
        if self._refused:
            return "content_filter"
        if self._reason == "stop" and self._calls:
            return "tool_calls"
        return _REASONS.get(self._reason or "", "other")

    def _read_usage(self) -> Usage:
        usage = self._usage
        prompt = object_of(usage, "prompt_tokens_details")
        return Usage(
            input_tokens=count_of(usage, "prompt_tokens"),
            output_tokens=count_of(usage, "completion_tokens"),
            cached_tokens=count_of(prompt, "cached_tokens") or count_of(usage, "prompt_cache_hit_tokens"),
            cache_write_tokens=count_of(prompt, "cache_write_tokens"),
            reasoning_tokens=count_of(object_of(usage, "completion_tokens_details"), "reasoning_tokens"),
        )
