"""Agents, what they wait for, and the nodes that they run on."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.operations.objects.result import Result, one_of

__all__ = [
    "Agent",
    "LastError",
    "Node",
    "NodeList",
    "Outbox",
    "Passivated",
    "Why",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent(Result):
    """An agent."""

    agent: str
    """Its address, type/key."""
    type: str
    key: str
    turn: int
    """Its last committed turn."""
    version: int
    """The number of its events, inherited ones included."""
    status: str = field(metadata=one_of("awake", "asleep"))
    isolation: str | None = field(default=None, metadata=one_of("process", "shared", null=True))
    """Whether it has a process of its own; null while it sleeps."""
    sandbox: str | None = field(default=None, metadata=one_of("none", "landlock", "bubblewrap", null=True))
    """The weakest sandbox that its commands run in, as its class declares; null while it sleeps."""
    memory: int | None = None
    """Memory of its process, bytes, in a shared process its share; null while it sleeps, or if that is not known."""
    pending: int
    """Messages that wait, the one being handled included."""
    parked: int
    """Messages that failed their last attempt and wait for a retry."""
    created_at: int
    updated_at: int
    """The time of its last event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passivated(Result):
    """An agent that sleeps."""

    agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LastError(Result):
    """The error of an agent's last failed attempt."""

    type: str
    """The name of the error's class in the agent."""
    message: str
    message_id: str | None
    """The message that was attempted; null for a hook without one."""
    attempt: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox(Result):
    """Messages of other agents to an agent that are not in its inbox yet."""

    messages: int
    oldest_at: int
    """When the oldest of them was sent."""
    held_by: str | None
    """Why they are held; null while they are being delivered, or no service runs. For people; its words may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why(Result):
    """The condition that an agent waits for, and the known facts about it."""

    agent: str
    status: str = field(metadata=one_of("awake", "asleep"))
    waits_for: str
    """For people; its words may change."""
    service: bool
    """Whether a service runs: without one, all that only it knows is null."""
    turn: int = 0
    """Its last committed turn."""
    pending: int = 0
    """Messages that wait, the one being handled included."""
    parked: int = 0
    outbox: Outbox | None = None
    """Messages to it that are not in its inbox yet; null without any. An agent that other agents have sent messages to
    is told of although it does not exist yet, while they are held."""
    message_id: str | None = None
    """The message whose turn runs; null if none runs."""
    host_id: str | None = None
    """Its host; null if it has none."""
    node: str | None = None
    """The node of its host."""
    pid: int | None = None
    """The id of the host's process, on its node; null if it has none, or it is not known."""
    isolation: str | None = None
    """How its host is separated from other agents: `process` or `shared`; null if it has none."""
    sandbox: str | None = None
    """The weakest sandbox that its commands run in, as its class declares; null if it has no host."""
    sandbox_works: str | None = None
    """The strongest that works in its host; null if that has run no command."""
    quarantine: str | None = None
    """Why it gets a process of its own although its class is shared; null if it does not."""
    epoch: int | None = None
    """Of its lease; null while none is recorded."""
    holder: str | None = None
    """Holder of its lease: a host, or a command; null if it is free."""
    lease_expires_at: int | None = None
    held: bool = False
    """Whether an operation keeps it asleep, such as a rewind."""
    problem: str | None = None
    """Why its class cannot be loaded."""
    retry_at: int | None = None
    """When its wake is tried again, after failures that may pass."""
    failed_wakes: int = 0
    """Failed wakes in a row."""
    wake_error: str | None = None
    """The error of the last one."""
    last_death: str | None = None
    """How the process of its last host died, until another host has activated it."""
    last_error: LastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(Result):
    """A node and its hosts."""

    node: str
    problem: str | None
    """Why it is not ready for agents; null if it is."""
    presentation: str
    """How workspaces are presented there: `fuse` or `dir`."""
    cpus: int
    memory: int
    """Of the machine, bytes."""
    memory_available: int
    mounts: int
    """Mounted workspaces."""
    starting: int
    """Hosts whose processes start."""
    warm: int
    """Hosts that are ready for an agent."""
    assigned: int
    """Hosts that have an agent."""
    agents: int
    """Agents on them; many may share one."""
    drained: bool
    """Whether its agents are moved to other nodes, after their running turns, and none come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeList(Result):
    """The nodes of a home's service."""

    items: tuple[Node, ...]
