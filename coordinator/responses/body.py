"""The body of a request for a response: the fields of Open Responses that are supported, and those of sessions.

Fields that Open Responses has and that are not supported may be ``null`` only; everything else is refused, so that
nothing that a client asks for is dropped silently.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from chronicle.errors import InvalidInput
from coordinator.responses.items import IMAGE_URL, decode_block
from podium.models.quality import MAX_PRIORITY, DegradePolicy, QosClass, QualityOfService

__all__ = ["MAX_CHARACTERS", "InputItem", "QosBody", "ResponseBody"]

MAX_CHARACTERS = 10 * 1024 * 1024
"""Limit of one text, as Open Responses has it; a body is limited further."""
_MAX_MS = 24 * 60 * 60 * 1000
_CALL_NAME = r"^[a-zA-Z0-9_-]{1,64}$"


def _whole(value: object) -> object:
    """Return a number without a fraction as an integer, which it is in JSON Schema."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Text: TypeAlias = Annotated[str, Field(max_length=MAX_CHARACTERS)]
_WHOLE: Final = BeforeValidator(_whole)
_Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=64)]
_Name: TypeAlias = Annotated[str, Field(max_length=64)]
_Value: TypeAlias = Annotated[str, Field(max_length=512)]
_Ignored: TypeAlias = Annotated[str | None, Field(max_length=256)]
_Status: TypeAlias = Literal["in_progress", "completed", "incomplete"] | None


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


# -- content ----------------------------------------------------------------------------------------------------------


class InputText(_Part):
    """Text."""

    type: Literal["input_text"]
    text: _Text


class InputImage(_Part):
    """An image, by an URL that the provider fetches, or in a data URL."""

    type: Literal["input_image"]
    image_url: Annotated[str, Field(pattern=IMAGE_URL.pattern, max_length=20 * 1024 * 1024)]
    detail: Literal["auto"] | None = None


class OutputText(_Part):
    """Text that a model said."""

    type: Literal["output_text"]
    text: _Text
    annotations: list[dict[str, Any]] | None = None
    """As the answer had them; the model is not sent them."""
    logprobs: list[dict[str, Any]] | None = None
    """As the answer had them; the model is not sent them."""


class Refusal(_Part):
    """A model's refusal."""

    type: Literal["refusal"]
    refusal: _Text


class ReasoningText(_Part):
    """A text of a model's reasoning."""

    type: Literal["reasoning_text", "summary_text"]
    text: _Text


def _text_or_parts(value: object) -> str:
    return "text" if isinstance(value, str) else "parts"


_Instruction: TypeAlias = Annotated[
    Annotated[_Text, Tag("text")] | Annotated[list[InputText], Tag("parts")], Discriminator(_text_or_parts)
]
_Given: TypeAlias = Annotated[
    Annotated[_Text, Tag("text")]
    | Annotated[list[Annotated[InputText | InputImage, Field(discriminator="type")]], Tag("parts")],
    Discriminator(_text_or_parts),
]
_Said: TypeAlias = Annotated[
    Annotated[_Text, Tag("text")]
    | Annotated[list[Annotated[OutputText | Refusal, Field(discriminator="type")]], Tag("parts")],
    Discriminator(_text_or_parts),
]


# -- items ------------------------------------------------------------------------------------------------------------


class _Item(_Part):
    id: _Ignored = None
    status: _Status = None


class UserMessage(_Item):
    """A message of the user."""

    type: Literal["message"] = "message"
    role: Literal["user"]
    content: _Given


class InstructionMessage(_Item):
    """Instructions. They come before the transcript, whatever their place, and hold for this response only."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer"]
    content: _Instruction


class AssistantMessage(_Item):
    """An earlier answer of a model."""

    type: Literal["message"] = "message"
    role: Literal["assistant"]
    content: _Said
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCall(_Item):
    """A tool that a model called."""

    type: Literal["function_call"]
    call_id: _Id
    name: Annotated[str, Field(pattern=_CALL_NAME)]
    arguments: _Text
    """A JSON object, as text."""


class FunctionCallOutput(_Item):
    """The result of the tool."""

    type: Literal["function_call_output"]
    call_id: _Id
    output: _Given


def _block(text: str | None) -> str | None:
    """Check that a provider's block can be read."""
    if text is not None:
        try:
            decode_block(text)
        except InvalidInput as error:
            raise ValueError(str(error)) from error
    return text


class Reasoning(_Item):
    """A model's reasoning. The model is not sent the texts, but the block of its provider."""

    type: Literal["reasoning"]
    summary: list[ReasoningText]
    content: list[ReasoningText] | None = None
    encrypted_content: Annotated[_Text | None, AfterValidator(_block)] = None
    """A block that only its provider understands, as it was in the output. It goes back to the provider unchanged."""


def _tag(value: object) -> str | None:
    """Return the tag of an item; one without a ``type`` is a message."""
    if isinstance(value, dict):
        kind, role = value.get("type", "message"), value.get("role")
    else:
        kind, role = getattr(value, "type", None), getattr(value, "role", None)
    tag = role if kind == "message" else kind
    return "system" if tag == "developer" else tag if isinstance(tag, str) else None


InputItem: TypeAlias = Annotated[
    Annotated[UserMessage, Tag("user")]
    | Annotated[AssistantMessage, Tag("assistant")]
    | Annotated[InstructionMessage, Tag("system")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[Reasoning, Tag("reasoning")],
    Discriminator(_tag),
]
"""An item of an input."""

_Input: TypeAlias = Annotated[
    Annotated[_Text, Tag("text")] | Annotated[list[InputItem], Field(max_length=10_000), Tag("parts")],
    Discriminator(_text_or_parts),
]


# -- the rest ---------------------------------------------------------------------------------------------------------


class FunctionTool(_Part):
    """A tool that the model may call, which the client runs."""

    type: Literal["function"]
    name: Annotated[str, Field(pattern=_CALL_NAME)]
    description: _Text | None = None
    parameters: dict[str, Any] | None = None
    """A JSON schema of its arguments."""
    strict: Annotated[bool, Field(strict=True)] | None = None


class QosBody(_Part):
    """The quality of service."""

    qos_class: Annotated[QosClass, Field(alias="class")] = "standard"
    """Under load, calls of a class wait for those of the ones before: interactive, standard, background, batch."""
    priority: Annotated[int, Field(strict=True, ge=0, le=MAX_PRIORITY), _WHOLE] = 128
    """Among calls of a class that wait, the higher one goes first."""
    target_ttft_ms: Annotated[int, Field(strict=True, ge=1, le=_MAX_MS), _WHOLE] | None = None
    """When the first token is due. It is a wish: when it is over, a fallback is tried."""
    deadline_ms: Annotated[int, Field(strict=True, ge=-_MAX_MS, le=_MAX_MS), _WHOLE] | None = None
    """Time from the request's arrival to the end of the response; then it fails with `deadline_exceeded`. 0 and less
    are over."""
    degrade_policy: DegradePolicy = "allow_compatible_fallback"
    """Whether another profile may answer if this one is saturated, slow or down."""

    def quality(self) -> QualityOfService:
        """Return it as calls have it."""
        return QualityOfService(
            self.qos_class, self.priority, self.target_ttft_ms, self.deadline_ms, self.degrade_policy
        )


class PlainFormat(_Part):
    """Plain text."""

    type: Literal["text"]


class TextBody(_Part):
    """The form of the text."""

    format: PlainFormat | None = None
    verbosity: None = None
    """Not supported."""


class ResponseBody(_Part):
    """A request for a response, with the names of Open Responses."""

    model_config = ConfigDict(json_schema_extra={"dependentRequired": {"branch_id": ["session_id"]}})

    model: Annotated[str, Field(min_length=1, max_length=64)]
    """A profile of the project file: `[models.NAME]`."""
    input: _Input
    """The text or items to answer. If the head of the branch is a `user_message` without a payload, the input stands
    for it; else it follows the branch. An empty list adds nothing."""
    session_id: _Id | None = None
    """The session whose bundles and transcript the model is sent."""
    branch_id: _Id | None = None
    """A branch of the session; by default its default branch."""
    head_event_id: _Id | None = None
    """The event up to which the branch is read, as the client knows it; by default its head."""
    qos: QosBody | None = None
    instructions: _Text | None = None
    """Sent after the bundles, and before the transcript."""
    tools: Annotated[list[FunctionTool], Field(max_length=128)] | None = None
    tool_choice: Literal["auto", "none"] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, strict=True)] | None = None
    max_output_tokens: Annotated[int, Field(strict=True, ge=1, le=10_000_000), _WHOLE] | None = None
    """At most the profile's, which is the default."""
    metadata: Annotated[dict[_Name, _Value], Field(max_length=16)] | None = None
    """Kept with the response."""
    prompt_cache_key: _Id | None = None
    """Requests with the same beginning have the same key; by default one of the session."""
    stream: Annotated[bool, Field(strict=True)] | None = None
    """Whether the answer is a stream of events."""
    store: Literal[True] | None = None
    """Each response is stored; it can be deleted."""
    background: Literal[False] | None = None
    include: list[Literal["reasoning.encrypted_content"]] | None = None
    """It is included always."""
    parallel_tool_calls: Literal[True] | None = None
    service_tier: Literal["auto", "default"] | None = None
    """`qos` says more."""
    text: TextBody | None = None
    truncation: Literal["disabled"] | None = None
    """A context that is too long for the model is an error."""

    conversation: None = None
    """Not supported: a session is one."""
    frequency_penalty: None = None
    """Not supported."""
    max_tool_calls: None = None
    """Not supported."""
    presence_penalty: None = None
    """Not supported."""
    previous_response_id: None = None
    """Not supported: a session keeps the transcript."""
    prompt: None = None
    """Not supported: a bundle is one."""
    reasoning: None = None
    """Not supported."""
    safety_identifier: None = None
    """Not supported."""
    stream_options: None = None
    """Not supported."""
    top_logprobs: None = None
    """Not supported."""
    top_p: None = None
    """Not supported."""
    user: None = None
    """Not supported."""
