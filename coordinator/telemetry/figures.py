"""Figures for people, from snapshots of metrics: rates, quantiles, sums by agent type. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from coordinator.telemetry.instruments import (
    AGENTS_ASLEEP,
    AGENTS_AWAKE,
    AGENTS_OF_NODES,
    CATALOGUE,
    HOSTS,
    HOSTS_OF_NODES,
    INBOX_LAG,
    INBOX_MESSAGES,
    OUTBOX_LAG,
    OUTBOX_MESSAGES,
    PARKED_MESSAGES,
    SERVICE_UP,
    WAKE_DURATION,
    WAKES_WAITING,
)
from podium.turn.telemetry import COMMIT_DURATION, SEAL_DURATION, TOKENS, TURN_DURATION, TURNS, TurnOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coordinator.telemetry.recorder import Series, Value
    from podium.turn.telemetry import Instrument

__all__ = ["difference", "figures_of", "quantile"]

_STATUSES: Final = ("starting", "warm", "assigned")
_FAILURES: Final = (TurnOutcome.FAILED.value, TurnOutcome.PARKED.value)


def difference(now: Mapping[Series, Value], before: Mapping[Series, Value]) -> dict[Series, Value]:
    """Return what counters and histograms gained between two snapshots, and gauges as they are now.

    A counter that is lower than before was set to zero in between; it gained what it has.
    """
    gained: dict[Series, Value] = {}
    for series, value in now.items():
        instrument, earlier = CATALOGUE.get(series[0]), before.get(series)
        if instrument is None or instrument.kind == "gauge" or earlier is None:
            gained[series] = value
        elif isinstance(value, list) and isinstance(earlier, list):
            restarted = any(one < other for one, other in zip(value, earlier, strict=True))
            gained[series] = value if restarted else [one - other for one, other in zip(value, earlier, strict=True)]
        elif not isinstance(value, list) and not isinstance(earlier, list):
            gained[series] = value if value < earlier else value - earlier
    return gained


def quantile(share: float, instrument: Instrument, value: list[float]) -> float | None:
    """Return a quantile of a histogram, interpolated in its bucket as Prometheus does; ``None`` without observations.

    Beyond the last bound it is that bound.
    """
    _, *counts = value
    rank, below = share * sum(counts), 0.0
    if not rank:
        return None
    lower = 0.0
    for count, upper in zip(counts, instrument.bounds, strict=False):
        if count and below + count >= rank:
            return lower + (upper - lower) * (rank - below) / count
        below, lower = below + count, upper
    return lower


def figures_of(sums: Mapping[Series, Value], elapsed_s: float | None) -> dict[str, Any]:
    """Return the figures of a home, as JSON values.

    Args:
        sums: a snapshot, or what was gained between two.
        elapsed_s: the time between the two; ``None`` for a snapshot, which has sums since the start and no rates.
    """
    return {
        "service": bool(_total(sums, SERVICE_UP)),
        "interval_s": elapsed_s,
        "agents_awake": round(_total(sums, AGENTS_AWAKE)),
        "agents_asleep": round(_total(sums, AGENTS_ASLEEP)),
        "hosts": {status: round(_total(sums, HOSTS, status)) for status in _STATUSES},
        "nodes": [_of_node(sums, node) for node in sorted({labels[0] for labels, _ in _series(sums, AGENTS_OF_NODES)})],
        "wakes_waiting": round(_total(sums, WAKES_WAITING)),
        "inbox_messages": round(_total(sums, INBOX_MESSAGES)),
        "inbox_lag_s": _total(sums, INBOX_LAG),
        "parked_messages": round(_total(sums, PARKED_MESSAGES)),
        "outbox_messages": round(_total(sums, OUTBOX_MESSAGES)),
        "outbox_lag_s": _total(sums, OUTBOX_LAG),
        "wake": _durations(sums, WAKE_DURATION),
        "seal": _durations(sums, SEAL_DURATION),
        "commit": _durations(sums, COMMIT_DURATION),
        "types": [_of_type(sums, agent_type, tenant, elapsed_s) for agent_type, tenant in _types(sums)],
    }


def _of_node(sums: Mapping[Series, Value], node: str) -> dict[str, Any]:
    return {
        "node": node,
        "agents": round(_total(sums, AGENTS_OF_NODES, node)),
        "hosts": {status: round(_total(sums, HOSTS_OF_NODES, node, status)) for status in _STATUSES},
    }


def _of_type(sums: Mapping[Series, Value], agent_type: str, tenant: str, elapsed_s: float | None) -> dict[str, Any]:
    failed = sum(
        value
        for (*_, outcome), value in _series(sums, TURNS, agent_type, tenant)
        if outcome in _FAILURES and not isinstance(value, list)
    )
    turns, tokens = (_total(sums, instrument, agent_type, tenant) for instrument in (TURNS, TOKENS))
    return {
        "agent_type": agent_type,
        "tenant": tenant,
        "awake": round(_total(sums, AGENTS_AWAKE, agent_type, tenant)),
        "turns": round(turns),
        "turns_per_s": turns / elapsed_s if elapsed_s else None,
        "failed": round(failed),
        "tokens": round(tokens),
        "tokens_per_s": tokens / elapsed_s if elapsed_s else None,
        "turn": _durations(sums, TURN_DURATION, agent_type, tenant),
    }


def _durations(sums: Mapping[Series, Value], instrument: Instrument, *labels: str) -> dict[str, Any]:
    """Return count, median and 99th percentile of a histogram, over the series that begin with some labels."""
    total = [0.0] * (len(instrument.bounds) + 2)
    for _, value in _series(sums, instrument, *labels):
        if isinstance(value, list):
            total = [one + other for one, other in zip(total, value, strict=True)]
    return {
        "count": round(sum(total[1:])),
        "p50_s": quantile(0.5, instrument, total),
        "p99_s": quantile(0.99, instrument, total),
    }


def _types(sums: Mapping[Series, Value]) -> list[tuple[str, str]]:
    """Return the agent types, each with its tenant, that are awake or had turns."""
    found = [labels[:2] for instrument in (TURNS, AGENTS_AWAKE) for labels, _ in _series(sums, instrument)]
    return sorted({(agent_type, tenant) for agent_type, tenant in found})


def _total(sums: Mapping[Series, Value], instrument: Instrument, *labels: str) -> float:
    """Return the sum of the series of a counter or a gauge that begin with some labels."""
    return sum(value for _, value in _series(sums, instrument, *labels) if not isinstance(value, list))


def _series(
    sums: Mapping[Series, Value], instrument: Instrument, *first: str
) -> Iterator[tuple[tuple[str, ...], Value]]:
    for (name, labels), value in sums.items():
        if name == instrument.name and labels[: len(first)] == first:
            yield labels, value
