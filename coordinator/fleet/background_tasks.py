"""What an actor does beside answering calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["Tasks"]

_log = structlog.stdlib.get_logger("coordinator")


class Tasks:
    """Tasks of which none ends another: what one raises is a bug, and is logged."""

    def __init__(self) -> None:
        self._all: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[Any, Any, object], name: str) -> asyncio.Task[None]:
        """Start a task whose end somebody waits for."""
        task = asyncio.get_running_loop().create_task(_logged(coroutine), name=name)
        self._all.add(task)
        task.add_done_callback(self._all.discard)
        return task

    def spawn(self, coroutine: Coroutine[Any, Any, object], name: str) -> None:
        """Start a task that nobody waits for."""
        _ = self.start(coroutine, name)

    def cancel(self) -> None:
        """Cancel all that run."""
        for task in self._all:
            task.cancel()


async def _logged(coroutine: Coroutine[Any, Any, object]) -> None:
    try:
        await coroutine
    except Exception:  # noqa: BLE001  a bug is logged; the others must go on
        _log.exception("coordinator_task_failed")
