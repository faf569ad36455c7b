"""Pages of lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from coordinator.operations.objects.result import Result

__all__ = ["Page"]

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Result, Generic[_R]):
    """A page of a list, and what follows it."""

    items: Sequence[_R]
    next_cursor: str | None = None
    """The cursor of the next page; null at the end."""
    remaining: int | None = 0
    """Items after this page; null where there are more than are counted (paused runs: 1,000)."""
