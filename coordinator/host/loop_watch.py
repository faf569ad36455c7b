"""Which agent blocks the event loop of a shared host: seen from another thread, because the loop cannot tell.

The thread posts a heartbeat to the loop. While it is not answered, the loop is busy: with many short steps, or with one
step of a task, which then blocks all agents. A task belongs to the agent in whose context it was created, so that tasks
which an agent's code starts are its own.
"""

from __future__ import annotations

import asyncio
import weakref
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextvars import Context

    from chronicle.clock import Clock
    from podium.address import Address

__all__ = ["RUNNING_AGENT", "Blockage", "LoopWatch", "running_agent"]

RUNNING_AGENT: Final[ContextVar[Address | None]] = ContextVar("podium_running_agent", default=None)
"""The agent whose code runs in a context."""


def running_agent() -> Address | None:
    """Return the agent whose code calls; ``None`` if it is no agent's, or that is not known."""
    return RUNNING_AGENT.get()


@dataclass(frozen=True, slots=True)
class Blockage:
    """One step of the event loop that goes on and on."""

    agent: Address | None
    """Whose code it is; ``None`` if it is not known, as for a callback without a task."""
    for_s: float
    """Since when, at least."""


class LoopWatch:
    """Watches an event loop. It is made on the loop; `check` is called from another thread.

    Args:
        clock: measures.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._loop.set_task_factory(self._make_task)  # type: ignore[arg-type]  # the stubs' protocol is for subclasses
        self._owners: weakref.WeakKeyDictionary[asyncio.Task[Any], Address] = weakref.WeakKeyDictionary()
        self._is_answered = True
        self._seen: asyncio.Task[Any] | None = None
        """The task that ran at the last check."""
        self._since_s = 0.0
        """When it was first seen to run in this step."""
        self.free_since_s = clock.monotonic_s()
        """When the loop last answered after it had been busy at a check."""

    def check(self) -> Blockage | None:
        """Return what blocks the loop, ``None`` if nothing did so at this check and the one before.

        Call it every quarter of a second or so.
        """
        now_s = self._clock.monotonic_s()
        if self._is_answered:
            self._is_answered = False
            self._seen, self._since_s = None, now_s
            self._loop.call_soon_threadsafe(self._answer)
            return None
        self.free_since_s = now_s
        running = asyncio.current_task(self._loop)
        if running is not self._seen:
            self._seen, self._since_s = running, now_s
            return None
        return Blockage(self._owners.get(running) if running is not None else None, now_s - self._since_s)

    def _answer(self) -> None:
        self._is_answered = True

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, context=context)
        owner = context.get(RUNNING_AGENT) if context is not None else RUNNING_AGENT.get()
        if owner is not None:
            self._owners[task] = owner
        return task
