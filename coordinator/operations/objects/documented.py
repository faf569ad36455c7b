"""How the docstrings of an object's keys get into the OpenAPI document."""

from __future__ import annotations

from typing import Final

from pydantic import ConfigDict, with_config

__all__ = ["documented"]

documented: Final = with_config(ConfigDict(use_attribute_docstrings=True, defer_build=True))
"""A decorator: the string below a key is its description.

What checks and writes an object is built when the first one is, as a gateway serves few kinds of them soon.
"""
