"""What is new to followers when a host is asked for the frames of a message again.

A host on another machine may be lost for a moment, with its ``podium node`` or a cable, while it lives. Then it gives
the frames of the running attempt from its beginning again, with text merged otherwise, or, if the attempt has ended
meanwhile, those that the journal has of it, in which a reply is one text. Pure.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from podium.turn.stream import VOIDING_FRAMES, Backlog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from podium.turn.stream import Frame

__all__ = ["Repetition", "Told"]

_OF_THE_MESSAGE: Final = frozenset({"queued", "turn_retry"})
"""Frames that belong to no attempt."""


class Told:
    """What followers have of the running attempt of a message."""

    def __init__(self) -> None:
        self._frames = Backlog()

    def add(self, batch: Iterable[Frame]) -> None:
        """Add frames."""
        for frame in batch:
            if frame["type"] in VOIDING_FRAMES:
                self._frames.drop_attempts()
            self._frames.add(frame)

    def repetition(self) -> Repetition:
        """Return what takes what followers have out of the same attempt that is told again."""
        return Repetition(self._frames.frames())


class Repetition:
    """An attempt that is told again, from its ``turn_start`` on; other attempts are left as they are.

    Args:
        told: the frames of the attempt that followers have.
    """

    def __init__(self, told: Iterable[Frame]) -> None:
        self._attempt: str | None = None
        self._had: Counter[tuple[str, str | None]] = Counter()
        """Frames that are still to be told again, by their types, and replies or calls of tools."""
        self._texts: Counter[str] = Counter()
        """Characters of each reply that followers have."""
        self._told: Counter[str] = Counter()
        """Characters of each reply that were told again."""
        self._last_event = 0
        self._is_on = False
        for frame in told:
            self._count(frame)

    def new(self, batch: Iterable[Frame]) -> list[Frame]:
        """Return what of the next frames is new."""
        return [new for frame in batch for new in self._new(frame)]

    def _new(self, frame: Frame) -> Iterator[Frame]:
        kind = frame["type"]
        if kind == "turn_start":
            self._is_on = frame["event_id"] == self._attempt
        if not self._is_on or kind in _OF_THE_MESSAGE:
            yield frame
        elif kind == "message_update":
            yield from self._rest(frame, frame["delta"])
        elif kind == "event":
            if frame["ordinal"] > self._last_event:
                yield frame
        elif kind == "tool_execution_update":  # the next one replaces it
            yield frame
        elif self._had[key := _key(frame)]:
            self._had[key] -= 1
        else:
            if kind == "message_end" and self._told[frame["reply_id"]] < self._texts[frame["reply_id"]]:
                yield from self._rest({**frame, "type": "message_update"}, frame["text"])
            yield frame

    def _rest(self, frame: Frame, text: str) -> Iterator[Frame]:
        """Yield the update with what followers do not have of the text that continues a reply."""
        reply_id = frame["reply_id"]
        begin = self._told[reply_id]
        self._told[reply_id] = begin + len(text)
        rest = text[max(0, self._texts[reply_id] - begin) :]
        if rest:
            update = {key: value for key, value in frame.items() if key != "text"}
            yield {**update, "delta": rest}

    def _count(self, frame: Frame) -> None:
        match frame["type"]:
            case "turn_start":
                self._attempt = frame["event_id"]
                self._had[_key(frame)] += 1
            case "message_update":
                self._texts[frame["reply_id"]] += len(frame["delta"])
            case "event":
                self._last_event = max(self._last_event, frame["ordinal"])
            case kind if kind not in _OF_THE_MESSAGE:
                self._had[_key(frame)] += 1


def _key(frame: Frame) -> tuple[str, str | None]:
    return frame["type"], frame.get("reply_id") or frame.get("tool_call_id")
