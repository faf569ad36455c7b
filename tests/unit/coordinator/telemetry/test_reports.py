"""Measurements on their way from hosts to the coordinator: nothing counts twice, little is lost, memory is bounded."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.telemetry.instruments import SERIES_DROPPED
from coordinator.telemetry.recorder import Recorder
from coordinator.telemetry.reports import Report, Reporter, Totals
from podium.turn.telemetry import COMMIT_DURATION, TOKENS, TURNS
from tests.waiting import until

HELLO = ("hello", "default")
COMMITTED = (*HELLO, "message", "committed")


class Coordinator:
    """Adds reports; it may die, and its answers may get lost."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.reports: list[Report] = []
        self.down = False
        self.loses_answers = False

    async def report(self, report: Report) -> None:
        if self.down:
            raise ConnectionError
        self.reports.append(report)
        self.totals.add(pickle.loads(pickle.dumps(report)))
        if self.loses_answers:
            raise ConnectionError

    @property
    def tokens(self) -> object:
        return self.totals.recorder.sums().get((TOKENS.name, HELLO))


async def test_reports_have_what_was_measured_since_the_last_one() -> None:
    coordinator = Coordinator()
    reporter = Reporter("host_1", coordinator.report, 0)
    reporter.recorder.add(TOKENS, HELLO, 3)
    await reporter.report()
    reporter.recorder.add(TOKENS, HELLO, 4)
    reporter.recorder.add(TURNS, COMMITTED)
    await reporter.report()
    await reporter.report()
    assert [report.sums for report in coordinator.reports] == [
        {(TOKENS.name, HELLO): 3},
        {(TOKENS.name, HELLO): 4, (TURNS.name, COMMITTED): 1},
    ], "without measurements there is no report"
    assert coordinator.tokens == 7


async def test_a_report_whose_answer_was_lost_is_counted_once() -> None:
    coordinator = Coordinator()
    reporter = Reporter("host_1", coordinator.report, 0)
    reporter.recorder.add(TOKENS, HELLO, 3)
    coordinator.loses_answers = True
    with pytest.raises(ConnectionError):
        await reporter.report()
    reporter.recorder.add(TOKENS, HELLO, 4)
    with pytest.raises(ConnectionError):
        await reporter.report()
    coordinator.loses_answers = False
    await reporter.report()
    assert coordinator.tokens == 7
    assert [report.number for report in coordinator.reports] == [1, 1, 1, 2]


async def test_measurements_wait_for_a_coordinator_that_is_away_and_are_reported_by_themselves() -> None:
    coordinator = Coordinator()
    coordinator.down = True
    reporter = Reporter("host_1", coordinator.report, 0.001)
    reporter.recorder.add(TOKENS, HELLO, 1)  # before the start: an activation measures at once
    reporter.start()
    reporter.start()
    await asyncio.to_thread(reporter.recorder.add, TOKENS, HELLO, 2)
    for _ in range(50):
        await asyncio.sleep(0)
    coordinator.down = False
    await until(lambda: coordinator.tokens == 3)
    reporter.recorder.add(TOKENS, HELLO, 4)
    await until(lambda: coordinator.tokens == 7)
    reporter.recorder.add(TOKENS, HELLO, 5)
    await reporter.flush()
    assert coordinator.tokens == 12, "an orderly end reports the rest"


async def test_the_end_of_a_host_does_not_wait_for_a_coordinator_that_is_away() -> None:
    coordinator = Coordinator()
    coordinator.down = True
    reporter = Reporter("host_1", coordinator.report, 3600)
    reporter.start()
    reporter.recorder.add(TOKENS, HELLO, 1)
    await reporter.flush()
    assert coordinator.tokens is None


@given(st.lists(st.floats(0, 20), max_size=30), st.integers(0, 30))
def test_a_histogram_in_parts_equals_the_whole(values: list[float], cut: int) -> None:
    whole, parts = Recorder(), Recorder()
    for value in values:
        whole.observe(COMMIT_DURATION, HELLO, value)
    for part in (values[:cut], values[cut:]):
        recorder = Recorder()
        for value in part:
            recorder.observe(COMMIT_DURATION, HELLO, value)
        parts.merge(recorder.take())
    expected, found = (recorder.sums().get((COMMIT_DURATION.name, HELLO)) for recorder in (whole, parts))
    if not values:
        assert found is None
        return
    assert isinstance(expected, list)
    assert isinstance(found, list)
    assert found[0] == pytest.approx(expected[0])
    assert found[1:] == expected[1:]
    assert sum(found[1:]) == len(values)


def test_a_value_at_a_bound_is_in_its_bucket() -> None:
    recorder = Recorder()
    for value in (COMMIT_DURATION.bounds[0], COMMIT_DURATION.bounds[-1], COMMIT_DURATION.bounds[-1] + 1):
        recorder.observe(COMMIT_DURATION, HELLO, value)
    counts = recorder.sums()[COMMIT_DURATION.name, HELLO]
    assert isinstance(counts, list)
    assert [counts[1], counts[-2], counts[-1]] == [1, 1, 1]


def test_the_number_of_series_is_bounded_and_what_is_dropped_is_counted() -> None:
    recorder = Recorder(most_series=3)
    for number in range(10):
        recorder.add(TOKENS, ("hello", f"tenant{number}"))
        recorder.observe(COMMIT_DURATION, ("hello", f"tenant{number}"), 0.1)
    sums = recorder.sums()
    assert len(sums) == 4
    assert sums[SERIES_DROPPED.name, ()] == 17
    assert sum(value for value in sums.values() if not isinstance(value, list)) == 2 + 17


def test_sums_of_another_version_do_not_spoil_those_of_this_one() -> None:
    totals = Totals()
    totals.add(Report("host_1", 1, {(COMMIT_DURATION.name, HELLO): [1.0, 1.0]}))
    totals.recorder.observe(COMMIT_DURATION, HELLO, 0.1)
    totals.add(Report("host_2", 1, {(COMMIT_DURATION.name, HELLO): 5.0}))
    totals.recorder.observe(COMMIT_DURATION, HELLO, 0.1)
    assert totals.recorder.sums()
