"""What follows a failed attempt, and how long a call waits for its own model."""

from __future__ import annotations

from random import Random

import pytest

from coordinator.models.routing.policy import RetryPolicy, patience_s, wait_before_retry
from podium.models.errors import ModelError, ModelErrorKind
from podium.models.quality import QualityOfService

POLICY = RetryPolicy(attempts=4, attempts_with_fallback=2, base_s=1, most_s=3, most_asked_s=20)


def wait(
    kind: ModelErrorKind,
    attempts: int = 1,
    *,
    has_fallback: bool = False,
    left_s: float | None = None,
    retry_after_s: float | None = None,
) -> float | None:
    error = ModelError("no", kind, retry_after_s=retry_after_s)
    return wait_before_retry(POLICY, error, attempts, Random(1), has_fallback=has_fallback, left_s=left_s)


@pytest.mark.parametrize(("attempts", "most_s"), [(1, 1), (2, 2), (3, 3)])
def test_waits_double_up_to_a_limit_and_are_spread(attempts: int, most_s: float) -> None:
    error = ModelError("no", "unavailable")
    waits = [
        wait_before_retry(POLICY, error, attempts, Random(seed), has_fallback=False, left_s=None) for seed in range(50)
    ]
    assert all(each is not None and most_s / 2 <= each <= most_s for each in waits)
    assert len(set(waits)) > 40


def test_the_last_attempt_is_the_last() -> None:
    assert wait("unavailable", 3) is not None
    assert wait("unavailable", 4) is None


@pytest.mark.parametrize("kind", ["bad_request", "auth", "context_overflow", "budget_exceeded"])
def test_what_cannot_succeed_is_not_tried_again(kind: ModelErrorKind) -> None:
    assert wait(kind) is None


def test_a_saturated_model_is_left_at_once_if_another_may_answer() -> None:
    assert wait("overloaded", has_fallback=True) is None
    assert wait("rate_limited", has_fallback=True) is None
    assert wait("unavailable", has_fallback=True) is not None
    assert wait("unavailable", 2, has_fallback=True) is None


def test_the_wait_that_the_provider_names() -> None:
    assert wait("rate_limited", retry_after_s=12) == 12
    assert wait("rate_limited", retry_after_s=21) is None


def test_no_wait_passes_the_deadline() -> None:
    assert wait("rate_limited", retry_after_s=12, left_s=12) is None
    assert wait("rate_limited", retry_after_s=12, left_s=12.1) == 12


# S0.27
def test_patience_is_the_target_or_half_of_the_deadline() -> None:
    assert patience_s(QualityOfService()) is None
    assert patience_s(QualityOfService(target_ttft_ms=500, deadline_ms=8000)) == 0.5
    assert patience_s(QualityOfService(deadline_ms=8000)) == 4
