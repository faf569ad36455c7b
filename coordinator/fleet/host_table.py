"""The coordinator's table of hosts and of routes: a route is derived from an activated host. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coordinator.fleet.model import Host, HostStatus, Route

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.fleet.model import Code, Loaded
    from podium.address import Address

__all__ = ["HostTable"]

_MOST_DEATHS: Final = 1000
"""The latest deaths of which the cause is kept, for agents that were not activated since."""


class HostTable:
    """The hosts of the fleet, by id; the id is the name of the host's actor."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        self._deaths: dict[Address, str] = {}

    def __iter__(self) -> Iterator[Host]:
        """Iterate over a snapshot of the hosts."""
        return iter(list(self._hosts.values()))

    def __contains__(self, host_id: str) -> bool:
        """Whether a host is known."""
        return host_id in self._hosts

    def __getitem__(self, host_id: str) -> Host:
        """Return a known host."""
        return self._hosts[host_id]

    def of(self, address: Address) -> Host | None:
        """Return the host that is assigned to an agent."""
        return next((host for host in self._hosts.values() if host.address == address), None)

    def route(self, address: Address) -> Route | None:
        """Return the route to an agent; ``None`` if it sleeps or its activation has not completed."""
        host = self.of(address)
        if host is None or host.epoch is None:
            return None
        return Route(host.host_id, host.epoch, host.turn, host.loaded, host.config)

    def add(self, host: Host) -> None:
        """Add a host that is about to start, or was found running."""
        self._hosts[host.host_id] = host

    def warm(self, host_id: str, loaded: Loaded) -> None:
        """Set the status of a started host to warm, unless the host was removed meanwhile."""
        if host_id in self._hosts:
            self._hosts[host_id] = replace(self._hosts[host_id], status=HostStatus.WARM, loaded=loaded)

    def assign(self, host_id: str, address: Address) -> None:
        """Assign a host to an agent."""
        self._hosts[host_id] = replace(self._hosts[host_id], status=HostStatus.ASSIGNED, address=address)

    def activating(self, host_id: str, config: str) -> None:
        """Record that a host begins to activate its agent with a configuration, canonical JSON.

        It has no effect on a removed host.
        """
        if host_id in self._hosts:
            self._hosts[host_id] = replace(self._hosts[host_id], config=config)

    def activated(self, host_id: str, epoch: int, turn: int) -> None:
        """Record that a host has activated its agent, which creates a route; no effect on a removed host.

        Args:
            epoch: epoch of the agent's lease.
            turn: turns committed at the activation.
        """
        if host_id in self._hosts:
            self._hosts[host_id] = replace(self._hosts[host_id], epoch=epoch, turn=turn)

    def restamp(self, code: Code, before: str, now: str) -> None:
        """Replace a code's stamp in all hosts with the old one: the new one covers more files, none of them changed."""
        for host in self:
            if (host.code, host.code_stamp) == (code, before):
                self._hosts[host.host_id] = replace(host, code_stamp=now)

    def remove(self, host_id: str) -> Host | None:
        """Remove a host and its route; return the host, ``None`` if it was already removed."""
        return self._hosts.pop(host_id, None)

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
