"""Hypothesis strategies for the values of the port."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from podium.models.port import (
    CacheHint,
    Finished,
    FinishReason,
    ImageBlock,
    LLMMessage,
    ProviderBlock,
    ReasoningDelta,
    Role,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallDone,
    Usage,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
some_text = texts.filter(bool)
counts = st.integers(0, 2**40)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)
kinds_of_blocks = st.fixed_dictionaries(
    {"type": st.sampled_from(["reasoning", "message", "function_call", "tool_use", "thinking"])},
    optional={"content": st.just([{"type": "text", "text": "x"}]), "tool_calls": json_objects, "phase": st.just("c")},
)
images = st.builds(ImageBlock, texts, st.binary(max_size=20)) | st.builds(ImageBlock, texts, st.none(), some_text)
provider_blocks = st.builds(ProviderBlock, st.just("p") | some_text, json_objects | kinds_of_blocks)
blocks = st.builds(TextBlock, texts) | images | provider_blocks
tool_calls = st.builds(
    ToolCall, some_text, some_text, json_objects, st.none() | texts, after_blocks=st.none() | st.integers(0, 5)
)
cache_hints = st.none() | st.sampled_from(get_args(CacheHint))


@st.composite
def messages(draw: st.DrawFn) -> LLMMessage:
    role = draw(st.sampled_from(get_args(Role)))
    return LLMMessage(
        role,
        draw(texts | st.lists(blocks, max_size=3).map(tuple)),
        draw(st.lists(tool_calls, max_size=2).map(tuple)) if role == "assistant" else (),
        draw(some_text) if role == "tool" else None,
        draw(cache_hints),
        draw(st.none() | texts) if role == "assistant" else None,
        draw(st.none() | texts),
    )


chunks = (
    st.builds(TextDelta, some_text)
    | st.builds(ReasoningDelta, some_text)
    | st.builds(ToolCallDelta, counts, texts, st.none() | some_text, st.none() | some_text)
    | st.builds(ToolCallDone, tool_calls)
    | provider_blocks
    | st.builds(Usage, counts, counts, counts, counts, st.none() | texts, counts)
    | st.builds(Finished, st.sampled_from(get_args(FinishReason)), texts, st.none() | texts)
)
