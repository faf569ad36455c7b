"""The table of metrics, from `coordinator.telemetry.instruments`."""

from __future__ import annotations

from coordinator.telemetry.instruments import INSTRUMENTS
from tools.reference.markdown import code, table

__all__ = ["section"]


def section() -> str:
    """Return the table."""
    return table(
        ("metric", "kind", "labels", "meaning"),
        (
            (
                code(instrument.name),
                instrument.kind,
                ", ".join(map(code, instrument.labels)),
                instrument.help,
            )
            for instrument in INSTRUMENTS
        ),
    )
