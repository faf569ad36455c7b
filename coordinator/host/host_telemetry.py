"""Telemetry of a host, of all its activations: where it goes, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.telemetry.reports import Reporter
from coordinator.telemetry.tracing import Tracing
from podium.turn.telemetry import NO_METER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coordinator.host.host_config import HostConfig
    from coordinator.telemetry.reports import Report
    from podium.turn.telemetry import Meter, Tracer

__all__ = ["HostTelemetry"]


class HostTelemetry:
    """The meter and the tracer of a host's activations.

    Args:
        config: the configuration of the host.
        report: sends a report of measurements; see `coordinator.telemetry.reports.Reporter`.
    """

    def __init__(self, config: HostConfig, report: Callable[[Report], Awaitable[None]]) -> None:
        interval_s = config.report_interval_s
        self._reporter = Reporter(config.host_id, report, interval_s) if interval_s else None
        self._tracing = Tracing(config.host_id)

    @property
    def meter(self) -> Meter:
        """Takes the measurements."""
        return self._reporter.recorder if self._reporter is not None else NO_METER

    @property
    def tracer(self) -> Tracer:
        """Opens the spans."""
        return self._tracing.tracer

    def start(self) -> None:
        """Report from now on, in a task of the running loop. Idempotent."""
        if self._reporter is not None:
            self._reporter.start()

    async def flush(self) -> None:
        """Send what is left: the process may be ended afterwards. It takes three seconds at most, mostly none."""
        await self._tracing.flush()
        if self._reporter is not None:
            await self._reporter.flush()
