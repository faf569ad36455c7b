"""Calls of the function of a step, with its retries."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

from chronicle.errors import WrongType
from podium.agent.retry import Retry
from podium.state import InvalidValue
from podium.state.plain_json import plain_json
from podium.state.tracked.node import MAX_DEPTH
from podium.turn.hooks.hook_runner import is_permanent
from podium.turn.steps.effects import inside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.canonical import Json
    from podium.turn.steps.effects import RunningStep

__all__ = ["check_call", "result_of"]


def check_call(name: object, function: object, retry: object) -> None:
    """Check the arguments of a step.

    Raises:
        WrongType: one cannot be used.
    """
    if not isinstance(name, str):
        raise WrongType(f"a step's name is a text, not {type(name).__name__}")
    if inspect.iscoroutine(function):
        function.close()  # nobody will await it
        called = function.__name__
        raise WrongType(
            f"step {name!r} was given the coroutine of {called}(…), which a further attempt could not call again; give "
            f"the function and its arguments: ctx.step({name!r}, {called}, …)"
        )
    if not callable(function):
        raise WrongType(f"step {name!r} takes a function, not {type(function).__name__}")
    if not isinstance(retry, Retry | None):
        raise WrongType(f"step {name!r} takes retry=Retry(…), not {type(retry).__name__}")


async def result_of(
    step: RunningStep, function: Callable[..., object], arguments: Sequence[object], retry: Retry | None
) -> Json:
    """Call the function of a step, again after failures that its policy names, and return its result as JSON.

    Raises:
        InvalidValue: JSON cannot represent the result.
        Exception: what the function raised at last.
    """
    with inside(step):
        while True:
            try:
                returned = function(*arguments)
                result = await returned if inspect.isawaitable(returned) else returned
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
                return _as_json(step.key, result)


def _as_json(key: str, value: object) -> Json:
    """Return what a step's function returned, as JSON.

    Raises:
        InvalidValue: JSON cannot represent it; the message has the step, the path and how to mend it.
    """
    try:
        return plain_json(value, MAX_DEPTH + 1)  # the answer to a question has the value that the other agent gave
    except InvalidValue as error:
        raise InvalidValue(error.path, f"{error.reason}; it is in the result of step {key!r}") from None
