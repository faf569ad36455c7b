"""Calls of the function of a step, with its retries."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

from podium.errors import Permanent
from podium.state import InvalidValue
from podium.state.plain_json import plain_json
from podium.turn.steps.effects import inside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.canonical import Json
    from podium.agent.retry import Retry
    from podium.turn.steps.effects import RunningStep

__all__ = ["result_of"]


async def result_of(
    step: RunningStep, function: Callable[..., object], arguments: Sequence[object], retry: Retry | None
) -> Json:
    """Call the function of a step, again after failures that its policy names, and return its result as JSON.

    Raises:
        InvalidValue: JSON cannot represent the result.
        Exception: what the function raised at last.
    """
    with inside(step):
        tries = 0
        while True:
            tries += 1
            try:
                returned = function(*arguments)
                result = await returned if inspect.isawaitable(returned) else returned
            except Permanent:
                raise
            except Exception as error:
                if retry is None or tries >= retry.attempts or not isinstance(error, retry.on):
                    raise
                await asyncio.sleep(retry.delay_after_s(tries))
            else:
                return _as_json(step.key, result)


def _as_json(key: str, value: object) -> Json:
    """Return what a step's function returned, as JSON.

    Raises:
        InvalidValue: JSON cannot represent it; the message has the step, the path and how to mend it.
    """
    try:
        return plain_json(value)
    except InvalidValue as error:
        raise InvalidValue(error.path, f"{error.reason}; it is in the result of step {key!r}") from None
