"""Messages as the body of a request to the Responses API. Pure.

The conversation is sent whole and nothing is stored at the provider (``store: false``), so items of its own, such as
encrypted reasoning, go back as they came, at their places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podium.models.caching import Markable, last_response_id
from podium.models.openai_compat.options import arguments_of, image_url, mark_breakpoints
from podium.models.port import ImageBlock, ProviderBlock, TextBlock
from podium.models.tools import FunctionTool, place_of, read_tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chronicle.canonical import JsonObject
    from podium.models.openai_compat.options import Options
    from podium.models.port import ContentBlock, LLMMessage, ToolCall

__all__ = ["responses_request"]


def responses_request(
    options: Options, messages: Sequence[LLMMessage], tools: Iterable[JsonObject] | None, temperature: float | None
) -> JsonObject:
    """Return the body of a request.

    Raises:
        ModelError: ``bad_request``: a tool is none.
    """
    body: dict[str, Any] = {
        "model": options.model,
        "input": _Items(options.name).written(messages, with_breakpoints=options.has_breakpoints),
        "stream": True,
        "store": False,
    }
    if options.max_output_tokens is not None:
        body["max_output_tokens"] = options.max_output_tokens
    if temperature is not None:
        body["temperature"] = temperature
    if written := [_tool(tool) for tool in read_tools(tools)]:
        body["tools"] = written
    if options.has_breakpoints and (compared := last_response_id(messages, "resp_")) is not None:
        body["prompt_cache_options"] = {"comparison_response_id": compared}
    return body | options.cache_fields(messages) | dict(options.extra)


def _tool(tool: FunctionTool | JsonObject) -> JsonObject:
    if not isinstance(tool, FunctionTool):
        return tool
    written: JsonObject = {
        "type": "function",
        "name": tool.name,
        "parameters": tool.parameters,
        "strict": bool(tool.strict),  # by default it is on, and refuses most schemas
    }
    if tool.description is not None:
        written["description"] = tool.description
    return written


class _Items:
    """Writes the items of one request."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._written: list[JsonObject] = []
        self._with_parts: list[tuple[dict[str, Any], str]] = []
        self._markable = Markable()

    def written(self, messages: Sequence[LLMMessage], *, with_breakpoints: bool) -> list[JsonObject]:
        for index, message in enumerate(messages):
            if message.role == "assistant":
                self._add_answer(message)
                continue
            item: dict[str, Any]
            if message.role == "tool":
                item, name = {"type": "function_call_output", "call_id": message.tool_call_id}, "output"
            else:
                item, name = {"role": message.role}, "content"
            item[name] = self._parts(index, message.blocks)
            self._written.append(item)
            self._with_parts.append((item, name))
        if with_breakpoints:
            mark_breakpoints(self._markable, messages)
        for item, name in self._with_parts:
            item[name] = _plain(item[name])
        return self._written

    def _parts(self, index: int, blocks: Iterable[ContentBlock]) -> list[JsonObject]:
        parts: list[JsonObject] = []
        for block in blocks:
            match block:
                case TextBlock():
                    parts.append({"type": "input_text", "text": block.text})
                case ImageBlock():
                    parts.append({"type": "input_image", "detail": "auto", "image_url": image_url(block)})
                case ProviderBlock():
                    continue
            self._markable.add(index, parts[-1])
        return parts

    def _add_answer(self, message: LLMMessage) -> None:
        blocks, calls = message.blocks, list(message.tool_calls)
        phase: Any = None
        of_calls: dict[str, JsonObject] = {}
        for place in range(len(blocks) + 1):
            while calls and place_of(calls[0], len(blocks)) <= place:
                call = calls.pop(0)
                self._written.append(_call(call) | of_calls.get(call.id, {}))
            if place == len(blocks):
                break
            match blocks[place]:
                case TextBlock(text) if text:
                    self._written.append({"role": "assistant", "content": text} | ({"phase": phase} if phase else {}))
                    phase = None
                case ProviderBlock(provider, block) if provider == self._provider:
                    if block.get("type") == "message":
                        phase = block.get("phase")
                    elif block.get("type") == "function_call":
                        of_calls[str(block.get("call_id"))] = block
                    else:
                        self._written.append(block)


def _call(call: ToolCall) -> JsonObject:
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments_of(call)}


def _plain(content: list[dict[str, Any]]) -> Any:
    """Return parts that are one text as the text."""
    if all(part.keys() == {"type", "text"} for part in content):
        return "".join(part["text"] for part in content)
    return content
