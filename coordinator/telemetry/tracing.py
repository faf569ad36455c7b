"""`Tracing`: the tracer of a process, as OpenTelemetry's variables of the environment ask for.

Without ``OTEL_EXPORTER_OTLP_ENDPOINT`` nothing is traced, nothing of OpenTelemetry is imported, and the traces of
callers pass through. The variables are those of the specification; `coordinator.telemetry.otlp` lists them.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from coordinator.environment import traces_to
from podium.turn.telemetry import NO_TRACER

if TYPE_CHECKING:
    from coordinator.telemetry.otlp import OtlpTracer
    from podium.turn.telemetry import Tracer

__all__ = ["Tracing"]

_FLUSH_S: Final = 1.0
"""Timeout for the last spans at the end of a process: a collector that hangs must not delay it."""

_log = structlog.stdlib.get_logger("coordinator.telemetry")


class Tracing:
    """The tracer of a process.

    Args:
        instance: the name of the process in traces.
    """

    def __init__(self, instance: str) -> None:
        self._otlp = _otlp(instance)
        self.tracer: Tracer = self._otlp or NO_TRACER

    async def flush(self) -> None:
        """Send the spans that wait, within a second."""
        if self._otlp is None:
            return
        sent = asyncio.Event()
        # A thread of its own: the end of the event loop would wait for one of its pool.
        flushing = threading.Thread(
            target=_flush, args=(self._otlp, asyncio.get_running_loop(), sent), name="flush-spans", daemon=True
        )
        flushing.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                await sent.wait()


def _flush(otlp: OtlpTracer, loop: asyncio.AbstractEventLoop, sent: asyncio.Event) -> None:
    otlp.flush(_FLUSH_S)
    with suppress(RuntimeError):  # nobody waited for it, and the loop was closed
        loop.call_soon_threadsafe(sent.set)


def _otlp(instance: str) -> OtlpTracer | None:
    endpoint = traces_to()
    if endpoint is None:
        return None
    try:
        from coordinator.telemetry.otlp import OtlpTracer  # noqa: PLC0415  an extra, slow to import

        return OtlpTracer(instance)
    except ImportError:
        _log.warning("traces_off", why=f"they are to go to {endpoint}: pip install 'podium[otel]'")
    except Exception as error:  # noqa: BLE001  whatever the variables are, agents work
        _log.warning("traces_off", why=f"{type(error).__name__}: {error}")
    return None
