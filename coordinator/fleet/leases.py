"""Acquiring an agent's lease for a host: a free one, one of a dead host, or one that a command is about to release.

It knows no Ray: whether a host lives is asked of a function that it is given.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import LeaseHeld
from podium.history.branching import ended_uncleanly

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.clock import Clock
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Lease
    from podium.address import Address

__all__ = ["HOST_PREFIX", "LEASE_POLL_S", "HostLeases"]

HOST_PREFIX: Final = "host_"
"""Prefix of hosts' names, and so of the holders of leases that are processes."""
LEASE_POLL_S: Final = 0.2
"""Interval of attempts to acquire a lease that a command holds, which takes milliseconds."""

_log = structlog.stdlib.get_logger("coordinator.fleet.leases")


class HostLeases:
    """Leases for hosts.

    Args:
        ttl_s: how long a lease holds unless its host renews it.
        alive: whether a host of that name lives.
    """

    def __init__(self, store: JournalStore, clock: Clock, ttl_s: float, alive: Callable[[str], bool]) -> None:
        self._store = store
        self._clock = clock
        self._ttl_ms = round(ttl_s * 1000)
        self._alive = alive

    async def wait_for(self, address: Address, host_id: str, timeout_s: float) -> tuple[Lease, bool]:
        """Acquire an agent's lease, waiting for a command that holds it to release it.

        Returns:
            as `take`.

        Raises:
            TimeoutError: it was held for all that time.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    return await asyncio.to_thread(self.take, address, host_id)
                except LeaseHeld as error:
                    _log.info("waiting_for_lease", agent_id=str(address), error=str(error))
                    await asyncio.sleep(LEASE_POLL_S)

    def take(self, address: Address, host_id: str) -> tuple[Lease, bool]:
        """Acquire an agent's lease for a host, also from a host that is dead.

        Returns:
            the lease, and whether the one before it was not released in order: its host may have tried a message. A
            command that wrote to the agent since lets such a lease expire, so that this is not forgotten.

        Raises:
            LeaseHeld: a command holds it, such as one that rewinds the agent.
        """
        session = self._store.session(str(address))
        before = self._store.lease(session.session_id)
        dead = before is not None and before.holder.startswith(HOST_PREFIX) and not self._alive(before.holder)
        lease = self._store.acquire_lease(
            session.session_id, host_id, self._clock.now_ms(), self._ttl_ms, takeover=dead
        )
        return lease, ended_uncleanly(before)
