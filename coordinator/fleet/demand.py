"""What Ray's autoscaler is told: hosts are bound to nodes by the plan, so that Ray by itself sees no demand. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from coordinator.fleet.host import HostStatus
from coordinator.fleet.model import Assign, StartHost
from coordinator.fleet.nodes import NO_NEEDS, Needs
from coordinator.fleet.plan import left_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coordinator.fleet.model import Action
    from coordinator.fleet.nodes import NodeId
    from coordinator.fleet.plan import Observed

__all__ = ["MAX_LACKING", "demand_of"]

MAX_LACKING: Final = 100
"""Hosts for which room is asked at a time: as long as nodes come, more is asked for."""


def demand_of(fleet: Observed, actions: Sequence[Action], most_agents: int) -> tuple[Needs, ...]:
    """Return what the nodes of the cluster have to have room for; nothing if no host lacks room.

    Ray's autoscaler compares it with all that its nodes have. So it has the sum of what the hosts of each node have
    taken, and one entry for each host that no node has room for.

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
    lacking: list[Needs] = []
    for code, agents in waiting.items():
        needs = fleet.needs.get(code, NO_NEEDS)
        if needs.resources and all(node.lacks(needs) != NO_NEEDS for node in left):
            hosts = -(-agents // most_agents) if code in fleet.shared else agents
            lacking += [needs] * max(0, min(hosts - coming[code], MAX_LACKING - len(lacking)))
    if not lacking:
        return ()
    taken: dict[NodeId, list[Needs]] = {}
    for node_id, needs in [(host.node, host.needs) for host in fleet.hosts] + [
        (each.node, each.needs) for each in starts
    ]:
        taken.setdefault(node_id, []).append(needs)
    sums = (_sum(each) for _, each in sorted(taken.items()))
    return (*(each for each in sums if each.resources), *lacking)


def _sum(needs: Iterable[Needs]) -> Needs:
    amounts: dict[str, float] = {}
    for each in needs:
        for name, amount in each.resources:
            amounts[name] = amounts.get(name, 0.0) + amount
    return Needs(tuple(sorted((name, round(amount, 4)) for name, amount in amounts.items() if amount)))
