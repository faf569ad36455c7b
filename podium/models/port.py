"""The one port to language models, and the values that cross it.

A provider answers a list of messages with a stream of chunks. The three wire formats in use differ, and none can say
all that the others can; so this form has the common parts as types, and everything that only one provider understands
(signatures of thinking, encrypted reasoning, results of tools that run at the provider) as a `ProviderBlock`. Such a
block belongs to the message in which it came, at its place, and must go back unchanged: without it a second request
fails, or the model forgets why it called a tool.

The values are immutable and know no library. `podium.models.codec` is their JSON form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from chronicle.canonical import JsonObject

__all__ = [
    "CacheHint",
    "ContentBlock",
    "FinishReason",
    "Finished",
    "ImageBlock",
    "LLMMessage",
    "LLMProvider",
    "LLMStreamChunk",
    "ProviderBlock",
    "ReasoningDelta",
    "Role",
    "TextBlock",
    "TextDelta",
    "ToolCall",
    "ToolCallDelta",
    "ToolCallDone",
    "Usage",
]

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
CacheHint: TypeAlias = Literal["short", "long"]
"""How long a provider should keep a prefix: minutes (Anthropic 5 minutes, OpenAI 30), or hours (1 and 12)."""
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "context_overflow", "other"]
"""Why an answer ended: by itself, at the limit of output tokens, to have tools called, by a filter or refusal, because
the context is full, or for a reason that only the provider knows."""


# -- messages ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A part of a message that is text."""

    text: str


@dataclass(frozen=True, slots=True)
class ImageBlock:
    """A part of a message that is an image: its bytes, or a URL that the provider fetches. Exactly one is given.

    Attributes:
        media_type: such as ``image/png``; of a URL it may be empty.
        data: the bytes of the image file.
        url: where the provider finds it.
    """

    media_type: str
    data: bytes | None = field(default=None, repr=False)
    url: str | None = None

    def __post_init__(self) -> None:
        if (self.data is None) == (self.url is None):
            raise ValueError("an image has either data or a URL")


@dataclass(frozen=True, slots=True)
class ProviderBlock:
    """A part of an answer that only its provider understands. It goes back to that provider unchanged.

    Other providers are not sent it. It is a block of a message, and a chunk of the stream in which it came.

    Attributes:
        provider: the name of the provider object, which is by default its wire format (``openai``,
            ``openai-responses``, ``anthropic``), and the host for a server that is not the vendor's.
        block: the block as the provider wrote it.
    """

    provider: str
    block: JsonObject = field(repr=False)


ContentBlock: TypeAlias = TextBlock | ImageBlock | ProviderBlock


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request of the model to call a tool.

    Attributes:
        id: what the result names as its `LLMMessage.tool_call_id`.
        name: the tool's.
        arguments: empty if the model wrote none, or wrote what is no JSON object.
        invalid_arguments: the text that the model wrote, if it is no JSON object; else ``None``.
        after_blocks: how many content blocks of its message come before the call; ``None`` for all of them. Providers
            refuse blocks of their own that come back in another order.
    """

    id: str
    name: str
    arguments: JsonObject = field(default_factory=dict)
    invalid_arguments: str | None = None
    after_blocks: int | None = None


@dataclass(frozen=True, slots=True)
class LLMMessage:
    """One message of a conversation.

    Attributes:
        role: ``system`` messages are instructions, and come first. A ``tool`` message is the result of one call.
        content: text, or a sequence of blocks.
        tool_calls: of an ``assistant`` message: the tools that it calls.
        tool_call_id: of a ``tool`` message: the call whose result it is.
        response_id: of an ``assistant`` message: the provider's id of the answer, `Finished.response_id`. With it a
            provider can say why it found less in its cache than at that answer.
        note: why it is not what was said, such as that it stands for an older result: for the record. No provider is
            sent it.
        cache: a cache breakpoint: the provider should keep what it computed for all messages up to the end of this one.
    """

    role: Role
    content: str | Sequence[ContentBlock] = ""
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str | None = None
    cache: CacheHint | None = None
    response_id: str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        if self.role == "tool" and self.tool_call_id is None:
            raise ValueError("a message of the role tool names the call whose result it is: tool_call_id")
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"a message of the role {self.role} calls no tools")

    @property
    def blocks(self) -> tuple[ContentBlock, ...]:
        """The content as blocks; empty for an empty text."""
        if isinstance(self.content, str):
            return (TextBlock(self.content),) if self.content else ()
        return tuple(self.content)

    @property
    def text(self) -> str:
        """The text of all text blocks, joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))


# -- chunks ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of the answer; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the text, or of the summary, of what the model thought; never empty. It is for people to read."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a tool call that is being written.

    Attributes:
        index: which one, counted from 0 within the answer.
        arguments_json: more of the text of its arguments; may be empty.
        id: the call's id, in its first chunk.
        name: the tool's name, in its first chunk.
    """

    index: int
    arguments_json: str = ""
    id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCallDone:
    """A tool call is complete. It comes once for each, in the order of the calls."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens used by the call so far: totals, so that the last one of a stream holds.

    Attributes:
        input_tokens: all input tokens, those from the cache and those written to it included.
        output_tokens: all output tokens, reasoning included.
        cached_tokens: input tokens read from the provider's cache.
        cache_write_tokens: input tokens written to it.
        reasoning_tokens: output tokens of reasoning, where the provider says so.
        cache_miss_reason: why the provider found less in its cache than it might have, in its words; ``None`` if it
            does not say, or nothing was missed.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_miss_reason: str | None = None
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete. It is the last chunk of every stream that raised no error, and comes once.

    Attributes:
        reason: why it ended.
        model: the model that answered, in the provider's words.
        response_id: the provider's id of the answer; ``None`` if it has none.
        cost: of the call, as a decimal number in the unit of its profile's prices; ``None`` from a provider itself, and
            where the profile has no price or the provider counted no tokens.
    """

    reason: FinishReason
    model: str
    response_id: str | None = None
    cost: str | None = None


LLMStreamChunk: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | ToolCallDone | ProviderBlock | Usage | Finished


class LLMProvider(Protocol):
    """A model of a provider: it answers messages. Model, key, address and output limit are given when it is made."""

    def stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Iterable[JsonObject] | None = None,
        temperature: float | None = None,
    ) -> AsyncIterator[LLMStreamChunk]:
        """Send one request, when the first chunk is asked for, and return its answer as it is written.

        There is no second attempt: retries are the caller's. Closing the iterator, or cancelling the task that waits
        for a chunk, ends the request and its connection.

        Args:
            messages: the conversation; the last one is what is answered.
            tools: ``{"name", "description"?, "parameters"?, "strict"?}`` with the parameters as a JSON schema; or the
                form of OpenAI's chat completions, ``{"type": "function", "function": {…}}``. A tool of another type is
                one that runs at the provider, and goes there unchanged.
            temperature: of the sampling; ``None`` for the model's own.

        Raises:
            ModelError: from the iterator, at any chunk.
        """
        ...
