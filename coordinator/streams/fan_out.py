"""Lifecycle of what many clients of a process read: the tasks of its owner, and an end in order for readers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Reader", "TaskOwner"]


class TaskOwner(ABC):
    """Owner of a task group that lasts as long as its asynchronous context."""

    def __init__(self) -> None:
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        """Return the owner, which may have tasks now."""
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the owner, and wait for its tasks: also after an error, which cancels none of them."""
        self.close()
        await self._tasks.__aexit__(None, None, None)

    @abstractmethod
    def close(self) -> None:
        """Have all tasks end soon."""


class Reader:
    """One reader of a stream, which waits for what is added."""

    def __init__(self) -> None:
        self._over = False
        """Whether nothing is added any more."""
        self._ready = asyncio.Event()

    def end(self) -> None:
        """Add nothing any more: the stream ends after what the reader misses."""
        self._over = True
        self._ready.set()

    def cut_off(self) -> None:
        """End the stream now."""
        self.end()
