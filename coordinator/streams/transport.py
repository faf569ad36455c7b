"""The transport of an agent's events to one client, for code that produces events itself: the port and its encoding.

The streams of messages do not use it. It is for programs that already speak this wire: events with a type, each a JSON
object in an SSE ``data`` field, and ``[DONE]`` as the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, get_args

from chronicle.canonical import decode, encode
from chronicle.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chronicle.canonical import Json

__all__ = ["DONE", "EventType", "SSEEvent", "TransportAdapter", "decode_event", "encode_transport_event"]

EventType: TypeAlias = Literal[
    "content",
    "tool_call",
    "tool_result",
    "error",
    "budget_exhausted",
    "agent",
    "orchestration",
    "loader-hint",
    "keepalive",
    "done",
]
"""The types of events; ``done`` is the last one of a stream."""
DONE: Final = "[DONE]"
"""The data of the last event on the wire."""
_TYPES: Final = frozenset(get_args(EventType))


@dataclass(frozen=True, slots=True)
class SSEEvent:
    """One event.

    Attributes:
        type: its type.
        data: a JSON value; of ``done`` it is not sent.
    """

    type: EventType
    data: Json = None


class TransportAdapter(Protocol):
    """Carries events from a producer to one reader, in order."""

    async def emit(self, event: SSEEvent) -> None:
        """Add an event; wait while the reader is too far behind. Events for a reader that left are dropped.

        Raises:
            InvalidInput: ``done`` was emitted before.
        """
        ...

    def receive(self) -> AsyncIterator[SSEEvent]:
        """Yield the events, ``done`` last."""
        ...


def encode_transport_event(event: SSEEvent) -> bytes:
    """Return an event as server-sent event.

    Raises:
        InvalidInput: its data is not JSON.
    """
    data = DONE.encode() if event.type == "done" else encode({"type": event.type, "data": event.data})
    return b"data: " + data + b"\n\n"


def decode_event(data: str) -> SSEEvent:
    """Return the event that a ``data`` field holds.

    Raises:
        InvalidInput: it is none.
    """
    if data == DONE:
        return SSEEvent("done")
    match decode(data.encode()):
        case {"type": str(kind), **rest} if kind in _TYPES:
            return SSEEvent(kind, rest.get("data"))  # type: ignore[arg-type]  # it is one of the literals
        case _:
            raise InvalidInput(f"not an event of this transport: {data[:200]!r}")
