"""Plain values of tracked ones, for copying and pickling."""

from __future__ import annotations

from typing import Any

from podium.state.tracked.node import Tracked

__all__ = ["plain"]


def plain(value: Any) -> Any:
    """Return a stored value as plain Python, recursively, sharing nothing mutable with the state.

    Lists, dicts, sets and tuples become exactly those, models instances of their own class.
    """
    return value.__copy__() if isinstance(value, Tracked) else value  # type: ignore[attr-defined]  # every tracked class has it
