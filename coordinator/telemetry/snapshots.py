"""Snapshots of a home's metrics: gauges of its journal, and the form in which the service sends a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chronicle.errors import InvalidInput
from coordinator.telemetry.instruments import (
    AGENTS_ASLEEP,
    INBOX_LAG,
    INBOX_MESSAGES,
    OUTBOX_LAG,
    OUTBOX_MESSAGES,
    PARKED_MESSAGES,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.journal.records import Backlog
    from coordinator.telemetry.recorder import Series, Value

__all__ = ["from_wire", "of_backlog", "to_wire"]


def of_backlog(backlog: Backlog, awake: int, now_ms: int) -> dict[Series, Value]:
    """Return the gauges of a journal.

    Args:
        awake: agents that are awake.
    """
    return {
        (AGENTS_ASLEEP.name, ()): max(0, backlog.sessions - awake),
        (INBOX_MESSAGES.name, ()): backlog.pending,
        (INBOX_LAG.name, ()): _age_s(backlog.oldest_pending_ms, now_ms),
        (PARKED_MESSAGES.name, ()): backlog.parked,
        (OUTBOX_MESSAGES.name, ()): backlog.outbox,
        (OUTBOX_LAG.name, ()): _age_s(backlog.oldest_outbox_ms, now_ms),
    }


def to_wire(sums: Mapping[Series, Value]) -> list[list[Any]]:
    """Return a snapshot as JSON values: ``[name, [label, …], value]`` for each series."""
    return [[name, list(labels), value] for (name, labels), value in sums.items()]


def from_wire(wire: object) -> dict[Series, Value]:
    """Return the snapshot that `to_wire` gave.

    Raises:
        InvalidInput: it is none.
    """
    try:
        return {(str(name), tuple(map(str, labels))): value for name, labels, value in wire}  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the service answered with metrics that cannot be read: {error}") from error


def _age_s(oldest_ms: int | None, now_ms: int) -> float:
    return max(0, now_ms - oldest_ms) / 1000 if oldest_ms is not None else 0.0
