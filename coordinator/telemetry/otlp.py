"""`OtlpTracer`: spans for an OpenTelemetry collector, over OTLP/HTTP. The one module that knows OpenTelemetry.

Ended spans wait in a bounded queue, from which a thread sends them in batches every few seconds. If the collector is
slow or away, spans are lost, and nothing waits for it. The SDK reads its variables: the endpoint, headers and timeout
(``OTEL_EXPORTER_OTLP_…``), the batches (``OTEL_BSP_…``), sampling (``OTEL_TRACES_SAMPLER…``) and the resource
(``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``).

The spans are current in OpenTelemetry's context: what an agent's code, or a library that it uses, traces itself becomes
a part of the same trace. The SDK's global tracer provider is left to that code.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import SpanKind as OtelKind
from opentelemetry.trace import Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from podium.turn.telemetry import SpanKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from podium.turn.telemetry import Attributes, Span

__all__ = ["OtlpTracer"]

_KINDS: Final = {
    SpanKind.INTERNAL: OtelKind.INTERNAL,
    SpanKind.PRODUCER: OtelKind.PRODUCER,
    SpanKind.CONSUMER: OtelKind.CONSUMER,
    SpanKind.SERVER: OtelKind.SERVER,
}
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class OtlpTracer:
    """A `podium.turn.telemetry.Tracer` that sends its spans to a collector.

    Args:
        instance: the name of the process, ``service.instance.id``.
    """

    def __init__(self, instance: str) -> None:
        self._provider = TracerProvider(resource=_resource(instance), shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter()
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("podium", version("podium"))

    @contextmanager
    def span(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        parent: str | None = None,
        since_s: float = 0.0,
    ) -> Iterator[Span]:
        """Open a span; see the port."""
        context = _PROPAGATOR.extract({"traceparent": parent}, Context()) if parent is not None else None
        with self._tracer.start_as_current_span(
            name,
            context,
            _KINDS[kind],
            dict(attributes),
            start_time=time.time_ns() - round(since_s * 1e9),
            record_exception=False,
            set_status_on_exception=False,
        ) as opened:
            span = _Span(opened)
            try:
                yield span
            except BaseException as error:
                span.fail(type(error).__name__, str(error))
                raise

    def flush(self, timeout_s: float) -> None:
        """Send the ended spans that wait, and return when that is done or the time is over."""
        self._provider.force_flush(round(timeout_s * 1000))


class _Span:
    def __init__(self, span: OtelSpan) -> None:
        self._span = span

    @property
    def traceparent(self) -> str | None:
        found = self._span.get_span_context()
        return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def set(self, key: str, value: str | float | bool) -> None:
        self._span.set_attribute(key, value)

    def fail(self, kind: str, message: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR, message))


def _resource(instance: str) -> Resource:
    """Return what is known of the process; what the variables name takes precedence."""
    resource = Resource.create({SERVICE_INSTANCE_ID: instance})
    named = str(resource.attributes.get(SERVICE_NAME, "unknown_service"))
    return resource if not named.startswith("unknown_service") else resource.merge(Resource({SERVICE_NAME: "podium"}))
