"""What a model was sent, in the record: each call stores what no earlier one had, and names the rest.

A prompt is a list of entries. An entry with a ``role`` is a message, in the form of `podium.models.codec`, without its
cache hint. One with ``call`` stands for messages of another call, by the id of its event: those ``from`` … ``to`` of
its prompt, or without them its answer. So a conversation of 500 calls stores each message once.

Pure: the messages come with their digests, and the ids of events from outside.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from blake3 import blake3

from chronicle.canonical import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import EventId

__all__ = ["ANSWER", "KnownPrompts", "Place", "digest_of"]

ANSWER: Final = -1
"""The index of a call's answer."""
_RECENT: Final = 4
"""Prompts that the next one may continue: an agent that has two conversations with models continues the one before."""
_MAX_DEPTH: Final = 256
"""Calls that are read one after the other to find a message. A prompt beyond names the calls that have its messages."""


class Place(NamedTuple):
    """Where the record has a message."""

    call: EventId
    at: int
    """The index in the call's prompt; `ANSWER` for its answer."""


def digest_of(value: Json) -> str:
    """Return the BLAKE3 of a value's canonical JSON, 128 bits in hex."""
    return blake3(encode(value)).hexdigest(length=16)


@dataclass(frozen=True, slots=True)
class _Prompt:
    call: EventId
    digests: Sequence[str]
    depth: int

    def shares(self, digests: Sequence[str]) -> int:
        """Return how many messages at the beginning are the same."""
        return next(
            (index for index, (mine, other) in enumerate(zip(self.digests, digests, strict=False)) if mine != other),
            min(len(self.digests), len(digests)),
        )

    def find(self, digest: str, near: int) -> int | None:
        """Return the index of a message, looking forward from where it is expected."""
        if 0 <= near < len(self.digests) and self.digests[near] == digest:
            return near
        try:
            return self.digests.index(digest, max(near, 0))
        except ValueError:
            return None


class KnownPrompts:
    """The recorded calls of an agent, as far as later ones refer to them."""

    def __init__(self) -> None:
        self._recent: deque[_Prompt] = deque(maxlen=_RECENT)
        self._places: dict[str, Place] = {}
        self._tools: dict[str, EventId] = {}

    def add(self, call: EventId, messages: Sequence[tuple[str, JsonObject]]) -> tuple[list[JsonObject], int]:
        """Return the prompt of a call in its recorded form, and its depth, and know it from now on.

        Args:
            call: the id of its event.
            messages: each with its `digest_of`.
        """
        digests = [digest for digest, _ in messages]
        base = max(
            (prompt for prompt in self._recent if prompt.depth < _MAX_DEPTH),
            key=lambda prompt: prompt.shares(digests),
            default=None,
        )
        entries: list[JsonObject] = []
        depth = shift = 0
        for index, (digest, message) in enumerate(messages):
            found = base.find(digest, index + shift) if base is not None else None
            if base is not None and found is not None:
                shift, depth = found - index, base.depth + 1
                _extend(entries, Place(base.call, found))
            elif (place := self._places.get(digest)) is not None:
                _extend(entries, place)
            else:
                entries.append(message)
                self._places[digest] = Place(call, index)
        self._recent.appendleft(_Prompt(call, digests, depth))
        return entries, depth

    def answered(self, call: EventId, digest: str) -> None:
        """Know the answer of a call, by the digest of its message."""
        self._places.setdefault(digest, Place(call, ANSWER))

    def tools(self, call: EventId, tools: Sequence[JsonObject]) -> Json:
        """Return the tools of a call in their recorded form: a list, or the call that has the same."""
        same = self._tools.setdefault(digest_of([*tools]), call)
        return [*tools] if same == call else {"call": same}

    def recall(self, call: EventId, messages: Sequence[tuple[str, Place]], depth: int) -> None:
        """Know a call that was recorded before, newest last.

        Args:
            messages: the digest of each message of its prompt, and where the record has it.
        """
        for digest, place in messages:
            self._places.setdefault(digest, place)
        self._recent.appendleft(_Prompt(call, [digest for digest, _ in messages], depth))

    def recall_tools(self, call: EventId, tools: Sequence[JsonObject]) -> None:
        """Know the tools of a call that was recorded before."""
        self._tools.setdefault(digest_of([*tools]), call)


def _extend(entries: list[JsonObject], place: Place) -> None:
    """Add a message of another call to the entries, as a part of the last one if it follows there."""
    if place.at == ANSWER:
        entries.append({"call": place.call})
        return
    last = entries[-1] if entries else {}
    if last.get("call") == place.call and last.get("to") == place.at:
        last["to"] = cast("int", last["to"]) + 1
    else:
        entries.append({"call": place.call, "from": place.at, "to": place.at + 1})
