"""Facts that the coordinator knows of agents and nodes beside the journal, as plain values. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypedDict

from coordinator.fleet.host import HostStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from coordinator.fleet.host import Host
    from coordinator.fleet.host_table import HostTable
    from coordinator.fleet.state import FleetState
    from coordinator.fleet.wakes.retries import RetryFacts
    from podium.address import Address
    from podium.agent.base import Isolation
    from podium.sandbox.policy import Rung

__all__ = [
    "AgentFacts",
    "AwakeFacts",
    "HostFacts",
    "NodeFacts",
    "NodeState",
    "QueueFacts",
    "agent_facts",
    "awake_facts",
    "node_facts",
    "unreachable_node",
]


class HostFacts(TypedDict):
    """The host of an agent."""

    host_id: str
    node: str
    isolation: str
    """``process`` or ``shared``."""
    sandbox: Rung | None
    """The weakest that its class's commands run in; ``None`` while the class is not loaded."""
    sandbox_works: Rung | None
    """The strongest that works there, if it was asked and has looked."""
    pid: int | None
    """Its process, on its node; ``None`` while it is not known."""
    activated: bool
    """Whether the agent's activation has completed."""
    message_id: str | None
    """The message whose turn runs there, if it was asked and answered."""
    left_s: float | None
    """Time until the deadline of the running hook; negative once it has passed."""
    silence: str | None
    """Its fate, if it was asked and did not answer."""


class QueueFacts(TypedDict):
    """An open request to wake an agent that has no host."""

    before: int
    """Older requests for agents of the same class."""
    starting: int
    """Hosts of the class that are starting."""
    losses: int
    """Hosts that died under the request."""
    lacking: str | None
    """What other hosts have that its host needs, if none can start for that."""
    asked: bool
    """Whether Ray's autoscaler is asked for a node then."""


class AgentFacts(TypedDict):
    """Facts of an agent."""

    known: bool
    """Whether the class of its type is known, and loads."""
    problem: str | None
    """Why its class cannot be loaded."""
    held: bool
    """Whether an operation keeps it asleep."""
    host: HostFacts | None
    queue: QueueFacts | None
    retry: RetryFacts | None
    quarantine: str | None
    """Why it gets a process of its own, although its class is shared."""
    death: str | None
    """How its last host died, until another one has activated it."""
    over_quota: str | None
    """Which quota keeps it from being woken."""
    outbox_held: str | None
    """Why messages to it are held in the outbox."""


class AwakeFacts(TypedDict):
    """An agent that is awake, as lists show it."""

    isolation: Isolation
    sandbox: Rung | None
    """As of `HostFacts`."""
    memory: int | None
    """Memory of its process that no other process shares, bytes; in a shared process, divided by its agents."""


class NodeState(TypedDict):
    """A node, as its manager sees it."""

    node: str
    problem: str | None
    """Why it is not ready for agents; ``None`` if it is."""
    presentation: str
    """How workspaces are presented there: ``fuse`` or ``dir``."""
    cpus: int
    memory: int
    """Memory of the machine, bytes."""
    memory_available: int
    mounts: int


class NodeFacts(NodeState):
    """A node and its hosts, by the phases of their lives."""

    starting: int
    warm: int
    """Hosts without an agent."""
    assigned: int
    """Hosts with an agent, or with many."""
    agents: int
    """The agents on them."""
    drained: bool
    """Whether they are being moved to other nodes, and none come."""


def agent_facts(state: FleetState, address: Address, outbox_held: str | None = None) -> AgentFacts:
    """Return what is known of an agent; what its host has to tell is left out.

    Args:
        outbox_held: as of `AgentFacts`.
    """
    agent_type = address.agent_type
    host = state.hosts.host_of(address)
    return {
        "known": state.codes.get(agent_type) is not None,
        "problem": state.codes.problems.get(agent_type),
        "held": address in state.holds,
        "host": None
        if host is None
        else {
            "host_id": host.host_id,
            "node": host.node,
            "isolation": host.isolation or "process",
            "sandbox": host.loaded.sandbox if host.loaded is not None else None,
            "sandbox_works": None,
            "pid": None,
            "activated": host.placements[address].epoch is not None,
            "message_id": None,
            "left_s": None,
            "silence": None,
        },
        "queue": _queue(state, address) if host is None else None,
        "retry": state.retries.of(address),
        "quarantine": _quarantine(state, address),
        "death": state.hosts.death_of(address),
        "over_quota": state.over_quota.get(address) if host is None else None,
        "outbox_held": outbox_held,
    }


def awake_facts(hosts: HostTable, memory: Mapping[str, int], agents: Iterable[Address]) -> dict[str, AwakeFacts]:
    """Return those of agents that have a host, by address.

    Args:
        memory: of hosts' processes, bytes, as far as it is known.
    """
    found: dict[str, AwakeFacts] = {}
    for address in agents:
        host = hosts.host_of(address)
        if host is not None:
            bytes_used = memory.get(host.host_id)
            found[str(address)] = {
                "isolation": host.isolation or "process",
                "sandbox": host.loaded.sandbox if host.loaded is not None else None,
                "memory": bytes_used // max(host.agents, 1) if bytes_used is not None else None,
            }
    return found


def node_facts(node: NodeState, hosts: Collection[Host], *, drained: bool) -> NodeFacts:
    """Return a node with its hosts."""
    counts = Counter(host.phase for host in hosts)
    return {
        **node,
        "starting": counts[HostStatus.STARTING],
        "warm": counts[HostStatus.WARM],
        "assigned": counts[HostStatus.ASSIGNED],
        "agents": sum(host.agents for host in hosts),
        "drained": drained,
    }


def unreachable_node(node: str, problem: str) -> NodeState:
    """Return a node whose manager does not answer."""
    return {
        "node": node,
        "problem": problem,
        "presentation": "",
        "cpus": 0,
        "memory": 0,
        "memory_available": 0,
        "mounts": 0,
    }


def _quarantine(state: FleetState, address: Address) -> str | None:
    code = state.codes.get(address.agent_type)
    return state.why_alone(address, code) if code is not None else None


def _queue(state: FleetState, address: Address) -> QueueFacts | None:
    request = state.requests.get(address)
    if request is None:
        return None
    before = 0
    for other, code in state.requests:
        if other == address:
            break
        before += code == request.code and state.hosts.host_of(other) is None
    starting = sum(host.status is HostStatus.STARTING and host.code == request.code for host in state.hosts)
    lacking = state.lacking(request.code) if not starting else None
    return {
        "before": before,
        "starting": starting,
        "losses": request.losses,
        "lacking": lacking,
        "asked": state.autoscaler,
    }
