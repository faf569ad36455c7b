"""How much of an agent's history is kept, and when what is older is dropped. Pure.

History can begin with any event that holds the whole state: a *mark*. What is kept goes back to the newest mark that is
as old as the policy asks. One is made each quarter of the policy, so what is kept is between one and about one and a
quarter of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MOST_BETWEEN", "QUARTER", "Mark", "Retention", "RetentionPlan", "plan_folding"]

QUARTER: Final = 4
"""Into how many parts marks divide what is kept: more of them keep less that is not asked for, and cost more states."""
MOST_BETWEEN: Final = 20_000
"""Most events between two marks, however much is kept: finding the last ones reads as many, which took 21 ms."""
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of an agent's history is kept at least. What is older is dropped from time to time.

    Attributes:
        turns: that many turns can be looked at, forked at and gone back to; ``None`` for no limit by turns.
        days: what is younger than that is kept; ``None`` for no limit by age. With both, only what both let go is
            dropped.

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

    def is_expired(self, mark: Mark, turn: int, now_ms: int, part: int = 1) -> bool:
        """Return whether what came before a mark is not kept any more: enough came after it.

        Args:
            mark: a moment of the agent's history.
            turn: the agent's last.
            now_ms: epoch milliseconds.
            part: divides what is kept.
        """
        if self.turns is not None and (turn - mark.turn) * part < self.turns:
            return False
        return self.days is None or (now_ms - mark.ts) * part >= self.days * _DAY_MS

    def expiry(self, mark: Mark) -> tuple[int | None, int | None]:
        """Return from which turn, and from when (epoch ms), what came before a mark is not kept any more."""
        from_turn = mark.turn + self.turns if self.turns is not None else None
        from_ms = mark.ts + math.ceil(self.days * _DAY_MS) if self.days is not None else None
        return from_turn, from_ms


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a branch where its history begins or can begin."""

    seq: int
    turn: int
    ts: int
    """Epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What to do for an agent's retention."""

    fold_to: Mark | None
    """The mark before which everything is dropped."""
    mark: bool
    """Whether to make one at the head."""


def plan_folding(
    retention: Retention, head_seq: int, turn: int, now_ms: int, begin: Mark, marks: Iterable[Mark]
) -> RetentionPlan:
    """Say what to drop, and whether a mark is to be made.

    Args:
        head_seq: of the branch's last event.
        turn: the agent's last.
        now_ms: epoch milliseconds.
        begin: the first event that the branch has of its own now.
        marks: those after it; the newest ones, and the newest of those that are as old as the policy asks, will do.
    """
    later = sorted((mark for mark in marks if mark.seq > begin.seq), key=lambda mark: mark.seq)
    old = [mark for mark in later if retention.is_expired(mark, turn, now_ms)]
    newest = later[-1] if later else begin
    due = retention.is_expired(newest, turn, now_ms, QUARTER) or head_seq - newest.seq >= MOST_BETWEEN
    return RetentionPlan(old[-1] if old else None, due and newest.seq < head_seq)
