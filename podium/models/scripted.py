"""A provider whose answers are written down beforehand: for tests, examples and a first start without any key.

A script is a list of answers, given in their order; after the last one it begins again::

    [
      "Hello!",
      {"text": "I add.", "tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]},
      {"reasoning": "Easy.", "text": "3", "delay_ms": 50, "usage": {"input_tokens": 7, "output_tokens": 1}},
      {"when": "weather", "text": "It rains."},
      {"error": {"kind": "overloaded", "message": "too much to do"}},
      {"text": "cut after this", "finish": null}
    ]

An answer with ``when`` is for requests whose last message has that text in it, and is given each time; the others are
given in turn to the requests that no ``when`` fits. Without a script the provider repeats the last message.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from chronicle.canonical import decode_input
from chronicle.errors import InvalidInput
from podium.models.codec import error_from_json
from podium.models.errors import ModelError
from podium.models.port import (
    Finished,
    FinishReason,
    LLMMessage,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallDone,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
    from pathlib import Path
    from typing import Self

    from chronicle.canonical import Json, JsonObject
    from podium.models.port import LLMStreamChunk

__all__ = ["ScriptedProvider", "read_script", "script_of_file"]

_NAME: Final = "scripted"
_WORD: Final = re.compile(r"\s*\S+\s*$|\s*\S+")
_FIELDS: Final = frozenset({"text", "reasoning", "tool_calls", "delay_ms", "usage", "finish", "when", "error"})
_CHARACTERS_A_TOKEN: Final = 4
_KEPT_REQUESTS: Final = 16


@dataclass(frozen=True, slots=True)
class _Answer:
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    delay_s: float = 0.0
    usage: Usage | None = None
    finish: FinishReason | None = None
    cut: bool = False
    when: str | None = None
    error: JsonObject | None = field(default=None)


class ScriptedProvider:
    """Answers with what a script says. It needs no library, no key and no network.

    Text comes in words, so that streaming can be seen. Usage that a script does not give is counted as 4 characters to
    a token.

    Args:
        script: the answers; ``None`` repeats the last message.
        model: the name in `Finished.model`.

    Raises:
        InvalidInput: the script is none; the text says which answer.
    """

    def __init__(self, script: Json = None, *, model: str = "scripted") -> None:
        answers = read_script(script) if script is not None else ()
        self._fixed = [answer for answer in answers if answer.when is not None]
        self._in_turn = [answer for answer in answers if answer.when is None]
        self._echoes = script is None
        self._model = model
        self._given = 0
        self.requests: deque[tuple[LLMMessage, ...]] = deque(maxlen=_KEPT_REQUESTS)
        """The messages of the latest requests."""

    @property
    def name(self) -> str:
        """The provider's name."""
        return _NAME

    def for_call(self, *, max_output_tokens: int | None = None, prompt_cache_key: str | None = None) -> Self:
        """Return this provider: it has neither a limit nor a cache."""
        del max_output_tokens, prompt_cache_key
        return self

    async def stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Iterable[JsonObject] | None = None,
        temperature: float | None = None,
    ) -> AsyncGenerator[LLMStreamChunk, None]:
        """Yield the next answer of the script; see `podium.models.port.LLMProvider.stream`."""
        del tools, temperature
        self.requests.append(tuple(messages))
        number, answer = self._next(messages)
        for chunk in _pieces(answer, number):
            await asyncio.sleep(answer.delay_s)
            yield chunk
        if answer.error is not None:
            raise error_from_json({"provider": _NAME, **answer.error})
        if answer.cut:
            raise ModelError("scripted: the answer ended in the middle", "protocol", provider=_NAME)
        written = sum(len(message.text) for message in messages)
        yield answer.usage or Usage(_tokens(written), _tokens(len(answer.text) + len(answer.reasoning)))
        yield Finished(answer.finish or ("tool_calls" if answer.calls else "stop"), self._model, f"scr_{number}")

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""

    def _next(self, messages: Sequence[LLMMessage]) -> tuple[int, _Answer]:
        self._given += 1
        last = messages[-1].text if messages else ""
        for answer in self._fixed:
            if cast("str", answer.when) in last:
                return self._given, answer
        if self._echoes:
            return self._given, _Answer(last)
        if not self._in_turn:
            raise ModelError("scripted: no answer of the script is for this message", "bad_request", provider=_NAME)
        answer = self._in_turn.pop(0)
        self._in_turn.append(answer)
        return self._given, answer


def script_of_file(path: Path) -> Json:
    """Return the script in a file of JSON.

    Raises:
        InvalidInput: the file cannot be read, or has no JSON in it.
    """
    try:
        return decode_input(path.read_bytes())
    except (OSError, InvalidInput) as error:
        raise InvalidInput(f"{path} is no script of answers: {error}") from error


def read_script(script: Json) -> tuple[_Answer, ...]:
    """Check a script.

    Raises:
        InvalidInput: it is none; the text says which answer.
    """
    if not isinstance(script, list) or not script:
        raise InvalidInput("a script is a list of answers, and has at least one")
    return tuple(_read_answer(place, value) for place, value in enumerate(script))


def _read_answer(place: int, value: Json) -> _Answer:
    if isinstance(value, str):
        return _Answer(value)
    if not isinstance(value, dict):
        raise InvalidInput(f"answer {place} of the script is neither text nor an object")
    if unknown := value.keys() - _FIELDS:
        raise InvalidInput(f"answer {place} of the script: unknown field {', '.join(map(repr, sorted(unknown)))}")
    given: dict[str, Any] = dict(value)
    try:
        finish = given.get("finish")
        if finish is not None and finish not in get_args(FinishReason):
            raise ValueError(f"'finish' is not one of {', '.join(get_args(FinishReason))}")
        if (error := given.get("error")) is not None:
            error_from_json(error)
        return _Answer(
            text=_text(given, "text") or "",
            reasoning=_text(given, "reasoning") or "",
            calls=tuple(_read_call(call) for call in given.get("tool_calls", ())),
            delay_s=float(given.get("delay_ms", 0)) / 1000,
            usage=Usage(**given["usage"]) if "usage" in given else None,
            finish=finish,
            cut="finish" in given and finish is None,
            when=_text(given, "when"),
            error=error,
        )
    except (TypeError, ValueError, KeyError, InvalidInput) as error:
        raise InvalidInput(f"answer {place} of the script: {error}") from error


def _text(given: dict[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name!r} is not text")
    return value


def _read_call(value: dict[str, Any]) -> ToolCall:
    arguments = value.get("arguments", {})
    if not isinstance(value["name"], str) or not isinstance(arguments, dict):
        raise TypeError("a tool call is {name, arguments}")
    return ToolCall(value.get("id", ""), value["name"], arguments)


def _pieces(answer: _Answer, number: int) -> Iterator[LLMStreamChunk]:
    for word in _WORD.findall(answer.reasoning):
        yield ReasoningDelta(word)
    for word in _WORD.findall(answer.text) or ([answer.text] if answer.text else []):
        yield TextDelta(word)
    for index, call in enumerate(answer.calls):
        call_id = call.id or f"call_{number}_{index}"
        yield ToolCallDelta(index, json.dumps(call.arguments), call_id, call.name)
        yield ToolCallDone(ToolCall(call_id, call.name, call.arguments))


def _tokens(characters: int) -> int:
    return -(-characters // _CHARACTERS_A_TOKEN)
