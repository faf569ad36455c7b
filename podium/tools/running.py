"""Runs of tools: whatever the function does, the outcome is one that a record can have and a model can read.

A function may hang, raise, call ``sys.exit``, flood, or return what JSON cannot hold. Only a cancellation of the task
that runs it, and the errors by which a turn tells that its record does not fit, leave.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, NotRequired, TypedDict, cast

import structlog
from pydantic_core import PydanticSerializationError, to_jsonable_python

from chronicle.canonical import encode
from podium.errors import Permanent, ProgramChanged, StepsOutdated
from podium.state import InvalidValue, OutsideTurn
from podium.state.plain_json import plain_json
from podium.tools.result import encodable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from chronicle.canonical import Json
    from podium.agent.retry import Retry
    from podium.tools.tool_spec import Tool

__all__ = ["MAX_RESULT_BYTES", "Outcome", "run_tool"]

MAX_RESULT_BYTES: Final = 16 * 1024 * 1024
"""Of the JSON of a result, and of all that one call yields: what is larger belongs into a file."""

_log = structlog.stdlib.get_logger("podium.tools.running")


class Outcome(TypedDict):
    """How a call ended, as a step records it."""

    value: NotRequired[Json]
    """The result; absent if it failed."""
    error: NotRequired[str]
    duration_ms: int
    head: NotRequired[str]
    """What the model gets of a large result, if its value is what tells of the artifact that has it."""


class _Unusable(Exception):
    """A tool returned what cannot be its result."""


async def run_tool(
    tool: Tool, bound: Mapping[str, object], context: object, updated: Callable[[Json], Awaitable[None]]
) -> Outcome:
    """Call a tool, again after failures that its policy names, and return how it ended.

    Args:
        bound: its arguments, from `Implementation.bind`.
        context: of the turn; ``None`` without one.
        updated: gets what an async generator yields.
    """
    began_s, tries = time.monotonic(), 0
    while True:
        tries += 1
        try:
            value = await _limited(tool, bound, context, updated)
        except (ProgramChanged, StepsOutdated):
            raise
        except (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            retry = tool.retry
            if retry is not None and tries < retry.attempts and _may_pass(error, retry):
                await asyncio.sleep(retry.delay_after_s(tries))
                continue
            if not isinstance(error, _Unusable):
                _log.info("tool_raised", tool=tool.name, exc_info=error)
            return {"error": _told(tool, error), "duration_ms": _since_ms(began_s)}
        return {"value": value, "duration_ms": _since_ms(began_s)}


async def _limited(
    tool: Tool, bound: Mapping[str, object], context: object, updated: Callable[[Json], Awaitable[None]]
) -> Json:
    """Call a tool once.

    Raises:
        _Unusable: it took too long, or has no result that can be used.
        Exception: what it raised.
    """
    try:
        async with asyncio.timeout(None if tool.steps else tool.timeout_s) as limit:
            begun: Any = tool.implementation.call(bound, context)
            if inspect.isasyncgen(begun):
                return await _last(tool, cast("AsyncGenerator[Any, None]", begun), updated)
            return _as_json(tool, await begun if inspect.isawaitable(begun) else begun)
    except TimeoutError as error:
        if limit.expired():
            raise _Unusable(f"tool {tool.name!r} took longer than its limit of {tool.timeout_s:g} s") from error
        raise


async def _last(tool: Tool, yielded: AsyncGenerator[Any, None], updated: Callable[[Json], Awaitable[None]]) -> Json:
    """Return what a generator yields at last; each thing that it yields is an update."""
    size, latest = 0, None
    async with aclosing(yielded):
        async for each in yielded:
            latest = _as_json(tool, each)
            size += len(encode(latest))
            if size > MAX_RESULT_BYTES:
                raise _Unusable(f"tool {tool.name!r} yielded more than {MAX_RESULT_BYTES} bytes, and was stopped")
            await updated(latest)
    return latest


def _as_json(tool: Tool, value: object) -> Json:
    """Return what a tool returned, as JSON."""
    if inspect.isgenerator(value) or inspect.isasyncgen(value) or inspect.iscoroutine(value):
        raise _Unusable(f"tool {tool.name!r} returned a {type(value).__name__}, which is no result")
    if isinstance(value, str | bytes) and len(value) > MAX_RESULT_BYTES:
        raise _too_large(tool, len(value))
    try:
        plain = plain_json(to_jsonable_python(value, by_alias=True))
    except (PydanticSerializationError, InvalidValue, ValueError, RecursionError) as error:
        raise _Unusable(f"tool {tool.name!r} returned what JSON cannot hold: {error}") from error
    if (size := len(encode(plain))) > MAX_RESULT_BYTES:
        raise _too_large(tool, size)
    return plain


def _too_large(tool: Tool, size: int) -> _Unusable:
    return _Unusable(
        f"the result of tool {tool.name!r} has {size} bytes, more than the {MAX_RESULT_BYTES} that a result may have; "
        "ask for less, or have it written to a file"
    )


def _may_pass(error: BaseException, retry: Retry) -> bool:
    cause = error.__cause__ if isinstance(error, _Unusable) else error
    return isinstance(cause, retry.on) and not isinstance(cause, Permanent)


def _is_cancelled() -> bool:
    """Whether the task is to end: else a cancellation was raised by the tool."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _told(tool: Tool, error: BaseException) -> str:
    """Return an error as the model gets it."""
    if isinstance(error, _Unusable):
        return encodable(str(error))
    if isinstance(error, OutsideTurn) and tool.is_read:
        return f"tool {tool.name!r} has the mode read, and changes the state; declare it with mode='write'"
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  of any code
        text = ""
    kind = type(error).__name__
    return encodable(f"{kind}: {text}" if text else kind)


def _since_ms(began_s: float) -> int:
    return round((time.monotonic() - began_s) * 1000)
