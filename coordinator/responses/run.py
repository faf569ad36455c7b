"""A response that is being made: its events, kept until it has ended, for any number of readers."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coordinator.streams.public_texts import text_of_model
from coordinator.streams.sse import encode_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from coordinator.operations.errors import ResponseFailed
    from coordinator.responses.encoder import StreamEvent
    from coordinator.responses.objects import ResponseObject
    from podium.turn.stream import Frame

__all__ = ["EncodedEvent", "ResponseRun", "RunReader", "encode_events", "without_text_of"]

_END: Final = b"data: [DONE]\n\n"
"""End of a stream of Open Responses, after its last event."""


class EncodedEvent:
    """Events as they are sent, and their number."""

    __slots__ = ("count", "event")

    def __init__(self, event: bytes, count: int) -> None:
        self.event = event
        self.count = count


def encode_events(events: Iterable[StreamEvent]) -> EncodedEvent:
    """Return the SSE encoding of events: the event's name is its type."""
    encoded = [b"event: " + each["type"].encode() + b"\n" + encode_event(each, None) for each in events]
    return EncodedEvent(b"".join(encoded), len(encoded))


def _last(events: Iterable[StreamEvent]) -> EncodedEvent:
    """Return the encoding of the events at the end of a stream."""
    encoded = encode_events(events)
    return EncodedEvent(encoded.event + _END, encoded.count)


def without_text_of(response: ResponseObject) -> ResponseObject:
    """Return a response as callers get it that do not get the texts which models make."""
    error = response["error"]
    if error is None:
        return response
    return {**response, "error": {**error, "message": text_of_model(error["code"], error["message"])}}


class ResponseRun:
    """A response that is being made, or was.

    Args:
        response_id: its id.
        kept: whether it goes on without readers: a repetition of its request asks for it.
    """

    def __init__(self, response_id: str, *, kept: bool) -> None:
        self.response_id = response_id
        self.kept = kept
        self._events: list[EncodedEvent] = []
        self._last_without_text: EncodedEvent | None = None
        """Error for readers that do not get the text of a failure."""
        self._changed = asyncio.Event()
        self._readers = 0
        self._on_abandoned: Callable[[], object] | None = None
        self._response: ResponseObject | None = None
        self._error: ResponseFailed | None = None
        self._done = False

    @property
    def is_done(self) -> bool:
        """Whether the last event is there."""
        return self._done

    def on_abandoned(self, call: Callable[[], object]) -> None:
        """Have a function called when the last reader leaves before the end, unless the response is kept."""
        self._on_abandoned = call

    def publish(self, events: Sequence[StreamEvent]) -> None:
        """Add events."""
        if events:
            self._events.append(encode_events(events))
            self.wake()

    def end(self, response: ResponseObject, events: Sequence[StreamEvent], error: ResponseFailed | None = None) -> None:
        """Add the last events; the response is durable by then, unless that is the error."""
        self._events.append(_last(events))
        if response["error"] is not None:
            *before, failed = events
            self._last_without_text = _last([*before, {**failed, "response": without_text_of(failed["response"])}])
        self._response, self._error, self._done = response, error, True
        self.wake()

    async def result(self) -> ResponseObject:
        """Wait for the end, as a reader, and return the response.

        Raises:
            ResponseFailed: it failed.
        """
        with self.open() as reader:
            while await reader.next():
                pass
        if self._error is not None:
            raise self._error
        assert self._response is not None
        return self._response

    @contextmanager
    def open(self, *, error_texts: bool = True) -> Iterator[RunReader]:
        """Read the stream from its beginning.

        Args:
            error_texts: whether the reader gets the texts of errors that models make.
        """
        self._readers += 1
        try:
            yield RunReader(self, error_texts=error_texts)
        finally:
            self._readers -= 1
            if not self._readers and not self._done and not self.kept and self._on_abandoned is not None:
                self._on_abandoned()

    def after(self, index: int, *, error_texts: bool) -> Sequence[EncodedEvent]:
        """Return the events after the first ones."""
        found = self._events[index:]
        if found and not error_texts and self._last_without_text is not None:
            found[-1] = self._last_without_text
        return found

    async def change(self) -> None:
        """Wait for another event, or for `wake`."""
        await self._changed.wait()

    def wake(self) -> None:
        """Have all readers look again."""
        self._changed.set()
        self._changed = asyncio.Event()


class RunReader:
    """A reader of a run's stream; a `coordinator.gateway.event_stream.EventReader`."""

    def __init__(self, run: ResponseRun, *, error_texts: bool) -> None:
        self._run = run
        self._error_texts = error_texts
        self._index = 0
        self._number = 0
        """The ``sequence_number`` of the next event."""
        self._cut = False

    @property
    def is_complete(self) -> bool:
        """Whether the whole stream was returned."""
        return self._run.is_done and not self._run.after(self._index, error_texts=self._error_texts)

    async def next(self) -> Sequence[EncodedEvent]:
        """Wait for events and return them; none at the end."""
        while not self._cut:
            if events := self._run.after(self._index, error_texts=self._error_texts):
                self._index += len(events)
                self._number += sum(each.count for each in events)
                return events
            if self._run.is_done:
                return ()
            await self._run.change()
        return ()

    def error_event(self, frame: Frame) -> EncodedEvent:
        """Return what ends the stream before its end, from an ``error`` frame."""
        event = {"type": "error", "sequence_number": self._number, "error": {**frame["error"], "param": None}}
        return _last([event])

    def cut_off(self) -> None:
        """End the stream now."""
        self._cut = True
        self._run.wake()
