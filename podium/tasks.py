"""Tasks outside of task groups: those that outlive the call that starts them, and waits for the first of several.

Here is where such tasks are made; `tests/unit/project/test_tasks.py` lists the other places, and why they are there.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Coroutine, Iterator

__all__ = ["BackgroundTasks", "beside", "joined_beside", "with_pauses"]

_T = TypeVar("_T")


class BackgroundTasks:
    """Independent tasks of one owner, kept until they end; the first started is the first that is cancelled."""

    def __init__(self) -> None:
        self._all: dict[asyncio.Task[Any], None] = {}

    def __len__(self) -> int:
        """Return the number of tasks that run."""
        return len(self._all)

    def start(self, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        """Start a task and return it; what it raises is for the caller."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._all[task] = None
        task.add_done_callback(self._all.pop)
        return task

    def start_logged(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[None]:
        """Start a task and return it; an exception of it is a bug, which is logged and ends nothing else."""
        return self.start(_logged(work), name)

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Start a task that is not awaited; its exceptions are logged."""
        _ = self.start_logged(work, name)

    def cancel(self) -> None:
        """Cancel all running tasks."""
        for task in list(self._all):
            task.cancel()

    async def join(self) -> None:
        """Wait for the end of the tasks that run now; a cancellation of the wait leaves them running."""
        if self._all:
            await asyncio.wait(self._all)

    async def close(self) -> None:
        """Cancel all running tasks, and wait for their end, whatever they raise."""
        self.cancel()
        await asyncio.gather(*self._all, return_exceptions=True)


@contextmanager
def beside(work: Awaitable[_T], name: str = "") -> Iterator[asyncio.Future[_T]]:
    """Run an awaitable beside the block, at whose end it is cancelled, unless it is done."""
    task = asyncio.ensure_future(work)
    if name and isinstance(task, asyncio.Task):
        task.set_name(name)
    try:
        yield task
    finally:
        task.cancel()


@asynccontextmanager
async def joined_beside(work: Awaitable[_T], name: str = "") -> AsyncIterator[asyncio.Future[_T]]:
    """Run an awaitable as `beside` does, and wait for its end after the block, whatever it raises."""
    with beside(work, name) as task:
        try:
            yield task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()  # marks it as retrieved


async def with_pauses(items: AsyncGenerator[_T], pause_s: float) -> AsyncGenerator[_T | None]:
    """Yield items as they come, and ``None`` whenever none came for some seconds; close their generator at the end."""
    async with aclosing(items):
        while True:
            async with joined_beside(anext(items)) as upcoming:
                while not (await asyncio.wait((upcoming,), timeout=pause_s))[0]:
                    yield None
            try:
                item = upcoming.result()
            except StopAsyncIteration:
                return
            yield item


async def _logged(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except Exception:  # noqa: BLE001  a bug must not end the other tasks
        import structlog  # noqa: PLC0415  importing it takes long, and most processes never log here

        structlog.stdlib.get_logger("coordinator").exception("coordinator_task_failed")
