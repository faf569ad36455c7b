"""The events of a response: their names and order, as Open Responses has them, whatever the model does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.responses.encoder import ResponseEncoder, replayed
from coordinator.responses.items import decode_block, messages_of
from podium.models.collecting import Collector
from podium.models.port import (
    Finished,
    ProviderBlock,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallDone,
    Usage,
)

if TYPE_CHECKING:
    from podium.models.port import FinishReason, LLMStreamChunk

STOP = Finished("stop", "m")


def begun() -> Any:
    return {
        "id": "rsp_1",
        "object": "response",
        "status": "in_progress",
        "output": [],
        "output_text": "",
        "usage": None,
    }


def events_of(*chunks: LLMStreamChunk) -> tuple[list[dict[str, Any]], ResponseEncoder]:
    encoder = ResponseEncoder(begun())
    events = encoder.begin()
    for chunk in chunks:
        events += encoder.add(chunk)
    events += encoder.end(7, {"degraded": False})
    return events, encoder


def names(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_text() -> None:
    usage = Usage(input_tokens=5, output_tokens=2, cached_tokens=3, reasoning_tokens=1)
    events, encoder = events_of(TextDelta("Hel"), TextDelta("lo"), usage, STOP)
    assert names(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(10))
    response = encoder.response
    assert events[-1]["response"] == response
    assert (response["status"], response["output_text"], response["completed_at"]) == ("completed", "Hello", 7)
    assert response["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 3},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 7,
    }
    assert response["qos_outcome"] == {"degraded": False}
    assert events[0]["response"]["output"] == []


def test_reasoning_tools_and_blocks_have_items_of_their_own() -> None:
    block = ProviderBlock("anthropic", {"type": "thinking", "signature": "s"})
    events, encoder = events_of(
        ReasoningDelta("hm"),
        block,
        TextDelta("I look."),
        ToolCallDelta(0, "", "c1", "find"),
        ToolCallDelta(1, '{"b"', "c2", "find"),
        ToolCallDelta(0, '{"a":1}'),
        ToolCallDelta(1, ":2}"),
        ToolCallDone(ToolCall("c1", "find", {"a": 1})),
        ToolCallDone(ToolCall("c2", "find", {"b": 2})),
        Finished("tool_calls", "m"),
    )
    output = encoder.response["output"]
    assert [item["type"] for item in output] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert (output[0]["content"][0]["text"], decode_block(output[0]["encrypted_content"])) == ("hm", block)
    assert [item["arguments"] for item in output[2:]] == ['{"a":1}', '{"b":2}']
    assert {item["status"] for item in output} == {"completed"}
    assert [event["output_index"] for event in events if event["type"] == "response.output_item.added"] == [0, 1, 2, 3]
    for index, item in enumerate(output):
        (done,) = [
            event for event in events if event["type"] == "response.output_item.done" and event["output_index"] == index
        ]
        assert done["item"] == item
    said = "".join(event["delta"] for event in events if event.get("item_id") == output[3]["id"] and "delta" in event)
    assert said == '{"b":2}'


@pytest.mark.parametrize(
    ("reason", "status", "detail"),
    [
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
        ("context_overflow", "incomplete", {"reason": "context_overflow"}),
        ("tool_calls", "completed", None),
        ("other", "completed", None),
    ],
)
def test_how_a_model_finishes(reason: FinishReason, status: str, detail: dict[str, str] | None) -> None:
    events, encoder = events_of(TextDelta("x"), Finished(reason, "m"))
    assert events[-1]["type"] == f"response.{status}"
    assert (encoder.response["status"], encoder.response.get("incomplete_details")) == (status, detail)


def test_a_failure_in_the_middle_keeps_what_there_is() -> None:
    encoder = ResponseEncoder(begun())
    encoder.begin()
    encoder.add(TextDelta("half"))
    encoder.add(ToolCallDelta(0, '{"a"', "c1", "find"))
    events = encoder.fail("unavailable", "gone", 9, None)
    assert names(events) == ["output_item.done", "failed"]
    response = encoder.response
    assert (response["status"], response["error"]) == ("failed", {"code": "unavailable", "message": "gone"})
    assert response["output_text"] == "half"
    assert response["output"][1]["status"] == "incomplete"


CHUNKS = st.lists(
    st.one_of(
        st.builds(TextDelta, st.text(min_size=1)),
        st.builds(ReasoningDelta, st.text(min_size=1)),
        st.builds(ProviderBlock, st.just("anthropic"), st.dictionaries(st.text(), st.integers())),
        st.builds(
            lambda name, value: ToolCallDone(ToolCall(f"c{name}", name, {"v": value})),
            st.sampled_from("abc"),
            st.integers(0, 9),
        ),
    ),
    max_size=12,
)


@given(CHUNKS)
def test_the_output_as_input_is_what_the_model_said(chunks: list[LLMStreamChunk]) -> None:
    """What goes back to the model is the message that its chunks make: blocks and calls at their places."""
    _, encoder = events_of(*chunks, STOP)
    collector = Collector()
    for chunk in chunks:
        if not isinstance(chunk, ReasoningDelta):
            collector.add(chunk)
    message = collector.answered().message
    back = messages_of(encoder.response["output"])
    if not message.content and not message.tool_calls:
        assert back == []
    else:
        (said,) = back
        assert said.text == message.text
        assert list(said.tool_calls) == list(message.tool_calls) or any(
            isinstance(chunk, ReasoningDelta) for chunk in chunks
        )
        assert [block for block in said.blocks if isinstance(block, ProviderBlock)] == [
            block for block in message.blocks if isinstance(block, ProviderBlock)
        ]


@given(CHUNKS)
def test_a_repetition_has_the_same_items_and_numbers_from_zero(chunks: list[LLMStreamChunk]) -> None:
    events, encoder = events_of(*chunks, STOP)
    again = replayed({**encoder.response})
    assert again[-1]["response"] == encoder.response
    assert again[-1]["type"] == events[-1]["type"]
    assert [event["sequence_number"] for event in again] == list(range(len(again)))
    done = [event["item"] for event in again if event["type"] == "response.output_item.done"]
    assert done == encoder.response["output"]
