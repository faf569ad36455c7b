"""The coordinator's table of hosts, of the agents on them, and of routes: a route is an activated agent. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coordinator.fleet.model import Placement, Route

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coordinator.fleet.host import Host
    from coordinator.fleet.model import Code
    from coordinator.fleet.nodes.nodes import NodeId
    from podium.address import Address

__all__ = ["HostTable"]

_MAX_DEATHS: Final = 1000
"""The latest deaths of which the cause is kept, for agents that were not activated since."""
_MAX_PLACES: Final = 10_000
"""The latest agents of which it is kept on which node they were. Of one that is forgotten the nodes are asked."""


class HostTable:
    """The hosts of the fleet, by id, and the host of each agent."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        self._host_of: dict[Address, Host] = {}
        self._deaths: dict[Address, str] = {}
        self._last_nodes: dict[Address, NodeId | None] = {}

    # -- hosts ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Host]:
        """Iterate over a snapshot of the hosts."""
        return iter(list(self._hosts.values()))

    def __contains__(self, host_id: str) -> bool:
        """Whether a host is known."""
        return host_id in self._hosts

    def __getitem__(self, host_id: str) -> Host:
        """Return a known host."""
        return self._hosts[host_id]

    def get(self, host_id: str) -> Host | None:
        """Return a host, ``None`` if it is not known."""
        return self._hosts.get(host_id)

    def add(self, host: Host) -> Host:
        """Add a host that is about to start, or was found running; return it."""
        self._hosts[host.host_id] = host
        return host

    def restamp(self, code: Code, before: str, now: str) -> None:
        """Replace a code's stamp in all hosts with the old one: the new one covers more files, none of them changed."""
        for host in self:
            if (host.code, host.code_stamp) == (code, before):
                host.code_stamp = now

    def remove(self, host: Host) -> Sequence[Placement]:
        """Remove a host whose process is gone; return the agents that were on it."""
        del self._hosts[host.host_id]
        agents = host.leave_all()
        for placement in agents:
            del self._host_of[placement.address]
        return agents

    # -- agents ---------------------------------------------------------------------------------------------------

    def placements(self) -> Iterator[Placement]:
        """Iterate over a snapshot of the agents on hosts."""
        return iter([host.placements[address] for address, host in self._host_of.items()])

    def host_of(self, address: Address) -> Host | None:
        """Return the host that is assigned to an agent."""
        return self._host_of.get(address)

    def placement(self, address: Address) -> Placement | None:
        """Return the host that is assigned to an agent, and how far its activation is."""
        host = self._host_of.get(address)
        return host.placements[address] if host is not None else None

    def route(self, address: Address) -> Route | None:
        """Return the route to an agent; ``None`` if it sleeps or its activation has not completed."""
        host = self._host_of.get(address)
        placement = host.placements[address] if host is not None else None
        if host is None or placement is None or placement.epoch is None:
            return None
        return Route(host.host_id, placement.epoch, placement.turn, host.loaded, placement.config, host.node)

    def place(self, placement: Placement) -> None:
        """Assign a known host to an agent that has none."""
        host = self._host_of[placement.address] = self._hosts[placement.host_id]
        host.place(placement)
        self.note_last_node(placement.address, host.node)

    def note_last_node(self, address: Address, node: NodeId | None) -> None:
        """Record the node on which an agent was last; ``None`` for none that is there."""
        self._last_nodes.pop(address, None)
        self._last_nodes[address] = node
        if len(self._last_nodes) > _MAX_PLACES:
            del self._last_nodes[next(iter(self._last_nodes))]

    def last_node_of(self, address: Address) -> NodeId | None:
        """Return the node on which an agent was last, if that is known: its workspace is warm there."""
        return self._last_nodes.get(address)

    def without_last_node(self, addresses: Iterable[Address]) -> list[Address]:
        """Return those of agents of which nothing was recorded."""
        return [address for address in addresses if address not in self._last_nodes]

    def assign(self, host_id: str, address: Address) -> None:
        """Assign a host to an agent, whose activation is to begin."""
        self.place(Placement(host_id, address))

    def leave(self, host: Host, address: Address) -> Placement | None:
        """Remove an agent from a host, which stays; return its placement, ``None`` if it was not on that host."""
        placement = host.leave(address)
        if placement is not None:
            del self._host_of[address]
        return placement

    def note_death(self, address: Address, how: str | None) -> None:
        """Record how an agent's last host died; ``None`` if it did not die, or the cause is unknown."""
        self._deaths.pop(address, None)
        if how is not None:
            self._deaths[address] = how
            if len(self._deaths) > _MAX_DEATHS:
                del self._deaths[next(iter(self._deaths))]

    def death_of(self, address: Address) -> str | None:
        """Return the recorded death of an agent's last host, if no later host has activated the agent."""
        return self._deaths.get(address)
