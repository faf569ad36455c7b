"""The readers of the three formats, where servers differ from what is documented."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from podium.models.anthropic.reader import MessagesReader
from podium.models.openai_compat.chat_reader import ChatReader
from podium.models.openai_compat.responses_reader import ResponsesReader
from podium.models.port import (
    Finished,
    LLMStreamChunk,
    ProviderBlock,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallDone,
    Usage,
)

if TYPE_CHECKING:
    from podium.models.vendor_sdk import Reader


def read(reader: Reader, *events: dict[str, Any]) -> list[LLMStreamChunk]:
    chunks = [chunk for event in events for chunk in reader.feed(event)]
    return [*chunks, *reader.end()] if reader.complete else chunks


def chat(*deltas: dict[str, Any], finish: str = "stop", **last: Any) -> list[LLMStreamChunk]:
    events: list[dict[str, Any]] = [{"id": "r", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}], **last}
    return read(ChatReader("openai", "m"), *events, end)


def call(index: int | None, call_id: str | None, name: str | None, arguments: str, **extra: Any) -> dict[str, Any]:
    return {
        "tool_calls": [{"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}, **extra}]
    }


# -- chat completions --------------------------------------------------------------------------------------------------


def test_nulls_and_missing_fields_say_nothing() -> None:
    assert chat({"role": "assistant", "content": None, "tool_calls": None}, {"content": ""}, usage=None) == [
        Finished("stop", "m", "r")
    ]
    assert read(ChatReader("openai", "m"), {}, {"choices": None}, {"choices": []}) == []


def test_only_the_first_choice_is_read() -> None:
    reader = ChatReader("openai", "m")
    second = {"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}
    assert read(reader, {"choices": [second]}) == []
    assert not reader.complete


def test_calls_that_share_an_index_are_told_apart_by_their_ids() -> None:
    chunks = chat(
        call(0, "a", "add", '{"x":'), call(0, None, None, "1}"), call(0, "b", "now", "{}"), finish="tool_calls"
    )
    assert [chunk for chunk in chunks if isinstance(chunk, ToolCallDelta)] == [
        ToolCallDelta(0, '{"x":', "a", "add"),
        ToolCallDelta(0, "1}"),
        ToolCallDelta(1, "{}", "b", "now"),
    ]
    assert [chunk.call for chunk in chunks if isinstance(chunk, ToolCallDone)] == [
        ToolCall("a", "add", {"x": 1}),
        ToolCall("b", "now"),
    ]


def test_a_call_without_index_or_id_gets_an_id_of_the_answer() -> None:
    chunks = chat(call(None, None, "now", ""))
    assert chunks == [
        ToolCallDelta(0, "", "call_r_0", "now"),
        ToolCallDone(ToolCall("call_r_0", "now")),
        Finished("tool_calls", "m", "r"),
    ]


def test_a_stop_with_calls_is_a_finish_for_calls() -> None:
    assert chat(call(0, "a", "now", "{}"), finish="stop")[-1] == Finished("tool_calls", "m", "r")


def test_a_refusal_is_text_and_a_finish_of_its_own() -> None:
    assert chat({"refusal": "I cannot."}) == [TextDelta("I cannot."), Finished("content_filter", "m", "r")]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_under_both_names(name: str) -> None:
    assert chat({name: "Hm."}, {"content": "3"}) == [ReasoningDelta("Hm."), TextDelta("3"), Finished("stop", "m", "r")]


def test_what_must_come_back_with_the_next_request() -> None:
    signature: Any = {"google": {"thought_signature": "x"}}
    chunks = chat({"reasoning_content": "Hm."}, call(0, "a", "now", "{}", extra_content=signature))
    assert (
        ProviderBlock("openai", {"reasoning_content": "Hm.", "tool_calls": {"a": {"extra_content": signature}}})
        in chunks
    )
    details: Any = [{"type": "reasoning.encrypted", "data": "x"}]
    chunks = chat({"reasoning": "Hm.", "reasoning_details": details})
    assert ProviderBlock("openai", {"reasoning_details": details}) in chunks


def test_usage_under_other_names_and_in_every_chunk() -> None:
    reader = ChatReader("openai", "m")
    end = {"choices": [{"delta": {"content": "3"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9}}
    last = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4}}
    assert read(reader, end, last)[1] == Usage(9, 2, cached_tokens=4)


# -- Responses ---------------------------------------------------------------------------------------------------------


def completed(**response: Any) -> dict[str, Any]:
    return {
        "type": "response.completed",
        "response": {"id": "resp_1", "model": "m-2", "status": "completed", **response},
    }


def test_reasoning_of_open_responses_and_parts_of_summaries() -> None:
    part = {"type": "response.reasoning_summary_part.added"}
    text = {"type": "response.reasoning_summary_text.delta"}
    chunks = read(
        ResponsesReader("p", "m"),
        {"type": "response.reasoning.delta", "delta": "Open."},
        part | {"summary_index": 0},
        text | {"delta": "One."},
        part | {"summary_index": 1},
        text | {"delta": "Two."},
        {"type": "response.something.new", "delta": "?"},
    )
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, ReasoningDelta)) == "Open.One.\n\nTwo."
    assert len(chunks) == 4


def test_items_of_the_provider_and_phases() -> None:
    search: Any = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"query": "x"}}
    call_item = {
        "type": "function_call",
        "call_id": "c",
        "name": "f",
        "arguments": "{}",
        "namespace": "n",
        "caller": None,
    }
    chunks = read(
        ResponsesReader("p", "m"),
        {"type": "response.output_item.done", "output_index": 0, "item": search},
        {"type": "response.output_item.added", "item": {"type": "message", "phase": "commentary", "content": []}},
        {"type": "response.output_item.done", "item": call_item},
        completed(),
    )
    assert chunks == [
        ProviderBlock("p", search),
        ProviderBlock("p", {"type": "message", "phase": "commentary"}),
        ProviderBlock("p", {"type": "function_call", "call_id": "c", "namespace": "n"}),
        ToolCallDone(ToolCall("c", "f")),
        Finished("stop", "m-2", "resp_1"),
    ]


def test_a_refusal_in_responses() -> None:
    chunks = read(ResponsesReader("p", "m"), {"type": "response.refusal.delta", "delta": "No."}, completed())
    assert chunks == [TextDelta("No."), Finished("content_filter", "m-2", "resp_1")]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "server_error", "message": "a bug"},
        {"type": "error", "error": {"code": "server_error", "message": "a bug"}},
        {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "a bug"}}},
    ],
)
def test_failures_in_responses(event: dict[str, Any]) -> None:
    reader = ResponsesReader("p", "m")
    assert read(reader, event) == []
    assert reader.failure is not None
    assert (reader.failure["code"], reader.failure["message"]) == ("server_error", "a bug")


# -- Anthropic Messages ------------------------------------------------------------------------------------------------


def block(index: int, started: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": started},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def test_blocks_of_the_provider_are_whole() -> None:
    search: Any = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    result: Any = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"url": "x"}], "new_field": 1}
    chunks = read(
        MessagesReader("anthropic", "m"),
        *block(0, {"type": "redacted_thinking", "data": "x"}),
        *block(1, search, *({"type": "input_json_delta", "partial_json": part} for part in ('{"query": ', '"x"}'))),
        *block(2, result),
        *block(
            3,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "signature_delta", "signature": "s"},
            {"type": "signature_delta", "signature": "t"},
        ),
    )
    assert chunks == [
        ProviderBlock("anthropic", {"type": "redacted_thinking", "data": "x"}),
        ProviderBlock("anthropic", search | {"input": {"query": "x"}}),
        ProviderBlock("anthropic", result),
        ProviderBlock("anthropic", {"type": "thinking", "thinking": "", "signature": "st"}),
    ]


def test_a_call_whose_input_came_at_once_and_what_else_it_has() -> None:
    use = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}}
    assert read(MessagesReader("anthropic", "m"), *block(0, use)) == [
        ToolCallDelta(0, "", "c", "f"),
        ProviderBlock("anthropic", {"type": "tool_use", "id": "c", "caller": {"type": "direct"}}),
        ToolCallDone(ToolCall("c", "f", {"a": 1})),
    ]


def test_usage_is_put_together_from_its_totals() -> None:
    begun = {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 1}
    chunks = read(
        MessagesReader("anthropic", "m"),
        {"type": "message_start", "message": {"id": "msg_1", "model": "m-2", "usage": begun}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 30, "input_tokens": None, "output_tokens_details": {"thinking_tokens": 7}},
        },
    )
    assert chunks == [
        Usage(125, 1, 100, 20),
        Usage(125, 30, 100, 20, reasoning_tokens=7),
        Finished("stop", "m-2", "msg_1"),
    ]


def test_events_and_deltas_that_are_new_are_passed_over() -> None:
    assert read(
        MessagesReader("anthropic", "m"),
        {"type": "ping"},
        {"type": "something_new"},
        *block(0, {"type": "text", "text": "Hi"}, {"type": "citations_delta", "citation": {}}, {"type": "new_delta"}),
    ) == [TextDelta("Hi")]
