"""`ToolHost`: where the calls of a router run, a turn or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.canonical import Json
    from podium.models.port import ToolCall
    from podium.tools.result import ToolResult
    from podium.tools.running import Outcome
    from podium.tools.tool_spec import Tool

__all__ = ["NoHost", "ToolHost"]


class ToolHost(Protocol):
    """Where the calls of a router run."""

    @property
    def context(self) -> object:
        """What a function gets as its ``ctx``; ``None`` outside of turns."""
        ...

    async def begin(self, call: ToolCall) -> None:
        """Tell that a call begins."""
        ...

    async def update(self, call: ToolCall, partial: Json) -> None:
        """Tell what a call has so far."""
        ...

    async def durably(self, tool: Tool, call: ToolCall, run: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Run a call, or return how it ended in an earlier attempt. When it returns, the outcome is durable.

        A large result may be replaced by what tells where it is (`podium.tools.results.with_artifact`).
        """
        ...

    async def end(self, call: ToolCall, result: ToolResult) -> None:
        """Tell that a call has ended."""
        ...


class NoHost:
    """A program without turns: nothing is recorded, and nobody listens."""

    context = None

    async def begin(self, call: ToolCall) -> None:
        """See `ToolHost`."""

    async def update(self, call: ToolCall, partial: Json) -> None:
        """See `ToolHost`."""

    async def durably(self, tool: Tool, call: ToolCall, run: Callable[[], Awaitable[Outcome]]) -> Outcome:  # noqa: ARG002
        """See `ToolHost`."""
        return await run()

    async def end(self, call: ToolCall, result: ToolResult) -> None:
        """See `ToolHost`."""
