"""Responses whose bytes, pauses and breaks a test writes down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from chronicle.canonical import encode
from coordinator.client.sse_parser import SseParser

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping

    from chronicle.canonical import JsonObject
    from coordinator.client.sse_parser import ServerSentEvent

__all__ = ["Cut", "ScriptedResponse", "Step", "Wait", "parse_sse_stream", "scripted_sse_response"]


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection breaks here, with what was sent before still on its way."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is sent until the test sets an event."""

    until: asyncio.Event


Step: TypeAlias = "bytes | Cut | Wait"


@dataclass(frozen=True, slots=True)
class ScriptedResponse:
    """A response of a `coordinator.testing.ScriptedServer`.

    Attributes:
        status: the HTTP status.
        headers: its headers, without those that frame the body.
        steps: its body; each piece of bytes is sent by itself.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    @classmethod
    def json(cls, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> ScriptedResponse:
        """Return a response with a JSON value."""
        return cls(status, {"Content-Type": "application/json", **(headers or {})}, (encode(value),))


def scripted_sse_response(
    *steps: Step | tuple[str, JsonObject] | JsonObject, retry_ms: int | None = None
) -> ScriptedResponse:
    """Return a response that is a stream of server-sent events.

    Args:
        steps: in order: a JSON object is one event, with an id if it is given as ``(id, object)``; bytes are sent as
            they are, so that a test can split or damage an event; `Wait` and `Cut` pause and break the stream, which
            otherwise ends after the last step.
        retry_ms: the reconnection time that the stream asks for.
    """
    retry = (f"retry: {retry_ms}\n\n".encode(),) if retry_ms is not None else ()
    headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    return ScriptedResponse(200, headers, (*retry, *map(_step, steps)))


def parse_sse_stream(source: bytes | Iterable[bytes]) -> list[ServerSentEvent]:
    """Return the events of a stream that has ended, given whole or in pieces. An incomplete last event is dropped."""
    parser = SseParser()
    return [event for piece in ((source,) if isinstance(source, bytes) else source) for event in parser.feed(piece)]


def _step(step: Step | tuple[str, JsonObject] | JsonObject) -> Step:
    if isinstance(step, (bytes, Cut, Wait)):
        return step
    event_id, value = step if isinstance(step, tuple) else ("", step)
    prefix = f"id: {event_id}\n".encode() if event_id else b""
    return prefix + b"data: " + encode(value) + b"\n\n"
