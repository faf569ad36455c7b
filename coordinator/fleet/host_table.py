"""The coordinator's table of hosts, of the agents on them, and of routes: a route is an activated agent. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coordinator.fleet.model import HostStatus, Placement, Route

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coordinator.fleet.model import Code, Host, Loaded
    from podium.address import Address

__all__ = ["HostTable"]

_MOST_DEATHS: Final = 1000
"""The latest deaths of which the cause is kept, for agents that were not activated since."""


class HostTable:
    """The hosts of the fleet, by id, and their agents; the id is the name of the host's actor."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        self._placements: dict[Address, Placement] = {}
        self._agents: dict[str, dict[Address, None]] = {}
        """The agents of each host, in the order of their assignment."""
        self._deaths: dict[Address, str] = {}

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

    def add(self, host: Host) -> None:
        """Add a host that is about to start, or was found running."""
        self._hosts[host.host_id] = host
        self._agents[host.host_id] = {}

    def warm(self, host_id: str, loaded: Loaded) -> None:
        """Set the status of a started host to warm, unless the host was removed meanwhile."""
        host = self._hosts.get(host_id)
        if host is not None:
            isolation = host.isolation or loaded.isolation
            self._hosts[host_id] = replace(host, status=HostStatus.WARM, loaded=loaded, isolation=isolation)

    def ending(self, host_id: str) -> None:
        """Record that a host takes no further agents; no effect on a removed host."""
        if host_id in self._hosts:
            self._hosts[host_id] = replace(self._hosts[host_id], status=HostStatus.ENDING)

    def outdate(self, host_id: str) -> None:
        """Record that a host is to be replaced as one of edited code is; no effect on a removed host."""
        if host_id in self._hosts:
            self._hosts[host_id] = replace(self._hosts[host_id], code_stamp="")

    def restamp(self, code: Code, before: str, now: str) -> None:
        """Replace a code's stamp in all hosts with the old one: the new one covers more files, none of them changed."""
        for host in self:
            if (host.code, host.code_stamp) == (code, before):
                self._hosts[host.host_id] = replace(host, code_stamp=now)

    def remove(self, host_id: str) -> list[Placement] | None:
        """Remove a host with its agents; return these, ``None`` if the host was already removed."""
        if self._hosts.pop(host_id, None) is None:
            return None
        return [self._placements.pop(address) for address in self._agents.pop(host_id)]

    def is_shared(self, host_id: str) -> bool:
        """Whether a host is known, and is for many agents."""
        return host_id in self._hosts and self._hosts[host_id].isolation == "shared"

    # -- agents ---------------------------------------------------------------------------------------------------

    def placements(self) -> Iterator[Placement]:
        """Iterate over a snapshot of the agents on hosts."""
        return iter(list(self._placements.values()))

    def placement(self, address: Address) -> Placement | None:
        """Return the host that is assigned to an agent, and how far its activation is."""
        return self._placements.get(address)

    def agents_of(self, host_id: str) -> Sequence[Placement]:
        """Return the agents of a host; none if it is not known."""
        return [self._placements[address] for address in self._agents.get(host_id, ())]

    def route(self, address: Address) -> Route | None:
        """Return the route to an agent; ``None`` if it sleeps or its activation has not completed."""
        placement = self._placements.get(address)
        if placement is None or placement.epoch is None:
            return None
        host = self._hosts[placement.host_id]
        return Route(host.host_id, placement.epoch, placement.turn, host.loaded, placement.config)

    def place(self, placement: Placement) -> None:
        """Assign a known host to an agent that has none."""
        host = self._hosts[placement.host_id]
        status = HostStatus.WARM if host.isolation == "shared" else HostStatus.ASSIGNED
        activating = host.activating + (placement.epoch is None)
        self._hosts[host.host_id] = replace(host, status=status, agents=host.agents + 1, activating=activating)
        self._placements[placement.address] = placement
        self._agents[host.host_id][placement.address] = None

    def leave(self, host_id: str, address: Address) -> Placement | None:
        """Remove an agent from a host, which stays; return its placement, ``None`` if it was not on that host."""
        placement = self._placements.get(address)
        if placement is None or placement.host_id != host_id:
            return None
        del self._placements[address], self._agents[host_id][address]
        host = self._hosts[host_id]
        activating = host.activating - (placement.epoch is None)
        self._hosts[host_id] = replace(host, agents=host.agents - 1, activating=activating)
        return placement

    def assign(self, host_id: str, address: Address) -> None:
        """Assign a host to an agent, whose activation is to begin."""
        self.place(Placement(host_id, address))

    def activating(self, host_id: str, address: Address, config: str) -> None:
        """Record that a host begins to activate an agent with a configuration, canonical JSON.

        It has no effect on an agent that has left the host.
        """
        placement = self._placements.get(address)
        if placement is not None and placement.host_id == host_id:
            self._placements[address] = replace(placement, config=config)

    def activated(self, host_id: str, address: Address, epoch: int, turn: int) -> None:
        """Record that a host has activated an agent, which creates a route; no effect if the agent has left the host.

        Args:
            epoch: epoch of the agent's lease.
            turn: turns committed at the activation.
        """
        placement = self._placements.get(address)
        if placement is not None and placement.host_id == host_id:
            host = self._hosts[host_id]
            self._hosts[host_id] = replace(host, activating=host.activating - (placement.epoch is None))
            self._placements[address] = replace(placement, epoch=epoch, turn=turn)

    def note_death(self, address: Address, how: str | None) -> None:
        """Record how an agent's last host died; ``None`` if it did not die, or the cause is unknown."""
        self._deaths.pop(address, None)
        if how is not None:
            self._deaths[address] = how
            if len(self._deaths) > _MOST_DEATHS:
                del self._deaths[next(iter(self._deaths))]

    def death_of(self, address: Address) -> str | None:
        """Return the recorded death of an agent's last host, if no later host has activated the agent."""
        return self._deaths.get(address)
