"""`RequestSpans`: a span for each request, in pure ASGI. What the request admits becomes a part of its trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coordinator.telemetry.traceparent import read_traceparent
from podium.turn.telemetry import SpanKind

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from podium.turn.telemetry import Tracer

__all__ = ["RequestSpans"]

_HEADER: Final = b"traceparent"
_TRACED: Final = "/v1/"
"""Probes and scrapes come every few seconds, and say nothing of agents."""
_FAILED: Final = 500


class RequestSpans:
    """ASGI middleware. The application finds the span in the header ``traceparent``, in place of the caller's.

    Args:
        app: what answers.
        tracer: opens the spans.
    """

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request under a span, which lasts until all of the answer was sent."""
        if scope["type"] != "http" or not scope["path"].startswith(_TRACED):
            await self._app(scope, receive, send)
            return
        given = next((value.decode("latin-1") for name, value in scope["headers"] if name == _HEADER), None)
        method = scope["method"]
        attributes = {"http.request.method": method, "url.path": scope["path"]}
        with self._tracer.span(method, attributes, kind=SpanKind.SERVER, parent=read_traceparent(given)) as span:

            async def noted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status = message["status"]
                    span.set("http.response.status_code", status)
                    if status >= _FAILED:
                        span.fail(str(status), "")
                await send(message)

            headers = [(name, value) for name, value in scope["headers"] if name != _HEADER]
            scope["headers"] = [*headers, (_HEADER, (span.traceparent or "").encode("latin-1"))]
            try:
                await self._app(scope, receive, noted)
            finally:
                route = getattr(scope.get("route"), "path", None)
                if route is not None:
                    span.rename(f"{method} {route}")
                    span.set("http.route", route)
