"""Messages as the bodies of requests, in the three formats."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.models.anthropic import request as anthropic
from podium.models.anthropic.request import messages_request
from podium.models.codec import message_to_json
from podium.models.errors import ModelError
from podium.models.openai_compat.chat_request import chat_request
from podium.models.openai_compat.options import Options, name_for
from podium.models.openai_compat.responses_request import responses_request
from podium.models.port import ContentBlock, ImageBlock, LLMMessage, ProviderBlock, TextBlock, ToolCall
from tests.unit.podium.models.values import messages as any_message

OPENAI = Options("openai", "gpt-5.6-mini")
OLDER = Options("openai", "gpt-5.1", prompt_cache_key="agent-1")
OTHER = Options("openai:127.0.0.1:11434", "qwen", "http://127.0.0.1:11434/v1", prompt_cache_key="agent-1")
ANTHROPIC = anthropic.Options("anthropic", "claude-sonnet-5")
PROXY = anthropic.Options("anthropic:proxy", "claude-sonnet-5", "https://proxy")

PNG = ImageBlock("image/png", b"png")
LINK = ImageBlock("", url="https://example.org/cat.jpg")
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
ADD: dict[str, Any] = {"name": "add", "description": "Adds.", "parameters": SCHEMA}
SEARCH: dict[str, Any] = {"type": "web_search_20260209", "name": "web_search"}


def chat(messages: list[LLMMessage], options: Options = OPENAI, **more: Any) -> Any:
    return chat_request(options, messages, more.get("tools"), more.get("temperature"))


def responses(messages: list[LLMMessage], options: Options = OPENAI, **more: Any) -> Any:
    return responses_request(options, messages, more.get("tools"), more.get("temperature"))


def claude(messages: list[LLMMessage], options: anthropic.Options = ANTHROPIC, **more: Any) -> Any:
    return messages_request(options, messages, more.get("tools"), more.get("temperature"))


TALK = [
    LLMMessage("system", "Be brief."),
    LLMMessage("user", "What is 1 + 2?"),
    LLMMessage("assistant", "I add.", (ToolCall("c1", "add", {"a": 1}), ToolCall("c2", "add", {"a": 2}))),
    LLMMessage("tool", "3", tool_call_id="c1"),
    LLMMessage("tool", [TextBlock("see"), PNG], tool_call_id="c2"),
    LLMMessage("user", [TextBlock("And this?"), PNG, LINK]),
]
DATA_URL = "data:image/png;base64,cG5n"


# -- the whole of a conversation ---------------------------------------------------------------------------------------


# S1.38
def test_chat_completions() -> None:
    body = chat(TALK, tools=[ADD], temperature=0.5)
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    assert body == {
        "model": "gpt-5.6-mini",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "tools": [{"type": "function", "function": ADD}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is 1 + 2?"},
            {
                "role": "assistant",
                "content": "I add.",
                "tool_calls": [call, call | {"id": "c2", "function": {"name": "add", "arguments": '{"a": 2}'}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "3"},
            {"role": "tool", "tool_call_id": "c2", "content": "see"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Images of the result of c2:"},
                    {"type": "image_url", "image_url": {"url": DATA_URL}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "And this?"},
                    {"type": "image_url", "image_url": {"url": DATA_URL}},
                    {"type": "image_url", "image_url": {"url": "https://example.org/cat.jpg"}},
                ],
            },
        ],
    }


# S1.38
def test_responses() -> None:
    body = responses(TALK, tools=[ADD])
    image = {"type": "input_image", "detail": "auto", "image_url": DATA_URL}
    assert body == {
        "model": "gpt-5.6-mini",
        "stream": True,
        "store": False,
        "tools": [{"type": "function", "strict": False, **ADD}],
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is 1 + 2?"},
            {"role": "assistant", "content": "I add."},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
            {"type": "function_call", "call_id": "c2", "name": "add", "arguments": '{"a": 2}'},
            {"type": "function_call_output", "call_id": "c1", "output": "3"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "see"}, image]},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "And this?"},
                    image,
                    image | {"image_url": "https://example.org/cat.jpg"},
                ],
            },
        ],
    }


# S1.39
def test_messages() -> None:
    body = claude(TALK, tools=[ADD], temperature=0.5)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}}
    assert body == {
        "model": "claude-sonnet-5",
        "max_tokens": 8192,
        "stream": True,
        "temperature": 0.5,
        "tools": [{"name": "add", "description": "Adds.", "input_schema": SCHEMA}],
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What is 1 + 2?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I add."},
                    {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}},
                    {"type": "tool_use", "id": "c2", "name": "add", "input": {"a": 2}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "3"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "see"}, image]},
                    {"type": "text", "text": "And this?"},
                    image,
                    {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.jpg"}},
                ],
            },
        ],
    }


def test_limits_and_further_fields() -> None:
    limited = Options("openai", "gpt-5.6", max_output_tokens=9, extra={"reasoning_effort": "low"})
    assert chat([], limited)["max_completion_tokens"] == 9
    assert chat([], limited)["reasoning_effort"] == "low"
    assert responses([], limited)["max_output_tokens"] == 9
    other = Options("openai:x", "qwen", "http://x/v1", max_output_tokens=9)
    assert chat([], other)["max_tokens"] == 9
    thinking = anthropic.Options("anthropic", "claude", max_output_tokens=9, extra={"thinking": {"type": "adaptive"}})
    assert claude([], thinking)["max_tokens"] == 9
    assert claude([], thinking)["thinking"] == {"type": "adaptive"}


def test_later_system_messages_stay_at_their_place() -> None:
    talk = [LLMMessage("user", "Hi"), LLMMessage("system", "Now in French."), LLMMessage("user", "Well?")]
    assert [message["role"] for message in claude(talk)["messages"]] == ["user", "system", "user"]
    assert [message["role"] for message in chat(talk)["messages"]] == ["user", "system", "user"]


def test_empty_texts_are_not_sent_to_anthropic_which_refuses_them() -> None:
    talk = [LLMMessage("user", "Hi"), LLMMessage("assistant", "  \n"), LLMMessage("user", [TextBlock(""), PNG])]
    (message,) = claude(talk)["messages"]
    assert [block["type"] for block in message["content"]] == ["text", "image"]


# -- tools -------------------------------------------------------------------------------------------------------------


def test_tools_in_the_form_of_others_and_tools_of_the_provider() -> None:
    tools = [{"type": "function", "function": ADD | {"strict": True}}, {"name": "now"}, SEARCH]
    assert claude([], tools=tools)["tools"] == [
        {"name": "add", "description": "Adds.", "input_schema": SCHEMA, "strict": True},
        {"name": "now", "input_schema": {"type": "object", "properties": {}}},
        SEARCH,
    ]
    assert responses([], tools=tools)["tools"][0]["strict"] is True
    assert chat([], tools=tools)["tools"][2] == SEARCH
    assert claude([], tools=[{"name": "add", "input_schema": SCHEMA}])["tools"][0]["input_schema"] == SCHEMA


@pytest.mark.parametrize(
    "tool", [{}, {"name": ""}, {"name": 7}, {"type": "function", "function": 7}, {"name": "a", "parameters": []}, "add"]
)
def test_what_is_no_tool(tool: Any) -> None:
    with pytest.raises(ModelError, match="a tool is") as caught:
        chat([], tools=[tool])
    assert caught.value.kind == "bad_request"


# -- what only the provider understands --------------------------------------------------------------------------------


def test_blocks_and_calls_of_a_provider_keep_their_places() -> None:
    def thinking(number: int) -> ProviderBlock:
        return ProviderBlock("anthropic", {"type": "thinking", "thinking": "", "signature": f"s{number}"})

    content: list[ContentBlock] = [thinking(1), TextBlock("One."), thinking(2), TextBlock("Two.")]
    calls = (ToolCall("c1", "a", after_blocks=1), ToolCall("c2", "b", after_blocks=3), ToolCall("c3", "c"))
    (message,) = claude([LLMMessage("assistant", content, calls)])["messages"]
    seen = [block.get("signature") or block.get("text") or block.get("id") for block in message["content"]]
    assert seen == ["s1", "c1", "One.", "s2", "c2", "Two.", "c3"]


def test_items_of_responses_keep_their_places_and_messages_their_phases() -> None:
    def of(block: dict[str, Any]) -> ProviderBlock:
        return ProviderBlock("openai-responses", block)

    thought = [{"type": "reasoning_text", "text": "Hm."}]
    reasoning = {"id": "rs_1", "type": "reasoning", "summary": [], "content": thought, "encrypted_content": "x"}
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    content: list[ContentBlock] = [
        of(reasoning),
        of({"type": "message", "phase": "commentary"}),
        TextBlock("I look."),
        of(search),
        of({"type": "function_call", "call_id": "c1", "namespace": "files"}),
        of(reasoning | {"id": "rs_2"}),
        of({"type": "message", "phase": "final_answer"}),
        TextBlock("Done."),
    ]
    talk = [LLMMessage("assistant", content, (ToolCall("c1", "read", after_blocks=5),))]
    options = Options("openai-responses", "gpt-5.6")
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}", "namespace": "files"}
    assert (
        responses(talk, options)["input"]
        == responses(talk, options)["input"]
        == [
            reasoning,
            {"role": "assistant", "content": "I look.", "phase": "commentary"},
            search,
            call,
            reasoning | {"id": "rs_2"},
            {"role": "assistant", "content": "Done.", "phase": "final_answer"},
        ]
    )


def test_fields_of_calls_go_back_to_the_server_that_wrote_them() -> None:
    signature = {"google": {"thought_signature": "x"}}
    fields: Any = {"tool_calls": {"c1": {"extra_content": signature}}, "reasoning_details": [{"type": "encrypted"}]}
    talk = [LLMMessage("assistant", [ProviderBlock("openai", fields)], (ToolCall("c1", "add"),))]
    (message,) = chat(talk)["messages"]
    assert message["reasoning_details"] == [{"type": "encrypted"}]
    assert message["tool_calls"][0]["extra_content"] == signature
    (elsewhere,) = chat(talk, OTHER)["messages"]
    assert elsewhere.keys() == {"role", "content", "tool_calls"}
    assert elsewhere["tool_calls"][0].keys() == {"id", "type", "function"}
    use: Any = {"type": "tool_use", "id": "c1", "caller": {"type": "direct"}}
    talk = [LLMMessage("assistant", [ProviderBlock("anthropic", use)], (ToolCall("c1", "add"),))]
    ((block,),) = (message["content"] for message in claude(talk)["messages"])
    assert block == {"type": "tool_use", "id": "c1", "name": "add", "input": {}, "caller": {"type": "direct"}}


def test_arguments_that_were_no_json_go_back_as_they_were() -> None:
    talk = [LLMMessage("assistant", "", (ToolCall("c1", "add", {}, invalid_arguments='{"a": '),))]
    assert chat(talk)["messages"][0]["tool_calls"][0]["function"]["arguments"] == '{"a": '
    assert responses(talk)["input"][0]["arguments"] == '{"a": '
    assert claude(talk)["messages"][0]["content"][0]["input"] == {}


# -- caches ------------------------------------------------------------------------------------------------------------

HINTED = [
    LLMMessage("system", "Be brief.", cache="long"),
    LLMMessage("user", "Hello"),
    LLMMessage("assistant", "Hi", cache="short"),
    LLMMessage("tool", "3", tool_call_id="c1", cache="short"),
]


# S4.27, S4.28
def test_hints_are_breakpoints_of_new_models_of_openai() -> None:
    system, user, answer, result = chat(HINTED)["messages"]
    long = {"mode": "explicit", "ttl": "12h"}
    short = {"mode": "explicit", "ttl": "30m"}
    assert system["content"] == [{"type": "text", "text": "Be brief.", "prompt_cache_breakpoint": long}]
    assert user["content"] == "Hello"
    assert answer["content"][0]["prompt_cache_breakpoint"] == short
    assert result["content"][0]["prompt_cache_breakpoint"] == short


# S4.27, S4.28
def test_in_responses_the_hint_of_an_answer_is_before_it_as_answers_carry_none() -> None:
    _, user, answer, result = responses(HINTED)["input"]
    assert user["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit", "ttl": "30m"}
    assert answer["content"] == "Hi"
    assert result["output"][0]["prompt_cache_breakpoint"] == {"mode": "explicit", "ttl": "30m"}


# S4.27, S4.28
def test_hints_are_the_retention_of_older_models() -> None:
    body = chat(HINTED, OLDER)
    assert (body["prompt_cache_retention"], body["prompt_cache_key"]) == ("24h", "agent-1")
    assert "breakpoint" not in json.dumps(body)
    assert "prompt_cache_retention" not in chat(HINTED[1:], OLDER)


# S4.27, S4.28
def test_other_servers_are_told_nothing_of_caches() -> None:
    for body in (chat(HINTED, OTHER), responses(HINTED, OTHER), claude(HINTED, PROXY)):
        assert "cache" not in json.dumps(body)
        assert "diagnostics" not in body
    assert "prompt_cache_key" in chat(HINTED, Options("x", "qwen", "http://x", None, "retention", "agent-1"))
    told = anthropic.Options("x", "claude", "https://proxy", prompt_cache="breakpoints")
    assert "cache_control" in json.dumps(claude(HINTED, told))


@pytest.mark.parametrize(
    ("model", "has_breakpoints"),
    [("gpt-5.6", True), ("gpt-5.10-mini", True), ("gpt-6", True), ("gpt-5.5", False), ("gpt-5", False), ("o4", False)],
)
def test_which_models_have_breakpoints(model: str, has_breakpoints: bool) -> None:
    assert Options("openai", model).has_breakpoints is has_breakpoints
    assert Options("openai", model, "https://eu.api.openai.com/v1").has_breakpoints is has_breakpoints


# S4.27, S4.28
def test_hints_are_cache_controls_of_anthropic() -> None:
    body = claude(HINTED)
    assert body["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    _, answer, result = body["messages"]
    assert answer["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
    assert result["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
    assert "diagnostics" not in claude([LLMMessage("user", "Hi")])


def test_anthropic_has_four_breakpoints_and_none_on_its_own_blocks() -> None:
    talk = [LLMMessage("user", f"message {number}", cache="short") for number in range(6)]
    thinking = ProviderBlock("anthropic", {"type": "thinking", "thinking": "", "signature": "s"})
    talk[-1:] = [LLMMessage("assistant", [TextBlock("So."), thinking], cache="short")]
    blocks = [block for message in claude(talk)["messages"] for block in message["content"]]
    assert ["cache_control" in block for block in blocks] == [False, False, True, True, True, True, False]


def test_what_comes_before_a_long_hint_is_kept_as_long() -> None:
    talk = [LLMMessage("system", "a", cache="short"), LLMMessage("user", "b", cache="long")]
    body = claude(talk)
    assert body["system"][0]["cache_control"]["ttl"] == "1h"
    assert body["messages"][0]["content"][0]["cache_control"]["ttl"] == "1h"


def test_the_last_answer_is_named_for_the_diagnosis_of_misses() -> None:
    def talk(response_id: str | None) -> list[LLMMessage]:
        return [
            LLMMessage("user", "a", cache="short"),
            LLMMessage("assistant", "b", response_id=response_id),
            LLMMessage("user", "c"),
        ]

    assert claude(talk("msg_1"))["diagnostics"] == {"previous_message_id": "msg_1"}
    assert claude(talk("resp_1"))["diagnostics"] == {"previous_message_id": None}
    assert claude(talk(None))["diagnostics"] == {"previous_message_id": None}
    assert responses(talk("resp_1"))["prompt_cache_options"] == {"comparison_response_id": "resp_1"}
    assert "prompt_cache_options" not in responses(talk("msg_1"))


# -- names -------------------------------------------------------------------------------------------------------------


def test_names_of_servers() -> None:
    vendor = "https://api.openai.com/v1"
    assert name_for("openai", None, vendor) == name_for("openai", "https://api.openai.com/v2", vendor) == "openai"
    assert name_for("openai", "http://127.0.0.1:11434/v1", vendor) == "openai:127.0.0.1:11434"


@given(st.lists(any_message(), max_size=6))
def test_every_conversation_can_be_written_and_is_not_changed(talk: list[LLMMessage]) -> None:
    before = [message_to_json(message) for message in talk]
    text = json.dumps(before)
    for _ in range(2):
        for write in (chat, responses):
            json.dumps(write(talk, Options("p", "gpt-5.6")))
        json.dumps(claude(talk, anthropic.Options("p", "claude", prompt_cache="breakpoints")))
    assert json.dumps([message_to_json(message) for message in talk]) == text
