"""No tracer outlives its test."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from coordinator.telemetry import tracing
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.telemetry.otlp import OtlpTracer

_THREADS = {"flush-spans", "OtelBatchSpanRecordProcessor"}


@pytest.fixture(autouse=True)
def tracers_end() -> Iterator[None]:
    """End the threads that send spans.

    Else they go on in the tests that follow: they log that a collector is away, and draw from the global ``random`` for
    the pauses between their attempts, which hypothesis refuses while it makes examples.
    """
    made: list[OtlpTracer] = []
    make = tracing._otlp

    def make_and_keep(instance: str) -> OtlpTracer | None:
        tracer = make(instance)
        if tracer is not None:
            made.append(tracer)
        return tracer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "_otlp", make_and_keep)
        yield
    for tracer in made:
        tracer._exporter.shutdown()  # type: ignore[no-untyped-call]  # first: it ends a pause between attempts
        tracer._provider.shutdown()
    if made:
        wait_until(lambda: not any(thread.name in _THREADS for thread in threading.enumerate()))
