"""The coordinator's table of hosts, which is also its only table of routes: a route is an activated host. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.fleet.model import Host, HostStatus, Route

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.fleet.model import Code, Loaded
    from podium.address import Address

__all__ = ["HostTable"]


class HostTable:
    """The hosts of the fleet by their ids, which are their actors' names."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}
        self._deaths: dict[Address, str] = {}

    def __iter__(self) -> Iterator[Host]:
        """Yield the hosts as they are now."""
        return iter(list(self._hosts.values()))

    def __contains__(self, host_id: str) -> bool:
        """Whether a host is known."""
        return host_id in self._hosts

    def __getitem__(self, host_id: str) -> Host:
        """Return a known host."""
        return self._hosts[host_id]

    def of(self, address: Address) -> Host | None:
        """Return the host that was given to an agent."""
        return next((host for host in self._hosts.values() if host.address == address), None)

    def route(self, address: Address) -> Route | None:
        """Return the route to an agent; ``None`` if it sleeps or is still being activated."""
        host = self.of(address)
        if host is None or host.epoch is None:
            return None
        return Route(host.host_id, host.epoch, host.turn, host.loaded)

    def add(self, host: Host) -> None:
        """Add a host that is about to be started, or was found running."""
        self._hosts[host.host_id] = host

    def warm(self, host_id: str, loaded: Loaded) -> None:
        """Mark a started host as ready for an agent, unless it was removed meanwhile."""
        if host_id in self._hosts:
            self._hosts[host_id] = replace(self._hosts[host_id], status=HostStatus.WARM, loaded=loaded)

    def assign(self, host_id: str, address: Address) -> None:
        """Give a host to an agent."""
        self._hosts[host_id] = replace(self._hosts[host_id], status=HostStatus.ASSIGNED, address=address)

    def activated(self, host_id: str, epoch: int, turn: int) -> None:
        """Record that a host has activated its agent, unless the host was removed meanwhile: there is a route to it.

        Args:
            epoch: of the agent's lease.
            turn: turns committed by then.
        """
        if host_id in self._hosts:
            self._hosts[host_id] = replace(self._hosts[host_id], epoch=epoch, turn=turn)

    def restamp(self, code: Code, before: str, now: str) -> None:
        """Replace a code's stamp in all hosts that have the old one: it covers more files, none of which changed."""
        for host in self:
            if (host.code, host.code_stamp) == (code, before):
                self._hosts[host.host_id] = replace(host, code_stamp=now)

    def remove(self, host_id: str) -> Host | None:
        """Remove a host, and the route to it; return it, ``None`` the second time."""
        return self._hosts.pop(host_id, None)

    def note_death(self, address: Address, how: str | None) -> None:
        """Record how the last host of an agent died, in a few words; ``None`` if it did not, or that is not known."""
        self._deaths.pop(address, None)
        if how is not None:
            self._deaths[address] = how

    def death_of(self, address: Address) -> str | None:
        """Return how the last host of an agent died, if no later one has activated it."""
        return self._deaths.get(address)
