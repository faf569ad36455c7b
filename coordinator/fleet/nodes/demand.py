"""What Ray's autoscaler is told: hosts are bound to nodes by the plan, so that Ray by itself sees no demand. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from coordinator.fleet.host import HostStatus
from coordinator.fleet.model import Assign, StartHost
from coordinator.fleet.nodes.nodes import NO_NEEDS
from coordinator.fleet.plan import left_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.fleet.model import Action
    from coordinator.fleet.nodes.nodes import Needs
    from coordinator.fleet.plan import Observed

__all__ = ["MAX_LACKING", "demand_of"]

MAX_LACKING: Final = 100
"""Hosts for which room is asked at a time: as long as nodes come, more is asked for."""


def demand_of(fleet: Observed, actions: Sequence[Action], most_agents: int) -> tuple[Needs, ...]:
    """Return the needs of the hosts that no node has room for, one entry for each.

    Args:
        actions: the plan for this fleet.
        most_agents: limit of agents on a shared host.
    """
    starts = [action for action in actions if isinstance(action, StartHost)]
    assigned = {action.address for action in actions if isinstance(action, Assign)}
    waiting = Counter(code for address, code in fleet.wanted if address not in assigned)
    coming = Counter(start.code for start in starts)
    coming.update(host.code for host in fleet.hosts if host.status is HostStatus.STARTING and host.code is not None)
    left = [
        left_on(node, fleet.hosts).without(*(start.needs for start in starts if start.node == node.node_id))
        for node in fleet.nodes
        if not node.is_drained
    ]
    lacking: list[tuple[int, Needs]] = []
    for code, agents in waiting.items():
        needs = fleet.needs.get(code, NO_NEEDS)
        if needs.resources and all(node.lacks(needs) != NO_NEEDS for node in left):
            hosts = -(-agents // most_agents) if code in fleet.shared else agents
            lacking += [(number, needs) for number in range(min(hosts - coming[code], MAX_LACKING))]
    # One of each class comes first, so that those of a class that no node can have are not all of them.
    lacking.sort(key=lambda each: each[0])
    return tuple(needs for _, needs in lacking[:MAX_LACKING])
