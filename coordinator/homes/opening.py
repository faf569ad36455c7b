"""Opening the records of a home: the one place that knows where they are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.homes.sqlite.records import SqliteHomeRecords

if TYPE_CHECKING:
    from coordinator.home import Home
    from coordinator.homes.records import HomeRecords

__all__ = ["open_records"]


def open_records(home: Home) -> HomeRecords:
    """Return the records of a home; nothing is read or written until a part is asked for."""
    return SqliteHomeRecords(home)
