"""Failures of steps that a program handled: recorded with the next step that ends, and raised again at a replay.

A program may catch the exception of a step and go on to another one. A further attempt has to take the same way, so the
step is not run again there: an exception of the same class is raised, with the recorded text and without the
attributes of the first one; only a `ModelError` has them. A class that is not loaded any more is replaced by
`StepFailed`.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from podium.errors import StepFailed
from podium.models.errors import ModelError

if TYPE_CHECKING:
    from podium.history.step_record import FailedStep
    from podium.turn.steps.effects import RunningStep

__all__ = ["failed_step", "raised_again"]


def failed_step(step: RunningStep, error: BaseException, now_ms: int) -> FailedStep:
    """Return the record of a failure."""
    failed: FailedStep = {
        "key": step.key,
        "name": step.name,
        "args_hash": step.args_hash,
        "started_ms": step.started_ms,
        "ended_ms": now_ms,
        "attempts": step.attempts,
        "cancelled": isinstance(error, asyncio.CancelledError),
        "module": type(error).__module__,
        "type": type(error).__qualname__,
        "message": str(error).encode("utf-8", "backslashreplace").decode()[:2000],
    }
    if isinstance(error, ModelError):
        from podium.models.codec import error_to_json  # noqa: PLC0415  for agents that call models only

        failed["data"] = error_to_json(error)
    return failed


def raised_again(failed: FailedStep) -> BaseException:
    """Return the exception of a recorded failure."""
    if "data" in failed:
        from podium.models.codec import error_from_json  # noqa: PLC0415

        return error_from_json(failed["data"])
    found: object = sys.modules.get(failed["module"])
    for name in failed["type"].split("."):
        found = getattr(found, name, None)
    if isinstance(found, type) and issubclass(found, Exception):
        try:
            error = found.__new__(found, failed["message"])
        except TypeError:  # a __new__ with other arguments
            return StepFailed(f"{failed['type']}: {failed['message']}")
        error.args = (failed["message"],)
        return error
    return StepFailed(f"{failed['type']}: {failed['message']}")
