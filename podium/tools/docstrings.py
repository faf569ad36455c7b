"""Docstrings of tools: what the function does, and what its parameters mean, for the model. Pure.

The section ``Args:`` (or ``Parameters:``) of Google's style is read, and ``:param NAME:`` of Sphinx's.
"""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read_docstring"]

_SECTION: Final = re.compile(r"(?i)(args|arguments|parameters|returns|yields|raises|examples?|notes?):\s*")
_PARAMETER: Final = re.compile(r"(?P<indent>\s+)\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)")
_SPHINX: Final = re.compile(r":(?P<kind>\w+)\s*(?:[^:]*?\b(?P<name>\w+))?:\s*(?P<text>.*)")


def read_docstring(text: str | None) -> tuple[str, Mapping[str, str]]:
    """Return the description in a docstring, and the description of each parameter."""
    description: list[str] = []
    parameters: dict[str, list[str]] = {}
    section, indent, current = "", 0, description
    for line in inspect.cleandoc(text or "").splitlines():
        if found := _SECTION.fullmatch(line):
            section, indent, current = found[1].lower(), 0, []
        elif found := _SPHINX.match(line):
            section = "sphinx"
            current = parameters.setdefault(found["name"], []) if found["kind"] == "param" and found["name"] else []
            current.append(found["text"])
        elif (
            section in {"args", "arguments", "parameters"}
            and (entry := _PARAMETER.match(line))
            and (not indent or len(entry["indent"]) == indent)
        ):
            indent = len(entry["indent"])
            current = parameters.setdefault(entry["name"], [])
            current.append(entry["text"])
        else:
            current.append(line)
    told = {name: " ".join(" ".join(lines).split()) for name, lines in parameters.items()}
    return "\n".join(description).strip(), {name: value for name, value in told.items() if value}
