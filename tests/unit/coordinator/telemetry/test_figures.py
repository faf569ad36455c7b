"""Figures from snapshots: rates between two looks, quantiles as Prometheus has them, restarts of counters."""

from __future__ import annotations

import pytest

from coordinator.telemetry.figures import difference, figures_of, quantile
from coordinator.telemetry.recorder import Recorder, Series, Value
from podium.turn.telemetry import COMMIT_DURATION, TOKENS, TURN_DURATION, TURNS

HELLO = ("hello", "default")


def measured(committed: int, failed: int, tokens: int) -> dict[Series, Value]:
    recorder = Recorder()
    recorder.add(TURNS, (*HELLO, "message", "committed"), committed)
    recorder.add(TURNS, (*HELLO, "message", "failed"), failed)
    recorder.add(TOKENS, HELLO, tokens)
    for _ in range(committed):
        recorder.observe(TURN_DURATION, HELLO, 0.2)
        recorder.observe(COMMIT_DURATION, HELLO, 0.002)
    return {
        **recorder.sums(),
        ("podium_service_up", ()): 1,
        ("podium_agents_awake", HELLO): 3,
        ("podium_agents_awake", ("other", "acme")): 2,
        ("podium_agents_asleep", ()): 100,
        ("podium_hosts", ("warm",)): 1,
        ("podium_inbox_lag_seconds", ()): 1.5,
    }


def test_figures_of_an_interval_are_rates_and_what_was_gained() -> None:
    figures = figures_of(difference(measured(30, 3, 500), measured(10, 1, 100)), 2.0)
    hello, other = figures["types"]
    assert (hello["turns"], hello["failed"], hello["turns_per_s"], hello["tokens_per_s"]) == (22, 2, 11, 200)
    assert hello["turn"]["count"] == 20
    assert 0.1 < hello["turn"]["p50_s"] < hello["turn"]["p99_s"] <= 0.25
    assert (other["agent_type"], other["tenant"], other["awake"], other["turns"]) == ("other", "acme", 2, 0)
    assert (figures["agents_awake"], figures["agents_asleep"]) == (5, 100), "gauges are as they are now"
    assert figures["hosts"] == {"starting": 0, "warm": 1, "assigned": 0}
    assert figures["commit"]["count"] == 20
    assert figures["service"]


def test_figures_of_a_snapshot_are_sums_without_rates() -> None:
    figures = figures_of(measured(10, 1, 100), None)
    assert figures["types"][0]["turns"] == 11
    assert figures["types"][0]["turns_per_s"] is None
    assert figures["interval_s"] is None


def test_counters_that_were_set_to_zero_gained_what_they_have() -> None:
    gained = difference(measured(4, 0, 7), measured(10, 1, 100))
    assert gained[TURNS.name, (*HELLO, "message", "committed")] == 4
    assert gained[TOKENS.name, HELLO] == 7
    assert gained[TURN_DURATION.name, HELLO] == measured(4, 0, 7)[TURN_DURATION.name, HELLO]


def test_quantiles_are_interpolated_in_their_bucket() -> None:
    bounds = len(COMMIT_DURATION.bounds)
    assert quantile(0.5, COMMIT_DURATION, [0.0] * (bounds + 2)) is None
    first_two = [0.0, 2.0, 2.0, *[0.0] * (bounds - 1)]
    assert quantile(0.25, COMMIT_DURATION, first_two) == pytest.approx(COMMIT_DURATION.bounds[0] / 2)
    assert quantile(0.5, COMMIT_DURATION, first_two) == pytest.approx(COMMIT_DURATION.bounds[0])
    assert quantile(1, COMMIT_DURATION, first_two) == pytest.approx(COMMIT_DURATION.bounds[1])
    beyond = [0.0] * (bounds + 1) + [3.0]
    assert quantile(0.99, COMMIT_DURATION, beyond) == COMMIT_DURATION.bounds[-1]
