"""The record of a run: what an agentic loop needs to go on where it stopped. Pure.

The JSON form has the names that agentic-kit gives the fields, and a version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from chronicle.errors import InvalidInput, UnsupportedFormat
from podium.models.codec import message_from_json, message_to_json
from podium.state.plain_json import sent_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.canonical import Json, JsonObject
    from podium.models.port import LLMMessage, ToolCall

__all__ = ["AgentRun", "PendingCall"]

_VERSION: Final = 1
_NAMES: Final = frozenset(
    {"schemaVersion", "id", "model", "systemPrompt", "tools", "messages", "pending", "createdAt", "updatedAt"}
)


@dataclass(frozen=True, slots=True)
class PendingCall:
    """The call of a tool that waits for a decision."""

    tool_call_id: str
    tool_name: str
    input: JsonObject


@dataclass(frozen=True, slots=True)
class AgentRun:
    """An agentic loop that has stopped.

    Values of JSON in it are not copied here: a store copies what it takes and what it gives.
    """

    id: str
    """Unique in its store, at most 256 characters. In an agent the id of the message that began the run."""
    model: str
    """As the loop names it, such as a profile of the project."""
    created_ms: int
    """When the run began, epoch milliseconds; the same after every pause."""
    updated_ms: int
    system_prompt: str | None = None
    tools: Sequence[JsonObject] = ()
    """The tools as the model was told of them."""
    messages: Sequence[LLMMessage] = ()
    """The conversation so far, with the results of the calls that ended."""
    pending: PendingCall | None = None
    """What a decision is needed for."""

    def __post_init__(self) -> None:
        if not 0 < len(self.id) <= 256:
            raise InvalidInput("the id of a run has 1 to 256 characters")

    def paused(self, call: ToolCall, messages: Sequence[LLMMessage], now_ms: int) -> AgentRun:
        """Return the run as it stops at a call.

        Args:
            messages: the whole conversation, with the results of those calls of the same answer that ended.
        """
        pending = PendingCall(call.id, call.name, call.arguments)
        return replace(self, messages=tuple(messages), pending=pending, updated_ms=now_ms)

    @property
    def open_calls(self) -> Sequence[ToolCall]:
        """The calls of the model's last answer without a result, in order: those that a loop that goes on has to run.

        The pending one is among them.
        """
        answered: set[str | None] = set()
        for message in reversed(self.messages):
            if message.role == "assistant":
                return tuple(call for call in message.tool_calls if call.id not in answered)
            if message.role == "tool":
                answered.add(message.tool_call_id)
        return ()

    def to_json(self) -> JsonObject:
        """Return the run as JSON that shares nothing with it; `from_json` reads it.

        Raises:
            InvalidInput: a value in it is not JSON.
        """
        document: JsonObject = {
            "schemaVersion": _VERSION,
            "id": self.id,
            "model": self.model,
            "tools": list(self.tools),
            "messages": [message_to_json(message) for message in self.messages],
            "createdAt": self.created_ms,
            "updatedAt": self.updated_ms,
        }
        if self.system_prompt is not None:
            document["systemPrompt"] = self.system_prompt
        if (call := self.pending) is not None:
            document["pending"] = {"toolCallId": call.tool_call_id, "toolName": call.tool_name, "input": call.input}
        return sent_object(document, "a run")

    @classmethod
    def from_json(cls, document: Json) -> AgentRun:
        """Return the run of a JSON form.

        Raises:
            UnsupportedFormat: a later version wrote it.
            InvalidInput: it is none.
        """
        if not isinstance(document, dict):
            raise InvalidInput("a run is a JSON object")
        version = document.get("schemaVersion")
        if isinstance(version, int) and version > _VERSION:
            raise UnsupportedFormat(f"a run of version {version}: this code reads up to {_VERSION}; upgrade it")
        if unknown := document.keys() - _NAMES:
            raise InvalidInput(f"a run has no {', '.join(sorted(unknown))}")
        match document:
            case {
                "schemaVersion": 1,
                "id": str(run_id),
                "model": str(model),
                "tools": [*tools],
                "messages": [*messages],
                "createdAt": int(created_ms),
                "updatedAt": int(updated_ms),
            } if all(isinstance(tool, dict) for tool in tools):
                return cls(
                    run_id,
                    model,
                    created_ms,
                    updated_ms,
                    _prompt(document.get("systemPrompt")),
                    tuple(cast("list[JsonObject]", tools)),
                    tuple(message_from_json(message) for message in messages),
                    _pending(document.get("pending")),
                )
            case _:
                raise InvalidInput("a run has schemaVersion, id, model, tools, messages, createdAt and updatedAt")


def _prompt(value: Json) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise InvalidInput("the systemPrompt of a run is text")


def _pending(value: Json) -> PendingCall | None:
    match value:
        case None:
            return None
        case {"toolCallId": str(call_id), "toolName": str(name), "input": dict(arguments), **rest} if not rest:
            return PendingCall(call_id, name, arguments)
        case _:
            raise InvalidInput("what is pending in a run has toolCallId, toolName and input")
