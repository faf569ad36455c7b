"""Carrying the records of a home over to another place."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from coordinator.homes.records import HomeRecords
    from coordinator.homes.sql.calls import SqlCallRecords
    from coordinator.homes.sql.keys import SqlKeyRecords

__all__ = ["receive_records"]


class _SqlRecords(Protocol):
    """Records of a home in SQL."""

    def keys(self) -> SqlKeyRecords:
        """Open the keys."""

    def calls(self) -> SqlCallRecords:
        """Open the records of calls."""


def receive_records(target: _SqlRecords, source: HomeRecords) -> None:
    """Replace records by those of another home; what that one never kept is not created."""
    kept = source.quotas()
    if kept is not None:
        kept.close()
        with closing(source.keys()) as theirs, closing(target.keys()) as keys:
            keys.receive(theirs)
    if source.call_log().count(None):
        with closing(source.calls()) as their_calls, closing(target.calls()) as calls:
            calls.receive(their_calls)
