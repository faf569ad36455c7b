"""Spans of wakes: parts of the traces of the messages that agents are woken for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from chronicle.errors import ChronicleError
from podium.messages.headers import trace_in
from podium.turn.telemetry import NO_TRACER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chronicle.clock import Clock
    from chronicle.journal.port import JournalStore
    from coordinator.fleet.wakes.requests import WakeRequest
    from podium.address import Address
    from podium.turn.telemetry import Span, Tracer

__all__ = ["WakeSpans"]


class WakeSpans:
    """Opens the spans of wakes.

    Args:
        store: the journal, which has the messages.
        clock: of the requests.
    """

    def __init__(self, store: JournalStore, clock: Clock, tracer: Tracer) -> None:
        self._store = store
        self._clock = clock
        self._tracer = tracer

    @asynccontextmanager
    async def waking(self, address: Address, request: WakeRequest, host_id: str) -> AsyncIterator[Span]:
        """Trace a wake, from its request until a host has activated the agent, or has failed to."""
        attributes = {
            "gen_ai.agent.name": address.agent_type,
            "gen_ai.agent.id": str(address),
            "podium.tenant": address.tenant,
            "podium.host": host_id,
        }
        parent = await asyncio.to_thread(self._trace_of, address) if self._tracer is not NO_TRACER else None
        since_s = self._clock.monotonic_s() - request.asked_s
        with self._tracer.span(f"wake {address.agent_type}", attributes, parent=parent, since_s=since_s) as span:
            yield span

    def _trace_of(self, address: Address) -> str | None:
        """Return the ``traceparent`` of the message that an agent handles first."""
        try:
            session = self._store.session(address.name, address.tenant)
            messages = self._store.pending(session.session_id, limit=1)
        except ChronicleError:
            return None
        return trace_in(messages[0].headers) if messages else None
