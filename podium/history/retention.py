"""Retention: how much of an agent's history is kept, and when older history is dropped. Pure.

History can begin with any event that carries the whole state: a *mark*. The kept history begins with the newest expired
mark. A mark is appended for each quarter of the retention, so between one and about one and a quarter of the retention
is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MAX_BETWEEN", "QUARTER", "HistoryMark", "Retention", "RetentionPlan", "plan_folding"]

QUARTER: Final = 4
"""Marks per retention: more of them keep less excess history, and cost more copies of the state."""
MAX_BETWEEN: Final = 20_000
"""Most events between two marks, whatever the retention: the search for the last marks reads as many, in 21 ms."""
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of an agent's history is kept at least. Older history is dropped from time to time.

    Attributes:
        turns: the number of turns that stay readable, for forks and rewinds, too; ``None`` for no limit by turns.
        days: the age of history that is kept; ``None`` for no limit by age. With both limits, only history that exceeds
            both is dropped.

    Raises:
        ValueError: neither is given, or one is not a positive number.
    """

    turns: int | None = None
    days: float | None = None

    def __post_init__(self) -> None:
        """Check the limits."""
        if self.turns is None and self.days is None:
            raise ValueError("a Retention needs turns, days or both; without one, everything is kept")
        if self.turns is not None and (type(self.turns) is not int or self.turns < 1):
            raise ValueError(f"Retention(turns={self.turns!r}): give a whole number from 1")
        days = self.days
        if days is not None and (type(days) not in (int, float) or not math.isfinite(days) or days <= 0):
            raise ValueError(f"Retention(days={days!r}): give a positive number")

    def is_expired(self, mark: HistoryMark, turn: int, now_ms: int, part: int = 1) -> bool:
        """Return whether history before a mark may be dropped: enough history follows it.

        Args:
            mark: an event of the agent's history.
            turn: the agent's last.
            now_ms: epoch milliseconds.
            part: divisor of the limits.
        """
        if self.turns is not None and (turn - mark.turn) * part < self.turns:
            return False
        return self.days is None or (now_ms - mark.ts) * part >= self.days * _DAY_MS

    def expiry(self, mark: HistoryMark) -> tuple[int | None, int | None]:
        """Return the turn and the time (epoch ms) from which history before a mark may be dropped."""
        from_turn = mark.turn + self.turns if self.turns is not None else None
        from_ms = mark.ts + math.ceil(self.days * _DAY_MS) if self.days is not None else None
        return from_turn, from_ms


@dataclass(frozen=True, slots=True)
class HistoryMark:
    """An event of a branch with which its history begins or can begin."""

    seq: int
    turn: int
    ts: int
    """Epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """Work that an agent's retention requires."""

    fold_to: HistoryMark | None
    """The mark before which all events are dropped; ``None`` to drop none."""
    mark: bool
    """Whether to append a mark at the head."""


def plan_folding(
    retention: Retention, head_seq: int, turn: int, now_ms: int, begin: HistoryMark, marks: Iterable[HistoryMark]
) -> RetentionPlan:
    """Return what to drop, and whether to append a mark.

    Args:
        head_seq: of the branch's last event.
        turn: the agent's last.
        now_ms: epoch milliseconds.
        begin: the first event that the branch owns now.
        marks: the marks after it; the newest ones and the newest expired one suffice.
    """
    later = sorted((mark for mark in marks if mark.seq > begin.seq), key=lambda mark: mark.seq)
    old = [mark for mark in later if retention.is_expired(mark, turn, now_ms)]
    newest = later[-1] if later else begin
    due = retention.is_expired(newest, turn, now_ms, QUARTER) or head_seq - newest.seq >= MAX_BETWEEN
    return RetentionPlan(old[-1] if old else None, due and newest.seq < head_seq)
