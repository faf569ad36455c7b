"""The gauges of a fleet: what its metrics say of its hosts. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from coordinator.fleet.host import HostStatus
from coordinator.telemetry.instruments import AGENTS_AWAKE, AGENTS_OF_NODES, HOSTS, HOSTS_OF_NODES, WAKES_WAITING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coordinator.fleet.host_table import HostTable
    from coordinator.fleet.nodes.nodes import NodeId
    from coordinator.telemetry.recorder import Series, Value

__all__ = ["gauges_of"]


def gauges_of(hosts: HostTable, waiting: int, nodes: Iterable[NodeId]) -> dict[Series, Value]:
    """Return the gauges of a fleet.

    Args:
        hosts: its hosts and their agents.
        waiting: agents that are to wake and are not awake yet.
        nodes: those that may have hosts.
    """
    statuses = Counter(host.phase for host in hosts)
    there = list(nodes)
    of_nodes = Counter((host.node, host.phase) for host in hosts)
    agents = Counter(host.node for host in hosts for _ in range(host.agents))
    awake = Counter(
        (placement.address.agent_type, placement.address.tenant)
        for placement in hosts.placements()
        if placement.epoch is not None
    )
    return {
        **{(HOSTS.name, (status.value,)): statuses[status] for status in HostStatus},
        **{(AGENTS_AWAKE.name, of_agent): count for of_agent, count in awake.items()},
        **{(AGENTS_OF_NODES.name, (node,)): agents[node] for node in there},
        **{
            (HOSTS_OF_NODES.name, (node, status.value)): of_nodes[node, status]
            for node in there
            for status in (HostStatus.STARTING, HostStatus.WARM, HostStatus.ASSIGNED)
        },
        (WAKES_WAITING.name, ()): waiting,
    }
