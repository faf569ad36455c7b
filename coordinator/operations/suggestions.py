"""Suggestions for a name that is not known."""

from __future__ import annotations

import difflib
from typing import Final

__all__ = ["nearest"]

_SHOWN: Final = 5
"""Names in the message about an unknown one."""


def nearest(name: str, names: list[str], *, most: int = _SHOWN) -> str:
    """Return a suggestion for an unknown name: the similar names, else all of them; empty if there are none."""
    near = difflib.get_close_matches(name, names, n=_SHOWN, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(near) + "?"
    rest = len(names) - most
    return "there is " + ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "") if names else ""
