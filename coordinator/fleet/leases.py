"""Acquiring an agent's lease for a host: a free one, one of a dead host, or one that a command is about to release.

It does not depend on Ray: a callback tells whether a host is alive.
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
"""Prefix of hosts' names; it tells leases held by hosts from those held by commands."""
LEASE_POLL_S: Final = 0.2
"""Interval of attempts to acquire a lease that a command holds, which takes milliseconds."""

_log = structlog.stdlib.get_logger("coordinator.fleet.leases")


class HostLeases:
    """Leases for hosts.

    Args:
        ttl_s: time to live of a lease that its host does not renew.
        alive: returns whether the host of a name is alive.
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
            TimeoutError: the lease was held for the whole time.
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
            the lease, and whether the previous one was not released in order: its host may have attempted a message.
            A command that writes to the agent in between lets such a lease expire instead of releasing its own, so that
            this information is kept.

        Raises:
            LeaseHeld: a command holds it, such as one that rewinds the agent.
        """
        session = self._store.session(address.name, address.tenant)
        before = self._store.lease(session.session_id)
        dead = before is not None and before.holder.startswith(HOST_PREFIX) and not self._alive(before.holder)
        lease = self._store.acquire_lease(
            session.session_id, host_id, self._clock.now_ms(), self._ttl_ms, takeover=dead
        )
        return lease, ended_uncleanly(before)
