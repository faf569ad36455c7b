"""`ToolRouter`: the tools that a model may call, and their calls."""

from __future__ import annotations

import asyncio
import difflib
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from chronicle.canonical import decode_input
from chronicle.errors import InvalidInput
from podium.errors import InvalidTool
from podium.tools.declaring import declared, tool
from podium.tools.host import NoHost
from podium.tools.result import ToolResult, failed
from podium.tools.results import result_of
from podium.tools.running import Outcome, run_tool
from podium.tools.tool_spec import BadArguments, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chronicle.canonical import Json, JsonObject
    from podium.models.port import ToolCall
    from podium.tools.host import ToolHost

__all__ = ["ToolRouter"]

_MAX_OVERLAPPING: Final = 16
"""Calls of reading tools that run at the same time: a model may ask for any number."""
_NOT_YET: Final = "which this router cannot ask for, so it was not called"
_NO_HOST: Final = NoHost()


class ToolRouter:
    """The tools that a model may call. It has no state but these."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools, by name, in the order in which they were added."""
        return MappingProxyType(self._tools)

    @property
    def definitions(self) -> list[JsonObject]:
        """What models get as their tools, and clients: ``{"name", "description", "parameters", "mode", …}``.

        ``requires_approval``, ``decision`` and ``runs`` are there if the tool declares them.
        """
        return [each.definition for each in self._tools.values()]

    def add(self, added: Tool | Callable[..., Any]) -> Tool:
        """Add a tool: one that was made, or a function, which `podium.tools.tool` need not have declared.

        Raises:
            InvalidTool: it cannot be a tool, or there is one of its name; the message has both places.
        """
        made = added if isinstance(added, Tool) else declared(added) or declared(tool(added))
        assert made is not None, "a declared function has its tool"
        if (other := self._tools.get(made.name)) is not None:
            raise InvalidTool(
                f"two tools are named {made.name!r}, at {other.place} and at {made.place}; rename one of them"
            )
        self._tools[made.name] = made
        return made

    async def dispatch(self, call: ToolCall, *, consent_granted: bool = False, host: ToolHost = _NO_HOST) -> ToolResult:
        """Call a tool, and return how that ended: whatever the tool does, the result tells of it.

        Args:
            call: id, name and arguments, as the model gave them.
            consent_granted: whether tools that need consent may be called.
            host: where it runs; `podium.AgentContext.tools` gives that of its turn.
        """
        made = self._tools.get(call.name)
        await host.begin(call)
        refused, bound = self._refused(made, call, consent_granted=consent_granted, host=host)
        if refused is not None or made is None:
            result = refused or self._unknown(call)
        else:
            result = await self._called(made, call, bound, host)
        await host.end(call, result)
        return result

    async def dispatch_all(
        self, calls: Sequence[ToolCall], *, consent_granted: bool = False, host: ToolHost = _NO_HOST
    ) -> list[ToolResult]:
        """Call several tools, and return their results in the order of the calls.

        They run as if one after the other: calls that only read overlap, any other one begins when those before it have
        ended, and ends before those behind it begin.
        """
        room = asyncio.Semaphore(_MAX_OVERLAPPING)

        async def one(call: ToolCall) -> ToolResult:
            async with room:
                return await self.dispatch(call, consent_granted=consent_granted, host=host)

        results: list[ToolResult] = []
        for reads, together in groupby(calls, self._only_reads):
            if not reads:
                results += [await one(call) for call in together]
                continue
            tasks: list[asyncio.Task[ToolResult]] = []
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(one(call), name=f"tool {call.name}") for call in together]
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None  # of the turn: those of tools are in their results
            results += [task.result() for task in tasks]
        return results

    def _only_reads(self, call: ToolCall) -> bool:
        made = self._tools.get(call.name)
        return made is None or made.is_read

    def _refused(
        self, made: Tool | None, call: ToolCall, *, consent_granted: bool, host: ToolHost
    ) -> tuple[ToolResult | None, Mapping[str, object]]:
        """Return why a call is not made, ``None`` if it is, and its arguments."""
        if made is None:
            return None, {}
        if made.runs == "client":
            return failed(f"Tool {made.name!r} runs at the client, not here", {"refused": "client"}), {}
        if made.decision is not None:
            return failed(f"Tool {made.name!r} needs a decision, {_NOT_YET}", {"refused": "decision"}), {}
        if made.requires_approval:
            return failed(f"Tool {made.name!r} needs an approval, {_NOT_YET}", {"refused": "approval"}), {}
        if made.require_consent and not consent_granted:
            return failed(f"Tool {made.name!r} requires explicit consent", {"refused": "consent"}), {}
        if made.implementation.needs_context and host.context is None:
            return failed(f"Tool {made.name!r} works in a turn of an agent only", {"refused": "context"}), {}
        try:
            return None, made.implementation.bind(_arguments(call))
        except BadArguments as error:
            text = f"the arguments of {made.name!r} do not fit its schema: {error}"
            return failed(text, {"invalid": list(error.problems)}), {}

    async def _called(self, made: Tool, call: ToolCall, bound: Mapping[str, object], host: ToolHost) -> ToolResult:
        async def updated(partial: Json) -> None:
            await host.update(call, partial)

        async def run() -> Outcome:
            return await run_tool(made, bound, host.context, updated)

        return result_of(await host.durably(made, call, run))

    def _unknown(self, call: ToolCall) -> ToolResult:
        known = list(self._tools)
        text = f"Unknown tool: {call.name}. Available tools: {', '.join(known) or 'none'}"
        suggestions = difflib.get_close_matches(call.name, known)
        return failed(text, {"unknownTool": call.name, "suggestions": [*suggestions]})


def _arguments(call: ToolCall) -> JsonObject:
    """Return the arguments of a call; a text is read as JSON.

    Raises:
        BadArguments: they are no JSON object.
    """
    given: object = call.arguments
    text = given if isinstance(given, str) else call.invalid_arguments
    if text is not None:
        try:
            given = decode_input(text.encode() or b"{}")
        except (InvalidInput, UnicodeEncodeError) as error:
            raise BadArguments((f"the arguments are no JSON: {error}",)) from None
    if not isinstance(given, dict):
        raise BadArguments((f"the arguments are a JSON object, not {type(given).__name__}",))
    return given
