"""``podium context``: what an agent's models were sent in a turn, and what they answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from chronicle.cli_kit.terminal import json_text, one_line, say, write_json, write_line
from coordinator.cli.options import MomentArgument, command
from coordinator.cli.target import Target, moment_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coordinator.client.async_client import AsyncPodium
    from coordinator.operations.objects import ContextCall, ModelContext

__all__ = ["context"]

_MAX_TEXT: Final = 300
"""Characters of a message in its line; JSON has all."""


@command
def context(moment: MomentArgument, *, target: Target) -> None:
    """Show what an agent's models were sent in a turn, and what they answered.

    Without a turn, of the last one that called a model. Long messages are cut; --json has them whole, with the tools,
    the usage and the provider's own blocks. What was erased is missing.
    """

    async def read(podium: AsyncPodium) -> ModelContext:
        at = await moment_of(podium, moment)
        return await podium.context(at.agent, at=at.turn)

    found = target.ask(f"reading the context of {moment}", read, moment)
    if target.json:
        write_json(found.as_json())
        return
    if not found.calls:
        say(f"{found.agent} has called no model{'' if found.turn is None else f' in turn {found.turn}'}")
        return
    say(f"{found.agent}, turn {found.turn}")
    for number, call in enumerate(found.calls, 1):
        for line in _lines(number, call):
            write_line(one_line(line))


def _lines(number: int, call: ContextCall) -> Iterator[str]:
    usage = call.answer["usage"]
    tokens = f"{usage['input_tokens']} tokens sent, {usage['cached_tokens']} from the cache"
    missed = f", {usage['cache_miss_reason']}" if "cache_miss_reason" in usage else ""
    yield f"call {number}: {call.profile}, {call.status}, {tokens}{missed}, {usage['output_tokens']} back"
    for message in call.messages:
        yield f"  {_message(message)}" if message is not None else "  (erased)"
    if call.tools:
        yield f"  tools: {', '.join(_name(tool) for tool in call.tools)}"
    if "reasoning" in call.answer:
        yield f"  > thinking: {call.answer['reasoning'][:_MAX_TEXT]}"
    yield f"  > {_message(call.answer['message'])}" if call.answer["message"] else "  > (erased)"
    if call.error is not None:
        yield f"  > failed: {call.error['message']}"


def _message(message: Mapping[str, Any]) -> str:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    said = [block["text"][:_MAX_TEXT] if block["type"] == "text" else f"[{block['type']}]" for block in blocks]
    called = [f"{call['name']}({json_text(call['arguments'])})" for call in message.get("tool_calls", ())]
    of = f" {message['tool_call_id']}" if "tool_call_id" in message else ""
    note = f" ({message['note']})" if "note" in message else ""
    return f"{message['role']}{of}{note}: {' '.join(filter(None, [*said, *called]))}"


def _name(tool: Mapping[str, Any]) -> str:
    return str(tool.get("function", tool).get("name", tool.get("type")))
