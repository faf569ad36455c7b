"""The plan: computes the next actions from the wanted agents and the observed hosts. Pure.

The rules, in order:

1. A warm host whose code has changed on disk is ended, a shared one when it has no agents left: a wake after an edit
   must run the edited code. (An agent that has a host is retired when a message arrives: `CoordinatorActor.prepare`.)
   A host that drains is ended when it has no agents left, too. Hosts of a drained node drain: their agents end after
   their running turns, and wake elsewhere.
2. Each wanted agent is assigned a host of its code, in the order of the requests: a warm host of its own, or a shared
   host that has room; of these one on the node that had the agent last, where its workspace is warm, else one on the
   node with the least load. A ready host on another node comes before a new one: its start takes longer than what
   the wake has to fetch. A shared host activates only so many agents at a time, and the others wait for their turn.
   Agents that are suspected of having ended a shared host get hosts of their group, or processes of their own
   (`coordinator.fleet.deaths.suspects`); such a host ends when it has no agents.
3. For each code the target number of starting hosts is the number of agents still without one, plus the warm reserve,
   which each node has. For a shared code it is the number of hosts for these agents; the reserve is one host with
   room. Starts for agents come first, in the order of the requests. Of a code that was never loaded one host is
   started, which tells whether it is shared.
4. A host starts on a node that has the labels of its class, and its resources left: of these where the agent's
   workspace is warm, else on the one with the least load. If other hosts have what an agent's host needs, warm hosts
   without agents make room for it; if no node would have it even without them, the code is refused. A node that lacks
   what the code's bundle requires gets none; one of which that is not known yet is waited for. What a class needs
   is known once a host has loaded it: the host of an edited or unknown class starts anywhere, and is ended if the
   class needs something. Concurrent starts on a node are limited: a start occupies a core for a second, so with many
   at once none would be ready for a long time. Where a node has as many, agents start on others.
5. Warm hosts in excess of the reserve are ended. The reserve of all codes together is limited on each node, too:
   those that were used last have it, and agents of the others wait for the start of a host. Each host takes memory and
   a share of the node's CPUs, so many registered classes would leave nothing for agents. A class that declares needs
   has no reserve.

The load of a node is the number of its agents, those included that wait for a host that starts on it, and of its hosts
without any, by its CPUs.

The reserve is filled in the background: neither by a plan that assigns a host, nor while agents wake, when there is no
target for it (`requests.QuietPeriod`). A start would take the core that a wake needs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from coordinator.fleet.host import HostStatus
from coordinator.fleet.model import Assign, EndHost, Refuse, StartHost, Vacate
from coordinator.fleet.nodes.nodes import LOCAL_NODE, NO_NEEDS, Needs, Node, unmet

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coordinator.fleet.host import Host
    from coordinator.fleet.model import Action, Code
    from coordinator.fleet.nodes.nodes import NodeId
    from podium.address import Address
    from podium.agent.base import Isolation

    _Kind: TypeAlias = "tuple[Code, Isolation, int | None]"
    """Purpose of a host; the last one is the group of suspects."""

__all__ = ["MAX_ACTIVATING", "Observed", "left_on", "plan"]

MAX_ACTIVATING: Final = 64
"""Limit of concurrent activations on a shared host: more would not be faster, and would delay its running turns."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot of the wanted agents and the hosts."""

    hosts: tuple[Host, ...] = ()
    nodes: tuple[Node, ...] = field(default=(Node(LOCAL_NODE),), kw_only=True)
    """Those with a node manager."""
    wanted: tuple[tuple[Address, Code], ...] = ()
    """Agents to wake that have no host, in the order of the requests."""
    code_stamps: dict[Code, str] = field(default_factory=dict)
    """The current stamp of each code in use."""
    shared: frozenset[Code] = frozenset()
    """The codes whose classes are known to declare shared isolation."""
    unknown: frozenset[Code] = frozenset()
    """The codes that no host has loaded: whether they are shared, and what they need, is not known."""
    needs: Mapping[Code, Needs] = field(default_factory=dict)
    """What hosts of each code need of their node."""
    unfit: Mapping[Code, Mapping[NodeId, str | None]] = field(default_factory=dict)
    """The nodes that lack what the bundle of a code requires, and what that is; ``None`` while it is not known."""
    scarce: frozenset[Code] = frozenset()
    """The codes that declare needs of their own, which no host is to hold in reserve."""
    latest: tuple[Code, ...] = ()
    """The codes in the order of their use, the latest first; then those that were not used, in the order of their
    registration."""
    alone: frozenset[Address] = frozenset()
    """Of the wanted agents, those that get a process of their own although their class is shared."""
    groups: Mapping[Address, int] = field(default_factory=dict)
    """Of the wanted agents, those that get a shared host of their group; see `coordinator.fleet.deaths.suspects`."""
    last_nodes: Mapping[Address, NodeId] = field(default_factory=dict)
    """Of the wanted agents, those that are known to have been awake, and the node on which they were last."""


@dataclass(slots=True)
class _Ready:
    """A warm host, while agents are assigned to it."""

    host: Host
    agents: int
    room: int
    """Agents that may be assigned to it now."""
    is_full: bool


def plan(
    fleet: Observed,
    warm_reserve: int | None,
    most_starting: int | None,
    most_agents: int = 1,
    most_warm: int | None = None,
) -> list[Action]:
    """Return the actions that bring a fleet closer to its target; none if it has converged or has to wait.

    Args:
        fleet: the current observation.
        warm_reserve: target number of unassigned warm hosts for each code in use, on each node; ``None`` to leave the
            warm hosts as they are.
        most_starting: limit of hosts that start concurrently on a node; ``None`` for its cores, at least two.
        most_agents: limit of agents on a shared host.
        most_warm: limit of the reserve of all codes together, on each node; ``None`` for no limit.
    """
    actions: list[Action] = []
    ready: dict[_Kind, list[_Ready]] = {}
    nodes = tuple(node for node in fleet.nodes if not node.is_drained)
    open_nodes = {node.node_id for node in nodes}
    drained = {node.node_id: node.end_timeout_s for node in fleet.nodes if node.is_drained}
    loads = _Loads(fleet)
    starts = _Starts(fleet, nodes, loads, most_starting)
    for host in fleet.hosts:
        if host.node in drained and (moved := _to_move(host, drained[host.node])):
            actions.append(Vacate(host.host_id, moved, drained[host.node]))
        if host.code is None:
            continue
        kind = host.code, host.isolation or _declared(fleet, host.code), host.group
        is_current = host.code_stamp == fleet.code_stamps.get(host.code) and host.needs == _needs(fleet, host.code)
        is_current = is_current and host.node in open_nodes
        if host.status is HostStatus.STARTING:
            starts.count(host, kind if is_current else None)
        elif host.status is HostStatus.WARM and is_current:
            ready.setdefault(kind, []).append(_ready(host, kind[1], most_agents))
        elif host.status in {HostStatus.WARM, HostStatus.DRAINING} and not host.agents:
            actions.append(EndHost(host.host_id))

    lacking: list[tuple[_Kind, list[Address]]] = []
    latest: dict[_Kind, list[Address]] = {}
    for address, code in fleet.wanted:
        kind = code, "process" if address in fleet.alone else _declared(fleet, code), fleet.groups.get(address)
        candidates = ready.get(kind, [])
        with_room = [each for each in candidates if each.room]
        if with_room:
            chosen = min(with_room, key=lambda each: _preference(fleet, loads, address, each.host.node))
            _assign(actions, chosen, address, most_agents if kind[1] == "shared" else 1)
            if chosen.agents > 1:  # a host without any was counted for one
                loads.add(chosen.host.node)
        elif code in fleet.code_stamps and all(each.is_full for each in candidates):
            of_one_host = latest.get(kind)
            if of_one_host is None or len(of_one_host) == (most_agents if kind[1] == "shared" else 1):
                of_one_host = latest[kind] = []
                lacking.append((kind, of_one_host))
            of_one_host.append(address)
    assigns = any(isinstance(action, Assign) for action in actions)
    for code in dict.fromkeys(kind[0] for kind, _ in lacking):
        problem = unmet(fleet.nodes, _needs(fleet, code), fleet.unfit.get(code))
        if problem is not None:
            actions.append(Refuse(code, problem))
    for kind, addresses in lacking:
        starts.start_for(kind, addresses)
    spare = {kind: [each for each in hosts if not each.agents] for kind, hosts in ready.items()}
    if starts.without_room:
        in_the_way = (each for kind, hosts in spare.items() if kind not in latest for each in hosts)
        actions.extend(EndHost(each.host.host_id) for each in in_the_way)
        return [*actions, *starts.actions]

    reserved: list[tuple[_Kind, Node]] = []
    for node in nodes if warm_reserve is not None and not assigns else ():
        left = most_warm
        for code in _latest_first(fleet):
            kind = _usual(fleet, code)
            there = [each for each in ready.get(kind, ()) if each.host.node == node.node_id]
            reserve = warm_reserve if warm_reserve is not None and code not in fleet.scarce else 0
            if kind[1] == "shared":
                has_room = kind in latest or any(each.agents and not each.is_full for each in there)
                reserve = 0 if has_room else min(reserve, 1)
            if left is not None:
                reserve = min(reserve, left)
                left -= reserve
            unused = [each for each in there if not each.agents]
            reserved.extend([(kind, node)] * (reserve - len(unused)))
            actions.extend(EndHost(each.host.host_id) for each in unused[: max(0, len(unused) - reserve)])

    for kind, unused in spare.items():
        if kind != _usual(fleet, kind[0]):
            actions.extend(EndHost(each.host.host_id) for each in unused)
    for kind, node in reserved:
        starts.start_on(kind, node)
    return [*actions, *starts.actions]


def left_on(node: Node, hosts: Iterable[Host]) -> Node:
    """Return a node with what its hosts leave of it."""
    return node.without(*(host.needs for host in hosts if host.node == node.node_id))


class _Loads:
    """The loads of the nodes, while agents are assigned and hosts started."""

    def __init__(self, fleet: Observed) -> None:
        self._weights = {node.node_id: node.weight for node in fleet.nodes}
        self._counts: Counter[NodeId] = Counter()
        for host in fleet.hosts:
            self._counts[host.node] += max(1, host.agents)

    def add(self, node: NodeId, count: int = 1) -> None:
        """Count further agents, or another host without any."""
        self._counts[node] += count

    def of(self, node: NodeId) -> float:
        """Return the load of a node."""
        return self._counts[node] / self._weights[node]


class _Starts:
    """The hosts to start, within what is left on the nodes."""

    def __init__(self, fleet: Observed, nodes: Iterable[Node], loads: _Loads, most: int | None) -> None:
        self._fleet = fleet
        self._loads = loads
        self._on_their_way: Counter[tuple[_Kind, NodeId]] = Counter()
        self._by_node: Counter[NodeId] = Counter()
        self._started: set[Code] = set()
        self._left = {node.node_id: left_on(node, fleet.hosts) for node in nodes}
        self._limits = {node.node_id: most if most is not None else max(2, node.cores) for node in nodes}
        self.actions: list[StartHost] = []
        self.without_room = False
        """Whether a host could not start because other hosts have what it needs."""

    def count(self, host: Host, kind: _Kind | None) -> None:
        """Count a host that is starting.

        Args:
            kind: the purpose that it will be ready for; ``None`` if it is outdated, or its node is drained.
        """
        self._by_node[host.node] += 1
        if kind is not None:
            self._started.add(kind[0])
            self._on_their_way[kind, host.node] += 1

    def start_for(self, kind: _Kind, addresses: Sequence[Address]) -> None:
        """Start a host for agents unless one is on its way, or too many are, or there is no room for it.

        Args:
            addresses: those that it will have when it is ready; they are a load of its node from now on.
        """

        def preference(node: NodeId) -> tuple[bool, float]:
            return _preference(self._fleet, self._loads, addresses[0], node)

        coming = [node for node in self._left if self._on_their_way[kind, node]]
        if coming:
            chosen = min(coming, key=preference)
            self._on_their_way[kind, chosen] -= 1
            self._loads.add(chosen, len(addresses) - 1)  # it was counted for one
            return
        needs = _needs(self._fleet, kind[0])
        unfit = self._fleet.unfit.get(kind[0], {})
        fit = [node for node, left in self._left.items() if left.lacks(needs) == NO_NEEDS and node not in unfit]
        if not fit:
            asked = any(problem is None for problem in unfit.values())  # a node may have room
            self.without_room |= not asked and unmet(self._fleet.nodes, needs, unfit) is None
            return
        free = [node for node in fit if self._by_node[node] < self._limits[node]]
        if free:
            self._start(kind, min(free, key=preference), needs, len(addresses))

    def start_on(self, kind: _Kind, node: Node) -> None:
        """Start a host for the reserve of a node, under the same conditions."""
        place, needs = node.node_id, _needs(self._fleet, kind[0])
        if self._on_their_way[kind, place]:
            self._on_their_way[kind, place] -= 1
        elif (
            self._left[place].lacks(needs) == NO_NEEDS
            and self._by_node[place] < self._limits[place]
            and place not in self._fleet.unfit.get(kind[0], {})
        ):
            self._start(kind, place, needs)

    def _start(self, kind: _Kind, node: NodeId, needs: Needs, agents: int = 1) -> None:
        code, isolation, group = kind
        if code in self._fleet.unknown and code in self._started:
            return
        alone = isolation if isolation != _declared(self._fleet, code) else None
        self.actions.append(StartHost(code, self._fleet.code_stamps[code], alone, group, node, needs))
        self._started.add(code)
        self._by_node[node] += 1
        self._loads.add(node, agents)
        self._left[node] = self._left[node].without(needs)


def _preference(fleet: Observed, loads: _Loads, address: Address, node: NodeId) -> tuple[bool, float]:
    """Return the rank of a node for an agent, the best one the least."""
    return fleet.last_nodes.get(address) != node, loads.of(node)


def _to_move(host: Host, timeout_s: float | None) -> tuple[Address, ...]:
    """Return the agents of a host that have to leave it in a time, and were not told so; those that are activated."""
    if host.status in {HostStatus.LOST, HostStatus.ENDING}:
        return ()
    return tuple(
        address
        for address, each in host.placements.items()
        if each.epoch is not None and not (each.is_moving and each.end_timeout_s == timeout_s)
    )


def _latest_first(fleet: Observed) -> list[Code]:
    """Return the codes in use, those that were used last first."""
    return list(dict.fromkeys([*(code for code in fleet.latest if code in fleet.code_stamps), *fleet.code_stamps]))


def _needs(fleet: Observed, code: Code) -> Needs:
    return fleet.needs.get(code, NO_NEEDS)


def _usual(fleet: Observed, code: Code) -> _Kind:
    return code, _declared(fleet, code), None


def _declared(fleet: Observed, code: Code) -> Isolation:
    return "shared" if code in fleet.shared else "process"


def _ready(host: Host, isolation: Isolation, most_agents: int) -> _Ready:
    if isolation == "process":
        return _Ready(host, 0, 1, is_full=False)
    room = min(most_agents - host.agents, MAX_ACTIVATING - host.activating)
    return _Ready(host, host.agents, max(0, room), host.agents >= most_agents)


def _assign(actions: list[Action], chosen: _Ready, address: Address, most_agents: int) -> None:
    actions.append(Assign(chosen.host.host_id, address))
    chosen.agents += 1
    chosen.room -= 1
    chosen.is_full = chosen.agents >= most_agents
