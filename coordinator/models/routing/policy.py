"""Policies after a failed attempt, and for the wait for a call's own model. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

    from podium.models.errors import ModelError
    from podium.models.quality import QualityOfService

__all__ = ["BROKEN", "SATURATED", "RetryPolicy", "patience_s", "wait_before_retry"]

SATURATED: Final = frozenset({"rate_limited", "overloaded"})
"""The errors by which a provider says that it has no capacity for the call."""

BROKEN: Final = frozenset({"unavailable", "timeout", "protocol"})
"""The errors by which a provider that does not work is known, after all attempts: not one that is slow or full, and not
a request or a key that it refuses."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a model is asked again."""

    attempts: int = 3
    """Attempts with one model, the first included, if no other model may answer."""
    attempts_with_fallback: int = 2
    """The same, if another one may."""
    base_s: float = 0.5
    """The wait before the second attempt; it doubles with each further one."""
    most_s: float = 8.0
    most_asked_s: float = 60.0
    """A longer wait that a provider asks for is left to the caller."""


def wait_before_retry(
    policy: RetryPolicy,
    error: ModelError,
    attempts: int,
    random: Random,
    *,
    has_fallback: bool,
    left_s: float | None,
) -> float | None:
    """Return the seconds to wait before the same model is asked again; ``None`` if it is not to be asked.

    If another model may answer, one that is saturated is left at once, and one that failed is asked once more.

    Args:
        error: of the last attempt.
        attempts: how many were made.
        random: spreads the waits, so that calls that failed together do not return together.
        has_fallback: whether another model may answer.
        left_s: seconds to the call's deadline; ``None`` without one.
    """
    if not error.retryable or (has_fallback and error.kind in SATURATED):
        return None
    if attempts >= (policy.attempts_with_fallback if has_fallback else policy.attempts):
        return None
    wait_s = min(policy.base_s * 2 ** (attempts - 1), policy.most_s) * random.uniform(0.5, 1.0)
    if error.retry_after_s is not None:
        if error.retry_after_s > policy.most_asked_s:
            return None
        wait_s = max(wait_s, error.retry_after_s)
    return None if left_s is not None and wait_s >= left_s else wait_s


def patience_s(qos: QualityOfService) -> float | None:
    """Return the seconds after which a call without a token turns to another model; ``None``: it waits.

    It is the target of the first token; without one half of the time to the deadline, so that the other model has the
    rest. A call that is not even admitted turns after half of that.
    """
    if qos.target_ttft_ms is not None:
        return qos.target_ttft_ms / 1000
    return qos.deadline_ms / 2000 if qos.deadline_ms is not None else None
