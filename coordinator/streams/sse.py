"""The SSE encoding of streams: one JSON object an event, with the position as its id. Pure.

There is no ``event`` field: a browser's ``EventSource`` gets all of them as ``message`` events, and the object's
``type`` tells them apart.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HEADERS", "KEEP_ALIVE", "OPENING", "encode_event"]

HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",  # nginx would collect the events
}
"""Headers of the response of a stream, beside its content type, ``text/event-stream``."""
OPENING: Final = b"retry: 1000\n"
"""The begin of each stream, and of its first event: clients that lose it wait one second before they connect again."""
KEEP_ALIVE: Final = b": keep-alive\n"
"""A comment, sent when nothing else was for a while, lest a proxy ends the connection. It is a part of the next event:
a blank line after it is an event without data for some clients, httpx-sse among them."""


def encode_event(value: Mapping[str, object], event_id: str | None) -> bytes:
    """Return an event of a stream.

    Args:
        value: a JSON object.
        event_id: from which a client resumes; ``None`` if it is that of the event before.
    """
    try:
        data = orjson.dumps(value)
    except TypeError:  # an integer of more than 64 bits, or half of a surrogate pair
        data = json.dumps(value, separators=(",", ":")).encode()
    if event_id is None:
        return b"data: " + data + b"\n\n"
    return b"id: " + event_id.encode() + b"\ndata: " + data + b"\n\n"
