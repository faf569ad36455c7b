"""The tools of a request, read once for all providers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from podium.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chronicle.canonical import Json, JsonObject
    from podium.models.port import ToolCall

__all__ = ["FunctionTool", "place_of", "read_tools"]

_NO_PARAMETERS: Final[JsonObject] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool that the caller runs."""

    name: str
    description: str | None
    parameters: JsonObject
    """A JSON schema of an object."""
    strict: bool | None


def read_tools(tools: Iterable[JsonObject] | None) -> list[FunctionTool | JsonObject]:
    """Return the tools: functions, and as they are those that run at the provider.

    Raises:
        ModelError: ``bad_request``: one is no tool.
    """
    return [_read(tool) for tool in tools or ()]


def place_of(call: ToolCall, blocks: int) -> int:
    """Return how many of the content blocks of a message come before a call in it."""
    return blocks if call.after_blocks is None else min(call.after_blocks, blocks)


def _read(tool: JsonObject) -> FunctionTool | JsonObject:
    if not isinstance(tool, dict):
        raise _refused("is not an object")
    kind = tool.get("type", "function")
    if kind != "function":
        return tool
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        raise _refused("has no name")
    parameters: Json = function.get("parameters", function.get("input_schema"))
    if parameters is None:
        parameters = _NO_PARAMETERS
    if not isinstance(parameters, dict):
        raise _refused(f"{name!r} has parameters that are no JSON schema")
    description, strict = function.get("description"), function.get("strict")
    return FunctionTool(
        name,
        description if isinstance(description, str) else None,
        parameters,
        strict if isinstance(strict, bool) else None,
    )


def _refused(what: str) -> ModelError:
    return ModelError(f"a tool {what}; a tool is {{name, description, parameters}}", "bad_request")
