"""The response of a stream for a front end: the frames of a message, encoded for its wire."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from coordinator.frontends.wire import encode_frames
from coordinator.gateway.event_stream import EventStreamResponse
from coordinator.streams.sse import HEADERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from starlette.responses import Response

    from coordinator.frontends.wire import WireFrame
    from coordinator.gateway.event_stream import EventReader
    from coordinator.gateway.streaming import Streaming
    from coordinator.operations.objects import Receipt
    from coordinator.streams.message_streams import StreamedFrame
    from podium.address import Address
    from podium.turn.stream import Frame

__all__ = ["Encoder", "FrontEndProtocol", "front_end_stream"]


class Encoder(Protocol):
    """Encodes the stream of one message, as those of `coordinator.frontends` do."""

    def feed(self, frame: Frame) -> list[WireFrame]:
        """Return what a frame becomes."""
        ...

    def cut_off(self) -> list[WireFrame]:
        """Return the end of a stream whose terminal frame did not come; nothing if it did."""
        ...


class _Encoded(NamedTuple):
    event: bytes


class _Reader:
    """A reader of a message's stream that gets it encoded."""

    def __init__(
        self,
        reader: EventReader[StreamedFrame],
        encoder: Encoder,
        begin_attempt: Callable[[Frame], Awaitable[Mapping[str, Any]]] | None,
        end: bytes,
    ) -> None:
        self._reader = reader
        self._encoder = encoder
        self._begin_attempt = begin_attempt
        self._end: bytes | None = end
        """Last event; `None` once it was returned."""

    @property
    def is_complete(self) -> bool:
        return self._reader.is_complete

    async def next(self) -> Sequence[_Encoded]:
        while batch := await self._reader.next():
            found: list[WireFrame] = []
            for streamed in batch:
                frame = streamed.frame
                if frame["type"] == "turn_start" and self._begin_attempt is not None:
                    frame = {**frame, **await self._begin_attempt(frame)}
                found += self._encoder.feed(frame)
            if found:
                return [_Encoded(encode_frames(found))]
        if self._end is None:
            return []
        last, self._end = encode_frames(self._encoder.cut_off()) + self._end, None
        return [_Encoded(last)] if last else []

    def cut_off(self) -> None:
        self._end = None
        self._reader.cut_off()


@dataclass(frozen=True, slots=True)
class FrontEndProtocol:
    """Parts of the stream of a front end's protocol."""

    encoder: Encoder
    begin_attempt: Callable[[Frame], Awaitable[Mapping[str, Any]]] | None = None
    """Returns what the encoder gets with each ``turn_start``, beside its keys."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of the response, beside those of every stream."""
    end: bytes = b""
    """Sent last."""


def front_end_stream(
    streaming: Streaming,
    address: Address,
    receipt: Receipt,
    protocol: FrontEndProtocol,
    *,
    cancel_on_disconnect: bool = False,
) -> Response:
    """Return the whole stream of a message, from its beginning.

    Args:
        cancel_on_disconnect: whether a client that leaves before the end cancels the message.
    """

    @contextmanager
    def opening() -> Iterator[_Reader]:
        with streaming.message(address, receipt) as reader:
            yield _Reader(reader, protocol.encoder, protocol.begin_attempt, protocol.end)

    abandoned = streaming.cancelling(address, receipt.message_id) if cancel_on_disconnect else None
    return EventStreamResponse(opening(), abandoned, headers={**HEADERS, **protocol.headers})
