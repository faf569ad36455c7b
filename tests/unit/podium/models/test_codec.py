"""The JSON form of messages, chunks and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.canonical import decode, encode
from chronicle.errors import InvalidInput
from podium.models.codec import (
    block_from_json,
    chunk_from_json,
    chunk_to_json,
    error_from_json,
    error_to_json,
    message_from_json,
    message_to_json,
)
from podium.models.errors import ModelError, ModelErrorKind
from podium.models.port import ImageBlock, LLMMessage, ToolCall, Usage
from tests.unit.podium.models.values import chunks, messages, texts

if TYPE_CHECKING:
    from chronicle.canonical import Json
    from podium.models.port import LLMStreamChunk


@given(messages())
def test_a_message_is_the_same_after_its_json(message: LLMMessage) -> None:
    assert message_from_json(decode(encode(message_to_json(message)))) == message


@given(chunks)
def test_a_chunk_is_the_same_after_its_json(chunk: LLMStreamChunk) -> None:
    assert chunk_from_json(decode(encode(chunk_to_json(chunk)))) == chunk


@given(
    st.builds(
        ModelError,
        texts,
        st.sampled_from(get_args(ModelErrorKind)),
        provider=st.none() | texts,
        status=st.none() | st.integers(100, 599),
        retry_after_s=st.none() | st.floats(0, 1e6),
    )
)
def test_an_error_is_the_same_after_its_json(error: ModelError) -> None:
    back = error_from_json(decode(encode(error_to_json(error))))
    assert (str(back), vars(back)) == (str(error), vars(error))


def test_what_has_its_default_is_left_out() -> None:
    assert message_to_json(LLMMessage("user", "Hello")) == {"role": "user", "content": "Hello"}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("text", "message: not an object"),
        ({"role": "robot"}, "message: 'role' is not one of system, user, assistant, tool"),
        ({"role": "user", "content": 7}, "message: 'content' is neither text nor a list of blocks"),
        ({"role": "user", "content": [{"type": "sound"}]}, "content block: 'type' is not one of text, image, provider"),
        ({"role": "user", "content": [{"type": "text", "text": None}]}, "content block: 'text' is not text"),
        ({"role": "user", "cache": "forever"}, "message: 'cache' is not one of short, long"),
        ({"role": "user", "name": "Ann", "age": 7}, "message: unknown field 'age', 'name'"),
        ({"role": "tool", "content": "3"}, "message: a message of the role tool names the call"),
        ({"role": "user", "tool_calls": [{"id": "1", "name": "add", "arguments": {}}]}, "the role user calls no tools"),
        ({"role": "assistant", "tool_calls": [{"id": "1", "name": "a"}]}, "tool call: 'arguments' is not an object"),
        ({"role": "assistant", "tool_calls": {}}, "message: 'tool_calls' is not a list"),
    ],
)
def test_what_is_no_message_is_refused_with_the_field(value: Json, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        message_from_json(value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "image",
    [{"data": "n o t"}, {"data": "aGk=", "url": "http://x"}, {}],
    ids=["no base64", "data and URL", "neither"],
)
def test_an_image_has_its_bytes_or_its_url(image: dict[str, Json]) -> None:
    with pytest.raises(InvalidInput, match="^content block"):
        block_from_json({"type": "image", "media_type": "image/png", **image})
    assert block_from_json({"type": "image", "media_type": "image/png", "data": "aGk="}) == ImageBlock(
        "image/png", b"hi"
    )


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"type": "noise"}, "chunk: 'type' is not one of"),
        (chunk_to_json(Usage()) | {"input_tokens": -1}, "chunk: 'input_tokens' is not a whole number"),
        (chunk_to_json(Usage()) | {"input_tokens": True}, "chunk: 'input_tokens' is not a whole number"),
        ({"type": "finished", "reason": "bored", "model": "m"}, "chunk: 'reason' is not one of"),
        ({"type": "text_delta", "text": "a", "more": 1}, "chunk: unknown field 'more'"),
    ],
)
def test_what_is_no_chunk_is_refused(value: Json, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        chunk_from_json(value)
    assert says in str(caught.value)


def test_what_may_be_tried_again_and_where() -> None:
    def answers(kind: ModelErrorKind) -> tuple[bool, bool]:
        error = ModelError("no", kind)
        return error.retryable, error.may_succeed_elsewhere

    assert {kind for kind in get_args(ModelErrorKind) if answers(kind) == (True, True)} == {
        "rate_limited",
        "overloaded",
        "unavailable",
        "timeout",
        "protocol",
    }
    assert answers("auth") == (False, True)
    assert answers("bad_request") == answers("deadline_exceeded") == (False, False)


def test_values_that_contradict_themselves_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="either data or a URL"):
        ImageBlock("image/png")
    with pytest.raises(ValueError, match="tool_call_id"):
        LLMMessage("tool", "3")
    with pytest.raises(ValueError, match="calls no tools"):
        LLMMessage("user", "Hi", (ToolCall("1", "add"),))
