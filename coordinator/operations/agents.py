"""`HomeAgents`: everything that a client may do to the agents of a home.

Reads and writes of the stores run in threads. What only the fleet can do goes to the home's service. A call whose
caller is cancelled may have happened; each write is atomic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.clock import SystemClock
from coordinator.operations import history, listing
from coordinator.operations.stores import HomeStores
from podium.address import DEFAULT_TENANT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.clock import Clock
    from coordinator.home import Home
    from coordinator.operations.fleet import FleetLink
    from coordinator.operations.objects import AgentObject, AgentPage, EventPage, StateObject
    from podium.address import Address

__all__ = ["HomeAgents"]

_ITEMS = 100
"""Items of a page, unless the caller says how many."""


class HomeAgents:
    """The agents of a home.

    Args:
        home: an existing home.
        link: the connection to its service.
        clock: the time.
    """

    def __init__(self, home: Home, link: FleetLink, clock: Clock | None = None) -> None:
        self._stores = HomeStores(home)
        self._link = link
        self._clock = clock or SystemClock()

    def close(self) -> None:
        """Close the stores; the link belongs to the caller."""
        self._stores.close()

    async def check_ready(self) -> None:
        """Check that the home's service and its stores can be reached.

        Raises:
            ServiceError: the service cannot be reached.
            Unavailable: a store cannot.
        """
        await self._link.client()
        await self._stores.read(lambda store, _: store.sessions("/"))

    # -- agents ---------------------------------------------------------------------------------------------------

    async def agents(
        self,
        agent_type: str | None = None,
        limit: int = _ITEMS,
        cursor: str | None = None,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> AgentPage:
        """Return a page of a tenant's agents, by address; see `listing.agent_page`."""
        now_ms = self._clock.now_ms()
        return await self._stores.read(
            lambda store, _: listing.agent_page(store, tenant, agent_type, limit, cursor, now_ms)
        )

    async def agent(self, address: Address) -> AgentObject:
        """Return one agent.

        Raises:
            UnknownAgent: there is none.
        """
        now_ms = self._clock.now_ms()
        return await self._stores.read(lambda store, _: listing.agent_object(store, address, now_ms))

    # -- history --------------------------------------------------------------------------------------------------

    async def state(self, address: Address, turn: int | None = None) -> StateObject:
        """Return an agent's committed state at the end of a turn, the last one if ``None``.

        Raises:
            UnknownAgent: there is no such agent, or it never started.
            UnknownMoment: it has not committed that turn.
        """
        return await self._stores.read(lambda store, blobs: history.state_object(store, blobs, address, turn))

    async def events(
        self,
        address: Address,
        *,
        after_seq: int = 0,
        types: Sequence[str] = (),
        limit: int = _ITEMS,
        cursor: str | None = None,
    ) -> EventPage:
        """Return a page of an agent's events, oldest first; see `history.event_page`."""
        return await self._stores.read(
            lambda store, blobs: history.event_page(
                store, blobs, address, after_seq=after_seq, types=types, limit=limit, cursor=cursor
            )
        )
