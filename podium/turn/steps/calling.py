"""Calls of the function of a step: its arguments, its time limit, its retries, and its result as JSON."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from chronicle.errors import WrongType
from podium.agent.retry import Retry
from podium.durations import seconds_of
from podium.sorted_sets import with_sorted_sets
from podium.state import InvalidValue
from podium.state.plain_json import plain_json
from podium.state.tracked.node import MAX_DEPTH
from podium.turn.hooks.hook_runner import is_permanent
from podium.turn.steps.effects import inside

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from chronicle.canonical import Json
    from podium.turn.steps.effects import RunningStep
    from podium.turn.steps.step_types import StepType

__all__ = ["StepCall", "result_of"]


@dataclass(frozen=True, slots=True)
class StepCall:
    """The call of the function of a step.

    Raises:
        InvalidInput: a part of it cannot be used.
    """

    name: str
    function: Any
    arguments: Sequence[object] = ()
    keywords: Mapping[str, object] = field(default_factory=dict)
    retry: Retry | None = None
    timeout: timedelta | float | str | None = None
    """Of each try."""
    type: StepType | None = None
    """The type of its result; ``None`` for plain JSON."""

    def __post_init__(self) -> None:
        name, function = self.name, self.function
        if not isinstance(name, str):
            raise WrongType(f"a step's name is a text, not {type(name).__name__}")
        if inspect.iscoroutine(function):
            function.close()  # nobody will await it
            called = function.__name__
            raise WrongType(
                f"step {name!r} was given the coroutine of {called}(…), which a further attempt could not call again; "
                f"give the function and its arguments: ctx.step({name!r}, {called}, …)"
            )
        if not callable(function):
            raise WrongType(f"step {name!r} takes a function, not {type(function).__name__}")
        if not isinstance(self.retry, Retry | None):
            raise WrongType(f"step {name!r} takes retry=Retry(…), not {type(self.retry).__name__}")
        if not isinstance(self.keywords, dict) or not all(isinstance(key, str) for key in self.keywords):
            raise WrongType(f"step {name!r} takes the keyword arguments of its function as a dict: kwargs={{'key': …}}")
        if self.timeout is not None:
            seconds_of(self.timeout, f"the timeout of step {name!r}")

    def as_json(self) -> object:
        """Return its arguments, such that two calls with the same ones have the same."""
        arguments = [_dumped(each) for each in self.arguments]
        if not self.keywords:
            return arguments
        return {"args": arguments, "kwargs": {key: _dumped(value) for key, value in self.keywords.items()}}


async def result_of(step: RunningStep, call: StepCall) -> Json:
    """Call the function of a step, again after failures that its policy names, and return its result as JSON.

    Raises:
        InvalidValue: JSON cannot represent the result.
        TimeoutError: the last try took longer than its limit.
        Exception: what the function raised at last.
    """
    retry = call.retry
    with inside(step):
        while True:
            try:
                result = await _returned(step.key, call)
            except Exception as error:
                if (
                    retry is None
                    or step.attempts >= retry.attempts
                    or not isinstance(error, retry.on)
                    or is_permanent(error)
                ):
                    raise
                await asyncio.sleep(retry.delay_after_s(step.attempts))
                step.attempts += 1
            else:
                return _as_json(step.key, result) if call.type is None else call.type.to_json(step.key, result)


async def _returned(key: str, call: StepCall) -> object:
    limit_s = None if call.timeout is None else seconds_of(call.timeout, "a step")
    try:
        async with asyncio.timeout(limit_s) as limit:
            returned = call.function(*call.arguments, **call.keywords)
            return await returned if inspect.isawaitable(returned) else returned
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError(f"step {key!r} took longer than its timeout of {limit_s:g} s") from error
        raise


def _dumped(value: object) -> object:
    return with_sorted_sets(value, value.model_dump(mode="json")) if isinstance(value, BaseModel) else value


def _as_json(key: str, value: object) -> Json:
    """Return what a step's function returned, as JSON.

    Raises:
        InvalidValue: JSON cannot represent it; the message has the step, the path and how to mend it.
    """
    if isinstance(value, BaseModel):
        name = type(value).__name__
        raise InvalidValue("", f"a {name} is the result of step {key!r}; annotate its function '-> {name}', or give "
                           f"result={name}")  # fmt: skip
    try:
        return plain_json(value, MAX_DEPTH + 1)  # the answer to a question has the value that the other agent gave
    except InvalidValue as error:
        raise InvalidValue(error.path, f"{error.reason}; it is in the result of step {key!r}") from None
