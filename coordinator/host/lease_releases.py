"""Releases of leases: those that come while one is being written are written together, with one sync to disk."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronicle.ids import SessionId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Lease

__all__ = ["LeaseReleases"]


class LeaseReleases:
    """Releases the leases of a host's agents, on their event loop.

    Args:
        store: the journal.
    """

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self._waiting: list[tuple[SessionId, int]] = []
        self._writing = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, "lease-releases")
        """Apart from the threads of ``asyncio.to_thread``, which agents use and may block."""

    async def release(self, lease: Lease) -> None:
        """Release a lease, durably.

        Raises:
            ChronicleError: it is not known whether it was released; if not, it expires.
        """
        entry = lease.session_id, lease.epoch
        self._waiting.append(entry)
        async with self._writing:
            if entry not in self._waiting:  # written together with another one
                return
            batch, self._waiting = self._waiting, []
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store.release_leases, batch)
