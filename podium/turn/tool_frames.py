"""The frames of a call of a tool: live, and read back from the transcript."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronicle.canonical import Json, JsonObject
    from podium.turn.stream import Frame

__all__ = ["end_frame", "start_frame", "update_frame"]


def start_frame(call_id: Json, name: Json, arguments: Json) -> Frame:
    """Return the frame that begins a call."""
    return {**_named("start", call_id, name), "args": arguments}


def update_frame(call_id: str, name: str, partial: Json) -> Frame:
    """Return the frame of what a call has so far, as a whole: it replaces the one before."""
    return {**_named("update", call_id, name), "partial_result": partial}


def end_frame(payload: JsonObject) -> Frame:
    """Return the frame that ends a call, from its ``tool_result`` event."""
    result = payload.get("value", payload["output"])
    named = _named("end", payload["call_id"], payload["name"])
    return {**named, "result": result, "is_error": not payload["success"]}


def _named(what: str, call_id: Json, name: Json) -> Frame:
    return {"type": f"tool_execution_{what}", "tool_call_id": call_id, "tool_name": name}
