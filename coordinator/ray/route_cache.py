"""The routes that the service uses, each with its connection to the agent's host.

It makes no Ray calls: a route comes from the coordinator, and is used until the host refuses or ends a connection.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coordinator.host.delivery import DeliveryChannel
from podium.errors import AgentAsleep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coordinator.fleet.model import Route
    from podium.address import Address

__all__ = ["RouteCache"]


class RouteCache:
    """The latest used route to each agent, and the delivery channel to its host.

    Both are removed when the connection ends, as it does with the host. So a sleeping agent takes no memory.

    Args:
        sockets: directory of the hosts' sockets.
    """

    def __init__(self, sockets: Path) -> None:
        self._sockets = sockets
        self._routes: dict[Address, Route] = {}
        self._channels: dict[Address, tuple[Route, DeliveryChannel]] = {}
        self._uses: Counter[Address] = Counter()

    def __len__(self) -> int:
        """Return the number of agents with a route or a channel."""
        return len(self._routes.keys() | self._channels.keys())

    def get(self, address: Address) -> Route | None:
        """Return the route to an agent, if it is known."""
        return self._routes.get(address)

    def put(self, address: Address, route: Route) -> None:
        """Add or replace a route."""
        self._routes[address] = route

    @contextmanager
    def in_use(self, address: Address) -> Iterator[None]:
        """Keep what is known of an agent while the context lasts; after it, only with a connection."""
        self._uses[address] += 1
        try:
            yield
        finally:
            self._uses[address] -= 1
            self._forget_unused(address)

    def channel(self, address: Address, route: Route) -> DeliveryChannel:
        """Return the channel to a route's host; this breaks off deliveries at a host of an earlier epoch.

        Raises:
            AgentAsleep: the route is of an earlier epoch than the one that is used now.
        """
        if address in self._channels:
            newest, channel = self._channels[address]
            if newest.epoch > route.epoch and not channel.closing:  # epochs begin anew with an agent that was deleted
                raise AgentAsleep(f"host {route.host_id} of {address} was replaced by {newest.host_id}")
            if newest.host_id != route.host_id:
                channel.abort()
            elif not channel.closing:
                return channel
        channel = DeliveryChannel(self._sockets / route.host_id, on_end=lambda: self._forget_unused(address))
        self._channels[address] = route, channel
        return channel

    def drop(self, address: Address, route: Route) -> None:
        """Remove a stale route; its channel is closed after the running deliveries."""
        if self._routes.get(address) == route:
            del self._routes[address]
        newest, channel = self._channels.get(address, (None, None))
        if channel is not None and newest is not None and newest.host_id == route.host_id:
            channel.close()
        self._forget_unused(address)

    def _forget_unused(self, address: Address) -> None:
        if self._uses[address]:
            return
        del self._uses[address]
        _, channel = self._channels.get(address, (None, None))
        if channel is None or not channel.connected:
            self._channels.pop(address, None)
            self._routes.pop(address, None)
