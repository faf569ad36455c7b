"""A call of a model: what is asked for, what is recorded of it, and the port through which calls are made.

The port is `ModelCalls`. `coordinator.models.client.ModelClient` makes the calls through the model gateway's socket;
in the gateway's process `coordinator.models.gateway.ModelGateway` makes them of providers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

from podium.models.quality import MAX_PRIORITY, DegradePolicy, QosClass, QualityOfService

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from chronicle.canonical import JsonObject
    from podium.models.port import LLMMessage, LLMStreamChunk

__all__ = [
    "MAX_PRIORITY",
    "Attempt",
    "CallRecord",
    "CallStatus",
    "DegradePolicy",
    "ModelCalls",
    "ModelRequest",
    "QosClass",
    "QualityOfService",
]

CallStatus: TypeAlias = Literal["running", "completed", "failed", "cancelled", "lost"]
"""``cancelled``: the caller left; ``lost``: the gateway's process died, so what was used is not known."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A call to be made."""

    call_id: str
    """``call_…``, new for each call."""
    tenant: str
    profile: str
    """A profile of the project file, ``[models.NAME]``."""
    messages: Sequence[LLMMessage]
    tools: Sequence[JsonObject] | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    """At most the profile's, which is the default."""
    qos: QualityOfService = field(default_factory=QualityOfService)
    owner: str = ""
    """On whose behalf: an agent's address, or the id of a response, ``rsp_…``."""
    turn: int | None = None
    """The agent's turn."""
    prompt_cache_key: str | None = None
    """Calls with the same beginning of their messages have the same key; by default that of the owner."""
    traceparent: str | None = None
    asked_s: float | None = None
    """The monotonic time of this machine from which deadline and target count, when the caller was asked for the call;
    by default they count from the call's start."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request to a provider."""

    provider: str
    model: str
    started_ms: int
    """Epoch milliseconds, as all times here."""
    ttft_ms: int | None
    """Time from the attempt's start to its first token."""
    ended_ms: int
    error: str | None
    profile: str = ""
    """The profile that was asked: the call's own, or one of its fallbacks."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """Record of a call. Tokens and cost are ``None`` if the provider did not report them."""

    call_id: str
    tenant: str
    owner: str
    turn: int | None
    profile: str
    """That of the request."""
    provider: str
    """Of the last attempt; empty if there was none."""
    model: str
    """As the provider names what answered, else what it was asked for."""
    status: CallStatus
    error: JsonObject | None
    """The JSON form of a `podium.models.ModelError`: ``kind``, ``message``."""
    input_tokens: int | None
    """Tokens of the prompt, with those that a cache had."""
    output_tokens: int | None
    cached_tokens: int | None
    """Those of the input that the provider's cache had."""
    cache_write_tokens: int | None
    cache_miss_reason: str | None
    """Why the cache had none, if the provider says so."""
    cost: str | None
    """A decimal number in the unit of the profile's price; ``None`` without a price, or without tokens."""
    attempts: Sequence[Attempt]
    started_ms: int
    ttft_ms: int | None
    """Time from the call's start, waiting included, to its first token."""
    latency_ms: int | None
    """Time from the call's start to its end; ``None`` while it runs."""
    qos_outcome: JsonObject

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object, with the attributes as keys."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: JsonObject) -> CallRecord:
        """Return the record that `to_json` gave; unknown keys are ignored."""
        known = {name: value[name] for name in (each.name for each in fields(cls)) if name in value}
        attempts = tuple(Attempt(**attempt) for attempt in cast("Any", value["attempts"]))
        return cls(**{**cast("dict[str, Any]", known), "attempts": attempts})


class ModelCalls(Protocol):
    """Makes calls of models."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[LLMStreamChunk | CallRecord, None]:
        """Make a call, and yield what the model says, then the call's record, which is durable by then.

        Closing the iterator, or cancelling its consumer, ends the call; what it used until then is recorded.

        Raises:
            ModelError: the call failed. Its record, with the status ``failed``, was yielded before, unless the model
                gateway itself is away, or refused to begin the call.
        """
        ...
