"""Steps of a hook, as its code begins them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podium.errors import ContextMisuse
from podium.turn.steps.calling import check_call
from podium.turn.steps.effects import current_step
from podium.turn.steps.kinds import FunctionStep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.canonical import Json
    from podium.agent.retry import Retry
    from podium.turn.scope.open_turn import RunningHook
    from podium.turn.steps.effects import StepSink

__all__ = ["Steps"]


class Steps:
    """The steps of one hook.

    Args:
        sink: takes what a step that is replayed has said and sent.
    """

    def __init__(self, hook: RunningHook, sink: StepSink) -> None:
        self._hook = hook
        self._sink = sink

    @property
    def key_prefix(self) -> str:
        """The key of the step whose function is the calling code, as a prefix; empty outside of steps."""
        step = current_step()
        return f"{step.key}:" if step is not None else ""

    async def run(
        self, name: str, function: Callable[..., object], arguments: Sequence[object], retry: Retry | None
    ) -> Json:
        """Run a step of the turn; see `AgentContext.step`."""
        turn = self._hook.turn
        turn.check_open()
        check_call(name, function, retry)
        if turn.steps is None:
            raise ContextMisuse("this hook handles no message, so it has no steps; begin steps in on_message")
        step = FunctionStep(name, function, arguments, retry, self._sink, turn.address.tenant)
        return await turn.steps.run(step, self._hook.step_prefix)
