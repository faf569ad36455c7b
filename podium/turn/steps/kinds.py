"""The kinds of steps: what a step runs, what its record has, and how a further attempt gets that back.

`TurnSteps` is the same for all of them. Another kind of step is a class here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from podium.turn.steps.calling import result_of
from podium.turn.steps.effects import repeat_effects

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from chronicle.canonical import Json
    from podium.events import ModelCallSummary
    from podium.history.step_record import FailedStep
    from podium.turn.steps.calling import StepCall
    from podium.turn.steps.effects import RunningStep, StepSink

__all__ = ["FunctionStep", "StepKind", "StreamStep"]


class StepKind(Protocol):
    """A step that a hook asks for. Its source yields parts; the last one is yielded to the hook once it is durable."""

    @property
    def name(self) -> str:
        """Its name, of which its key is made."""
        ...

    @property
    def arguments(self) -> object:
        """JSON values; a further attempt must give the same."""
        ...

    @property
    def has_span(self) -> bool:
        """Whether it is a span of its own in a trace."""
        ...

    @property
    def repeats_changes(self) -> bool:
        """Whether a replay leaves it to the program to change the state as it did while the step ran."""
        ...

    def source(self, step: RunningStep) -> AsyncGenerator[Json, None]:
        """Begin what yields its parts."""
        ...

    def is_last(self, part: Json) -> bool:
        """Whether a part is the last one of a source that ends as it should."""
        ...

    def result(self, parts: Sequence[Json]) -> Json:
        """Return the result to record."""
        ...

    def parts(self, result: Json) -> Sequence[Json]:
        """Return the parts of a recorded result."""
        ...

    def described(self, args_hash: str, parts: Sequence[Json]) -> ModelCallSummary | None:
        """Return what the record says of the call of a model."""
        ...

    def failed(self, failure: FailedStep, parts: Sequence[Json], *, left: bool) -> FailedStep:
        """Return the record of a failure.

        Args:
            parts: what the hook got before.
            left: whether the hook left the step before its end.
        """
        ...

    def check(self, key: str, result: Json) -> None:
        """Check that a recorded result is one of this step.

        Raises:
            ProgramChanged: it is not.
        """
        ...

    async def repeat(self, effects: Sequence[Json]) -> None:
        """Say and send again what the step did."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionStep:
    """A call of a function, whose result is the step's only part; see `AgentContext.step`."""

    name: str
    call: StepCall
    sink: StepSink
    """The scope of the hook that asks."""
    tenant: str
    """The agent's."""
    has_span = True
    repeats_changes = False

    @property
    def arguments(self) -> object:
        """See `StepKind`."""
        return self.call.as_json()

    async def source(self, step: RunningStep) -> AsyncGenerator[Json, None]:
        """See `StepKind`."""
        yield await result_of(step, self.call)

    def is_last(self, part: Json) -> bool:  # noqa: ARG002  the port has it
        """See `StepKind`."""
        return True

    def result(self, parts: Sequence[Json]) -> Json:
        """See `StepKind`."""
        return parts[0]

    def parts(self, result: Json) -> Sequence[Json]:
        """See `StepKind`."""
        return [result]

    def described(self, args_hash: str, parts: Sequence[Json]) -> None:
        """See `StepKind`."""

    def failed(self, failure: FailedStep, parts: Sequence[Json], *, left: bool) -> FailedStep:  # noqa: ARG002
        """See `StepKind`."""
        return failure

    def check(self, key: str, result: Json) -> None:
        """See `StepKind`."""
        if self.call.type is not None:
            self.call.type.from_json(key, result)

    async def repeat(self, effects: Sequence[Json]) -> None:
        """See `StepKind`."""
        await repeat_effects(effects, self.sink, self.tenant)


@dataclass(frozen=True, slots=True)
class StreamStep:
    """A stream, such as the answer of a model or of another agent, whose parts are the step's result."""

    name: str
    source: Callable[[RunningStep], AsyncGenerator[Json, None]]
    arguments: Sequence[object]
    is_last: Callable[[Json], bool]
    described: Callable[[str, Sequence[Json]], ModelCallSummary | None] = lambda _digest, _parts: None
    has_span: bool = False
    repeats_changes = True

    def result(self, parts: Sequence[Json]) -> Json:
        """See `StepKind`."""
        return [*parts]

    def parts(self, result: Json) -> Sequence[Json]:
        """See `StepKind`."""
        return cast("list[Json]", result)

    def failed(self, failure: FailedStep, parts: Sequence[Json], *, left: bool) -> FailedStep:
        """See `StepKind`."""
        return {**failure, "parts": [*parts], "left": left}

    def check(self, key: str, result: Json) -> None:
        """See `StepKind`."""

    async def repeat(self, effects: Sequence[Json]) -> None:
        """See `StepKind`: the program does again what it did with the parts."""
