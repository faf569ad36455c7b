"""The quotas of tenants, for what clients store; those of messages are checked by the service, which admits them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.clock import Clock
    from coordinator.access.quotas import Quotas
    from coordinator.access.stored_quotas import StoredQuotas
    from coordinator.operations.stores import HomeStores

__all__ = ["QuotaChecks"]


class QuotaChecks:
    """Checks quotas in threads. Nothing is opened before the first check.

    Args:
        stores: of the home; the caller closes them.
        clock: the time.
    """

    def __init__(self, stores: HomeStores, clock: Clock) -> None:
        self._stores = stores
        self._clock = clock
        self._guard = threading.Lock()
        self._limits: StoredQuotas | None = None
        self._quotas: Quotas | None = None

    async def check(self, call: Callable[[Quotas], None]) -> None:
        """Call one of the checks of `Quotas`.

        Raises:
            QuotaExceeded: it refuses.
            Unavailable, StorageRefused: a store could not be read.
        """
        await self._stores.read(lambda *_: call(self._opened()))

    def check_record(self, tenant: str, size_bytes: int) -> None:
        """Call `Quotas.check_record`, in a thread of the caller's."""
        self._opened().check_record(tenant, size_bytes)

    def close(self) -> None:
        """Close what was opened."""
        with self._guard:
            if self._limits is not None:
                self._limits.close()

    def _opened(self) -> Quotas:
        with self._guard:
            if self._quotas is None:
                from coordinator.access.quotas import Quotas  # noqa: PLC0415  slow to import, and few calls check any
                from coordinator.access.stored_quotas import StoredQuotas  # noqa: PLC0415
                from coordinator.homes.opening import open_records  # noqa: PLC0415

                self._limits = StoredQuotas(open_records(self._stores.home).quotas)
                self._quotas = Quotas(self._limits, self._stores.journal, self._stores.blobs, self._clock)
            return self._quotas
