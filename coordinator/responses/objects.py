"""The response object: the fields of Open Responses, and those of sessions."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

__all__ = ["DeletedResponse", "QosObject", "ResponseError", "ResponseObject", "ResponseUsage"]

_documented = with_config(ConfigDict(use_attribute_docstrings=True, defer_build=True))


@_documented
class ResponseError(TypedDict):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(TypedDict):
    """Why a response ended early."""

    reason: str


class InputTokensDetails(TypedDict):
    """Input tokens of a kind."""

    cached_tokens: int


class OutputTokensDetails(TypedDict):
    """Output tokens of a kind."""

    reasoning_tokens: int


class ResponseUsage(TypedDict):
    """Tokens that were used."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


QosObject = TypedDict(
    "QosObject",
    {
        "class": str,
        "priority": int,
        "target_ttft_ms": int | None,
        "deadline_ms": int | None,
        "degrade_policy": str,
    },
)
"""The quality of service that was asked for."""


@_documented
class ResponseObject(TypedDict):
    """A response. Its fields are those of Open Responses, and from `output_text` on those of podium."""

    id: str
    object: Literal["response"]
    created_at: int
    """Seconds since the epoch, as the next one."""
    completed_at: int | None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    incomplete_details: IncompleteDetails | None
    error: ResponseError | None
    model: str
    """The profile."""
    output: list[dict[str, Any]]
    """Items: `message`, `function_call`, and `reasoning`, whose `encrypted_content` goes back as it is."""
    usage: ResponseUsage | None
    """Null if the provider did not tell."""
    instructions: str | None
    tools: list[dict[str, Any]]
    tool_choice: str
    temperature: float
    max_output_tokens: int | None
    metadata: dict[str, str]
    prompt_cache_key: str | None
    previous_response_id: None
    truncation: str
    parallel_tool_calls: bool
    text: dict[str, Any]
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    reasoning: None
    max_tool_calls: None
    store: bool
    background: bool
    service_tier: str
    safety_identifier: None
    output_text: str
    """The text of all messages of the output."""
    session_id: str | None
    branch_id: str | None
    head_event_id: str | None
    """The last event that the model was sent; null without one."""
    version: int | None
    """The version of the branch at that event; null without a session."""
    qos: QosObject
    qos_outcome: dict[str, Any] | None
    """The outcome, as the client saw it: what was asked for, which profile answered, how soon it began and ended;
    null while it is in progress."""
    input: NotRequired[list[dict[str, Any]]]
    """The items of the request. Of a stored response only."""


@_documented
class DeletedResponse(TypedDict):
    """A deleted response."""

    id: str
    object: Literal["response"]
    deleted: bool
