"""The JSON form of messages, chunks and errors: on sockets, and in records that stay.

A message is an object with its fields by their names; what has its default is left out. Blocks and chunks are objects
with a ``type``. Bytes of images are in base64. Reading checks everything, as JSON may come from anybody; unknown fields
are refused, so that nothing is dropped silently.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from chronicle.errors import InvalidInput
from podium.models.errors import ModelError, ModelErrorKind
from podium.models.port import (
    CacheHint,
    ContentBlock,
    Finished,
    FinishReason,
    ImageBlock,
    LLMMessage,
    ProviderBlock,
    ReasoningDelta,
    Role,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallDone,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.canonical import Json, JsonObject
    from podium.models.port import LLMStreamChunk

__all__ = [
    "block_from_json",
    "block_to_json",
    "chunk_from_json",
    "chunk_to_json",
    "error_from_json",
    "error_to_json",
    "message_from_json",
    "message_to_json",
]


# -- writing -----------------------------------------------------------------------------------------------------------


def message_to_json(message: LLMMessage) -> JsonObject:
    """Return a message's JSON form; `message_from_json` reads it."""
    value: JsonObject = {"role": message.role}
    if isinstance(message.content, str):
        value["content"] = message.content
    else:
        value["content"] = [block_to_json(block) for block in message.content]
    if message.tool_calls:
        value["tool_calls"] = [_call_to_json(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        value["tool_call_id"] = message.tool_call_id
    if message.cache is not None:
        value["cache"] = message.cache
    if message.response_id is not None:
        value["response_id"] = message.response_id
    if message.note is not None:
        value["note"] = message.note
    return value


def block_to_json(block: ContentBlock) -> JsonObject:
    """Return the JSON form of a content block; `block_from_json` reads it."""
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ImageBlock(media_type, data, url):
            if data is not None:
                return {"type": "image", "media_type": media_type, "data": base64.b64encode(data).decode()}
            return {"type": "image", "media_type": media_type, "url": url}
        case ProviderBlock():
            return {"type": "provider_block", "provider": block.provider, "block": block.block}


def chunk_to_json(chunk: LLMStreamChunk) -> JsonObject:
    """Return the JSON form of a chunk; `chunk_from_json` reads it."""
    match chunk:
        case TextDelta():
            return {"type": "text_delta", "text": chunk.text}
        case ReasoningDelta():
            return {"type": "reasoning_delta", "text": chunk.text}
        case ToolCallDelta():
            value: JsonObject = {
                "type": "tool_call_delta",
                "index": chunk.index,
                "arguments_json": chunk.arguments_json,
            }
            return value | _given(id=chunk.id, name=chunk.name)
        case ToolCallDone():
            return {"type": "tool_call_done", "call": _call_to_json(chunk.call)}
        case ProviderBlock():
            return block_to_json(chunk)
        case Usage():
            value = {
                "type": "usage",
                "input_tokens": chunk.input_tokens,
                "output_tokens": chunk.output_tokens,
                "cached_tokens": chunk.cached_tokens,
                "cache_write_tokens": chunk.cache_write_tokens,
                "reasoning_tokens": chunk.reasoning_tokens,
            }
            return value | _given(cache_miss_reason=chunk.cache_miss_reason)
        case Finished():
            value = {"type": "finished", "reason": chunk.reason, "model": chunk.model}
            return value | _given(response_id=chunk.response_id, cost=chunk.cost)


def error_to_json(error: ModelError) -> JsonObject:
    """Return the JSON form of an error; `error_from_json` reads it."""
    return {"message": str(error), "kind": error.kind} | _given(
        provider=error.provider, status=error.status, retry_after_s=error.retry_after_s
    )


def _call_to_json(call: ToolCall) -> JsonObject:
    value: JsonObject = {"id": call.id, "name": call.name, "arguments": call.arguments}
    return value | _given(invalid_arguments=call.invalid_arguments, after_blocks=call.after_blocks)


def _given(**values: Json) -> JsonObject:
    return {name: value for name, value in values.items() if value is not None}


# -- reading -----------------------------------------------------------------------------------------------------------


def message_from_json(value: Json) -> LLMMessage:
    """Return the message of a JSON form.

    Raises:
        InvalidInput: it is none; the text names the field.
    """
    fields = _Fields(value, "message")
    role: Role = fields.choice("role", get_args(Role))
    content = fields.value("content", "")
    calls = fields.list("tool_calls")
    message_fields: dict[str, Any] = {
        "content": content if isinstance(content, str) else _blocks(content),
        "tool_calls": tuple(_call_from_json(call) for call in calls),
        "tool_call_id": fields.text_or_none("tool_call_id"),
        "cache": fields.choice_or_none("cache", get_args(CacheHint)),
        "response_id": fields.text_or_none("response_id"),
        "note": fields.text_or_none("note"),
    }
    fields.end()
    try:
        return LLMMessage(role, **message_fields)
    except ValueError as error:
        raise InvalidInput(f"message: {error}") from error


def block_from_json(value: Json) -> ContentBlock:
    """Return the content block of a JSON form.

    Raises:
        InvalidInput: it is none; the text names the field.
    """
    fields = _Fields(value, "content block")
    kind: Literal["text", "image", "provider_block"] = fields.choice("type", ("text", "image", "provider_block"))
    block: ContentBlock
    if kind == "text":
        block = TextBlock(fields.text("text"))
    elif kind == "image":
        block = _image(fields)
    else:
        block = ProviderBlock(fields.text("provider"), fields.object("block"))
    fields.end()
    return block


def chunk_from_json(value: Json) -> LLMStreamChunk:
    """Return the chunk of a JSON form.

    Raises:
        InvalidInput: it is none; the text names the field.
    """
    fields = _Fields(value, "chunk")
    kind: str = fields.choice("type", tuple(_CHUNKS))
    chunk = _CHUNKS[kind](fields)
    fields.end()
    return chunk


def error_from_json(value: Json) -> ModelError:
    """Return the error of a JSON form.

    Raises:
        InvalidInput: it is none; the text names the field.
    """
    fields = _Fields(value, "model error")
    kind: ModelErrorKind = fields.choice("kind", get_args(ModelErrorKind))
    error = ModelError(
        fields.text("message"),
        kind,
        provider=fields.text_or_none("provider"),
        status=fields.count_or_none("status"),
        retry_after_s=fields.seconds_or_none("retry_after_s"),
    )
    fields.end()
    return error


def _blocks(value: Json) -> tuple[ContentBlock, ...]:
    if not isinstance(value, list):
        raise InvalidInput("message: 'content' is neither text nor a list of blocks")
    return tuple(block_from_json(block) for block in value)


def _image(fields: _Fields) -> ImageBlock:
    media_type = fields.text("media_type")
    data, url = fields.text_or_none("data"), fields.text_or_none("url")
    try:
        return ImageBlock(media_type, None if data is None else base64.b64decode(data, validate=True), url)
    except binascii.Error as error:
        raise InvalidInput(f"content block: 'data' is not base64: {error}") from error
    except ValueError as error:
        raise InvalidInput(f"content block: {error}") from error


def _call_from_json(value: Json) -> ToolCall:
    fields = _Fields(value, "tool call")
    call = ToolCall(
        fields.text("id"),
        fields.text("name"),
        fields.object("arguments"),
        fields.text_or_none("invalid_arguments"),
        fields.count_or_none("after_blocks"),
    )
    fields.end()
    return call


def _delta(fields: _Fields) -> ToolCallDelta:
    return ToolCallDelta(
        fields.count("index"), fields.text("arguments_json"), fields.text_or_none("id"), fields.text_or_none("name")
    )


def _usage(fields: _Fields) -> Usage:
    return Usage(
        input_tokens=fields.count("input_tokens"),
        output_tokens=fields.count("output_tokens"),
        cached_tokens=fields.count("cached_tokens"),
        cache_write_tokens=fields.count("cache_write_tokens"),
        reasoning_tokens=fields.count("reasoning_tokens"),
        cache_miss_reason=fields.text_or_none("cache_miss_reason"),
    )


def _finished(fields: _Fields) -> Finished:
    reason: FinishReason = fields.choice("reason", get_args(FinishReason))
    return Finished(reason, fields.text("model"), fields.text_or_none("response_id"), fields.text_or_none("cost"))


_CHUNKS: Final[dict[str, Callable[[_Fields], LLMStreamChunk]]] = {
    "text_delta": lambda fields: TextDelta(fields.text("text")),
    "reasoning_delta": lambda fields: ReasoningDelta(fields.text("text")),
    "tool_call_delta": _delta,
    "tool_call_done": lambda fields: ToolCallDone(_call_from_json(fields.value("call"))),
    "provider_block": lambda fields: ProviderBlock(fields.text("provider"), fields.object("block")),
    "usage": _usage,
    "finished": _finished,
}


class _Fields:
    """The fields of a JSON object, each taken once and checked; `end` refuses what was not taken."""

    def __init__(self, value: Json, what: str) -> None:
        if not isinstance(value, dict):
            raise InvalidInput(f"{what}: not an object")
        self._left = dict(value)
        self._what = what

    def value(self, name: str, default: Json = None) -> Json:
        return self._left.pop(name, default)

    def text(self, name: str) -> str:
        value = self.value(name)
        if isinstance(value, str):
            return value
        raise self._refused(name, "text")

    def text_or_none(self, name: str) -> str | None:
        value = self.value(name)
        if value is None or isinstance(value, str):
            return value
        raise self._refused(name, "text")

    def choice(self, name: str, choices: tuple[str, ...]) -> Any:
        value = self.value(name)
        if value in choices:
            return value
        raise self._refused(name, f"one of {', '.join(choices)}")

    def choice_or_none(self, name: str, choices: tuple[str, ...]) -> Any:
        if self._left.get(name) is not None:
            return self.choice(name, choices)
        return self.value(name)

    def count(self, name: str) -> int:
        value = self.count_or_none(name)
        if value is not None:
            return value
        raise self._refused(name, "a number")

    def count_or_none(self, name: str) -> int | None:
        value = self.value(name)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        raise self._refused(name, "a whole number from 0")

    def seconds_or_none(self, name: str) -> float | None:
        value = self.value(name)
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return value
        raise self._refused(name, "a number from 0")

    def object(self, name: str) -> JsonObject:
        value = self.value(name)
        if isinstance(value, dict):
            return value
        raise self._refused(name, "an object")

    def list(self, name: str) -> list[Json]:
        value = self.value(name, [])
        if isinstance(value, list):
            return value
        raise self._refused(name, "a list")

    def end(self) -> None:
        if self._left:
            raise InvalidInput(f"{self._what}: unknown field {', '.join(map(repr, sorted(self._left)))}")

    def _refused(self, name: str, expected: str) -> InvalidInput:
        return InvalidInput(f"{self._what}: {name!r} is not {expected}")
