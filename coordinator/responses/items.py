"""Items of inputs and outputs, in JSON, as the messages that a model is sent.

What a model said in one answer (texts, calls of tools, blocks of its provider) is several items and one message.
"""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.canonical import decode, encode
from chronicle.errors import InvalidInput
from podium.models.port import ImageBlock, LLMMessage, ProviderBlock, TextBlock, ToolCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chronicle.canonical import Json, JsonObject
    from podium.models.port import ContentBlock

__all__ = [
    "IMAGE_URL",
    "NEXT_CALL",
    "NO_RESULT",
    "canonical_text",
    "content_of_parts",
    "decode_block",
    "dumped",
    "encode_block",
    "instructions_of",
    "is_image_url",
    "messages_of",
    "paired",
    "text_of",
    "user_item",
]

IMAGE_URL: Final = re.compile(
    r"^(https?://[!-~]+|data:image/[a-z0-9.+-]{1,32};base64,"
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)$"
)
"""The URL of an image."""
NO_RESULT: Final = "(no result was recorded)"
"""Text for a model about a call whose result is not on the transcript; providers refuse calls without one."""
NEXT_CALL: Final = ""
"""The call id of a result that names none: it is that of the first call that has no result yet."""


def user_item(text: str) -> JsonObject:
    """Return the item of a text that a user says."""
    return {"type": "message", "role": "user", "content": text}


def messages_of(items: Iterable[Mapping[str, Any]]) -> list[LLMMessage]:
    """Return the messages of items, in order, without instructions, which `instructions_of` returns.

    Reasoning is for people, but for the block of its provider that it holds.

    Args:
        items: as `coordinator.responses.body.InputItem` has them, or as outputs have.
    """
    messages: list[LLMMessage] = []
    said = _Said()
    for item in items:
        match item.get("type", "message"), item.get("role"):
            case "message", "assistant":
                said.add_text(text_of(item["content"]))
            case "function_call", _:
                said.add_call(item["call_id"], item["name"], item["arguments"])
            case "reasoning", _ if item.get("encrypted_content"):
                said.add_block(decode_block(item["encrypted_content"]))
            case "message", "user":
                said.end(messages)
                messages.append(LLMMessage("user", content_of_parts(item["content"])))
            case "function_call_output", _:
                said.end(messages)
                content = content_of_parts(item["output"])
                messages.append(LLMMessage("tool", content, tool_call_id=item["call_id"]))
            case _:  # instructions, and reasoning for people
                pass
    said.end(messages)
    return messages


def instructions_of(items: Iterable[Mapping[str, Any]]) -> list[LLMMessage]:
    """Return the messages of the items that are instructions, in order."""
    return [
        LLMMessage("system", text_of(item["content"]))
        for item in items
        if item.get("type", "message") == "message" and item.get("role") in {"system", "developer"}
    ]


def encode_block(block: ProviderBlock) -> str:
    """Return the ``encrypted_content`` of a reasoning item that holds a provider's block.

    Open Responses has this field for what a client sends back as it is, so that all clients do.
    """
    return base64.urlsafe_b64encode(encode({"provider": block.provider, "block": block.block})).decode()


def decode_block(text: str) -> ProviderBlock:
    """Return the block that `encode_block` encoded.

    Raises:
        InvalidInput: it is none.
    """
    try:
        match decode(base64.b64decode(text, altchars=b"-_", validate=True)):
            case {"provider": str(provider), "block": dict(block)}:
                return ProviderBlock(provider, block)
    except (ValueError, InvalidInput):
        pass
    raise InvalidInput("this is no encrypted_content of an answer of this gateway")


def text_of(content: str | Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a content: of all its parts, without those that are no text."""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", part.get("refusal", ""))) for part in content)


def content_of_parts(content: str | Sequence[Mapping[str, Any]]) -> str | tuple[ContentBlock, ...]:
    """Return the content of a message: text, or blocks if there is an image."""
    if isinstance(content, str) or all(part["type"] != "input_image" for part in content):
        return text_of(content)
    return tuple(
        _image(part["image_url"]) if part["type"] == "input_image" else TextBlock(part["text"]) for part in content
    )


def is_image_url(url: str) -> bool:
    """Whether a text is the URL of an image, with its data or without."""
    return IMAGE_URL.fullmatch(url) is not None


def _image(url: str) -> ImageBlock:
    """Return the image of a URL, of which the body of the request was checked."""
    if not url.startswith("data:"):
        return ImageBlock("", url=url)
    media_type, _, data = url.removeprefix("data:").partition(";base64,")
    return ImageBlock(media_type, base64.b64decode(data))


class _Said:
    """One answer of a model, from its items."""

    def __init__(self) -> None:
        self._blocks: list[ContentBlock] = []
        self._calls: list[ToolCall] = []

    def add_text(self, text: str) -> None:
        if text:
            self._blocks.append(TextBlock(text))

    def add_block(self, block: ProviderBlock) -> None:
        self._blocks.append(block)

    def add_call(self, call_id: str, name: str, arguments: str) -> None:
        try:
            given: Json = decode(arguments.encode())
        except InvalidInput:
            given = None
        fields = given if isinstance(given, dict) else {}
        invalid = None if isinstance(given, dict) else arguments
        self._calls.append(ToolCall(call_id, name, fields, invalid, len(self._blocks)))

    def end(self, messages: list[LLMMessage]) -> None:
        """Add the message of what was said, if anything was."""
        if not self._blocks and not self._calls:
            return
        only = self._blocks[0] if len(self._blocks) == 1 else None
        content = only.text if isinstance(only, TextBlock) else tuple(self._blocks)
        messages.append(LLMMessage("assistant", content or "", tuple(self._calls)))
        self._blocks, self._calls = [], []


def paired(messages: Iterable[LLMMessage]) -> list[LLMMessage]:
    """Return messages in which each call of a tool is followed by one result, as all providers demand.

    A call without a result gets `NO_RESULT`. A result without a call, or one that comes too late, is told as text. A
    result that names `NEXT_CALL` is that of the first call without one.
    """
    messages = list(messages)
    if not any(message.tool_calls or message.role == "tool" for message in messages):
        return messages
    done: list[LLMMessage] = []
    waiting: list[str] = []

    def give_up() -> None:
        done.extend(LLMMessage("tool", NO_RESULT, tool_call_id=call_id) for call_id in waiting)
        waiting.clear()

    for message in messages:
        if message.role != "tool":
            give_up()
            waiting = [call.id for call in message.tool_calls]
            done.append(message)
            continue
        call_id = message.tool_call_id or (waiting[0] if waiting else NEXT_CALL)
        if call_id in waiting:
            waiting.remove(call_id)
            done.append(replace(message, tool_call_id=call_id))
        else:
            give_up()
            done.append(_told(message, call_id))
    give_up()
    return done


def _told(result: LLMMessage, call_id: str) -> LLMMessage:
    label = f"Result of the tool call {call_id}:\n" if call_id else "Result of a tool:\n"
    if isinstance(result.content, str):
        return LLMMessage("user", label + result.content, cache=result.cache)
    return LLMMessage("user", (TextBlock(label), *result.content), cache=result.cache)


def canonical_text(value: Json) -> str:
    """Return a JSON value as text that is the same each time."""
    return value if isinstance(value, str) else encode(value).decode()


def dumped(item: Any) -> JsonObject:
    """Return an item of a body as JSON, without what is not given."""
    return cast("JsonObject", item.model_dump(mode="json", by_alias=True, exclude_none=True))
