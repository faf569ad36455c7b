"""Records of calls, as a model gateway leaves them."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from coordinator.homes.sqlite.calls import SqliteCallRecords
from coordinator.models.calls import Attempt, CallRecord

if TYPE_CHECKING:
    from pathlib import Path


def record(call_id: str, **parts: Any) -> CallRecord:
    values: dict[str, Any] = {
        "call_id": call_id,
        "tenant": "default",
        "owner": "notes/alice",
        "turn": 1,
        "profile": "fast",
        "provider": "scripted",
        "model": "m",
        "status": "completed",
        "error": None,
        "input_tokens": 3,
        "output_tokens": 2,
        "cached_tokens": 0,
        "cache_write_tokens": 0,
        "cache_miss_reason": None,
        "cost": "0.5",
        "attempts": (Attempt("scripted", "m", 10, 5, 30, None, "fast"),),
        "started_ms": 10,
        "ttft_ms": 5,
        "latency_ms": 20,
        "qos_outcome": {"class": "standard"},
    }
    return CallRecord(**{**values, **parts})


def keep(home: Path, *records: CallRecord) -> None:
    """Write records into a home."""
    with closing(SqliteCallRecords(home)) as store:
        for each in records:
            assert store.begin(each)
