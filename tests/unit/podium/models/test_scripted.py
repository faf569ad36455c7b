"""The scripted provider."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from chronicle.errors import InvalidInput
from podium.models.collecting import collect
from podium.models.errors import ModelError
from podium.models.port import Finished, LLMMessage, LLMStreamChunk, ReasoningDelta, TextDelta, ToolCall, Usage
from podium.models.scripted import ScriptedProvider, script_of_file
from tests.unit.coordinator.models.routing.models import in_virtual_time
from tests.unit.podium.models.values import texts


async def ask(provider: ScriptedProvider, text: str = "Hello") -> Any:
    return await collect(provider.stream([LLMMessage("user", text)]))


async def read_into(chunks: list[LLMStreamChunk], provider: ScriptedProvider) -> None:
    async for chunk in provider.stream([]):
        chunks.append(chunk)  # noqa: PERF401  what was read before an error counts


# S4.31
async def test_answers_come_in_turn_and_begin_again() -> None:
    provider = ScriptedProvider(["One.", {"text": "Two.", "usage": {"input_tokens": 7, "output_tokens": 1}}])
    texts = [(await ask(provider)).message.text for _ in range(3)]
    assert texts == ["One.", "Two.", "One."]
    assert [messages[0].text for messages in provider.requests] == ["Hello"] * 3


# S4.31
async def test_all_that_an_answer_may_have() -> None:
    script: Any = [
        {
            "reasoning": "Let me see.",
            "text": "I add them.",
            "tool_calls": [{"name": "add", "arguments": {"a": 1}}, {"id": "c", "name": "now"}],
        }
    ]
    chunks = [chunk async for chunk in ScriptedProvider(script, model="m").stream([LLMMessage("user", "1 + 2?")])]
    assert [chunk.text for chunk in chunks if isinstance(chunk, ReasoningDelta)] == ["Let", " me", " see."]
    assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == ["I", " add", " them."]
    assert chunks[-2:] == [Usage(2, 6), Finished("tool_calls", "m", "scr_1")]
    answered = await ask(ScriptedProvider(script))
    assert answered.message.tool_calls == (
        ToolCall("call_1_0", "add", {"a": 1}, after_blocks=1),
        ToolCall("c", "now", after_blocks=1),
    )


async def test_the_documented_script() -> None:
    """The file of docs/models.md, as it says it."""
    page = (Path(__file__).parents[4] / "docs/models.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    provider = ScriptedProvider(json.loads(shown))
    assert (await ask(provider)).message.text == "Hello!"
    added = await ask(provider, "1 + 2?")
    assert [(call.name, call.arguments) for call in added.message.tool_calls] == [("add", {"a": 1, "b": 2})]
    assert (await ask(provider, "what weather?")).message.text == "It rains."
    three = await ask(provider)
    assert (three.reasoning, three.message.text, three.usage) == ("Easy.", "3", Usage(7, 1))
    for kind in ("overloaded", "protocol"):
        with pytest.raises(ModelError) as failed:
            await ask(provider)
        assert failed.value.kind == kind
    assert (await ask(provider)).message.text == "Hello!", "it begins again"


async def test_answers_for_certain_messages() -> None:
    provider = ScriptedProvider([{"when": "weather", "text": "Rain."}, "First.", "Second."])
    asked = ["Hi", "the weather?", "Hi", "weather", "Hi"]
    assert [(await ask(provider, text)).message.text for text in asked] == [
        "First.",
        "Rain.",
        "Second.",
        "Rain.",
        "First.",
    ]
    only = ScriptedProvider([{"when": "weather", "text": "Rain."}])
    with pytest.raises(ModelError, match="no answer of the script") as caught:
        await ask(only)
    assert caught.value.kind == "bad_request"


# S4.31
async def test_errors_and_cuts_come_after_the_text() -> None:
    error: Any = {"kind": "rate_limited", "message": "later", "retry_after_s": 3}
    provider = ScriptedProvider([{"text": "So", "error": error}, {"text": "far", "finish": None}, {"finish": "length"}])
    chunks: list[LLMStreamChunk] = []
    with pytest.raises(ModelError, match="later") as caught:
        await read_into(chunks, provider)
    assert chunks == [TextDelta("So")]
    assert (caught.value.kind, caught.value.retry_after_s, caught.value.provider) == ("rate_limited", 3, "scripted")
    with pytest.raises(ModelError, match="ended in the middle") as caught:
        await ask(provider)
    assert caught.value.kind == "protocol"
    assert (await ask(provider)).finished == Finished("length", "scripted", "scr_3")


@given(texts)
def test_without_a_script_it_repeats_the_last_message(text: str) -> None:
    async def run() -> str:
        answered = await ask(ScriptedProvider(), text)
        return str(answered.message.text)

    assert in_virtual_time(run) == text


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ({}, "a script is a list of answers"),
        ([], "has at least one"),
        ([7], "answer 0 of the script is neither text nor an object"),
        (["a", {"txt": "b"}], "answer 1 of the script: unknown field 'txt'"),
        ([{"text": 7}], "answer 0 of the script: 'text' is not text"),
        ([{"tool_calls": [{"arguments": {}}]}], "answer 0 of the script: 'name'"),
        ([{"tool_calls": [{"name": "a", "arguments": 7}]}], "a tool call is"),
        ([{"finish": "bored"}], "'finish' is not one of"),
        ([{"error": {"kind": "strange", "message": ""}}], "'kind' is not one of"),
        ([{"usage": {"tokens": 7}}], "answer 0 of the script"),
        ([{"delay_ms": "long"}], "answer 0 of the script"),
    ],
)
def test_what_is_no_script(script: Any, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ScriptedProvider(script)
    assert says in str(caught.value)


def test_a_script_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    path.write_text('["Hello!"]')
    assert script_of_file(path) == ["Hello!"]
    path.write_text("[")
    with pytest.raises(InvalidInput, match=r"answers\.json is no script"):
        script_of_file(path)
    for refused in ('[{"text": NaN}]', '[{"text": "a", "text": "b"}]', "[" * 101 + "]" * 101):
        path.write_text(refused)
        with pytest.raises(InvalidInput, match="is no script"):
            script_of_file(path)
    with pytest.raises(InvalidInput, match="is no script"):
        script_of_file(tmp_path / "nothing.json")
