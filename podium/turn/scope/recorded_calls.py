"""The calls of models of a turn as events of its record."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import structlog

from chronicle.errors import Corrupt, NotFound
from podium.events import MODEL_CALLED, TRANSCRIPT_EVENTS
from podium.models.errors import ModelError
from podium.state.plain_json import plain_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import EventId
    from chronicle.journal.records import Draft
    from podium.events import ModelAnswer, ModelCalled
    from podium.history.prompts import KnownPrompts
    from podium.models.collecting import Answered
    from podium.models.port import LLMMessage
    from podium.turn.journal.ledger import Ledger
    from podium.turn.ports import Environment

__all__ = ["Asked", "RecordedCalls", "name_texts"]

_log = structlog.stdlib.get_logger("podium.turn.scope.recorded_calls")

_SHORTEST: Final = 16
"""Characters of a text that is named by its place: shorter ones cost less than their places."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model is asked, as its call is recorded."""

    profile: str
    messages: Sequence[tuple[str, JsonObject]]
    """Digest and JSON form of each, without its cache hint."""
    hints: Sequence[str | None]
    """The cache hint of each."""
    tools: Sequence[JsonObject] | None
    temperature: float | None
    max_output_tokens: int | None

    @property
    def arguments(self) -> list[Json]:
        """The arguments of its step."""
        from podium.history.model_calls import asked  # noqa: PLC0415  for agents that call models only

        digests = [(digest, hint) for (digest, _), hint in zip(self.messages, self.hints, strict=True)]
        return asked(self.profile, digests, self.tools, self.temperature, self.max_output_tokens)


class RecordedCalls:
    """The calls of an agent's turns in its record, of one activation."""

    def __init__(self, env: Environment, ledger: Ledger) -> None:
        self._env = env
        self._ledger = ledger
        self._known: KnownPrompts | None = None
        self._digests: dict[int, tuple[LLMMessage, str, JsonObject]] = {}
        """Of the messages of the last call that nothing can change, by their object ids."""
        self._reading = asyncio.Lock()

    def forget(self) -> None:
        """Read what later calls refer to from the journal again: a turn was given up."""
        self._known = None

    def asked(
        self,
        profile: str,
        messages: Sequence[LLMMessage],
        tools: Sequence[JsonObject] | None,
        temperature: float | None,
        max_output_tokens: int | None,
    ) -> Asked:
        """Return what a model is asked. A message of the call before costs nothing if it is the same object."""
        from podium.history.prompts import digest_of  # noqa: PLC0415  for agents that call models only
        from podium.models.codec import message_to_json  # noqa: PLC0415

        found: list[tuple[str, JsonObject]] = []
        digests: dict[int, tuple[LLMMessage, str, JsonObject]] = {}
        for message in messages:
            _, digest, value = self._digests.get(id(message), (None, "", {}))
            if not digest:
                value = cast("JsonObject", plain_json(message_to_json(message)))
                value.pop("cache", None)
                digest = digest_of(value)
            if isinstance(message.content, str) and message.tool_calls == ():  # no list, which may change
                digests[id(message)] = (message, digest, value)
            found.append((digest, value))
        self._digests = digests
        hints = [message.cache for message in messages]
        plain_tools = None if tools is None else cast("list[JsonObject]", plain_json([*tools]))
        return Asked(profile, found, hints, plain_tools, temperature, max_output_tokens)

    async def open(self) -> None:
        """Make ready to record a call; before it is made. If an earlier call is damaged, it is recorded whole.

        Raises:
            Unavailable: a store could not be reached.
        """
        from podium.history.model_calls import known_prompts  # noqa: PLC0415  for agents that call models only
        from podium.history.prompts import KnownPrompts  # noqa: PLC0415

        async with self._reading:
            if self._known is None:
                env, branch_id = self._env, self._ledger.head.branch_id
                try:
                    self._known = await self._ledger.read(lambda: known_prompts(env.store, env.blobs, branch_id))
                except (Corrupt, NotFound) as error:
                    _log.warning("recorded_calls_damaged", branch_id=branch_id, error=str(error))
                    self._known = KnownPrompts()

    async def said(self, conversation: str) -> list[JsonObject]:
        """Return what committed turns have said in a conversation: `podium.history.model_calls.said_before`.

        Raises:
            ChronicleError: it cannot be read.
        """
        from podium.history.model_calls import said_before  # noqa: PLC0415  for agents that call models only

        env, branch_id = self._env, self._ledger.head.branch_id
        return await self._ledger.read(lambda: said_before(env.store, env.blobs, branch_id, conversation))

    def record(
        self,
        add: Callable[[str, JsonObject, EventId], None],
        asked: Asked,
        status: Literal["done", "failed", "left", "cancelled"],
        answered: Answered,
        conversation: str | None,
        error: BaseException | None = None,
    ) -> None:
        """Add the event of a call that has ended to a turn.

        Args:
            add: adds an event to the turn.
            answered: what the hook got.
            conversation: the name of the one that it belongs to, if it has any.
            error: how a call ended that is not done.
        """
        from podium.history.prompts import digest_of  # noqa: PLC0415
        from podium.history.step_record import args_hash  # noqa: PLC0415

        known, answer = self._known, _answer(answered)
        assert known is not None, "it was opened before the call"
        event_id = self._env.ids.event(self._env.clock.now_ms())
        prompt, depth = known.add(event_id, asked.messages)
        hints = [[index, hint] for index, hint in enumerate(asked.hints) if hint is not None]
        payload: dict[str, Any] = {
            "profile": asked.profile,
            "digest": args_hash(asked.arguments),
            "status": status,
            "prompt": prompt,
            **({"depth": depth} if depth else {}),
            **({"cache": hints} if hints else {}),
            **({"tools": known.tools(event_id, asked.tools)} if asked.tools is not None else {}),
            **({"temperature": asked.temperature} if asked.temperature is not None else {}),
            **({"max_output_tokens": asked.max_output_tokens} if asked.max_output_tokens is not None else {}),
            **({"conversation": conversation} if conversation is not None else {}),
            "answer": answer,
            **({"error": _error(error)} if status == "failed" and error is not None else {}),
        }
        known.answered(event_id, digest_of(answer["message"]))
        add(MODEL_CALLED, cast("JsonObject", payload), event_id)


def _answer(answered: Answered) -> ModelAnswer:
    from podium.models.codec import chunk_to_json, message_to_json  # noqa: PLC0415

    finished = answered.finished
    answer: ModelAnswer = {
        "message": cast("JsonObject", plain_json(message_to_json(answered.message))),
        "usage": _untyped(chunk_to_json(answered.usage)),
        "finished": _untyped(chunk_to_json(finished)) if finished is not None else None,
    }
    if answered.reasoning:
        answer["reasoning"] = answered.reasoning
    return answer


def _untyped(chunk: JsonObject) -> JsonObject:
    return {key: value for key, value in chunk.items() if key != "type"}


def _error(error: BaseException) -> JsonObject:
    from podium.models.codec import error_to_json  # noqa: PLC0415

    text = str(error).encode("utf-8", "backslashreplace").decode()
    if isinstance(error, ModelError):
        return error_to_json(error) | {"message": text}
    return {"message": text, "type": type(error).__qualname__}


def name_texts(drafts: Sequence[Draft]) -> None:
    """Replace texts of the turn's calls that other events of the turn have by the places there.

    So a text is stored once, and once it is erased, it is in no prompt either.
    """
    calls = [cast("ModelCalled", draft.payload) for draft in drafts if draft.type == MODEL_CALLED]
    if not calls:
        return
    places: dict[str, JsonObject] = {}
    for draft in drafts:
        if draft.type in TRANSCRIPT_EVENTS:
            for text, at in _texts(draft.payload, ()):
                places.setdefault(text, {"event": draft.event_id, "at": [*at]})
    for call in calls:
        call["prompt"] = [_named(entry, places) for entry in call["prompt"]]
        call["answer"]["message"] = _named(call["answer"]["message"], places)


def _named(message: JsonObject, places: Mapping[str, JsonObject]) -> JsonObject:
    """Return a message with its texts replaced by places, where there are any."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": places[content]} if content in places else message
    if not isinstance(content, list):
        return message
    blocks: list[Json] = []
    for block in cast("list[JsonObject]", content):
        text = block.get("text")
        is_named = block["type"] == "text" and isinstance(text, str) and text in places
        blocks.append({**block, "text": places[cast("str", text)]} if is_named else block)
    return {**message, "content": blocks}


def _texts(value: Json, at: tuple[str | int, ...]) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Yield the texts of a payload that are long enough to be named, each with its place."""
    if isinstance(value, str):
        if len(value) >= _SHORTEST:
            yield value, at
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*at, index))
