"""The quotas that a gateway has stored in a home, for the process that admits messages."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import ChronicleError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coordinator.access.quotas import Quota
    from coordinator.access.records import QuotaRecords

__all__ = ["FollowedQuotas", "LatestQuotas", "StoredQuotas"]

_FOLLOW_S: Final = 1.0
"""Interval at which quotas are read that are followed."""

_log: Final = structlog.stdlib.get_logger("coordinator.access.quotas")


class StoredQuotas:
    """The quotas of a home as they are now. Safe to share between threads.

    Args:
        open_quotas: opens the records of quotas; ``None`` while there are none.
    """

    def __init__(self, open_quotas: Callable[[], QuotaRecords | None]) -> None:
        self._open = open_quotas
        self._guard = threading.Lock()
        self._records: QuotaRecords | None = None
        self._changes = -1
        self._quotas: Mapping[str, Quota] = {}

    def __call__(self) -> Mapping[str, Quota]:
        """Return the quotas by tenant."""
        with self._guard:
            if self._records is None:
                self._records = self._open()
                if self._records is None:
                    return {}
            changes = self._records.changes()
            if changes != self._changes:
                self._quotas, self._changes = self._records.quotas(), changes
            return self._quotas

    def close(self) -> None:
        """Close the records."""
        with self._guard:
            if self._records is not None:
                self._records.close()
                self._records = None


class LatestQuotas:
    """Quotas as they were last read: for a process that has to go on while they cannot be read.

    Args:
        read: reads them.
    """

    def __init__(self, read: Callable[[], Mapping[str, Quota]]) -> None:
        self._read = read
        self._quotas: Mapping[str, Quota] = {}
        self._problem: str | None = None

    def __call__(self) -> Mapping[str, Quota]:
        """Return the quotas by tenant; safe to call from any thread."""
        try:
            self._quotas, self._problem = self._read(), None
        except ChronicleError as error:
            if str(error) != self._problem:
                _log.warning("quotas_not_read", error=str(error))
            self._problem = str(error)
        return self._quotas


class FollowedQuotas:
    """Quotas for an event loop that must not wait for them: as a thread has read them, a second ago at most if it can.

    Args:
        read: reads them, and raises nothing.
        changed: called when they have changed.
    """

    def __init__(self, read: Callable[[], Mapping[str, Quota]], changed: Callable[[], None]) -> None:
        self._read = read
        self._changed = changed
        self._quotas: Mapping[str, Quota] = {}

    def __call__(self) -> Mapping[str, Quota]:
        """Return the quotas by tenant."""
        return self._quotas

    async def update(self) -> None:
        """Read them."""
        quotas = await asyncio.to_thread(self._read)
        if quotas != self._quotas:
            self._quotas = quotas
            self._changed()

    async def follow(self) -> None:
        """Read them again and again, until cancelled."""
        while True:
            await asyncio.sleep(_FOLLOW_S)
            await self.update()
