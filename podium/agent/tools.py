"""`AgentTools`: the tools of a router, as an agent's code uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.canonical import JsonObject
    from podium.tools import ToolCall, ToolResult, ToolRouter
    from podium.turn.scope.tools import ToolCalls

__all__ = ["AgentTools"]


class AgentTools:
    """The tools of a router, for one turn. `AgentContext.tools` makes it."""

    def __init__(self, calls: ToolCalls, router: ToolRouter) -> None:
        self._calls = calls
        self._router = router

    @property
    def definitions(self) -> list[JsonObject]:
        """What a model gets as its ``tools``: `ToolRouter.definitions`."""
        return self._router.definitions

    async def dispatch(self, call: ToolCall, *, consent_granted: bool = False) -> ToolResult:
        """Call a tool, and return how that ended, errors of the tool included.

        The call is a step of the turn: the outcome is durable before it is returned, and a further attempt of the
        message gets it without a call. Client and transcript are told of it (``tool_execution_start``, ``…_update``,
        ``…_end``; ``tool_result``). A large result becomes an artifact.

        Args:
            call: id, name and arguments, as the model gave them.
            consent_granted: whether tools that need consent may be called.

        Raises:
            ProgramChanged: an earlier attempt of the message called something else.
            PodiumError: the hook handles no message, its turn is over, or this is called inside of a step.
        """
        return await self._router.dispatch(call, consent_granted=consent_granted, host=self._calls)

    async def dispatch_all(self, calls: Sequence[ToolCall], *, consent_granted: bool = False) -> list[ToolResult]:
        """Call several tools, and return their results in the order of the calls; otherwise as `dispatch`.

        Calls that only read overlap; any other one runs alone, in its place in the order.
        """
        return await self._router.dispatch_all(calls, consent_granted=consent_granted, host=self._calls)
