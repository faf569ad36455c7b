"""An incremental parser of server-sent events, as the WHATWG specification of HTML defines their stream.

It does no I/O: bytes go in as they arrive, events come out. It knows nothing of podium's frames.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator

__all__ = ["EventTooLong", "ServerSentEvent", "SseParser", "parse_sse"]

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""Default limit of one event, bytes: the longest line of the service's protocol."""
_LINE_END: Final = re.compile(rb"\r\n?|\n")
_BOM: Final = b"\xef\xbb\xbf"
_LF: Final = 0x0A


class EventTooLong(PodiumError):
    """An event, or a line, of a stream exceeds the parser's limit."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event of a stream.

    Attributes:
        data: its ``data`` fields, joined by newlines.
        type: its ``event`` field; ``message`` without one.
        id: the last ``id`` field of the stream so far, which a client sends as ``Last-Event-ID`` to resume after this
            event; empty if there was none.
    """

    data: str
    type: str = "message"
    id: str = ""


class SseParser:
    """Parses the bytes of one stream. An event that is incomplete at the end of the stream is dropped.

    Args:
        max_event_bytes: limit of one event, bytes.
        last_event_id: of the stream that this one continues: the id of its events until one brings another.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES, last_event_id: str = "") -> None:
        self._max_event_bytes = max_event_bytes
        self._line = bytearray()
        """The bytes of the line that has not ended."""
        self._at_start = True
        """Whether no line of the stream has ended yet: the first one may begin with a byte order mark."""
        self._after_cr = False
        """Whether the last byte was CR: an LF that follows belongs to the same line end."""
        self._data: list[str] = []
        self._data_bytes = 0
        self._type = ""
        self._id = last_event_id
        self.last_event_id = last_event_id
        """The id of the last dispatched event, also if that event had no data."""
        self.retry_ms: int | None = None
        """The reconnection time that the server asked for, milliseconds; ``None`` if it did not."""

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Parse the next bytes of the stream; return the events that they complete.

        Raises:
            EventTooLong: an event exceeds the limit. The parser cannot be used further.
        """
        if not data:
            return []
        ended_in_cr, self._after_cr = self._after_cr, data.endswith(b"\r")
        if ended_in_cr and data[0] == _LF:
            data = data[1:]
        events: list[ServerSentEvent] = []
        start = 0
        for found in _LINE_END.finditer(data):
            line = data[start : found.start()]
            start = found.end()
            if self._line:
                line = bytes(self._line) + line
                self._line.clear()
            event = self._end_line(line)
            if event is not None:
                events.append(event)
        self._line += data[start:]
        self._check_size(len(self._line))
        return events

    def _end_line(self, line: bytes) -> ServerSentEvent | None:
        """Take a line without its end; return the event if the line ends one."""
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        self._check_size(len(line))
        name, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode(errors="replace")
        match name:
            case b"data":
                self._data.append(text)
                self._data_bytes += len(line)
            case b"event":
                self._type = text
            case b"id" if "\0" not in text:
                self._id = text
            case b"retry" if text.isascii() and text.isdigit():
                self.retry_ms = int(text)
            case _:
                pass  # a comment, whose name is empty, or a field that the specification does not have
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        self.last_event_id = self._id
        data, self._data = self._data, []
        event_type, self._type = self._type, ""
        self._data_bytes = 0
        return ServerSentEvent("\n".join(data), event_type or "message", self._id) if data else None

    def _check_size(self, line_bytes: int) -> None:
        if self._data_bytes + line_bytes > self._max_event_bytes:
            raise EventTooLong(f"an event of the stream is longer than {self._max_event_bytes} bytes")


async def parse_sse(
    chunks: AsyncIterable[bytes], max_event_bytes: int = MAX_EVENT_BYTES
) -> AsyncIterator[ServerSentEvent]:
    """Yield the events of a stream whose bytes arrive in chunks of any size.

    Raises:
        EventTooLong: an event exceeds the limit, bytes.
    """
    parser = SseParser(max_event_bytes)
    async for chunk in chunks:
        for event in parser.feed(chunk):
            yield event
