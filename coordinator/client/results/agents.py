"""Agents, what they wait for, and the nodes that they run on."""

from __future__ import annotations

from coordinator.client.results.result import Result

__all__ = [
    "Agent",
    "LastError",
    "Node",
    "Outbox",
    "Why",
]


class Agent(Result):
    """An agent of a home."""

    agent: str
    """Its address."""
    type: str
    key: str
    turn: int
    """Its last committed turn."""
    version: int
    """The number of its events, inherited ones included."""
    status: str
    """``awake`` or ``asleep``."""
    isolation: str | None = None
    """``process`` or ``shared``; ``None`` while it sleeps."""
    memory: int | None = None
    """Memory of its process, bytes, in a shared process its share; ``None`` while it sleeps, or if it is not known."""
    pending: int
    """Messages that wait, the one being handled included."""
    parked: int
    """Messages that failed their last attempt and wait for a retry."""
    created_at: int
    updated_at: int
    """The time of its last event."""


class LastError(Result):
    """The error of an agent's last failed attempt."""

    type: str
    """The name of the error's class in the agent."""
    message: str
    message_id: str | None
    """The message that was attempted; ``None`` for a hook without one."""
    attempt: int
    at: int


class Outbox(Result):
    """Messages of other agents to an agent that are not in its inbox yet."""

    messages: int
    oldest_at: int
    """When the oldest of them was sent."""
    held_by: str | None
    """Why they are held; ``None`` while they are being delivered, or no service runs. For people."""


class Why(Result):
    """What an agent waits for, and what is known of it."""

    agent: str
    status: str
    """``awake`` or ``asleep``."""
    waits_for: str
    """For people; its words may change."""
    service: bool
    """Whether a service runs: without one, all that only it knows is ``None``."""
    turn: int
    """Its last committed turn."""
    pending: int
    """Messages that wait, the one being handled included."""
    parked: int
    outbox: Outbox | None = None
    """Messages to it that are not in its inbox yet. An agent that other agents have sent messages to is told of
    although it does not exist yet, while they are held."""
    message_id: str | None
    """The message whose turn runs."""
    host_id: str | None
    """Its host."""
    pid: int | None = None
    """The id of its host's process, on its node."""
    isolation: str | None
    """How its host is separated from other agents: ``process`` or ``shared``."""
    quarantine: str | None
    """Why it gets a process of its own although its class is shared."""
    epoch: int | None
    """Of its lease."""
    holder: str | None
    """Who has its lease: a host, or a command."""
    lease_expires_at: int | None
    held: bool
    """Whether an operation keeps it asleep, such as a rewind."""
    problem: str | None
    """Why its class cannot be loaded."""
    retry_at: int | None
    """When its wake is tried again, after failures that may pass."""
    failed_wakes: int
    """Failed wakes in a row."""
    wake_error: str | None
    """The error of the last one."""
    last_death: str | None
    """How the process of its last host died, until another host has activated it."""
    last_error: LastError | None


class Node(Result):
    """A node and its hosts."""

    node: str
    problem: str | None
    """Why it is not ready for agents; ``None`` if it is."""
    presentation: str
    """How workspaces are presented there: ``fuse`` or ``dir``."""
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
    agents: int = 0
    """Agents on them; many may share one."""
