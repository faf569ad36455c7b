"""Streams of frames to clients: one stream per message, many subscribers, no back-pressure on the turn.

A slow subscriber neither delays the agent nor buffers without bound: pending text deltas of one reply are merged.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

__all__ = ["TERMINAL_FRAMES", "Frame", "StreamHub", "Subscription"]

Frame: TypeAlias = dict[str, Any]
"""One JSON object of a message's stream; `coordinator.service.protocol` lists the types and keys."""

TERMINAL_FRAMES: Final = frozenset({"turn_end", "error"})
"""The last frame of a stream: exactly one of these."""


class _Backlog:
    """Pending frames; adjacent text of one reply is merged.

    Text is joined when it is taken, so that a reply of many small tokens costs their sum. Joined at each token, 100,000
    tokens of 50 characters took 27 s.
    """

    def __init__(self, frames: Sequence[Frame] = ()) -> None:
        self._frames = list(frames)
        self._pieces: list[str] = []
        """The text of the last frame and the text to append to it; empty if there is nothing to append."""

    def add(self, frame: Frame) -> None:
        last = self._frames[-1] if self._frames else None
        is_text = frame["type"] == "message_update"
        if is_text and last is not None and last["type"] == frame["type"] and last["reply_id"] == frame["reply_id"]:
            if not self._pieces:
                self._pieces.append(last["delta"])
            self._pieces.append(frame["delta"])
        else:
            self._join()
            self._frames.append(frame)

    @property
    def ended(self) -> bool:
        return bool(self._frames) and self._frames[-1]["type"] in TERMINAL_FRAMES

    def frames(self) -> list[Frame]:
        self._join()
        return list(self._frames)

    def _join(self) -> None:
        if self._pieces:
            self._frames[-1] = {**self._frames[-1], "delta": "".join(self._pieces)}
            self._pieces = []


class Subscription:
    """One reader of one message's frames."""

    def __init__(self, so_far: Sequence[Frame] = ()) -> None:
        self._waiting = _Backlog(so_far)
        self._ready = asyncio.Event()
        if so_far:
            self._ready.set()
        self._failure: Exception | None = None

    def push(self, frame: Frame) -> None:
        """Add a frame; text of the same reply is merged into the last one."""
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
        batch, self._waiting = self._waiting.frames(), _Backlog()
        return batch

    async def batches(self) -> AsyncGenerator[list[Frame], None]:
        """Yield batches of frames, in order, up to the terminal frame.

        Raises:
            Exception: the error passed to `fail`.
        """
        while True:
            await self._ready.wait()
            self._ready.clear()
            batch = self.take()
            if batch:
                yield batch
                if batch[-1]["type"] in TERMINAL_FRAMES:
                    return
            if self._failure is not None:
                raise self._failure


class StreamHub:
    """Distributes the frames of each message to its subscribers.

    A subscriber that joins while a message is being handled gets the earlier frames first: they are kept until the
    terminal one, text merged.
    """

    def __init__(self) -> None:
        self._so_far: dict[str, _Backlog] = {}
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
        frame = {"message_id": message_id, **frame}
        if frame["type"] in TERMINAL_FRAMES:
            self._so_far.pop(message_id, None)
        else:
            backlog = self._so_far.get(message_id)
            if backlog is None:
                backlog = self._so_far[message_id] = _Backlog()
            backlog.add(frame)
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
