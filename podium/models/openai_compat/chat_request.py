"""Messages as the body of a request for chat completions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from podium.models.caching import Markable
from podium.models.json_fields import object_of
from podium.models.openai_compat.options import arguments_of, image_url, mark_breakpoints
from podium.models.port import ImageBlock, ProviderBlock, TextBlock
from podium.models.tools import FunctionTool, read_tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chronicle.canonical import JsonObject
    from podium.models.openai_compat.options import Options
    from podium.models.port import ContentBlock, LLMMessage, ToolCall

__all__ = ["chat_request"]

_OUR_FIELDS: Final = frozenset({"role", "content", "tool_calls"})


def chat_request(
    options: Options, messages: Sequence[LLMMessage], tools: Iterable[JsonObject] | None, temperature: float | None
) -> JsonObject:
    """Return the body of a request.

    Raises:
        ModelError: ``bad_request``: a tool is none.
    """
    body: dict[str, Any] = {
        "model": options.model,
        "messages": _Messages(options.name).written(messages, with_breakpoints=options.has_breakpoints),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if options.max_output_tokens is not None:
        # Newer models of OpenAI refuse the old name; other servers do not know the new one.
        body["max_completion_tokens" if options.is_vendor else "max_tokens"] = options.max_output_tokens
    if temperature is not None:
        body["temperature"] = temperature
    if written := [_tool(tool) for tool in read_tools(tools)]:
        body["tools"] = written
    return body | options.cache_fields(messages) | dict(options.extra)


def _tool(tool: FunctionTool | JsonObject) -> JsonObject:
    if not isinstance(tool, FunctionTool):
        return tool
    function: JsonObject = {"name": tool.name, "parameters": tool.parameters}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


class _Messages:
    """Writes the messages of one request.

    Results of tools can hold text only, and must follow their calls without anything in between: their images follow
    all of them, as a message of the user.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._written: list[dict[str, Any]] = []
        self._markable = Markable()
        self._images: list[JsonObject] = []

    def written(self, messages: Sequence[LLMMessage], *, with_breakpoints: bool) -> list[dict[str, Any]]:
        for index, message in enumerate(messages):
            if message.role == "tool":
                self._add_result(index, message)
                continue
            self._flush_images()
            if message.role == "assistant":
                self._add_answer(index, message)
            else:
                parts = self._parts(index, message.blocks)
                self._written.append({"role": message.role, "content": parts})
        self._flush_images()
        if with_breakpoints:
            mark_breakpoints(self._markable, messages)
        for written in self._written:
            written["content"] = _plain(written["content"])
        return self._written

    def _parts(self, index: int, blocks: Iterable[ContentBlock]) -> list[JsonObject]:
        parts: list[JsonObject] = []
        for block in blocks:
            match block:
                case TextBlock():
                    parts.append({"type": "text", "text": block.text})
                case ImageBlock():
                    parts.append({"type": "image_url", "image_url": {"url": image_url(block)}})
                case ProviderBlock():
                    continue
            self._markable.add(index, parts[-1])
        return parts

    def _add_answer(self, index: int, message: LLMMessage) -> None:
        fields: JsonObject = {}
        of_calls: dict[str, Any] = {}
        for block in message.blocks:
            if isinstance(block, ProviderBlock) and block.provider == self._provider:
                of_calls |= object_of(block.block, "tool_calls")
                fields |= {name: value for name, value in block.block.items() if name not in _OUR_FIELDS}
        parts = self._parts(index, (block for block in message.blocks if isinstance(block, TextBlock)))
        written: dict[str, Any] = {"role": "assistant", "content": parts or None, **fields}
        if message.tool_calls:
            written["tool_calls"] = [_call(call) | object_of(of_calls, call.id) for call in message.tool_calls]
        elif not parts:
            written["content"] = ""
        self._written.append(written)

    def _add_result(self, index: int, message: LLMMessage) -> None:
        parts = self._parts(index, (block for block in message.blocks if isinstance(block, TextBlock)))
        self._written.append({"role": "tool", "tool_call_id": message.tool_call_id, "content": parts})
        images = [block for block in message.blocks if isinstance(block, ImageBlock)]
        if images:
            self._images.append({"type": "text", "text": f"Images of the result of {message.tool_call_id}:"})
            self._images += [{"type": "image_url", "image_url": {"url": image_url(image)}} for image in images]

    def _flush_images(self) -> None:
        if self._images:
            self._written.append({"role": "user", "content": self._images})
            self._images = []


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_of(call)}}


def _plain(content: Any) -> Any:
    """Return parts that are one text as the text, which every server understands."""
    if content == []:
        return ""
    if isinstance(content, list) and all(part.keys() == {"type", "text"} for part in content):
        return "".join(part["text"] for part in content)
    return content
