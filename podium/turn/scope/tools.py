"""Calls of tools in a turn: each is a step, is told to the client, and is in the transcript."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from podium.events import TOOL_RESULT
from podium.state.guard import Permit, use_permit
from podium.tools.result import encodable
from podium.tools.results import with_artifact
from podium.turn.scope.steps import part_of_hook
from podium.turn.steps.calling import StepCall
from podium.turn.tool_frames import end_frame, start_frame, update_frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.canonical import Json, JsonObject
    from podium.models.port import ToolCall
    from podium.tools import Tool, ToolResult
    from podium.tools.running import Outcome
    from podium.turn.scope.artifacts import Artifacts
    from podium.turn.scope.open_turn import RunningHook
    from podium.turn.scope.replies import Replies
    from podium.turn.scope.steps import Steps

__all__ = ["ToolCalls"]


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """The calls of tools of one hook. It is a `podium.tools.host.ToolHost`, with the context that `of` gives it."""

    hook: RunningHook
    replies: Replies
    steps: Steps
    artifacts: Artifacts
    context: object = None

    def of(self, context: object) -> ToolCalls:
        """Return the calls whose functions get a context."""
        return replace(self, context=context)

    async def begin(self, call: ToolCall) -> None:
        """See `ToolHost`."""
        await self.replies.publish(start_frame(call.id, encodable(call.name), _copied(call.arguments)))

    async def update(self, call: ToolCall, partial: Json) -> None:
        """See `ToolHost`."""
        await self.replies.publish(update_frame(call.id, call.name, partial))

    async def durably(self, tool: Tool, call: ToolCall, run: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """See `ToolHost`: a step named as the tool. A tool with steps of its own runs before, as code of the hook."""
        function = run
        if tool.steps:
            with part_of_hook(f"tool {call.name}:{call.id}"):
                outcome = await run()

            async def function() -> Outcome:
                return outcome

        elif tool.is_read:

            async def function() -> Outcome:
                with use_permit(Permit(f"tool {call.name}")):  # which the state does not take
                    return await run()

        async def ended(_call_id: str, _arguments: object) -> object:
            return await with_artifact(call.name, await function(), self.artifacts.add)

        step = StepCall(f"tool {call.name}", ended, (call.id, call.arguments))
        return cast("Outcome", await self.steps.run(step))

    async def end(self, call: ToolCall, result: ToolResult) -> None:
        """See `ToolHost`: it is in the transcript from here on."""
        payload: JsonObject = {
            "call_id": call.id,
            "name": encodable(call.name),
            "arguments": _copied(call.arguments),
            "success": result.success,
            "output": result.message,
        }
        if "value" in result.data and result.data["value"] != result.message:
            payload["value"] = _copied(result.data["value"])
        if "durationMs" in result.data:
            payload["duration_ms"] = result.data["durationMs"]
        self.hook.record(TOOL_RESULT, payload)
        await self.replies.publish(end_frame(payload))


def _copied(value: Json) -> Json:
    """Return a value as it is now, whatever the agent makes of it later, with text that can be encoded."""
    if isinstance(value, dict):
        return {encodable(key): _copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_copied(each) for each in value]
    return encodable(value) if isinstance(value, str) else value
