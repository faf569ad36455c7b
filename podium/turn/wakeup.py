"""A wait of one coroutine for a call of others, with a timeout that costs a timer and no task."""

from __future__ import annotations

import asyncio

__all__ = ["Wakeup"]


class Wakeup:
    """An event for one waiting coroutine, which clears it. Use it on one event loop.

    ``asyncio.wait`` and ``asyncio.timeout`` around an ``asyncio.Event`` take ten times as long, and a stream of frames
    waits for each batch.
    """

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[bool] | None = None

    @property
    def is_set(self) -> bool:
        """Whether `set` was called since the last wait, or `clear`."""
        return self._is_set

    def clear(self) -> None:
        """Forget the calls of `set`. Nothing may wait meanwhile."""
        self._is_set = False

    def set(self) -> None:
        """Wake the coroutine that waits, or the next one."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until `set` was called since the last wait; return whether it was, or the timeout came first.

        Args:
            timeout_s: seconds; ``None`` for no timeout.
        """
        if not self._is_set:
            loop = asyncio.get_running_loop()
            self._waiter = waiter = loop.create_future()
            timer = loop.call_later(timeout_s, _time_out, waiter) if timeout_s is not None else None
            try:
                await waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        was_set, self._is_set = self._is_set, False
        return was_set


def _time_out(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)
