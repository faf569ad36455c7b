"""Positions in the stream of a message: what a reader has, as a short text from which any process goes on. Pure.

A position counts what was delivered, each reply for itself. It does not depend on how replies, artifacts and events
interleave, nor on how text was merged. So the frames of a running attempt and those that the journal has of it after
its commit, which are in another order, continue each other.

The text of a position begins with the message's id:

``msg_…/0``
    accepted; nothing of an attempt was delivered.
``msg_…/ATTEMPT-MARK.REPLIES.ARTIFACTS.EVENTS:REPLY-CHARACTERS,…``
    within an attempt: its number and the end of its event id, the replies begun, the artifacts, the ordinal of the last
    emitted event, and for each reply that has not ended its ordinal and the characters (code points) of it.
``msg_…/ATTEMPT.retry``
    after the ``turn_retry`` of an attempt.
``msg_…/committed``, ``failed``, ``parked``, ``cancelled`` or ``paused``
    after the terminal frame; only ``agent_end`` follows.
``msg_…/end``
    after ``agent_end``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from podium.turn.stream import Frame

__all__ = ["OUTCOMES", "InvalidPosition", "Position", "Reading", "outcome_of"]

OUTCOMES: Final = ("committed", "failed", "parked", "cancelled", "paused")
"""How a message's stream can end."""
_MARK_DIGITS: Final = 8
"""Digits of an attempt's event id in a position: 40 random bits."""
_UNTOLD: Final = {"error": {"type": "HostLost", "message": "nothing has told how it ended"}, "hook": None}
"""Of the ``turn_retry`` of an attempt whose end no source tells."""
_TEXT: Final = re.compile(
    r"(?P<message_id>msg_[0-9A-Za-z]{1,64})/(?:(?P<start>0)|(?P<retried>[0-9]{1,9})\.retry|(?P<stage>[a-z]+)"
    r"|(?P<attempt>[0-9]{1,9})-(?P<mark>[0-9A-Za-z]{1,32})"
    r"\.(?P<replies>[0-9]{1,9})\.(?P<artifacts>[0-9]{1,9})\.(?P<events>[0-9]{1,12})"
    r"(?::(?P<open>[0-9]{1,9}-[0-9]{1,12}(?:,[0-9]{1,9}-[0-9]{1,12})*))?)"
)


class InvalidPosition(InvalidInput):
    """A text is not a position, or not one of the message."""


@dataclass(frozen=True, slots=True)
class Position:
    """Progress of a reader of a message's stream."""

    message_id: str
    attempt: int = 0
    """The attempt of the last frame; 0 before the first one."""
    mark: str = ""
    """The end of the attempt's event id: tells apart two attempts of one number. Empty after a ``turn_retry``."""
    replies: int = 0
    """The ordinal of the last reply that was begun."""
    artifacts: int = 0
    events: int = 0
    """The ordinal of the last emitted event."""
    open: tuple[tuple[int, int], ...] = ()
    """Ordinal and characters of each reply that was begun and has not ended."""
    stage: str = ""
    """One of `OUTCOMES` after the terminal frame, ``end`` after ``agent_end``."""

    @classmethod
    def start(cls, message_id: str) -> Position:
        """Return the position of a reader that knows that the message was accepted."""
        return cls(message_id)

    @classmethod
    def parse(cls, text: str, message_id: str) -> Position:
        """Return the position that a text tells.

        Args:
            message_id: the message whose position it must be.

        Raises:
            InvalidPosition: it is not a position, or one of another message.
        """
        found = _TEXT.fullmatch(text)
        if found is None or (found["stage"] and found["stage"] not in (*OUTCOMES, "end")):
            raise InvalidPosition(
                f"{text[:200]!r} is not a position of a stream: send the id of its last event as it was received"
            )
        if found["message_id"] != message_id:
            raise InvalidPosition(f"position {text!r} belongs to the stream of another message than {message_id}")
        if found["start"]:
            return cls(message_id)
        if found["retried"]:
            return cls(message_id, attempt=int(found["retried"]))
        if found["stage"]:
            return cls(message_id, stage=found["stage"])
        pairs = (each.split("-") for each in (found["open"] or "").split(",") if each)
        return cls(
            message_id,
            int(found["attempt"]),
            found["mark"],
            int(found["replies"]),
            int(found["artifacts"]),
            int(found["events"]),
            tuple((int(ordinal), int(characters)) for ordinal, characters in pairs),
        )

    @property
    def outcome(self) -> str | None:
        """The outcome, if only ``agent_end`` is missing."""
        return self.stage if self.stage in OUTCOMES else None

    @property
    def is_end(self) -> bool:
        """Whether the reader has the whole stream."""
        return self.stage == "end"

    def is_of_later_attempt(self, source: Position) -> bool:
        """Whether the reader knows of a later attempt than a stream that has come to a position and has not ended."""
        ahead = (self.attempt, not self.mark) > (source.attempt, not source.mark)
        return ahead and source.attempt > 0 and not self.stage and not source.stage

    def rest(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """Yield what a reader at this position has not got.

        Args:
            frames: the stream from the beginning of its running, or last, attempt.
        """
        reading = Reading(self)
        for frame in frames:
            for new, _ in reading.feed(frame):
                yield new

    def __str__(self) -> str:
        if self.stage:
            return f"{self.message_id}/{self.stage}"
        if not self.mark:
            return f"{self.message_id}/{self.attempt}.retry" if self.attempt else f"{self.message_id}/0"
        counts = f"{self.replies}.{self.artifacts}.{self.events}"
        return f"{self.message_id}/{self.attempt}-{self.mark}.{counts}{_open_text(self.open)}"


class Reading:
    """The rest of a stream for a reader, frame by frame, and its position after each.

    Args:
        position: what the reader has at the beginning.
    """

    def __init__(self, position: Position) -> None:
        self._message_id = position.message_id
        self._attempt = position.attempt
        self._mark = position.mark
        self._replies = position.replies
        self._artifacts = position.artifacts
        self._events = position.events
        self._open = dict(position.open)
        self._stage = position.stage
        self._counts = ""
        """The text of the position without the open replies; empty if it is to be made."""
        self._ordinals: dict[str, int] = {}
        """The ordinal of each reply of the attempt that the stream tells of."""
        self._told: dict[str, int] = {}
        """Characters that the stream has told of each reply, those that the reader had included."""
        self._told_artifacts = 0
        self._held: list[Frame] | None = [] if position.attempt or position.stage else None
        """Frames without a position at the beginning: new if a new frame follows them. `None` once that is certain."""

    def feed(self, frame: Frame) -> list[tuple[Frame, str | None]]:
        """Take the next frame of the stream, and return what of it is new.

        An attempt that the reader knows of, and that a later one follows without a ``turn_retry``, gets one.

        Returns:
            frames, each with the text of the position after it; ``None`` if it does not change the position.
        """
        if self._stage and frame["type"] != "agent_end":
            return []
        match frame["type"]:
            case "accepted":
                return []
            case "message_update":
                return self._text(frame)
            case "message_start":
                return self._begin_reply(frame)
            case "message_end":
                return self._end_reply(frame)
            case "artifact":
                self._told_artifacts += 1
                if self._told_artifacts <= self._artifacts:
                    return self._had()
                self._artifacts = self._told_artifacts
            case "event":
                if frame["ordinal"] <= self._events:
                    return self._had()
                self._events = frame["ordinal"]
            case "turn_start":
                return self._begin_attempt(frame)
            case "turn_retry":
                if frame["attempt"] < self._attempt + (not self._mark):
                    return self._had()
                self._enter(frame["attempt"], "")
            case "turn_end" | "turn_paused" | "error":
                self._stage = outcome_of(frame)
            case "agent_end":
                if self._stage == "end":
                    return self._had()
                self._stage = "end"
            case _:
                if self._held is None:
                    return [(frame, None)]
                self._held.append(frame)
                return []
        self._counts = ""
        return self._new(frame)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _text(self, frame: Frame) -> list[tuple[Frame, str | None]]:
        reply_id, delta = frame["reply_id"], frame["delta"]
        ordinal, begin = self._ordinals[reply_id], self._told[reply_id]
        self._told[reply_id] = end = begin + len(delta)
        had = self._open.get(ordinal)
        if had is None or had >= end:
            return self._had()
        self._open[ordinal] = end
        return self._new(frame if had == begin else {**frame, "delta": delta[had - begin :]})

    def _begin_reply(self, frame: Frame) -> list[tuple[Frame, str | None]]:
        ordinal = frame["ordinal"]
        self._ordinals[frame["reply_id"]] = ordinal
        self._told[frame["reply_id"]] = 0
        if ordinal <= self._replies:
            return self._had()
        self._replies = ordinal
        self._open[ordinal] = 0
        self._counts = ""
        return self._new(frame)

    def _end_reply(self, frame: Frame) -> list[tuple[Frame, str | None]]:
        """End a reply; text that no update told, as it comes from the journal, is told before."""
        reply_id, text = frame["reply_id"], frame["text"]
        ordinal = self._ordinals[reply_id]
        had = self._open.get(ordinal)
        if had is None:
            return self._had()
        new = []
        if had < len(text):
            self._open[ordinal] = len(text)
            update = {"message_id": self._message_id, "type": "message_update", "reply_id": reply_id}
            new = self._new({**update, "delta": text[had:]})
        del self._open[ordinal]
        return [*new, *self._new(frame)]

    def _begin_attempt(self, frame: Frame) -> list[tuple[Frame, str | None]]:
        mark = frame["event_id"][-_MARK_DIGITS:]
        self._ordinals, self._told, self._told_artifacts = {}, {}, 0
        attempt = frame["attempt"]
        if attempt == self._attempt and mark == self._mark:
            return self._had()
        new = []
        for ended in range(self._attempt + (not self._mark), attempt) if self._attempt else ():
            self._enter(ended, "")
            new += self._new({"message_id": self._message_id, "type": "turn_retry", "attempt": ended, **_UNTOLD})
        self._enter(attempt, mark)
        return [*new, *self._new(frame)]

    def _enter(self, attempt: int, mark: str) -> None:
        self._attempt, self._mark = attempt, mark
        self._replies = self._artifacts = self._events = 0
        self._open = {}
        self._counts = ""

    def _had(self) -> list[tuple[Frame, str | None]]:
        if self._held:
            self._held.clear()
        return []

    def _new(self, frame: Frame) -> list[tuple[Frame, str | None]]:
        if self._held is None:
            return [(frame, self._position())]
        held, self._held = self._held, None
        return [*((each, None) for each in held), (frame, self._position())]

    def _position(self) -> str:
        if not self._counts:
            self._counts = str(
                Position(
                    self._message_id,
                    self._attempt,
                    self._mark,
                    self._replies,
                    self._artifacts,
                    self._events,
                    stage=self._stage,
                )
            )
        if self._stage or not self._open:
            return self._counts
        return self._counts + _open_text(self._open.items())


def outcome_of(terminal: Frame) -> str:
    """Return the outcome that a terminal frame tells, one of `OUTCOMES`."""
    if terminal["type"] == "turn_end":
        return "committed"
    if terminal["type"] == "turn_paused":
        return "paused"
    if terminal.get("parked"):
        return "parked"
    return "cancelled" if terminal["error"]["type"] == "Cancelled" else "failed"


def _open_text(replies: Iterable[tuple[int, int]]) -> str:
    text = ",".join(f"{ordinal}-{characters}" for ordinal, characters in replies)
    return f":{text}" if text else ""
