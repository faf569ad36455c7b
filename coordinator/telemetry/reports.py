"""How measurements get from hosts to the coordinator: reports of what was added since the last one.

A host reports at most once in an interval, and only if it measured something; at an orderly end it reports the rest,
so a killed host loses at most an interval. A report whose answer was lost is sent again under its number, and the
coordinator adds each number once. What is measured meanwhile is kept in the host: a few sums for each series, however
long the coordinator is away.

The sums in the coordinator begin at zero when it is started again. All of them do so at once, which Prometheus takes
for what it is, a restart of counters; none ever falls by a part, as sums over the living hosts would.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from coordinator.telemetry.recorder import Recorder
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from coordinator.telemetry.recorder import Series, Value

__all__ = ["Report", "Reporter", "Totals"]

_LAST_S: Final = 2.0
"""Timeout of the report at the end of a host, which waits for it."""
_MAX_SOURCES: Final = 10_000
"""Hosts whose last report is remembered; older ones have ended long ago."""
_MAX_SERIES: Final = 20_000


@dataclass(frozen=True, slots=True)
class Report:
    """Measurements of a host since its last report."""

    source: str
    """The host."""
    number: int
    """From 1, without a gap."""
    sums: Mapping[Series, Value]


class Reporter:
    """Reports the measurements of a process; it has the process's recorder.

    Args:
        source: the name of the process.
        send: delivers a report; returns when it is counted, and raises if that is not known.
        interval_s: the shortest time between two reports.
    """

    def __init__(self, source: str, send: Callable[[Report], Awaitable[None]], interval_s: float) -> None:
        self._source = source
        self._send = send
        self._interval_s = interval_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._measured = asyncio.Event()
        self._sending = asyncio.Lock()
        self._unanswered: Report | None = None
        self._number = 0
        self._tasks = BackgroundTasks()
        self.recorder = Recorder(self._on_first)

    def start(self) -> None:
        """Report from now on, in a task of the running loop; what was measured before is reported, too. Idempotent."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._measured.set()
            _ = self._tasks.start(self._run(), "report-measurements")

    async def flush(self) -> None:
        """Report the rest: the process may be ended afterwards. It takes two seconds at most."""
        with suppress(Exception):  # measurements must not keep a process from its end
            async with asyncio.timeout(_LAST_S):
                await self.report()

    async def report(self) -> None:
        """Report what was measured since the last report; raises as ``send``, and then keeps it for the next call."""
        async with self._sending:
            if self._unanswered is not None:
                await self._send(self._unanswered)
                self._unanswered = None
            sums = self.recorder.take()
            if sums:
                self._number += 1
                self._unanswered = Report(self._source, self._number, sums)
                await self._send(self._unanswered)
                self._unanswered = None

    def _on_first(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop was closed: the process ends
                self._loop.call_soon_threadsafe(self._measured.set)

    async def _run(self) -> None:
        while True:
            await self._measured.wait()
            self._measured.clear()
            await asyncio.sleep(self._interval_s)
            try:
                await self.report()
            except Exception:  # noqa: BLE001  whatever it is, the report is sent again
                self._measured.set()


class Totals:
    """The sums of all reports, and of what this process measures itself."""

    def __init__(self) -> None:
        self.recorder = Recorder(most_series=_MAX_SERIES)
        self._last: LRUCache[str, int] = LRUCache(_MAX_SOURCES)

    def add(self, report: Report) -> None:
        """Add a report, unless it was added before."""
        if report.number > self._last.get(report.source, 0):
            self._last[report.source] = report.number
            self.recorder.merge(report.sums)
