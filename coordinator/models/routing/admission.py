"""Admission of calls of a profile under its limits, by class of service and priority.

The better class goes first, and in a class the higher priority, then the earlier call. A class that waits long moves
up, so that none starves. Background calls and batches never have all places: an interactive call that comes while
they run finds one sooner than when one of them ends.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import deque
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

from podium.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chronicle.clock import Clock
    from podium.models.quality import QosClass, QualityOfService

__all__ = ["Admission"]

_CLASSES: Final[tuple[QosClass, ...]] = ("interactive", "standard", "background", "batch")
_SHARES: Final[dict[QosClass, float]] = {"interactive": 1.0, "standard": 1.0, "background": 0.75, "batch": 0.5}
"""The part of the places that a class and those below it may have at once."""
_AGE_S: Final = 30.0
"""A class whose oldest call has waited for so long is taken for the next better one."""
_WINDOW_S: Final = 60.0
_MAX_PAUSE_S: Final = 60.0
_MAX_WAITING: Final = 1000


class Admission:
    """Admits calls, in one event loop.

    Args:
        clock: the time; its monotonic time must be that of the event loop's timers.
        concurrent: how many calls may run at once; ``None`` for any number.
        per_minute: how many calls may begin in a minute; ``None`` for any number.
        most_waiting: how many calls may wait; further ones are refused.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        concurrent: int | None = None,
        per_minute: int | None = None,
        most_waiting: int = _MAX_WAITING,
    ) -> None:
        self._clock = clock
        self._concurrent = concurrent
        self._per_minute = per_minute
        self._most_waiting = most_waiting
        self._waiting: dict[QosClass, list[tuple[int, int, float, asyncio.Future[None]]]] = {c: [] for c in _CLASSES}
        self._running: dict[QosClass, int] = dict.fromkeys(_CLASSES, 0)
        self._begun: deque[float] = deque()
        self._paused_until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._numbers = count()

    @property
    def running(self) -> int:
        """How many calls run."""
        return sum(self._running.values())

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return sum(not future.done() for heap in self._waiting.values() for *_, future in heap)

    def limit(self, *, concurrent: int | None, per_minute: int | None) -> None:
        """Change the limits; calls that run go on."""
        self._concurrent, self._per_minute = concurrent, per_minute
        self._admit()

    def pause(self, seconds: float) -> None:
        """Admit no call for some time, at most a minute: the provider asked for that."""
        until_s = self._clock.monotonic_s() + min(seconds, _MAX_PAUSE_S)
        self._paused_until_s = max(self._paused_until_s, until_s)

    @asynccontextmanager
    async def place(self, qos: QualityOfService) -> AsyncIterator[None]:
        """Wait for a place, and have it within the context.

        Raises:
            ModelError: ``overloaded``: too many calls wait.
        """
        await self._enter(qos)
        try:
            yield
        finally:
            self._running[qos.qos_class] -= 1
            self._admit()

    async def _enter(self, qos: QualityOfService) -> None:
        if self.waiting >= self._most_waiting:
            raise ModelError(f"{self._most_waiting} calls wait for this model already", "overloaded")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        now_s = self._clock.monotonic_s()
        heapq.heappush(self._waiting[qos.qos_class], (-qos.priority, next(self._numbers), now_s, future))
        self._admit()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # admitted, and cancelled before it knew
                self._running[qos.qos_class] -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        """Admit calls up to the limits; set a timer for the rate limit."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_s = self._clock.monotonic_s()
        while (best := self._best(now_s)) is not None:
            if (wait_s := self._wait_s(now_s)) > 0:
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._admit)
                return
            *_, future = heapq.heappop(self._waiting[best])
            self._running[best] += 1
            self._begun.append(now_s)
            future.set_result(None)

    def _best(self, now_s: float) -> QosClass | None:
        """The class whose first call is next; None if none has a call that a place is free for."""
        found: list[tuple[float, int, QosClass]] = []
        for rank, qos_class in enumerate(_CLASSES):
            heap = self._waiting[qos_class]
            while heap and heap[0][-1].done():  # cancelled
                heapq.heappop(heap)
            if heap and self._has_place(rank):
                waited_s = now_s - min(since_s for _, _, since_s, future in heap if not future.done())
                found.append((rank - waited_s // _AGE_S, rank, qos_class))
        return min(found)[-1] if found else None

    def _has_place(self, rank: int) -> bool:
        if self._concurrent is None:
            return True
        running_below = sum(self._running[qos_class] for qos_class in _CLASSES[rank:])
        share = max(1, math.floor(self._concurrent * _SHARES[_CLASSES[rank]]))
        return self.running < self._concurrent and running_below < share

    def _wait_s(self, now_s: float) -> float:
        """Seconds until a call may begin, as far as time decides it."""
        while self._begun and self._begun[0] <= now_s - _WINDOW_S:
            self._begun.popleft()
        wait_s = self._paused_until_s - now_s
        if self._per_minute is not None and len(self._begun) >= self._per_minute:
            wait_s = max(wait_s, self._begun[-self._per_minute] + _WINDOW_S - now_s)
        return wait_s
