"""The routes that the service uses, each with its connection to the agent's host.

It makes no Ray calls: a route comes from the coordinator, or from a host that is connected and tells that an activation
begins. It is used until the host tells of the activation's end, or refuses or ends a connection.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from chronicle.errors import ChronicleError
from coordinator.door import PATIENCE_S, through_door
from coordinator.host.delivery import DeliveryChannel
from podium.errors import AgentAsleep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from coordinator.door import Door
    from coordinator.fleet.model import Route
    from coordinator.fleet.nodes.machines import Machine
    from coordinator.host.delivery import Notice
    from podium.address import Address

__all__ = ["RouteCache"]

_MAX_IDLE: Final = 10_000
"""Agents without a delivery whose routes are kept; a route that is missing costs a call of the coordinator."""


class RouteCache:
    """The latest used route to each agent, and the delivery channel to each host, which its agents share.

    A route is removed when the connection of its host ends. So an agent that sleeps takes no memory. The connection of
    a shared host outlives its agents' sleep: of those without a delivery the routes of the latest are kept.

    Args:
        sockets: directory of the hosts' sockets.
        most_idle: limit of these.
        find_machine: returns what is told of another machine, ``None`` if that is nothing; it blocks.
    """

    def __init__(
        self,
        sockets: Path,
        most_idle: int = _MAX_IDLE,
        find_machine: Callable[[str], Machine | None] = lambda _: None,
    ) -> None:
        self._sockets = sockets
        self._find_machine = find_machine
        self._doors: dict[str, Door] = {}
        """The doors of other machines that let the service in last: no database is asked for them."""
        self._routes: dict[Address, Route] = {}
        self._newest: dict[Address, Route] = {}
        """The latest route to each agent that was used for a delivery."""
        self._stale: set[Address] = set()
        """The agents whose newest route was dropped."""
        self._channels: dict[str, DeliveryChannel] = {}
        self._hosts: dict[str, Route] = {}
        """A route to each host of the channels, which has its node and its code."""
        self._waking: dict[Address, list[asyncio.Future[Route]]] = {}
        """Waits for the activations of agents."""
        self._agents: dict[str, set[Address]] = {}
        """The agents for which the channel of a host is used, by host."""
        self._uses: Counter[Address] = Counter()
        self._most_idle = most_idle
        self._idle: dict[Address, None] = {}
        """The agents that are known and not in use, the latest at the end."""

    def __len__(self) -> int:
        """Return the number of agents with a route or a channel."""
        return len(self._routes.keys() | self._newest.keys())

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
        self._idle.pop(address, None)
        try:
            yield
        finally:
            self._uses[address] -= 1
            self._forget_unused(address)

    def channel(self, address: Address, route: Route) -> DeliveryChannel:
        """Return the channel to a route's host; this breaks off the agent's deliveries at a host of an earlier epoch.

        Raises:
            AgentAsleep: the route is of an earlier epoch than the one that is used now.
        """
        newest = self._newest.get(address)
        if newest is not None:
            if newest.epoch > route.epoch and address not in self._stale:  # epochs begin anew after a deletion
                raise AgentAsleep(f"host {route.host_id} of {address} was replaced by {newest.host_id}")
            if newest.host_id != route.host_id:
                if newest.host_id in self._channels:
                    self._channels[newest.host_id].abort(address)
                self._leave(address, newest.host_id)
        self._newest[address] = route
        self._stale.discard(address)
        self._agents.setdefault(route.host_id, set()).add(address)
        channel = self._channels.get(route.host_id)
        if channel is None or channel.is_over:
            path = self._sockets / route.host_id
            channel = DeliveryChannel(
                path,
                lambda: self._ended(route.host_id, channel),
                lambda notice: self._noticed(route.host_id, notice),
                partial(self._through, route.machine, route.host_id) if route.machine else None,
            )
            self._channels[route.host_id] = channel
        self._hosts[route.host_id] = route
        return channel

    async def _through(self, machine: str, host_id: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to a host of another machine, as `DeliveryChannel` has it."""
        door = self._doors.get(machine) or await self._door_of(machine)
        self._doors[machine] = door
        try:
            return await through_door(door, "host", patience_s=PATIENCE_S, host=host_id)
        except FileNotFoundError:  # the door's own answer
            raise
        except (OSError, TimeoutError):
            self._doors.pop(machine, None)
            raise

    async def _door_of(self, machine: str) -> Door:
        try:
            found = await asyncio.to_thread(self._find_machine, machine)
        except ChronicleError as error:
            raise ConnectionRefusedError(str(error)) from error
        if found is None:
            raise ConnectionRefusedError(f"no podium node runs on {machine}")
        return found.door

    def reached(self) -> list[Route]:
        """Return a route to each host to which there is a channel."""
        return list(self._hosts.values())

    def lose(self, host_id: str) -> None:
        """Drop what comes from a host that is lost, from now on; its deliveries raise `HostDied`."""
        channel = self._channels.get(host_id)
        if channel is not None:
            channel.cut()

    def drop(self, address: Address, route: Route) -> None:
        """Remove a stale route; a channel that no other agent uses is closed after the running deliveries."""
        if self._routes.get(address) == route:
            del self._routes[address]
        newest = self._newest.get(address)
        if newest is not None and newest.host_id == route.host_id:
            self._stale.add(address)
            self._leave(address, newest.host_id)
        self._forget_unused(address)

    def _leave(self, address: Address, host_id: str) -> None:
        agents = self._agents.get(host_id, set())
        agents.discard(address)
        if not agents:
            self._agents.pop(host_id, None)
            if host_id in self._channels:
                self._channels[host_id].close()

    @contextmanager
    def waking(self, address: Address) -> Iterator[asyncio.Future[Route]]:
        """Yield what becomes the route to an agent if a host tells that its activation begins, in the context."""
        begun: asyncio.Future[Route] = asyncio.get_running_loop().create_future()
        waiting = self._waking.setdefault(address, [])
        waiting.append(begun)
        try:
            yield begun
        finally:
            waiting.remove(begun)
            if not waiting:
                self._waking.pop(address, None)

    def _noticed(self, host_id: str, notice: Notice) -> None:
        if notice.turn is not None:
            route = replace(self._hosts[host_id], epoch=notice.epoch, turn=notice.turn, config=notice.config)
            for begun in self._waking.get(notice.address, ()):
                if not begun.done():
                    begun.set_result(route)
            return
        known = self._routes.get(notice.address)
        is_known = known is not None and (known.host_id, known.epoch) == (host_id, notice.epoch)
        if is_known and not self._uses[notice.address]:
            del self._routes[notice.address]  # a delivery would be refused, and the agent woken only then
            self._stale.add(notice.address)

    def _ended(self, host_id: str, channel: DeliveryChannel | None) -> None:
        """Forget a channel whose connection has ended, and the agents that are not in use."""
        if self._channels.get(host_id) is channel:
            del self._channels[host_id]
            self._hosts.pop(host_id, None)
            for address in list(self._agents.get(host_id, ())):
                self._forget_unused(address)

    def _forget_unused(self, address: Address) -> None:
        if self._uses[address]:
            return
        del self._uses[address]
        newest = self._newest.get(address)
        channel = self._channels.get(newest.host_id) if newest is not None else None
        self._idle.pop(address, None)
        if newest is None or channel is None or not channel.connected or address in self._stale:
            self._forget(address)
            return
        self._idle[address] = None
        if len(self._idle) > self._most_idle:
            self._forget(next(iter(self._idle)))

    def _forget(self, address: Address) -> None:
        self._idle.pop(address, None)
        self._routes.pop(address, None)
        self._stale.discard(address)
        newest = self._newest.pop(address, None)
        if newest is not None:
            self._leave(address, newest.host_id)
            channel = self._channels.get(newest.host_id)
            if newest.host_id not in self._agents and (channel is None or not channel.connected):
                self._channels.pop(newest.host_id, None)
                self._hosts.pop(newest.host_id, None)
