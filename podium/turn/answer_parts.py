"""The parts of an answer, from the frames of the turn that answers: in any number of readings of it, each part once.

The frames of a turn are read from the host that runs it, again from the next one if it moves, and at last from the
journal. Each reading begins with the current attempt. A part is JSON, as a step records it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from podium.agent.answer import AnswerEvent, AnswerText, AnswerVoided

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.canonical import Json
    from podium.turn.stream import Frame

__all__ = ["AnswerReader", "is_answer", "is_event", "part_of"]

_VOIDED = "voided"


class AnswerReader:
    """Reads the frames of a message, and tells what is new."""

    def __init__(self) -> None:
        self._attempt = ""
        """The id of the attempt that was read last."""
        self._said: dict[str, int] = {}
        """Characters of each reply that were told."""
        self._events = 0
        """Events that were told."""
        self._read: dict[str, int] = {}
        """Characters of each reply in this reading."""
        self._numbers: dict[str, int] = {}
        """Of the replies, by their ids."""

    def parts(self, frame: Frame) -> Iterator[Json]:
        """Yield what a frame tells that none before did."""
        match frame:
            case {"type": "turn_start", "event_id": str(attempt)}:
                self._read = {}
                if attempt != self._attempt:
                    if self._said or self._events:
                        yield _VOIDED
                    self._attempt, self._said, self._events = attempt, {}, 0
            case {"type": "message_start", "reply_id": str(reply), "ordinal": int(number)}:
                self._numbers[reply], self._read[reply] = number, 0
            case {"type": "message_update", "reply_id": str(reply), "delta": str(delta)}:
                begin = self._read[reply]
                self._read[reply] = begin + len(delta)
                yield from self._text(reply, delta[max(0, self._said.get(reply, 0) - begin) :])
            case {"type": "message_end", "reply_id": str(reply), "text": str(text)}:
                yield from self._text(reply, text[self._said.get(reply, 0) :])
            case {"type": "event", "name": str(name), "data": data, "ordinal": int(number)} if number > self._events:
                self._events = number
                yield {"event": name, "data": data}

    def _text(self, reply: str, text: str) -> Iterator[Json]:
        if text:
            self._said[reply] = self._said.get(reply, 0) + len(text)
            yield {"text": text, "reply": self._numbers[reply]}


def is_answer(part: Json) -> bool:
    """Whether a part is the last one, which has the answer."""
    return isinstance(part, dict) and "answer" in part


def is_event(part: Json) -> bool:
    """Whether a part is an event."""
    return isinstance(part, dict) and "event" in part


def part_of(part: Json) -> AnswerText | AnswerEvent | AnswerVoided:
    """Return a part, other than the last one, as programs get it."""
    if part == _VOIDED:
        return AnswerVoided()
    found = cast("dict[str, Any]", part)
    if is_event(part):
        return AnswerEvent(found["event"], found["data"])
    return AnswerText(found["text"], found["reply"])
