"""A branch as messages: what its events say, and which responses stand for events without a payload.

A client that keeps its own transcript appends a `user_message`, asks for a response, and appends an
`assistant_message`, without payloads: podium has the texts, in the record of the response. These rules find them:

* A response stands for an `assistant_message` without a payload that comes after the head on which the response ran,
  on the branch that it named. The one that ran on the event right before has precedence, then the latest. Each response
  stands for one event at most, so that what racing writers append is each time another pair of question and answer.
* The input of a response stands for its head if that is a `user_message` without a payload: of the first response that
  an event of the branch stands for, else of the latest one.
* The input of another response that stands for an event comes right before its output.

A payload ``{"response_id": "rsp_…"}`` names the response, whatever it ran on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from coordinator.responses.items import NEXT_CALL, canonical_text, content_of_parts, is_image_url
from podium.models.port import LLMMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chronicle.canonical import Json
    from podium.models.port import ContentBlock

__all__ = ["BranchEvent", "GivenResponse", "Transcript", "without_payload"]

USER: Final = "user_message"
ASSISTANT: Final = "assistant_message"


@dataclass(frozen=True, slots=True)
class BranchEvent:
    """An event of a branch."""

    event_id: str
    version: int
    """Its place in the branch, from 1."""
    branch_id: str
    """The branch to which it was appended: a fork reads events of others."""
    event_type: str
    created_ms: int
    payload: Json
    """Inline, or the text of the artifact that it refers to; ``None`` for none."""
    artifact_id: str | None = None
    """The artifact that the payload is of; ``None`` if it is inline, or the artifact is gone."""


@dataclass(frozen=True, slots=True)
class GivenResponse:
    """A response, as far as a transcript needs it."""

    response_id: str
    branch_id: str | None
    head_event_id: str | None
    """The last event that it was given."""
    completed_ms: int | None
    """When it ended with an output; ``None`` if it failed."""
    asked: Sequence[LLMMessage] = field(repr=False)
    """Its input, without instructions."""
    said: Sequence[LLMMessage] = field(repr=False)
    """Its output."""
    characters: int = 0
    """About the size of both."""


def without_payload(event: BranchEvent, event_type: str) -> bool:
    """Whether an event is one of a type, for which a response stands."""
    return event.event_type == event_type and event.payload is None


class Transcript:
    """A branch up to an event, and the responses that stand for its `assistant_message` events. It does not change.

    An event keeps its response: those that end later than it was appended do not stand for it.
    """

    def __init__(self) -> None:
        self.events: Sequence[BranchEvent] = ()
        self._response_ids: dict[int, str] = {}
        """The response that stands for an event, by the index of the event, in order."""
        self._taken: frozenset[str] = frozenset()
        self._own: dict[int, list[LLMMessage]] = {}
        """Texts of events with payloads, by index."""

    def extended(self, more: Sequence[BranchEvent], responses: Mapping[str, GivenResponse]) -> Transcript:
        """Return the transcript with further events.

        Args:
            responses: all of the session by id, in the order of ids.
        """
        new = Transcript()
        start = len(self.events)
        new.events = (*self.events, *more)
        named = {
            index: named
            for index, event in enumerate(more, start)
            if event.event_type == ASSISTANT and (named := _named(event.payload)) in responses
        }
        taken = self._taken | frozenset(named.values())
        answers = _Answers(responses.values(), taken)
        places = {event.event_id: index for index, event in enumerate(new.events)}
        response_ids = dict(named)
        for index, event in enumerate(more, start):
            if without_payload(event, ASSISTANT):
                before = new.events[index - 1].event_id if index else None
                if (found := answers.take(event, before, places, index)) is not None:
                    response_ids[index] = found
        new._response_ids = {**self._response_ids, **dict(sorted(response_ids.items()))}
        new._taken = taken | frozenset(response_ids.values())
        new._own = {
            **self._own,
            **{
                index: _messages_of_event(event.event_type, event.payload)
                for index, event in enumerate(more, start)
                if event.payload is not None and index not in response_ids
            },
        }
        return new

    def messages(self, responses: Mapping[str, GivenResponse], count: int | None = None) -> list[LLMMessage]:
        """Return the messages of the first events, by default of all.

        Args:
            responses: all of the session that are left, by id, in the order of ids.
        """
        response_ids = {index: each for index, each in self._response_ids.items() if each in responses}
        openings = self._openings(responses, response_ids)
        told = set(openings.values())
        messages: list[LLMMessage] = []
        for index in range(len(self.events) if count is None else count):
            if (standing := openings.get(index)) is not None:
                messages += responses[standing].asked
            elif (response_id := response_ids.get(index)) is not None:
                if response_id not in told:
                    messages += responses[response_id].asked
                messages += responses[response_id].said
            elif (own := self._own.get(index)) is not None:
                messages += own
        return messages

    def _openings(self, responses: Mapping[str, GivenResponse], response_ids: Mapping[int, str]) -> dict[int, str]:
        """Return the response whose input stands for each `user_message` without a payload, by its index."""
        branches = {event.branch_id for event in self.events}
        of_head = {each.head_event_id: each.response_id for each in responses.values() if each.branch_id in branches}
        # Of several on one head the first that an event has precedes, else it is the latest.
        of_head |= {responses[each].head_event_id: each for each in reversed(list(response_ids.values()))}
        return {
            index: of_head[event.event_id]
            for index, event in enumerate(self.events)
            if event.payload is None and event.event_type == USER and event.event_id in of_head
        }


class _Answers:
    """Responses with an output, by what they ran on; each is taken once."""

    def __init__(self, known: Iterable[GivenResponse], taken: frozenset[str]) -> None:
        self._taken = set(taken)
        self._of_head: dict[tuple[str | None, str | None], list[GivenResponse]] = {}
        self._of_branch: dict[str | None, list[GivenResponse]] = {}
        for response in known:
            if response.response_id not in taken and response.completed_ms is not None:
                self._of_head.setdefault((response.branch_id, response.head_event_id), []).append(response)
                self._of_branch.setdefault(response.branch_id, []).append(response)

    def take(self, event: BranchEvent, before: str | None, places: Mapping[str, int], index: int) -> str | None:
        """Return the response that stands for an event.

        Args:
            before: the event right before it.
            places: the indexes of the events of the branch.
            index: its own.
        """
        found = self._latest(self._of_head.get((event.branch_id, before), ()), event, places, index)
        found = found or self._latest(self._of_branch.get(event.branch_id, ()), event, places, index)
        if found is not None:
            self._taken.add(found)
        return found

    def _latest(
        self, among: Iterable[GivenResponse], event: BranchEvent, places: Mapping[str, int], index: int
    ) -> str | None:
        fitting = [
            (response.completed_ms, response.response_id)
            for response in among
            if response.response_id not in self._taken
            and response.completed_ms is not None
            and response.completed_ms <= event.created_ms
            and (response.head_event_id is None or places.get(response.head_event_id, index) < index)
        ]
        return max(fitting)[1] if fitting else None


def _named(payload: Json) -> str:
    """Return the response that a payload names."""
    return str(payload["response_id"]) if isinstance(payload, dict) and "response_id" in payload else ""


def _messages_of_event(event_type: str, payload: Json) -> list[LLMMessage]:
    match event_type:
        case "user_message":
            return [LLMMessage("user", _content(payload))]
        case "assistant_message":
            return [LLMMessage("assistant", _text(payload))]
        case "tool_result":
            return [LLMMessage("tool", _content(payload, "output"), tool_call_id=_call_id(payload))]
        case "retrieval_result":
            return [LLMMessage("user", f"Retrieved:\n{_text(payload)}")]
        case _:  # checkpoints and notes are for the client
            return []


def _call_id(payload: Json) -> str:
    named = payload.get("call_id") if isinstance(payload, dict) else None
    return named if isinstance(named, str) else NEXT_CALL


def _content(payload: Json, *names: str) -> str | tuple[ContentBlock, ...]:
    """Return the content of a payload: the parts of its ``content``, as an input has them, or its text."""
    parts = payload.get("content") if isinstance(payload, dict) else None
    if isinstance(parts, list) and parts and all(map(_is_part, parts)):
        return content_of_parts(cast("list[dict[str, Any]]", parts))
    return _text(payload, *names)


def _is_part(part: Json) -> bool:
    match part:
        case {"type": "input_text" | "output_text", "text": str()}:
            return True
        case {"type": "input_image", "image_url": str(url)}:
            return is_image_url(url)
    return False


def _text(payload: Json, *names: str) -> str:
    """Return the text of a payload: itself, that of one of the usual keys, or all of it as JSON."""
    if not isinstance(payload, dict):
        return canonical_text(payload)
    for name in (*names, "text", "content"):
        if isinstance(found := payload.get(name), str):
            return found
    return canonical_text(payload)
