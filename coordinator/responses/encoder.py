"""A model's answer as the events of Open Responses, and as output items. Pure: chunks in, events out.

Each event has a ``sequence_number``, from 0. The last one is ``response.completed``, ``response.incomplete`` or
``response.failed``, whatever happened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from coordinator.responses.items import canonical_text, decode_block, encode_block
from podium.models.port import (
    Finished,
    ProviderBlock,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallDone,
    Usage,
)

if TYPE_CHECKING:
    from chronicle.canonical import JsonObject
    from coordinator.responses.objects import ResponseError, ResponseObject
    from podium.models.port import LLMStreamChunk

__all__ = ["ResponseEncoder", "StreamEvent", "replayed"]

StreamEvent = dict[str, Any]
"""An event of the stream: ``type``, ``sequence_number``, and what its type has."""

_INCOMPLETE: Final = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
    "context_overflow": "context_overflow",
}
"""Reasons of an early end, by how the model finished."""


class ResponseEncoder:
    """Makes the events of one response.

    Args:
        response: the response as it begins: in progress, without output.
    """

    def __init__(self, response: ResponseObject) -> None:
        self._response = response
        self._number = 0
        self._items: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None
        """The message or reasoning that is being written."""
        self._pieces: list[str] = []
        self._calls: dict[int, tuple[dict[str, Any], list[str]]] = {}
        """Calls that are being written, with the pieces of their arguments, by index."""
        self._usage: Usage | None = None
        self._finished: Finished | None = None

    @property
    def response(self) -> ResponseObject:
        """The response as it is now."""
        return self._response

    @property
    def finished(self) -> Finished | None:
        """How the model ended its answer; ``None`` until then."""
        return self._finished

    def begin(self) -> list[StreamEvent]:
        """Return the first events."""
        return [self._of_response("response.created"), self._of_response("response.in_progress")]

    def add(self, chunk: LLMStreamChunk) -> list[StreamEvent]:
        """Return the events of the next chunk."""
        match chunk:
            case TextDelta():
                return [*self._opened("message"), self._delta("response.output_text.delta", chunk.text)]
            case ReasoningDelta():
                return [*self._opened("reasoning"), self._delta("response.reasoning.delta", chunk.text)]
            case ToolCallDelta():
                return self._call_delta(chunk)
            case ToolCallDone():
                return self._call_done(chunk.call)
            case ProviderBlock():
                return self._block(chunk)
            case Usage():
                self._usage = chunk
            case Finished():
                self._finished = chunk
        return []

    def end(self, completed_at: int, qos_outcome: JsonObject | None) -> list[StreamEvent]:
        """Return the last events of an answer that the model has finished.

        Args:
            completed_at: seconds since the epoch.
        """
        reason = _INCOMPLETE.get(self._finished.reason) if self._finished is not None else None
        status: Any = "completed" if reason is None else "incomplete"
        events = self._close_all(status)
        self._update(completed_at, qos_outcome, status)
        if reason is not None:
            self._response["incomplete_details"] = {"reason": reason}
        return [*events, self._of_response(f"response.{status}")]

    def fail(self, code: str, message: str, completed_at: int, qos_outcome: JsonObject | None) -> list[StreamEvent]:
        """Return the last events of an answer that failed; what there is of the output stays.

        Args:
            completed_at: seconds since the epoch.
        """
        events = self._close_all("incomplete")
        self._update(completed_at, qos_outcome, "failed")
        self._response["error"] = {"code": code, "message": message}
        return [*events, self._of_response("response.failed")]

    def refuse(self, last: StreamEvent, code: str, message: str, qos_outcome: JsonObject | None) -> list[StreamEvent]:
        """Return the last event of a response that had ended, and was not stored, or not in time.

        Args:
            last: the one that is not sent.
        """
        self._number = last["sequence_number"]
        error: ResponseError = {"code": code, "message": message}
        self._response = {**self._response, "status": "failed", "error": error, "qos_outcome": qos_outcome}
        return [self._of_response("response.failed")]

    # -- items ------------------------------------------------------------------------------------------------------

    def _opened(self, kind: str) -> list[StreamEvent]:
        """Return the events by which text can be added to an open item of a kind."""
        if self._open is not None and self._open["type"] == kind:
            return []
        events = self._close_text()
        item: dict[str, Any] = {"type": kind, "id": self._item_id(), "status": "in_progress", "content": []}
        if kind == "message":
            item["role"] = "assistant"
        else:
            item["summary"] = []
        events.append(self._added(item))
        self._open = item
        return [*events, self._event("response.content_part.added", **self._place(), part=_part(kind, ""))]

    def _delta(self, name: str, text: str) -> StreamEvent:
        self._pieces.append(text)
        logprobs: dict[str, Any] = {"logprobs": []} if name == "response.output_text.delta" else {}
        return self._event(name, **self._place(), delta=text, **logprobs)

    def _close_text(self, status: str = "completed") -> list[StreamEvent]:
        """Return the events that end the open message or reasoning, if there is one."""
        item = self._open
        if item is None:
            return []
        text, place = "".join(self._pieces), self._place()
        self._open, self._pieces = None, []
        part = _part(item["type"], text)
        item |= {"status": status, "content": [part]}
        if item["type"] == "message":
            said = self._event("response.output_text.done", **place, text=text, logprobs=[])
        else:
            said = self._event("response.reasoning.done", **place, text=text)
        return [said, self._event("response.content_part.done", **place, part=part), self._done(item)]

    def _call_delta(self, chunk: ToolCallDelta) -> list[StreamEvent]:
        events = self._close_text()
        if chunk.index not in self._calls:
            events.append(self._new_call(chunk.index, chunk.id or "", chunk.name or ""))
        item, pieces = self._calls[chunk.index]
        if chunk.arguments_json:
            pieces.append(chunk.arguments_json)
            name = "response.function_call_arguments.delta"
            events.append(self._event(name, **self._place_of(item), delta=chunk.arguments_json))
        return events

    def _new_call(self, index: int, call_id: str, name: str) -> StreamEvent:
        item: dict[str, Any] = {
            "type": "function_call",
            "id": self._item_id(),
            "call_id": call_id,
            "name": name,
            "arguments": "",
            "status": "in_progress",
        }
        self._calls[index] = (item, [])
        return self._added(item)

    def _call_done(self, call: ToolCall) -> list[StreamEvent]:
        events = self._close_text()
        index = next((at for at, (item, _) in self._calls.items() if item["call_id"] == call.id), None)
        if index is None:
            index = min(self._calls, default=0) - 1  # below all that the provider counts
            events.append(self._new_call(index, call.id, call.name))
        item, pieces = self._calls.pop(index)
        arguments = call.invalid_arguments
        if arguments is None:
            arguments = "".join(pieces) or canonical_text(call.arguments)
        if not pieces:
            name = "response.function_call_arguments.delta"
            events.append(self._event(name, **self._place_of(item), delta=arguments))
        item |= {"arguments": arguments, "name": call.name, "status": "completed"}
        name = "response.function_call_arguments.done"
        events.append(self._event(name, **self._place_of(item), arguments=arguments))
        return [*events, self._done(item)]

    def _block(self, chunk: ProviderBlock) -> list[StreamEvent]:
        """Return the events of a provider's block: it is a part of the reasoning before it, or an item of its own."""
        if self._open is not None and self._open["type"] == "reasoning":
            self._open["encrypted_content"] = encode_block(chunk)
            return self._close_text()
        events = self._close_text()
        item: dict[str, Any] = {
            "type": "reasoning",
            "id": self._item_id(),
            "status": "completed",
            "summary": [],
            "content": [],
            "encrypted_content": encode_block(chunk),
        }
        return [*events, self._added(item), self._done(item)]

    def _close_all(self, status: str) -> list[StreamEvent]:
        """Return the events that end all open items; a call that is not complete stays so."""
        events = self._close_text(status)
        for item, pieces in self._calls.values():
            item |= {"arguments": "".join(pieces), "status": "incomplete"}
            events.append(self._done(item))
        self._calls.clear()
        return events

    def _item_id(self) -> str:
        return f"{self._response['id']}.{len(self._items)}"

    def _added(self, item: dict[str, Any]) -> StreamEvent:
        self._items.append(item)
        return self._event("response.output_item.added", output_index=len(self._items) - 1, item=dict(item))

    def _done(self, item: dict[str, Any]) -> StreamEvent:
        index = self._place_of(item)["output_index"]
        return self._event("response.output_item.done", output_index=index, item=dict(item))

    def _place(self) -> dict[str, Any]:
        return {**self._place_of(cast("dict[str, Any]", self._open)), "content_index": 0}

    def _place_of(self, item: dict[str, Any]) -> dict[str, Any]:
        return {"item_id": item["id"], "output_index": int(item["id"].rpartition(".")[2])}

    # -- the response -----------------------------------------------------------------------------------------------

    def _update(self, completed_at: int, qos_outcome: JsonObject | None, status: Any) -> None:
        self._response = {
            **self._response,
            "status": status,
            "completed_at": completed_at,
            "output": [dict(item) for item in self._items],
            "output_text": "".join(_text_of(item) for item in self._items),
            "qos_outcome": qos_outcome,
        }
        if (used := self._usage) is not None:
            self._response["usage"] = {
                "input_tokens": used.input_tokens,
                "input_tokens_details": {"cached_tokens": used.cached_tokens},
                "output_tokens": used.output_tokens,
                "output_tokens_details": {"reasoning_tokens": used.reasoning_tokens},
                "total_tokens": used.input_tokens + used.output_tokens,
            }

    def _of_response(self, name: str) -> StreamEvent:
        return self._event(name, response=dict(self._response))

    def _event(self, name: str, /, **more: Any) -> StreamEvent:
        event: StreamEvent = {"type": name, "sequence_number": self._number, **more}
        self._number += 1
        return event


def replayed(response: ResponseObject) -> list[StreamEvent]:
    """Return the events of a response that has ended, as they are for a client that comes later."""
    begun: ResponseObject = {**response, "status": "in_progress", "completed_at": None, "output": [], "output_text": ""}
    begun |= {"error": None, "incomplete_details": None, "usage": None, "qos_outcome": None}
    encoder = ResponseEncoder(begun)
    events = encoder.begin()
    for index, item in enumerate(response["output"]):
        for chunk in _chunks_of(index, item):
            events += encoder.add(chunk)
    events += encoder.end(response["completed_at"] or 0, None)
    events[-1] |= {"type": f"response.{response['status']}", "response": dict(response)}
    return events


def _chunks_of(index: int, item: dict[str, Any]) -> list[LLMStreamChunk]:
    """Return the chunks of which an output item was made."""
    match item["type"]:
        case "message":
            return [TextDelta(part["text"]) for part in item["content"]]
        case "reasoning":
            block = item.get("encrypted_content")
            told: list[LLMStreamChunk] = [ReasoningDelta(part["text"]) for part in item["content"]]
            return told if block is None else [*told, decode_block(block)]
        case _:
            started = ToolCallDelta(index, item["arguments"], item["call_id"], item["name"])
            return [started, ToolCallDone(ToolCall(item["call_id"], item["name"], {}))]


def _part(kind: str, text: str) -> dict[str, Any]:
    """Return the content part of a message or of reasoning."""
    if kind == "message":
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "reasoning_text", "text": text}


def _text_of(item: dict[str, Any]) -> str:
    if item["type"] != "message":
        return ""
    return "".join(part["text"] for part in item["content"] if part["type"] == "output_text")
