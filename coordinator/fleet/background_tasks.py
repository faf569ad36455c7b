"""Background tasks of an actor: they outlive the calls that start them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["BackgroundTasks"]

_log = structlog.stdlib.get_logger("coordinator")


class BackgroundTasks:
    """Independent tasks: an exception of one is a bug, which is logged."""

    def __init__(self) -> None:
        self._all: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[Any, Any, object], name: str) -> asyncio.Task[None]:
        """Start a task and return it, for the caller to await."""
        task = asyncio.get_running_loop().create_task(_logged(coroutine), name=name)
        self._all.add(task)
        task.add_done_callback(self._all.discard)
        return task

    def spawn(self, coroutine: Coroutine[Any, Any, object], name: str) -> None:
        """Start a task that is not awaited."""
        _ = self.start(coroutine, name)

    def cancel(self) -> None:
        """Cancel all running tasks."""
        for task in self._all:
            task.cancel()


async def _logged(coroutine: Coroutine[Any, Any, object]) -> None:
    try:
        await coroutine
    except Exception:  # noqa: BLE001  a bug must not end the other tasks
        _log.exception("coordinator_task_failed")
