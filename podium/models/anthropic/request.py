"""Messages as the body of a request to Anthropic's Messages API. Pure.

System messages at the beginning are the system prompt. Results of tools and what the user says after them are one
message, as a result must begin the message that follows its call. The provider's own blocks, above all signed thinking,
go back as they came, at their places.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from podium.models.caching import Markable, last_response_id
from podium.models.port import ImageBlock, ProviderBlock, TextBlock
from podium.models.tools import FunctionTool, place_of, read_tools
from podium.models.vendor_provider import RequestOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chronicle.canonical import JsonObject
    from podium.models.port import ContentBlock, LLMMessage

__all__ = ["DEFAULT_BASE_URL", "DEFAULT_MAX_OUTPUT_TOKENS", "Options", "messages_request"]

DEFAULT_BASE_URL: Final = "https://api.anthropic.com"
DEFAULT_MAX_OUTPUT_TOKENS: Final = 8192
"""The API wants a limit; every current model can write that much."""
_MAX_BREAKPOINTS: Final = 4
_TTLS: Final = {"short": "5m", "long": "1h"}
PromptCache: TypeAlias = Literal["auto", "breakpoints", "off"]


@dataclass(frozen=True, slots=True)
class Options(RequestOptions):
    """Options of every request of a provider object."""

    base_url: str = DEFAULT_BASE_URL

    @property
    def is_vendor(self) -> bool:
        """True for Anthropic's own servers."""
        return urlsplit(self.base_url).hostname == "api.anthropic.com"

    @property
    def has_breakpoints(self) -> bool:
        """True if cache hints become breakpoints, and reasons of cache misses are asked for."""
        return self.prompt_cache == "breakpoints" or (self.prompt_cache == "auto" and self.is_vendor)


def messages_request(
    options: Options, messages: Sequence[LLMMessage], tools: Iterable[JsonObject] | None, temperature: float | None
) -> JsonObject:
    """Return the body of a request.

    Raises:
        ModelError: ``bad_request``: a tool is none.
    """
    writer = _Writer(options.name)
    writer.add_all(messages)
    body: dict[str, Any] = {
        "model": options.model,
        "max_tokens": options.max_output_tokens or DEFAULT_MAX_OUTPUT_TOKENS,
        "messages": writer.messages,
        "stream": True,
    }
    if writer.system:
        body["system"] = writer.system
    if temperature is not None:
        body["temperature"] = temperature
    if written := [_tool(tool) for tool in read_tools(tools)]:
        body["tools"] = written
    if options.has_breakpoints and any(message.cache is not None for message in messages):
        for block, hint in writer.markable.marked(messages, _MAX_BREAKPOINTS):
            block["cache_control"] = {"type": "ephemeral", "ttl": _TTLS[hint]}
        # Null asks for the diagnosis of later requests, which name this one's answer.
        body["diagnostics"] = {"previous_message_id": last_response_id(messages, "msg_")}
    return body | dict(options.extra)


def _tool(tool: FunctionTool | JsonObject) -> JsonObject:
    if not isinstance(tool, FunctionTool):
        return tool
    written: JsonObject = {"name": tool.name, "input_schema": {"type": "object", **tool.parameters}}
    if tool.description is not None:
        written["description"] = tool.description
    if tool.strict is not None:
        written["strict"] = tool.strict
    return written


class _Writer:
    """Writes the messages of one request."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self.system: list[JsonObject] = []
        self.messages: list[dict[str, Any]] = []
        self.markable = Markable()

    def add_all(self, messages: Sequence[LLMMessage]) -> None:
        for index, message in enumerate(messages):
            if message.role == "system" and not self.messages:
                self.system += self._blocks(index, message.blocks)
            elif message.role == "assistant":
                self._add("assistant", self._answer(index, message))
            elif message.role == "tool":
                self._add("user", [self._result(index, message)])
            else:
                self._add(message.role, self._blocks(index, message.blocks))

    def _add(self, role: str, blocks: list[JsonObject]) -> None:
        if not blocks:
            return  # an empty message is refused
        if role == "user" and self.messages and self.messages[-1]["role"] == "user":
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": role, "content": blocks})

    def _blocks(self, index: int, blocks: Iterable[ContentBlock], *, inner: bool = False) -> list[JsonObject]:
        written: list[JsonObject] = []
        for block in blocks:
            match block:
                case TextBlock(text) if text.strip():  # others are refused
                    written.append({"type": "text", "text": text})
                case ImageBlock():
                    written.append({"type": "image", "source": _source(block)})
                case _:
                    continue
            if not inner:
                self.markable.add(index, written[-1])
        return written

    def _result(self, index: int, message: LLMMessage) -> JsonObject:
        content: Any = self._blocks(index, message.blocks, inner=True)
        if all(block["type"] == "text" for block in content):
            content = message.text
        result: JsonObject = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": content}
        self.markable.add(index, result)
        return result

    def _answer(self, index: int, message: LLMMessage) -> list[JsonObject]:
        blocks, calls = message.blocks, list(message.tool_calls)
        of_calls: dict[str, JsonObject] = {}
        written: list[JsonObject] = []
        for place in range(len(blocks) + 1):
            while calls and place_of(calls[0], len(blocks)) <= place:
                call = calls.pop(0)
                use: JsonObject = {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
                written.append(use | of_calls.get(call.id, {}))
                self.markable.add(index, written[-1])
            if place == len(blocks):
                break
            match blocks[place]:
                case TextBlock(text) if text.strip():
                    written.append({"type": "text", "text": text})
                    self.markable.add(index, written[-1])
                case ProviderBlock(provider, block) if provider == self._provider:
                    if block.get("type") == "tool_use":
                        of_calls[str(block.get("id"))] = block
                    else:
                        written.append(block)
        return written


def _source(image: ImageBlock) -> JsonObject:
    if image.url is not None:
        return {"type": "url", "url": image.url}
    data = base64.b64encode(image.data or b"").decode()
    return {"type": "base64", "media_type": image.media_type, "data": data}
