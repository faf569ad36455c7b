"""An event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterator

__all__ = ["LoopThread"]

_T = TypeVar("_T")
_END: Final = object()


class LoopThread:
    """Runs coroutines of other threads on one event loop, until it is closed. The thread ends with the program."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="podium-client", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and return its result. An exception in the waiting thread, such as Ctrl-C, cancels it.

        Raises:
            RuntimeError: the loop is closed, or this is its own thread.
        """
        if self.is_closed or threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("this client was closed, or is called from its own thread; use AsyncPodium there")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def iterate(self, items: AsyncGenerator[_T]) -> Iterator[_T]:
        """Yield what an async generator yields; it is closed when the iterator is."""
        try:
            while (item := self.run(_next(items))) is not _END:
                yield item
        finally:
            if not self.is_closed:
                self.run(items.aclose())

    def close(self) -> None:
        """Cancel what runs, and end the thread."""
        if not self.is_closed:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()


async def _next(items: AsyncGenerator[_T]) -> Any:
    return await anext(items, _END)
