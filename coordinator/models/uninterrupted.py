"""Work that a cancellation must not leave half done: records, and places to give back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from podium.tasks import beside

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["finish_despite_cancellation"]

_T = TypeVar("_T")


async def finish_despite_cancellation(work: Coroutine[Any, Any, _T]) -> tuple[_T, asyncio.CancelledError | None]:
    """Wait for work although this task is cancelled while it goes on.

    Returns:
        the result, and the cancellation if there was one, which the caller raises when it has used the result.

    Raises:
        Exception: what the work raised.
    """
    cancelled: asyncio.CancelledError | None = None
    with beside(work, "uninterrupted work of a model call") as task:
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError as error:
                if task.cancelled():
                    raise
                cancelled = error
        return task.result(), cancelled
