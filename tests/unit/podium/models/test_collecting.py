"""The chunks of an answer, put together to a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from podium.models.collecting import Answered, Collector, collect
from podium.models.port import (
    Finished,
    LLMMessage,
    LLMStreamChunk,
    ProviderBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallDone,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def _stream(*chunks: LLMStreamChunk) -> AsyncIterator[LLMStreamChunk]:
    for chunk in chunks:
        await anyio.lowlevel.checkpoint()
        yield chunk


async def test_text_alone_is_the_content() -> None:
    finished = Finished("stop", "m")
    answered = await collect(_stream(TextDelta("Hel"), Usage(3, 1), TextDelta("lo"), Usage(3, 2), finished))
    assert answered == Answered(LLMMessage("assistant", "Hello"), "", Usage(3, 2), finished)


async def test_blocks_and_calls_keep_their_order() -> None:
    thinking = ProviderBlock("anthropic", {"type": "thinking", "signature": "s1"})
    more = ProviderBlock("anthropic", {"type": "thinking", "signature": "s2"})
    first, second = ToolCall("c1", "add", {"a": 1}), ToolCall("c2", "add", {"a": 2})
    answered = await collect(
        _stream(
            ReasoningDelta("Let me "),
            ReasoningDelta("see."),
            thinking,
            TextDelta("I add."),
            ToolCallDelta(0, id="c1", name="add"),
            ToolCallDone(first),
            more,
            ToolCallDelta(1, id="c2", name="add"),
            ToolCallDone(second),
        )
    )
    assert answered.message.content == (thinking, TextBlock("I add."), more)
    assert answered.message.tool_calls == (
        ToolCall("c1", "add", {"a": 1}, after_blocks=2),
        ToolCall("c2", "add", {"a": 2}, after_blocks=3),
    )
    assert answered.reasoning == "Let me see."
    assert answered.finished is None


def test_an_answer_that_was_cut_is_what_there_is() -> None:
    collector = Collector()
    assert collector.answered() == Answered(LLMMessage("assistant"))
    collector.add(TextDelta("Hel"))
    assert collector.answered().message.text == "Hel"


def test_the_text_and_blocks_of_a_message() -> None:
    assert LLMMessage("user").blocks == ()
    assert LLMMessage("user", "Hi").blocks == (TextBlock("Hi"),)
    assert LLMMessage("user", [TextBlock("a"), ProviderBlock("x", {}), TextBlock("b")]).text == "ab"
