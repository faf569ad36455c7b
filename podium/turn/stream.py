"""Streams of frames to clients: one stream per message, many subscribers, no back-pressure on the turn.

A slow subscriber neither delays the agent nor buffers without bound (`Backlog`).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from chronicle.canonical import encode
from podium.turn.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from chronicle.ids import EventId
    from chronicle.journal.records import InboxMessage

__all__ = [
    "MAX_EVENT_BYTES",
    "TERMINAL_FRAMES",
    "VOIDING_FRAMES",
    "Backlog",
    "Frame",
    "StreamHub",
    "Subscription",
    "frame_sink",
    "turn_start",
    "without_size",
]

Frame: TypeAlias = dict[str, Any]
"""One JSON object of a message's stream; `coordinator.service.protocol` lists the types and keys."""

TERMINAL_FRAMES: Final = frozenset({"turn_end", "turn_paused", "error"})
"""The last frame of a stream: exactly one of these."""
MAX_EVENT_BYTES: Final = 1024 * 1024
"""Limit of the emitted events that a backlog holds, in bytes of JSON: an agent may emit any number of them."""
VOIDING_FRAMES: Final = frozenset({"turn_retry", "turn_start"})
"""Frames that make those of earlier attempts void."""
_OF_THE_MESSAGE: Final = frozenset({"accepted", "agent_start", "turn_retry"})
"""Frames that stay valid."""


def turn_start(turn: int, attempt: int, event_id: EventId, *, steered: bool = False) -> Frame:
    """Return the frame that begins an attempt.

    Args:
        turn: the number that the turn gets when it commits.
        attempt: from 1. An attempt that ended with its activation may be repeated under its number.
        event_id: the id of the message's event: unique to the attempt, and in the journal if it commits.
        steered: whether the message steers the turn of another one.
    """
    frame: Frame = {"type": "turn_start", "turn": turn, "attempt": attempt, "event_id": event_id}
    return {**frame, "steered": True} if steered else frame


def without_size(frame: Frame) -> Frame:
    """Return a frame as clients get it: an emitted event without its size, which a `Backlog` counts."""
    return {key: value for key, value in frame.items() if key != "size"} if frame["type"] == "event" else frame


def frame_sink(
    publish: Callable[[InboxMessage, Frame], None], message: InboxMessage | None, stream_of: InboxMessage | None
) -> Callable[[Frame], None]:
    """Return the sink of a hook's frames.

    Args:
        publish: sends a frame to the readers of a message.
        message: the message that the hook handles; its stream gets all frames.
        stream_of: without such a message, the one whose stream gets the emitted events; ``None`` drops all frames.
    """
    if message is not None:
        return lambda frame: publish(message, frame)
    if stream_of is not None:
        return lambda frame: publish(stream_of, frame) if frame["type"] == "event" else None
    return lambda _frame: None


class Backlog:
    """The frames of a message up to now, or those that a subscriber has not read.

    It is bounded by what the attempts say: text of a reply is merged, unless another kind of frame is between, and of
    emitted events the latest are kept, at most `MAX_EVENT_BYTES` of them (or one) and at least half of that. Of the
    updates of a call of a tool the latest is kept, while it runs.

    Text is joined when it is taken, so that a reply of many small tokens costs their sum. Joined at each token, 100,000
    tokens of 50 characters took 27 s.
    """

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._texts: dict[str, tuple[int, list[str]]] = {}
        """The updates at the end of the frames: for each reply the index of its frame, and the pieces of its text."""
        self._event_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._frames)

    @property
    def ended(self) -> bool:
        """Whether the last frame is a terminal one."""
        return bool(self._frames) and self._frames[-1]["type"] in TERMINAL_FRAMES

    def add(self, frame: Frame) -> None:
        """Add a frame."""
        kind = frame["type"]
        if kind == "message_update":
            self._add_text(frame)
            return
        self._join()
        if kind == "queued" and self._frames and self._frames[-1]["type"] == kind:
            self._frames.pop()
        if kind in {"tool_execution_update", "tool_execution_end"}:
            self._drop_update(frame["tool_call_id"])
        self._frames.append(frame)
        if kind == "event":
            self._event_bytes += frame["size"]
            if self._event_bytes > MAX_EVENT_BYTES:
                self._drop_events()

    def drop_attempts(self) -> None:
        """Drop the frames of attempts, except their ``turn_retry``; at a frame that makes them void."""
        self._texts = {}
        self._frames = [frame for frame in self._frames if frame["type"] in _OF_THE_MESSAGE]
        self._event_bytes = 0

    def frames(self) -> list[Frame]:
        """Return the frames, in order."""
        self._join()
        return list(self._frames)

    def _add_text(self, frame: Frame) -> None:
        text = self._texts.get(frame["reply_id"])
        if text is None:
            self._texts[frame["reply_id"]] = len(self._frames), [frame["delta"]]
            self._frames.append(frame)
        else:
            text[1].append(frame["delta"])

    def _join(self) -> None:
        for index, pieces in self._texts.values():
            if len(pieces) > 1:
                self._frames[index] = {**self._frames[index], "delta": "".join(pieces)}
        self._texts = {}

    def _drop_update(self, call_id: str) -> None:
        """Drop the update of a call of a tool that another one replaces, or its end."""
        for index in range(len(self._frames) - 1, -1, -1):
            frame = self._frames[index]
            if frame["type"].startswith("tool_execution_") and frame["tool_call_id"] == call_id:
                if frame["type"] == "tool_execution_update":
                    del self._frames[index]
                return

    def _drop_events(self) -> None:
        """Drop the oldest events, half of the limit at once, and merge the text around them."""
        frames, self._frames = self._frames, []
        for frame in frames:
            kind = frame["type"]
            if kind == "event" and self._event_bytes > MAX_EVENT_BYTES // 2 and frame is not frames[-1]:
                self._event_bytes -= frame["size"]
            elif kind == "message_update":
                self._add_text(frame)
            else:
                self._join()
                self._frames.append(frame)


class Subscription:
    """One reader of one message's frames."""

    def __init__(self, so_far: Sequence[Frame] = ()) -> None:
        self._waiting = Backlog()
        self._ready = Wakeup()
        self._failure: Exception | None = None
        for frame in so_far:
            self.push(frame)

    def push(self, frame: Frame) -> None:
        """Add a frame."""
        if not self.ended:  # frames after the end belong to a new stream: the message was parked and put back
            self._waiting.add(frame)
            self._ready.set()

    def fail(self, error: Exception) -> None:
        """End the stream with an error, after the pending frames."""
        self._failure = error
        self._ready.set()

    @property
    def ended(self) -> bool:
        """Whether the terminal frame is pending."""
        return self._waiting.ended

    def take(self) -> list[Frame]:
        """Remove the pending frames and return them."""
        batch, self._waiting = self._waiting.frames(), Backlog()
        return batch

    async def batches(self, tick_s: float | None = None) -> AsyncGenerator[list[Frame], None]:
        """Yield batches of frames, in order, up to the terminal frame.

        Args:
            tick_s: yield an empty batch after each interval without frames, in seconds; ``None``: yield none.

        Raises:
            Exception: the error passed to `fail`.
        """
        while True:
            if not await self._ready.wait(tick_s):
                yield []
                continue
            batch = self.take()
            if batch:
                yield batch
                if batch[-1]["type"] in TERMINAL_FRAMES:
                    return
            if self._failure is not None:
                raise self._failure


class StreamHub:
    """Distributes the frames of each message to its subscribers, and numbers and sizes the events that agents emit.

    A subscriber that joins while a message is being handled gets the frames of the running attempt first, as far as a
    `Backlog` keeps them, after the ``turn_retry`` frames of earlier attempts.
    """

    def __init__(self) -> None:
        self._so_far: dict[str, Backlog] = {}
        self._events: dict[str, int] = {}
        """Events emitted in the running attempt of each message."""
        self._subscriptions: dict[str, list[Subscription]] = {}

    @contextmanager
    def subscribe(self, message_id: str) -> Iterator[Subscription]:
        """Subscribe to a message's stream for the duration of the context."""
        subscription = Subscription(self.so_far(message_id))
        readers = self._subscriptions.setdefault(message_id, [])
        readers.append(subscription)
        try:
            yield subscription
        finally:
            readers.remove(subscription)
            if not readers:
                self._subscriptions.pop(message_id, None)

    def publish(self, message_id: str, frame: Frame) -> None:
        """Send a frame to each subscriber of its message."""
        if "message_id" not in frame:  # it has one if it comes from the hub of a host
            frame = {"message_id": message_id, **frame}
        kind = frame["type"]
        if kind == "event" and "ordinal" not in frame:  # it has one if it comes from the hub of a host
            self._events[message_id] = frame["ordinal"] = self._events.get(message_id, 0) + 1
            frame["size"] = len(encode(frame["data"])) + len(frame["name"])
        if kind == "turn_start" or kind in TERMINAL_FRAMES:
            self._events.pop(message_id, None)
        if kind in TERMINAL_FRAMES:
            self._so_far.pop(message_id, None)
        else:
            so_far = self._so_far.setdefault(message_id, Backlog())
            if kind in VOIDING_FRAMES:
                so_far.drop_attempts()
            so_far.add(frame)
        for subscription in self._subscriptions.get(message_id, ()):
            subscription.push(frame)

    def so_far(self, message_id: str) -> list[Frame]:
        """Return the frames that a subscriber who joins now gets first."""
        backlog = self._so_far.get(message_id)
        return backlog.frames() if backlog is not None else []

    def fail(self, message_id: str, error: Exception) -> None:
        """End a message's stream with an error."""
        self._so_far.pop(message_id, None)
        for subscription in self._subscriptions.get(message_id, ()):
            subscription.fail(error)

    def fail_all(self, error: Exception) -> None:
        """End all streams with an error."""
        for message_id in list(self._subscriptions):
            self.fail(message_id, error)
