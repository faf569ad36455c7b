"""Steps of a hook, as its code begins them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from podium.errors import ContextMisuse
from podium.turn.steps.calling import StepCall
from podium.turn.steps.effects import current_step
from podium.turn.steps.kinds import FunctionStep
from podium.turn.steps.step_types import type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from podium.agent.retry import Retry
    from podium.turn.scope.open_turn import RunningHook
    from podium.turn.steps.effects import StepSink

__all__ = ["Steps", "part_of_hook"]

_part: Final[ContextVar[str]] = ContextVar("podium_part_of_hook", default="")


@contextmanager
def part_of_hook(name: str) -> Iterator[None]:
    """Make the ``with`` block a part of the hook whose idempotency keys are its own."""
    before = _part.set(f"{name}:")
    try:
        yield
    finally:
        _part.reset(before)


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
        """The key of the step whose function is the calling code, or the part of the hook, as a prefix; else empty."""
        step = current_step()
        return f"{step.key}:" if step is not None else _part.get()

    async def step(
        self,
        name: str,
        function: Callable[..., object],
        arguments: Sequence[object],
        keywords: Mapping[str, object] | None,
        retry: Retry | None,
        timeout: timedelta | float | str | None,
        result: Any,
    ) -> Any:
        """Run a step of the turn; see `AgentContext.step`."""
        call = StepCall(name, function, arguments, {} if keywords is None else keywords, retry, timeout)
        return await self.run(replace(call, type=type_of(name, function, result)))

    async def run(self, call: StepCall) -> Any:
        """Run the call of a function as a step of the turn."""
        turn = self._hook.turn
        turn.check_open()
        if turn.steps is None:
            raise ContextMisuse("this hook handles no message, so it has no steps; begin steps in on_message")
        step = FunctionStep(call.name, call, self._sink, turn.address.tenant)
        result = await turn.steps.run(step, self._hook.step_prefix)
        return result if call.type is None else call.type.from_json(call.name, result)
