"""The bodies of requests. Unknown fields are refused."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from coordinator.gateway.patterns import KEY
from coordinator.operations.objects import Part
from podium.address import MAX_KEY_LENGTH
from podium.turn.busy import BusyPolicy

__all__ = [
    "MAX_TURN",
    "AnswerBody",
    "DecisionBody",
    "EraseBody",
    "FoldBody",
    "ForkBody",
    "MessageBody",
    "ReadBody",
    "RetryBody",
    "RewindBody",
    "WholeNumber",
]

MAX_TURN = 2**53
"""The largest number that every JSON reader has exactly."""
_MAX_DAYS = 36_500


def _whole(value: object) -> object:
    """Return a number without a fraction as an integer, which it is in JSON Schema."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WholeNumber = Annotated[int, Field(strict=True, ge=0, le=MAX_TURN), BeforeValidator(_whole)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class MessageBody(_Body):
    """A message to an agent."""

    message: dict[str, Any]
    """The argument of the agent's `on_message`: any JSON object, such as `{"text": "hello"}`."""
    when_busy: BusyPolicy = BusyPolicy.ENQUEUE
    """The policy if the agent is busy: wait, refuse, take the place of the running message, or steer it."""
    cancel_on_disconnect: bool = Field(default=False, strict=True)
    """Whether to cancel the message if the client leaves before its answer."""


class ReadBody(_Body):
    """A message to a read-only handler."""

    message: dict[str, Any]
    """The handler and its argument: `{"handler": "count", "input": {}}`."""


class AnswerBody(_Body):
    """The answer to what a run waits for."""

    model_config = ConfigDict(
        json_schema_extra={
            "not": {"required": ["answer", "rejection"], "properties": {"rejection": {"type": "string"}}}
        }
    )

    answer: Any = None
    """JSON that fits the schema of the request; null by default."""
    rejection: Annotated[str, Field(max_length=2000)] | None = None
    """Why a promise is rejected, in place of an answer."""

    @model_validator(mode="after")
    def _one_outcome(self) -> Self:
        if self.rejection is not None and "answer" in self.model_fields_set:
            raise ValueError("a promise is resolved by an answer or rejected, not both")
        return self


class DecisionBody(AnswerBody):
    """The answer to a paused run."""

    call_id: Annotated[str, Field(max_length=512)] | None = None
    """The request that it is for; by default the one that is open."""
    args_hash: Annotated[str, Field(max_length=64)] | None = None
    """The hash of that request; another one refuses the answer."""
    promise: Annotated[str, Field(max_length=100)] | None = None
    """The name of the promise that it is for; by default what is open."""


class RetryBody(_Body):
    """How a parked message is retried."""

    drop_steps: bool = Field(default=False, strict=True)
    """Whether its next attempt runs again the steps that ended in earlier ones."""


class ForkBody(_Body):
    """A new agent."""

    key: Annotated[str, Field(min_length=1, max_length=MAX_KEY_LENGTH, json_schema_extra={"pattern": KEY})]
    """Its key; its type is that of the agent that it continues."""
    at: WholeNumber | None = None
    """The turn that it continues; the last one by default."""


class RewindBody(_Body):
    """A turn to return to."""

    turn: WholeNumber
    only: Annotated[list[Part], Field(min_length=1, max_length=3)] | None = None
    """The parts to restore; all by default."""


class DrainBody(_Body):
    """Whether a node is drained."""

    undo: bool = Field(default=False, strict=True)
    """Whether to use a drained node again."""


class FoldBody(_Body):
    """How much of an agent's history to keep."""

    keep_turns: Annotated[int, Field(strict=True, ge=1, le=MAX_TURN), BeforeValidator(_whole)] | None = None
    """Keep the last turns, so many at least."""
    keep_days: Annotated[float, Field(strict=True, gt=0, le=_MAX_DAYS)] | None = None
    """Keep what is younger than so many days at least; with both limits, what neither keeps is dropped."""
    dry_run: bool = Field(default=False, strict=True)
    """Whether to return only what would be done."""


class EraseBody(_Body):
    """Events and artifacts to erase."""

    events: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=1, max_length=1000)]
    """Ids of events, `evt_…`, or of artifacts, `art_…`."""
