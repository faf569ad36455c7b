"""The table of podium's settings, from the fields of `coordinator.settings.Settings` and their docstrings."""

from __future__ import annotations

import ast
import inspect
from typing import Literal, get_args, get_origin

from coordinator.settings import Settings
from tools.reference.markdown import code, docstrings, table

__all__ = ["section"]

_COMPUTED = {"most_starting": "cores of the node, at least 2", "shared_host_bytes": "a quarter of the memory"}
"""Defaults that depend on the machine."""


def section() -> str:
    """Return the table."""
    (shape,) = [node for node in ast.parse(inspect.getsource(Settings)).body if isinstance(node, ast.ClassDef)]
    texts = docstrings(shape.body)
    return table(
        ("variable", "default", "meaning"),
        (
            (code(f"PODIUM_{name.upper()}"), _default(name), _meaning(name, texts[name]))
            for name in Settings.model_fields
        ),
    )


def _default(name: str) -> str:
    if name in _COMPUTED:
        return _COMPUTED[name]
    default = Settings.model_fields[name].default
    return code(str(default)) if str(default) else "empty"


def _meaning(name: str, text: str) -> str:
    annotation = Settings.model_fields[name].annotation
    options = get_args(annotation) if get_origin(annotation) is Literal else ()
    choices = ", ".join(code(str(choice)) for choice in options)
    return f"{text} One of {choices}." if choices else text
