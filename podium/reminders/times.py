"""Epoch milliseconds, in which reminders are stored, and times with a zone, as agents see them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["from_ms", "to_ms"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def from_ms(time_ms: int) -> datetime:
    """Return epoch milliseconds as a time in UTC."""
    return _EPOCH + timedelta(milliseconds=time_ms)


def to_ms(time: datetime) -> int:
    """Return a time as epoch milliseconds, rounded down.

    Raises:
        OverflowError: it is at the end of the years that `datetime` knows.
    """
    return (time.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
