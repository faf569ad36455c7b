"""The gauges of a fleet: what its metrics say of its hosts. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from coordinator.fleet.host import HostStatus
from coordinator.telemetry.instruments import AGENTS_AWAKE, HOSTS, WAKES_WAITING

if TYPE_CHECKING:
    from coordinator.fleet.host_table import HostTable
    from coordinator.telemetry.recorder import Series, Value

__all__ = ["gauges_of"]


def gauges_of(hosts: HostTable, waiting: int) -> dict[Series, Value]:
    """Return the gauges of a fleet.

    Args:
        hosts: its hosts and their agents.
        waiting: agents that are to wake and are not awake yet.
    """
    statuses = Counter(host.phase for host in hosts)
    awake = Counter(
        (placement.address.agent_type, placement.address.tenant)
        for placement in hosts.placements()
        if placement.epoch is not None
    )
    return {
        **{(HOSTS.name, (status.value,)): statuses[status] for status in HostStatus},
        **{(AGENTS_AWAKE.name, of_agent): count for of_agent, count in awake.items()},
        (WAKES_WAITING.name, ()): waiting,
    }
