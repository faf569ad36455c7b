"""`ServiceMetrics`: a snapshot of the metrics of a home, put together from its processes and its journal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from coordinator.telemetry.instruments import AGENTS_AWAKE, MESSAGES_ADMITTED, SERIES_DROPPED, SERVICE_UP
from coordinator.telemetry.recorder import Recorder
from coordinator.telemetry.snapshots import of_backlog

if TYPE_CHECKING:
    from chronicle.clock import Clock
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Backlog
    from coordinator.models.supervisor import ModelProcess
    from coordinator.ray.router import Router
    from coordinator.telemetry.recorder import Series, Value
    from podium.address import Address

__all__ = ["ServiceMetrics"]

_BACKLOG_S: Final = 2.0
"""Time for which what waits in the journal is not counted again, however many ask."""


class ServiceMetrics:
    """Metrics of the service, measured and collected.

    Args:
        router: the way to the coordinator, which has the measurements of hosts.
        store: the home's journal.
        clock: the time.
        models: the model gateway; ``None`` without one.
    """

    def __init__(self, router: Router, store: JournalStore, clock: Clock, models: ModelProcess | None = None) -> None:
        self._models = models
        self._router = router
        self._store = store
        self._clock = clock
        self._recorder = Recorder()
        self._counting = asyncio.Lock()
        self._backlog: tuple[float, Backlog] | None = None

    def admitted(self, address: Address) -> None:
        """Count a client's message."""
        self._recorder.add(MESSAGES_ADMITTED, (address.agent_type, address.tenant))

    async def snapshot(self) -> dict[Series, Value]:
        """Return the metrics of the home now, without the gateway's.

        Raises:
            TimeoutError: the coordinator does not answer.
            Unavailable: the journal cannot be read.
        """
        measured = await self._router.measured()
        backlog = await self._count_backlog()
        awake = sum(
            value for (name, _), value in measured.items() if name == AGENTS_AWAKE.name and not isinstance(value, list)
        )
        return {
            (SERVICE_UP.name, ()): 1,
            (SERIES_DROPPED.name, ()): 0,
            **measured,
            **self._recorder.sums(),
            **(await self._models.metrics() if self._models is not None else {}),
            **of_backlog(backlog, round(awake), self._clock.now_ms()),
        }

    async def _count_backlog(self) -> Backlog:
        async with self._counting:
            now_s = self._clock.monotonic_s()
            if self._backlog is None or now_s - self._backlog[0] > _BACKLOG_S:
                self._backlog = now_s, await asyncio.to_thread(self._store.backlog)
            return self._backlog[1]
