"""Reading the JSON that a provider sent: fields that may be missing, null, or of another type than is documented."""

from __future__ import annotations

from typing import Any

from chronicle.canonical import decode_input
from chronicle.errors import InvalidInput
from podium.models.port import ToolCall

__all__ = ["count_of", "object_of", "text_of", "tool_call"]


def object_of(value: Any, *path: str) -> dict[str, Any]:
    """Return the object at a path of keys; an empty one if there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def text_of(value: Any, key: str) -> str:
    """Return the text at a key; an empty one if there is none."""
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def count_of(value: Any, *keys: str) -> int:
    """Return the first number found at one of some keys; 0 if there is none."""
    for key in keys:
        found = value.get(key) if isinstance(value, dict) else None
        if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
            return found
    return 0


def tool_call(call_id: str, name: str, arguments_json: str) -> ToolCall:
    """Return a call from the text of its arguments."""
    if not arguments_json.strip():
        return ToolCall(call_id, name)
    try:
        arguments = decode_input(arguments_json.encode())
    except (UnicodeEncodeError, InvalidInput):
        arguments = None
    if isinstance(arguments, dict):
        return ToolCall(call_id, name, arguments)
    return ToolCall(call_id, name, {}, invalid_arguments=arguments_json)
