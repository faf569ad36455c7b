"""`ToolResult`: how a call of a tool ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronicle.canonical import JsonObject

__all__ = ["ToolResult", "encodable", "failed"]

_MAX_ERROR_TEXT = 4000
"""Characters of an error that the model gets."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call of a tool ended; the names of the fields are those of the wire.

    Attributes:
        success: whether the tool returned.
        terminal: whether the run should end with it, as no further call can help.
        needsFollowup: whether the model has to do something about it: mend its arguments, or choose another tool.
        message: the text that the model gets: the result, or the error.
        error: what went wrong; ``None`` on success.
        data: on success ``{"value": …, "durationMs": …}``, the value as JSON. In a turn the value of a large result is
            ``{"artifact_id", "name", "media_type", "size"}``, the artifact that has it. On failure what a program can
            tell the cause by: ``durationMs`` if the tool ran, ``unknownTool`` with ``suggestions``, ``invalid`` with
            the fields that are wrong, or ``refused``: ``consent``, ``approval``, ``decision`` or ``client``.
    """

    success: bool
    terminal: bool = False
    needsFollowup: bool = False  # noqa: N815  as on the wire
    message: str = ""
    error: str | None = None
    data: JsonObject = field(default_factory=dict)


def failed(text: str, data: JsonObject) -> ToolResult:
    """Return the result of a call that did not succeed.

    Args:
        text: for the model.
    """
    text = encodable(text)
    short = text if len(text) <= _MAX_ERROR_TEXT else f"{text[:_MAX_ERROR_TEXT]}… ({len(text)} characters)"
    return ToolResult(False, needsFollowup=True, message=f"Error: {short}", error=short, data=data)


def encodable(text: str) -> str:
    """Return a text with an escape in place of each lone surrogate, which UTF-8 does not have."""
    return text.encode("utf-8", "backslashreplace").decode()
