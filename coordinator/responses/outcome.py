"""Outcome of the quality of service that a response was asked for, as its client saw it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from chronicle.canonical import JsonObject
    from coordinator.models.calls import CallRecord
    from podium.models.quality import QualityOfService

__all__ = ["EXPIRED", "CallProgress", "qos_outcome"]

EXPIRED: Final = "deadline_exceeded"
"""The code of a response whose deadline has passed."""


@dataclass(slots=True)
class CallProgress:
    """Known facts of the call of a response."""

    begun: bool = False
    """Whether the model gateway was asked."""
    ttft_ms: int | None = None
    """From the request's arrival to the first token."""
    record: CallRecord | None = None
    """``None`` until the model gateway has ended the call."""


def qos_outcome(asked: QualityOfService, call: CallProgress, code: str | None, latency_ms: int) -> JsonObject:
    """Return the outcome of a response that has ended.

    Args:
        code: why it failed; ``None`` if it did not.
        latency_ms: from the request's arrival to the end of the answer.
    """
    told = call.record.qos_outcome if call.record is not None else None
    known = told or {}
    attempts = known.get("attempts", 0) if told is not None or not call.begun else None
    degraded = bool(known.get("degraded"))
    met = None if asked.target_ttft_ms is None else call.ttft_ms is not None and call.ttft_ms <= asked.target_ttft_ms
    admission = _admission(call, code, attempts == 0, bool(known.get("queued_ms")))
    return {
        "class": asked.qos_class,
        "priority": asked.priority,
        "admission": admission,
        "completion": _completion(admission, code),
        "profile": known.get("profile"),
        "provider": known.get("provider"),
        "execution": known.get("execution"),
        "degraded": degraded,
        "degraded_because": known.get("degraded_because"),
        "fallback_used": degraded,
        "target_ttft_ms": asked.target_ttft_ms,
        "ttft_ms": call.ttft_ms,
        "ttft_met": met,
        "target_met": met,
        "deadline_ms": asked.deadline_ms,
        "deadline_met": None if asked.deadline_ms is None else _deadline_met(code),
        "latency_ms": latency_ms,
        "queued_ms": known.get("queued_ms"),
        "attempts": attempts,
        "reason_code": code or known.get("degraded_because"),
    }


def _admission(call: CallProgress, code: str | None, is_unasked: bool, was_queued: bool) -> str | None:
    """Return how the call was admitted; ``None`` if that is not known, as the deadline was over first."""
    if code is not None and is_unasked:
        return "expired_before_start" if code == EXPIRED else "rejected"
    if call.record is None and call.ttft_ms is None:
        return None
    return "queued" if was_queued else "admitted"


def _completion(admission: str | None, code: str | None) -> str | None:
    if code is None:
        return "completed"
    if code == EXPIRED:
        return None if admission == "expired_before_start" else "expired_during_execution"
    return "cancelled" if code == "cancelled" else "failed"


def _deadline_met(code: str | None) -> bool | None:
    """Return whether the answer ended in time; ``None`` if it failed otherwise."""
    return True if code is None else False if code == EXPIRED else None
