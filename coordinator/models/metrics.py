"""Metrics of the model gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.telemetry.instruments import (
    MODEL_CALLS,
    MODEL_CALLS_RUNNING,
    MODEL_COST,
    MODEL_DURATION,
    MODEL_TOKENS,
    MODEL_TTFT,
)
from coordinator.telemetry.recorder import Recorder

if TYPE_CHECKING:
    from coordinator.models.calls import CallRecord
    from coordinator.telemetry.recorder import Series, Value

__all__ = ["ModelMetrics"]


class ModelMetrics:
    """Sums over the calls since the process began."""

    def __init__(self) -> None:
        self._recorder = Recorder()
        self.running = 0
        """Calls that run."""

    def ended(self, record: CallRecord) -> None:
        """Measure a call that ended."""
        add, observe = self._recorder.add, self._recorder.observe
        kind = str(record.error["kind"]) if record.error is not None else ""
        labels = "" if kind == "unknown_profile" else record.profile, record.tenant  # callers can name anything
        add(MODEL_CALLS, (*labels, record.status, kind))
        for what, tokens in (
            ("input", record.input_tokens),
            ("output", record.output_tokens),
            ("cached", record.cached_tokens),
        ):
            if tokens:
                add(MODEL_TOKENS, (*labels, what), tokens)
        if record.cost is not None:
            add(MODEL_COST, labels, float(record.cost))
        if record.ttft_ms is not None:
            observe(MODEL_TTFT, (record.profile,), record.ttft_ms / 1000)
        if record.latency_ms is not None and record.status == "completed":
            observe(MODEL_DURATION, (record.profile,), record.latency_ms / 1000)

    def sums(self) -> dict[Series, Value]:
        """Return the sums."""
        return {**self._recorder.sums(), (MODEL_CALLS_RUNNING.name, ()): self.running}
