"""A receiver of OTLP/HTTP on the loopback interface: it parses the protobuf of each request, as a collector does."""

from __future__ import annotations

import gzip
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["OtlpReceiver", "ReceivedSpan", "otlp_receiver"]


@dataclass(frozen=True)
class ReceivedSpan:
    """A span, as a collector gets it."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    """Empty for a root."""
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    failed: bool
    status: str
    start_ns: int
    end_ns: int


@dataclass
class OtlpReceiver:
    """What was received so far."""

    url: str
    headers: list[Mapping[str, str]] = field(default_factory=list)
    """Of each request, by names in lower case."""
    _spans: list[ReceivedSpan] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def spans(self) -> list[ReceivedSpan]:
        """The spans, in the order of their ends."""
        with self._guard:
            return sorted(self._spans, key=lambda span: span.end_ns)

    def named(self, name: str) -> list[ReceivedSpan]:
        """The spans of a name."""
        return [span for span in self.spans if span.name == name]

    def take(self, headers: Mapping[str, str], body: bytes) -> None:
        """Take a request."""
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        with self._guard:
            self.headers.append(headers)
            for of_resource in request.resource_spans:
                resource = _values(of_resource.resource.attributes)
                for of_scope in of_resource.scope_spans:
                    self._spans.extend(_received(span, resource) for span in of_scope.spans)


def _received(span: ProtoSpan, resource: Mapping[str, Any]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=ProtoSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        attributes=_values(span.attributes),
        resource=resource,
        failed=span.status.code == Status.STATUS_CODE_ERROR,
        status=span.status.message,
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """Receive traces for the duration of the context."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = b""
            if self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf":
                receiver.take({name.lower(): value for name, value in self.headers.items()}, body)
                answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class names it
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = OtlpReceiver(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, name="otlp-receiver")
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
