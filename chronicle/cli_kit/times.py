"""Times and durations as text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = ["ago", "iso"]

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def iso(epoch_ms: int) -> str:
    """Return a time in UTC with milliseconds, such as ``2025-01-31T12:00:00.123Z``."""
    try:
        moment = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # Beyond the years of datetime.
        return f"{epoch_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ago(duration_ms: int) -> str:
    """Return a past duration in its largest whole unit, such as ``3 min ago``."""
    seconds = duration_ms // 1000
    return next((f"{seconds // size} {unit} ago" for size, unit in _UNITS if seconds >= size), "just now")
