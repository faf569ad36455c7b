"""Results of tools for the model: text of a bounded length, and an artifact that has the whole of a large one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.canonical import encode
from chronicle.errors import InvalidInput
from podium.tools.result import ToolResult, failed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.canonical import Json, JsonObject
    from podium.tools.running import Outcome

__all__ = ["MAX_TEXT", "result_of", "with_artifact"]

MAX_TEXT: Final = 32_000
"""Characters of a result that the model gets as it is: some 8,000 tokens."""
_HEAD: Final = 4_000
"""Characters of a larger one that it gets."""


async def with_artifact(name: str, outcome: Outcome, add: Callable[[str, bytes, str], Awaitable[str]]) -> Outcome:
    """Return an outcome whose result, if it is large, is an artifact.

    Args:
        name: of the tool.
        add: adds an artifact, by name, content and media type, and returns its id.
    """
    if "value" not in outcome or len(text := _text(value := outcome["value"])) <= MAX_TEXT:
        return outcome
    is_text = isinstance(value, str)
    file, media_type = (f"{name}.txt", "text/plain") if is_text else (f"{name}.json", "application/json")
    data = text.encode()
    try:
        artifact_id = await add(file, data, media_type)
    except InvalidInput as error:
        return {
            "error": f"the result of {name!r} is too large to be kept: {error}",
            "duration_ms": outcome["duration_ms"],
        }
    kept: JsonObject = {"artifact_id": artifact_id, "name": file, "media_type": media_type, "size": len(data)}
    return {
        "value": kept,
        "head": _head(text, f"; all of it is the artifact {artifact_id}"),
        "duration_ms": outcome["duration_ms"],
    }


def result_of(outcome: Outcome) -> ToolResult:
    """Return the result of a call."""
    took: JsonObject = {"durationMs": outcome["duration_ms"]}
    if "error" in outcome:
        return failed(outcome["error"], took)
    text = outcome["head"] if "head" in outcome else _text(outcome["value"])
    told = text if len(text) <= MAX_TEXT else _head(text, "")
    return ToolResult(True, message=told, data={"value": outcome["value"], **took})


def _head(text: str, where: str) -> str:
    return f"{text[:_HEAD]}…\n[{len(text)} characters, of which these are the first {_HEAD}{where}]"


def _text(value: Json) -> str:
    """Return a value as the model gets it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else encode(value).decode()
