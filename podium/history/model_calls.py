"""Reading the calls of models from the record: what each model was sent, and what it answered.

`podium.history.prompts` says how a prompt is recorded. What was erased is missing, and marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, islice, takewhile
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.canonical import decode
from chronicle.errors import Corrupt, NotFound
from chronicle.ids import EventId
from chronicle.journal.payloads import payload_bytes
from podium.agent_record import find_session, retry_if_folded, turn_end_seq
from podium.errors import UnknownMoment
from podium.events import AGENT_REWOUND, FULL_STATE_EVENTS, MODEL_CALLED, TOOL_RESULT, TURN_COMMITTED
from podium.history.prompts import ANSWER, KnownPrompts, Place, digest_of
from podium.history.step_record import args_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import BranchId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event, Head
    from podium.address import Address
    from podium.events import ModelCalled

__all__ = ["RecordedCall", "asked", "calls_of_turn", "known_prompts", "said_before"]

_WINDOW: Final = 1000
"""Events looked through at a time, backwards, for the last calls."""
_WINDOWS: Final = 16
"""Windows without a call after which the next call is recorded whole."""
_RECALLED: Final = 4
_NO_RESULT: Final = "(no result: the call was not made, or its result was erased)"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of a model, as the record has it."""

    event: Event
    messages: list[JsonObject | None]
    """What was sent, in the form of `podium.models.codec`; ``None`` for a message that was erased."""
    tools: list[JsonObject] | None
    """``None`` without any, and if they were erased."""
    payload: ModelCalled
    """Its event's payload; the prompt in it is as stored."""


def asked(
    profile: str,
    messages: Sequence[tuple[str, str | None]],
    tools: Sequence[JsonObject] | None,
    temperature: float | None,
    max_output_tokens: int | None,
) -> list[Json]:
    """Return what a call's digest is of, which is also the arguments of its step.

    Args:
        messages: digest and cache hint of each.
    """
    return [
        profile,
        [digest if hint is None else [digest, hint] for digest, hint in messages],
        None if tools is None else [*tools],
        temperature,
        max_output_tokens,
    ]


def calls_of_turn(store: JournalStore, blobs: BlobReader, address: Address, turn: int | None) -> list[RecordedCall]:
    """Return the calls of models of a turn, in the order of their ends; without a turn, of the last one with any.

    Those of an attempt that was cancelled after a turn belong to that turn.

    Raises:
        UnknownAgent: there is no such agent.
        UnknownMoment: it has not committed that turn, or its history up to there was dropped.
        Corrupt: an event is damaged.
        Unavailable: a store could not be reached.
    """
    branch_id = find_session(store, address).main_branch_id

    def read() -> list[RecordedCall]:
        head = store.head(branch_id)
        wanted = turn
        if wanted is None:
            found = _backwards(store, branch_id, 0, head.seq, (MODEL_CALLED,))
            last = next((event for event in found if not event.erased), None)
            if last is None:
                return []
            wanted = last.turn
        turn_end_seq(store, address, head, wanted)
        begin = _end_of(store, address, head, wanted - 1) if wanted > 0 else 0
        end = _end_of(store, address, head, wanted + 1) if wanted < head.turn else head.seq
        reader = _Reader(store, blobs)
        return [
            reader.call(event)
            for event in store.events(branch_id, begin, end, (MODEL_CALLED,))
            if event.turn == wanted and not event.erased
        ]

    return retry_if_folded(store, branch_id, read)


def known_prompts(store: JournalStore, blobs: BlobReader, branch_id: BranchId) -> KnownPrompts:
    """Return what the next call of a branch refers to: its own last calls behind the last event with the full state.

    Raises:
        Corrupt: an event is damaged.
        Unavailable: a store could not be reached.
    """
    known = KnownPrompts()
    branch = store.branch(branch_id)
    reader = _Reader(store, blobs)
    own = max(branch.parent_seq, branch.folded_seq)
    found = _backwards(store, branch_id, own, branch.head.seq, (MODEL_CALLED, *FULL_STATE_EVENTS))
    recent = list(islice(takewhile(lambda event: event.type == MODEL_CALLED, found), _RECALLED))
    for event in reversed(recent):
        if not event.erased:
            reader.recall(event.event_id, known)
    return known


def said_before(store: JournalStore, blobs: BlobReader, branch_id: BranchId, conversation: str) -> list[JsonObject]:
    """Return what a conversation has said: the messages of its last call, the answer, and the results of its tools.

    The call is the last one that is done, in a turn that was committed and that no rewind left out. Instructions and
    cache hints are left out, and what was erased; each call of a tool has a result.

    Returns:
        messages in the form of `podium.models.codec`; empty if there is no such call in the history that is kept.

    Raises:
        Corrupt: an event is damaged.
        Unavailable: a store could not be reached.
    """
    reader, head = _Reader(store, blobs), store.head(branch_id)
    visible, committed, results = head.turn, -1, dict[str, str]()
    types = AGENT_REWOUND, MODEL_CALLED, TOOL_RESULT, TURN_COMMITTED
    for event in _backwards(store, branch_id, 0, head.seq, types, windows=None):
        if event.turn > visible:
            continue
        if event.type == AGENT_REWOUND:
            visible = reader.payload(event.event_id)["transcript"]
        elif event.type == TURN_COMMITTED:
            committed, results = event.turn, {}
        elif event.turn == committed and not event.erased:  # an attempt that was cancelled has the turn before
            payload = reader.payload(event.event_id)
            if event.type == TOOL_RESULT:
                results.setdefault(payload["call_id"], payload["output"])
            elif payload["status"] == "done" and payload.get("conversation") == conversation:
                call = reader.call(event)
                return _with_results([*call.messages, call.payload["answer"]["message"]], results)
    return []


def _with_results(said: Sequence[JsonObject | None], results: Mapping[str, str]) -> list[JsonObject]:
    """Return a conversation in which each call of a tool has one result, as providers demand.

    Args:
        results: of the last answer's calls, by their ids.
    """
    found: list[JsonObject] = []
    waiting: list[str] = []

    def close() -> None:
        found.extend(
            {"role": "tool", "content": results.get(call_id, _NO_RESULT), "tool_call_id": call_id}
            for call_id in waiting
        )
        waiting.clear()

    for message in said:
        if not message or message["role"] == "system":
            continue
        if message["role"] != "tool":
            close()
            waiting += [call["id"] for call in cast("list[Any]", message.get("tool_calls", []))]
        elif message["tool_call_id"] in waiting:
            waiting.remove(message["tool_call_id"])
        else:
            continue
        found.append({key: value for key, value in message.items() if key != "cache"})
    close()
    return found


def _end_of(store: JournalStore, address: Address, head: Head, turn: int) -> int:
    """Return the seq of the end of a turn; 0 if its history was dropped."""
    try:
        return turn_end_seq(store, address, head, turn)
    except UnknownMoment:
        return 0


def _backwards(
    store: JournalStore,
    branch_id: BranchId,
    after_seq: int,
    end: int,
    types: Sequence[str],
    *,
    windows: int | None = _WINDOWS,
) -> Iterator[Event]:
    """Yield events of some types, newest first, from the last windows of a branch; ``None`` for all of them."""
    for _ in count() if windows is None else range(windows):
        if end <= after_seq:
            return
        start = max(after_seq, end - _WINDOW)
        yield from reversed(list(store.events(branch_id, start, end, types)))
        end = start


class _Reader:
    """Reads calls, each event once."""

    def __init__(self, store: JournalStore, blobs: BlobReader) -> None:
        self._store = store
        self._blobs = blobs
        self._payloads: dict[str, Any] = {}
        self._found: dict[EventId, list[Place | None]] = {}
        """The places of the messages of calls."""
        self._stored: dict[Place, JsonObject] = {}
        """The messages at places in prompts, as they are stored."""

    def call(self, event: Event) -> RecordedCall:
        """Return a call, with its messages."""
        payload: ModelCalled = self.payload(event.event_id)
        messages = [self._message(place) if place is not None else None for place in self._origins(event.event_id)]
        tools = self._tools(payload)
        hints = dict(cast("list[tuple[int, str]]", payload.get("cache", [])))
        if None not in messages and (tools is not None or "tools" not in payload):
            digests = [(digest_of(message), hints.get(index)) for index, message in enumerate(messages)]
            parameters = payload.get("temperature"), payload.get("max_output_tokens")
            if args_hash(asked(payload["profile"], digests, tools, *parameters)) != payload["digest"]:
                raise Corrupt(f"event {event.event_id}: its prompt is not what its digest is of")
        for index, hint in hints.items():
            if (message := messages[index]) is not None:
                messages[index] = {**message, "cache": hint}
        answer = payload["answer"]
        return RecordedCall(
            event, messages, tools, {**payload, "answer": {**answer, "message": self._whole(answer["message"]) or {}}}
        )

    def recall(self, call: EventId, known: KnownPrompts) -> None:
        """Make a call known, unless parts of it were erased."""
        payload: ModelCalled = self.payload(call)
        messages: list[tuple[str, Place]] = []
        for place in self._origins(call):
            message = self._message(place) if place is not None else None
            if place is None or message is None:
                return
            messages.append((digest_of(message), place))
        known.recall(call, messages, payload.get("depth", 0))
        if (answer := self._whole(payload["answer"]["message"])) is not None:
            known.answered(call, digest_of(answer))
        if isinstance(payload.get("tools"), list):
            known.recall_tools(call, cast("list[JsonObject]", payload["tools"]))

    def payload(self, event_id: EventId) -> Any:
        """Return the payload of an event; ``None`` if it was erased."""
        if event_id not in self._payloads:
            event = self._store.find_event(event_id)
            if event is None:
                raise Corrupt(f"event {event_id} is missing, which a call of a model refers to")
            try:
                self._payloads[event_id] = decode(payload_bytes(event, self._blobs))
            except NotFound:
                if not event.erased:
                    raise
                self._payloads[event_id] = None
        return self._payloads[event_id]

    def _origins(self, call: EventId) -> list[Place | None]:
        """Return the places where the messages of a call's prompt are stored; ``None`` for those that were erased."""
        stack = [call]
        while stack:
            payload = self.payload(stack[-1])
            entries: list[Any] = payload["prompt"] if payload is not None else []
            if before := {entry["call"] for entry in entries if "from" in entry} - {stack[-1], *self._found}:
                stack += before
                continue
            places: list[Place | None] = []
            for entry in entries:
                if "call" not in entry:
                    place = Place(stack[-1], len(places))
                    self._stored[place] = entry
                    places.append(place)
                elif "from" not in entry:
                    is_erased = self.payload(entry["call"]) is None
                    places.append(None if is_erased else Place(EventId(entry["call"]), ANSWER))
                else:
                    other = places if entry["call"] == stack[-1] else self._found[entry["call"]]
                    part = other[entry["from"] : entry["to"]]
                    places += [*part, *[None] * (entry["to"] - entry["from"] - len(part))]
            self._found[stack.pop()] = places
        return self._found[call]

    def _message(self, place: Place) -> JsonObject | None:
        return self._whole(self.payload(place.call)["answer"]["message"] if place.at == ANSWER else self._stored[place])

    def _whole(self, message: JsonObject) -> JsonObject | None:
        """Return a stored message with its text; ``None`` if that was erased."""
        content = message.get("content")
        if isinstance(content, dict):
            text = self._text(content)
            return None if text is None else {**message, "content": text}
        if not isinstance(content, list):
            return message
        blocks: list[Json] = []
        for block in cast("list[JsonObject]", content):
            place = block["text"] if block["type"] == "text" else None
            text = self._text(place) if isinstance(place, dict) else None
            if isinstance(place, dict) and text is None:
                return None
            blocks.append(block if text is None else {**block, "text": text})
        return {**message, "content": blocks}

    def _text(self, place: JsonObject) -> str | None:
        """Return the text at a place of another event; ``None`` if it was erased."""
        found = self.payload(EventId(cast("str", place["event"])))
        for key in cast("list[str | int]", place["at"]) if found is not None else ():
            found = found[key]
        return cast("str | None", found)

    def _tools(self, payload: ModelCalled) -> list[JsonObject] | None:
        tools: Any = payload.get("tools")
        if isinstance(tools, dict):
            other = self.payload(EventId(tools["call"]))
            tools = other["tools"] if other is not None else None
        return cast("list[JsonObject] | None", tools)
