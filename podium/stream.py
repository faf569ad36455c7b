"""Frames on their way to clients: one stream per message, many subscribers, none of which can hold up a turn.

A subscriber that lags does not make the agent wait and does not grow without bound: text deltas of the same reply
that it has not taken yet are merged into one.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

__all__ = ["TERMINAL_FRAMES", "Frame", "StreamHub", "Subscription"]

Frame: TypeAlias = dict[str, Any]
"""One JSON object of a message's stream; its keys are listed in ``docs/internals/turn.md``."""

TERMINAL_FRAMES: Final = frozenset({"turn_end", "error"})
"""A stream ends with exactly one of these."""


class Subscription:
    """One reader of one message's frames."""

    def __init__(self, so_far: Iterable[Frame] = ()) -> None:
        self._frames = list(so_far)
        self._ready = asyncio.Event()
        if self._frames:
            self._ready.set()
        self._failure: Exception | None = None

    def push(self, frame: Frame) -> None:
        """Add a frame, merged into the last one if both are text of the same reply."""
        _append(self._frames, frame)
        self._ready.set()

    def fail(self, error: Exception) -> None:
        """End the stream with an error, after the frames that wait."""
        self._failure = error
        self._ready.set()

    @property
    def ended(self) -> bool:
        """Whether the terminal frame is among those that wait."""
        return bool(self._frames) and self._frames[-1]["type"] in TERMINAL_FRAMES

    def take(self) -> list[Frame]:
        """Return the frames that wait, and forget them."""
        batch, self._frames = self._frames, []
        return batch

    async def batches(self) -> AsyncIterator[list[Frame]]:
        """Yield what has come in, in order, until the terminal frame.

        Raises:
            Exception: what `fail` was given.
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


def _append(frames: list[Frame], frame: Frame) -> None:
    """Add a frame, merged into the last one if both are text of the same reply."""
    last = frames[-1] if frames else None
    if last is not None and frame["type"] == last["type"] == "message_update" and frame["reply_id"] == last["reply_id"]:
        frames[-1] = {**last, "delta": last["delta"] + frame["delta"]}
    else:
        frames.append(frame)


class StreamHub:
    """Hands the frames of each message to those who subscribed to it.

    Who comes while a message is being handled gets what it missed first; the frames of a message are kept until its
    terminal one, its text merged.
    """

    def __init__(self) -> None:
        self._so_far: dict[str, list[Frame]] = {}
        self._subscriptions: dict[str, list[Subscription]] = {}

    @contextmanager
    def subscribe(self, message_id: str) -> Iterator[Subscription]:
        """Take part in a message's stream while the context lasts."""
        subscription = Subscription(self._so_far.get(message_id, ()))
        readers = self._subscriptions.setdefault(message_id, [])
        readers.append(subscription)
        try:
            yield subscription
        finally:
            readers.remove(subscription)
            if not readers:
                self._subscriptions.pop(message_id, None)

    def publish(self, message_id: str, frame: Frame) -> None:
        """Give a frame to each subscriber of its message."""
        frame = {"message_id": message_id, **frame}
        if frame["type"] in TERMINAL_FRAMES:
            self._so_far.pop(message_id, None)
        else:
            _append(self._so_far.setdefault(message_id, []), frame)
        for subscription in self._subscriptions.get(message_id, ()):
            subscription.push(frame)

    def fail_all(self, error: Exception) -> None:
        """End all streams with an error."""
        for readers in self._subscriptions.values():
            for subscription in readers:
                subscription.fail(error)
