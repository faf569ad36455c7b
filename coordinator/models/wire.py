"""The protocol of the model gateway's socket.

Both sides send packets of `coordinator.channel`. A connection carries one request:

``{"op": "call", "request": {...}}``
    makes a call. The answer is a packet ``{"chunk": {...}}`` for each chunk, and then ``{"record": {...}}``, the record
    of the call. Of a call that failed the record has the status ``failed``, and ``{"error": {...}}`` follows it; it
    comes alone if nothing was recorded. Closing the connection ends the call.
``{"op": "profiles"}``
    answers ``{"profiles": {NAME: {"provider", "model", "fallbacks"}}}``.
``{"op": "metrics"}``
    answers ``{"metrics"}``, as `coordinator.telemetry.snapshots.to_wire` gives them.
``{"op": "ping"}``
    answers ``{"pid"}``.

A packet that is no request is answered with an error.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from chronicle.errors import InvalidInput
from coordinator.channel import from_json
from coordinator.models.calls import CallRecord, ModelRequest, QualityOfService
from podium.models.codec import chunk_from_json, error_from_json, message_from_json, message_to_json
from podium.models.errors import ModelError

if TYPE_CHECKING:
    from chronicle.canonical import JsonObject
    from podium.models.port import LLMStreamChunk

__all__ = ["object_of", "read_answer", "request_from_json", "request_to_json"]


def object_of(data: bytes) -> JsonObject:
    """Return the object of a packet.

    Raises:
        InvalidInput: it is none.
    """
    try:
        value = from_json(data)
    except InvalidInput as error:
        raise InvalidInput(f"a packet of the model gateway's socket cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput("a packet of the model gateway's socket is not a JSON object")
    return cast("JsonObject", value)


def request_to_json(request: ModelRequest) -> dict[str, Any]:
    """Return a request as a JSON object."""
    return {
        "call_id": request.call_id,
        "tenant": request.tenant,
        "profile": request.profile,
        "messages": [message_to_json(message) for message in request.messages],
        "tools": None if request.tools is None else list(request.tools),
        "temperature": request.temperature,
        "max_output_tokens": request.max_output_tokens,
        "qos": asdict(request.qos),
        "owner": request.owner,
        "turn": request.turn,
        "prompt_cache_key": request.prompt_cache_key,
        "traceparent": request.traceparent,
        "asked_s": request.asked_s,
    }


def request_from_json(value: object) -> ModelRequest:
    """Return the request that `request_to_json` gave.

    Raises:
        InvalidInput: a part is missing or of a wrong type.
    """
    if not isinstance(value, dict):
        raise InvalidInput("'request' must be an object")
    try:
        parts = {**value, "qos": QualityOfService(**value["qos"])}
        parts["messages"] = tuple(message_from_json(message) for message in value["messages"])
        if not isinstance(value.get("asked_s"), float | None):
            raise TypeError("asked_s is not a number of seconds")
        return ModelRequest(**parts)
    except (KeyError, TypeError) as error:
        raise InvalidInput(f"'request' is not a call of a model: {error}") from error


def read_answer(data: bytes) -> LLMStreamChunk | CallRecord:
    """Return the chunk or the record of a packet of an answer.

    Raises:
        ModelError: the packet tells that the call failed, or is not one of an answer.
    """
    try:
        value = object_of(data)
        if "chunk" in value:
            return chunk_from_json(value["chunk"])
        if "error" in value:
            raise error_from_json(value["error"])
        return CallRecord.from_json(cast("JsonObject", value["record"]))
    except (InvalidInput, KeyError, TypeError) as error:
        raise ModelError(f"the model gateway's answer cannot be read: {error}", "protocol") from error
