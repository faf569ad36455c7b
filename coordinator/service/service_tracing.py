"""Spans of the service: the sending of clients' messages."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from coordinator.telemetry.tracing import Tracing
from podium.turn.telemetry import SpanKind
from podium.turn.turn_telemetry import message_attributes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from podium.address import Address
    from podium.turn.telemetry import Span

__all__ = ["ServiceTracing"]


class ServiceTracing:
    """The tracer of the service."""

    def __init__(self) -> None:
        self._tracing = Tracing("service")

    @contextmanager
    def sending(self, address: Address, parent: str | None) -> Iterator[Span]:
        """Trace the admission of a message; the message is then handled under the span.

        Args:
            address: of the receiver.
            parent: the ``traceparent`` of the client.
        """
        attributes = message_attributes(address, "send")
        with self._tracing.tracer.span(
            f"send {address.agent_type}", attributes, kind=SpanKind.PRODUCER, parent=parent
        ) as span:
            yield span

    async def flush(self) -> None:
        """Send the spans that wait, within a second."""
        await self._tracing.flush()
