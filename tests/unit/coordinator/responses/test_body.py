"""Bodies of requests: what fits, what is refused, and what of Open Responses is not supported."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from coordinator.responses.body import ResponseBody
from coordinator.responses.items import dumped, encode_block, instructions_of, messages_of
from podium.models.port import ImageBlock, LLMMessage, ProviderBlock, TextBlock, ToolCall
from podium.models.quality import QualityOfService

BLOCK = ProviderBlock("anthropic", {"type": "thinking"})
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def body(**fields: Any) -> ResponseBody:
    return ResponseBody.model_validate({"model": "code.fast", "input": "hi", **fields})


def messages(*items: dict[str, Any]) -> list[LLMMessage]:
    found = body(input=list(items)).input
    assert not isinstance(found, str)
    return messages_of([dumped(item) for item in found])


def test_the_request_of_a_session() -> None:
    """S0.23, S0.27"""
    qos = {
        "class": "interactive",
        "target_ttft_ms": 500,
        "deadline_ms": 8000,
        "degrade_policy": "allow_compatible_fallback",
    }
    asked = body(session_id="ses_1", branch_id="br_1", qos=qos)
    assert asked.qos is not None
    assert asked.qos.quality() == QualityOfService("interactive", 128, 500, 8000, "allow_compatible_fallback")


def test_messages_of_all_roles() -> None:
    assert messages(
        {"role": "user", "content": "short"},
        {"type": "message", "role": "developer", "content": "rule"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok", "annotations": []}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
    ) == [LLMMessage("user", "short"), LLMMessage("assistant", "ok"), LLMMessage("user", "a")]
    found = body(input=[{"role": "system", "content": [{"type": "input_text", "text": "rule"}]}]).input
    assert not isinstance(found, str)
    assert instructions_of([dumped(item) for item in found]) == [LLMMessage("system", "rule")]


def test_images_are_data_or_urls() -> None:
    image = {"type": "input_image", "image_url": PIXEL}
    remote = {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"}
    (message,) = messages({"role": "user", "content": [{"type": "input_text", "text": "what?"}, image, remote]})
    assert message.content == (
        TextBlock("what?"),
        ImageBlock("image/png", b"\x89PNG\r\n\x1a\n"),
        ImageBlock("", url="https://example.org/a.png"),
    )


def test_a_loop_of_tools() -> None:
    assert messages(
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": encode_block(BLOCK)},
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": '{"a":1}', "status": "completed"},
        {"type": "function_call", "call_id": "c2", "name": "find", "arguments": "half"},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
    ) == [
        LLMMessage(
            "assistant",
            (BLOCK,),
            (ToolCall("c1", "find", {"a": 1}, None, 1), ToolCall("c2", "find", {}, "half", 1)),
        ),
        LLMMessage("tool", "found", tool_call_id="c1"),
    ]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"top_p": 0.5}, "top_p"),
        ({"previous_response_id": "rsp_1"}, "previous_response_id"),
        ({"include": ["message.output_text.logprobs"]}, 0),
        ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}]}, "encrypted_content"),
        ({"reasoning": {"effort": "low"}}, "reasoning"),
        ({"background": True}, "background"),
        ({"store": False}, "store"),
        ({"truncation": "auto"}, "truncation"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "web_search"}]}, "type"),
        ({"text": {"format": {"type": "json_object"}}}, "type"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"qos": {"class": "urgent"}}, "class"),
        ({"qos": {"priority": 256}}, "priority"),
        ({"qos": {"degrade_policy": "maybe"}}, "degrade_policy"),
        ({"qos": {"deadline": 1}}, "deadline"),
        ({"temperature": "1"}, "temperature"),
        ({"stream": 1}, "stream"),
        ({"metadata": {"a": 1}}, "a"),
        ({"input": 7}, "parts"),
        ({"input": None}, "parts"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, 0),
        ({"input": [{"role": "owner", "content": "x"}]}, 0),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]}, 0),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "ftp://x"}]}]}, "image_url"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "a b", "arguments": ""}]}, "name"),
        ({"model": ""}, "model"),
    ],
)
def test_what_is_refused_is_named(fields: dict[str, Any], place: str | int) -> None:
    with pytest.raises(ValidationError) as refused:
        body(**fields)
    assert refused.value.errors()[0]["loc"][-1] == place


def test_fields_that_are_not_given_or_null_are_the_same() -> None:
    nothing = dict.fromkeys(name for name in ResponseBody.model_fields if name not in {"model", "input"})
    assert body(**nothing) == body()
