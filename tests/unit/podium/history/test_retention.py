"""How much is kept: the plan alone, against histories of any shape."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.history.retention import MAX_BETWEEN, QUARTER, HistoryMark, Retention, RetentionPlan, plan_folding

DAY_MS = 86_400_000
BEGIN = HistoryMark(1, 0, 0)

retentions = st.builds(Retention, st.integers(1, 40), st.none()) | st.builds(
    Retention, st.none() | st.integers(1, 40), st.floats(0.5, 40)
)
# What happens between two plans: turns, events that are none, and hours.
spans = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 30)), max_size=120)


@pytest.mark.parametrize(
    "limits",
    [{}, {"turns": 0}, {"turns": -1}, {"turns": 1.5}, {"turns": True}, {"days": 0}, {"days": math.inf}, {"days": "7"}],
    ids=str,
)
def test_a_limit_is_a_positive_number(limits: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="Retention"):
        Retention(**limits)  # type: ignore[arg-type]


class History:
    """A branch whose retention is looked after from time to time."""

    def __init__(self, retention: Retention) -> None:
        self.retention = retention
        self.seq = BEGIN.seq
        self.turn = 0
        self.now_ms = 0
        self.begin = BEGIN
        self.marks: list[HistoryMark] = []
        self.ends = {0: 0}
        """When each turn ended."""

    def go_on(self, turns: int, others: int, hours: int) -> None:
        self.now_ms += hours * 3_600_000
        for _ in range(turns):
            self.turn += 1
            self.seq += 3
            self.ends[self.turn] = self.now_ms
        self.seq += others

    def look_after(self) -> RetentionPlan:
        todo = plan_folding(self.retention, self.seq, self.turn, self.now_ms, self.begin, self.marks)
        if todo.fold_to is not None:
            assert todo.fold_to in self.marks
            assert todo.fold_to.seq > self.begin.seq
            self.begin = todo.fold_to
            self.marks = [mark for mark in self.marks if mark.seq > self.begin.seq]
        if todo.mark:
            self.seq += 1
            self.marks.append(HistoryMark(self.seq, self.turn, self.now_ms))
        return todo

    def old(self, turn: int, part: float = 1) -> bool:
        """Whether the retention lets a turn go that has been over for long enough."""
        turns, days = self.retention.turns, self.retention.days
        return (turns is None or self.turn - turn >= turns * part) and (
            days is None or self.now_ms - self.ends[turn] >= days * DAY_MS * part
        )


@given(retentions, spans)
def test_nothing_is_dropped_that_is_to_be_kept(retention: Retention, spans: list[tuple[int, int, int]]) -> None:
    history = History(retention)
    for turns, others, hours in spans:
        history.go_on(turns, others, hours)
        history.look_after()
        assert all(history.old(turn) for turn in range(1, history.begin.turn + 1))


@given(st.integers(1, 40), st.lists(st.integers(0, 3), max_size=200))
def test_what_is_kept_is_a_quarter_more_at_most(limit: int, spans: list[int]) -> None:
    """Where it is looked after each `step` turns, those come on top."""
    history = History(Retention(turns=limit))
    step = max(spans, default=0)
    for turns in spans:
        history.go_on(turns, 1, 1)
        history.look_after()
        kept = history.turn - history.begin.turn
        assert kept < limit + math.ceil(limit / QUARTER) + step


@given(st.floats(0.5, 40), st.lists(st.integers(0, 30), max_size=200))
def test_what_is_kept_is_a_quarter_more_at_most_by_age(days: float, spans: list[int]) -> None:
    history = History(Retention(days=days))
    step = max(spans, default=0) / 24
    for hours in spans:
        history.go_on(1, 0, hours)
        history.look_after()
        assert (history.now_ms - history.begin.ts) / DAY_MS <= days * 1.25 + step + 1e-6


@given(retentions, spans)
def test_marks_are_as_far_apart_as_they_may_be(retention: Retention, spans: list[tuple[int, int, int]]) -> None:
    history = History(retention)
    for turns, others, hours in spans:
        history.go_on(turns, others, hours)
        before = history.marks[-1] if history.marks else history.begin
        if history.look_after().mark:
            assert history.old(before.turn, 1 / QUARTER)
            assert history.marks[-1].seq > before.seq + 1
        assert len(history.marks) <= QUARTER + 1 or retention.days is not None
        assert history.look_after() == RetentionPlan(None, mark=False)  # nothing is left to do


def test_with_both_limits_only_what_both_let_go_is_dropped() -> None:
    both = Retention(turns=100, days=10)
    mark = HistoryMark(50, 20, 5 * DAY_MS)
    assert plan_folding(both, 900, 119, 20 * DAY_MS, BEGIN, [mark]).fold_to is None
    assert plan_folding(both, 900, 120, 14 * DAY_MS, BEGIN, [mark]).fold_to is None
    assert plan_folding(both, 900, 120, 15 * DAY_MS, BEGIN, [mark]).fold_to == mark


def test_a_clock_that_went_back_drops_nothing() -> None:
    assert plan_folding(Retention(days=1), 900, 120, -DAY_MS, BEGIN, [HistoryMark(50, 20, 0)]) == RetentionPlan(
        None, mark=False
    )


def test_marks_are_never_very_far_apart() -> None:
    retention = Retention(turns=10**9)
    assert plan_folding(retention, MAX_BETWEEN, 5_000, 0, BEGIN, []) == RetentionPlan(None, mark=False)
    assert plan_folding(retention, MAX_BETWEEN + 1, 5_000, 0, BEGIN, []) == RetentionPlan(None, mark=True)
    assert plan_folding(retention, MAX_BETWEEN + 1, 5_000, 0, BEGIN, [replace(BEGIN, seq=2)]) == RetentionPlan(
        None, mark=False
    )
