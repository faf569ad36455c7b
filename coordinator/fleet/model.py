"""Value types of the fleet; the actions are the output of `coordinator.fleet.plan`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from coordinator.fleet.nodes.nodes import LOCAL_NODE, NO_NEEDS, Needs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.fleet.code.code_stamp import CodeStamps
    from coordinator.fleet.nodes.nodes import NodeId
    from coordinator.registry.registry import RegisteredAgent
    from podium.address import Address
    from podium.agent.base import Isolation
    from podium.sandbox.policy import Rung

__all__ = [
    "Action",
    "AgentsLost",
    "Assign",
    "Code",
    "EndHost",
    "Ended",
    "Loaded",
    "Placement",
    "ProjectView",
    "Refuse",
    "Route",
    "StartHost",
    "Vacate",
]


@dataclass(frozen=True, slots=True, order=True)
class Code:
    """An agent class, by file and name, that a host imports."""

    file: str
    """Absolute path; with a bundle, the path in it."""
    class_name: str
    agent_type: str
    bundle: str = ""
    """The id of the bundle that has the file; empty if it is on the nodes."""

    @classmethod
    def of(cls, agent: RegisteredAgent) -> Code:
        """Return the code of a class of a registry."""
        return cls(agent.file, agent.class_name, agent.agent_type, agent.bundle)

    @property
    def files(self) -> frozenset[str]:
        """The files that are known before a host has imported it; none of a bundle, whose content never changes."""
        return frozenset() if self.bundle else frozenset({self.file})


@dataclass(frozen=True, slots=True)
class Loaded:
    """The code that a host imported."""

    code: Code
    sources: tuple[str, ...]
    """Absolute paths of the agent's file and of the modules of its directory that it imported; none of a bundle."""
    stamp: str
    """Stamp of the content of the sources; see `coordinator.fleet.code.code_stamp`."""
    isolation: Isolation = "process"
    """Declarations of the class."""
    is_alone: bool = False
    """Whether the host that imported it is for one agent."""
    max_attempts: int = 3
    """Of a message, as the class declares."""
    needs: Needs = NO_NEEDS
    """As the class declares."""
    has_on_failed: bool = False
    """Whether the class is told of a message that is parked."""
    sandbox: Rung = "landlock"
    """The weakest that its commands run in, as the class declares."""

    def is_of(self, code: Code, stamps: CodeStamps) -> bool:
        """Whether this is ``code``, with the current content of its files."""
        return self.code == code and stamps.of(self.sources) == self.stamp


@dataclass(frozen=True, slots=True)
class Placement:
    """An agent on a host: from its assignment until it has left the host, or the host has ended."""

    host_id: str
    address: Address
    config: str | None = None
    """The agent's configuration, canonical JSON; ``None`` before its activation begins, or if not known."""
    epoch: int | None = None
    """Epoch of the lease under which the host runs the agent; ``None`` before the activation has completed."""
    turn: int = 0
    """Turns committed at the activation."""
    is_moving: bool = False
    """Whether the host was told to end it after its running turn, because its node is drained."""
    end_timeout_s: float | None = None
    """With which timeout it was told so; ``None`` without one."""
    left: asyncio.Event = field(default_factory=asyncio.Event, compare=False, repr=False)
    """Set when the agent has left the host."""


@dataclass(frozen=True, slots=True)
class AgentsLost:
    """Agents whose host has ended, or which have left their shared host."""

    agents: Sequence[Placement]
    how: str | None
    """How the host ended by itself, or why the activation failed; ``None`` if neither, or if it is not known."""
    shared: Loaded | None = None
    """The code of a shared host that has ended; `HostPool` has had what is known of it settled."""
    culprit: Address | None = None
    """The agent whose code made the host end itself, if that is known."""
    died: bool = False
    """Whether the host died, or did not answer, and so left what it was about to do."""
    alone: Loaded | None = None
    """The code of a host of one agent that has ended by itself, if it is known."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of an activation, as its host reports it."""

    number: int
    """From 1, in the order of the ends on this host."""
    address: Address
    ending: str
    """As of `podium.turn.message_loop.Ending`; ``failed`` if the activation could not go on."""
    problem: str | None = None
    """The type and text of the error of an activation that failed; the agent is safe in the journal."""


@dataclass(frozen=True, slots=True)
class Route:
    """The location of an awake agent: its node, the name of its host's actor, and the epoch of its lease."""

    host_id: str
    epoch: int
    turn: int
    """Turns committed when it was woken."""
    loaded: Loaded | None = None
    """The code that its host runs, if known."""
    config: str | None = None
    """The configuration that the agent has, if known, as canonical JSON."""
    node: NodeId = LOCAL_NODE
    machine: str = ""
    """As of `coordinator.fleet.nodes.nodes.Node`."""

    def runs(self, code: Code, config: str, stamps: CodeStamps) -> bool:
        """Whether the host runs the current content of a code with a configuration; what is unknown counts as equal."""
        return self.config in (None, config) and (self.loaded is None or self.loaded.is_of(code, stamps))


@dataclass(frozen=True, slots=True)
class ProjectView:
    """Project, as an activation knows it."""

    config: str = "{}"
    """The agent's configuration, canonical JSON."""
    types_to_tell: tuple[str, ...] | None = None
    """The agent types that it may send messages to; ``None`` for any."""


@dataclass(frozen=True, slots=True)
class StartHost:
    """Start a host that imports a code."""

    code: Code
    code_stamp: str
    isolation: Isolation | None = None
    """``process`` for an agent of a shared class that is to be alone; ``None`` for what the class declares."""
    group: int | None = None
    """As of `coordinator.fleet.host.Host`."""
    node: NodeId = LOCAL_NODE
    needs: Needs = NO_NEEDS
    """For Ray to reserve there."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Assign a warm host to an agent."""

    host_id: str
    address: Address


@dataclass(frozen=True, slots=True)
class EndHost:
    """End a host without agents that is outdated, in excess of the reserve, or on a drained node."""

    host_id: str


@dataclass(frozen=True, slots=True)
class Vacate:
    """End agents on a host of a drained node after their running turns; it gets no others."""

    host_id: str
    agents: tuple[Address, ...]
    timeout_s: float | None = None
    """Of their end, as the node itself ends; ``None``: no limit."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse to wake the agents of a code that no node can run."""

    code: Code
    problem: str
    """What the nodes lack, as a sentence."""


Action: TypeAlias = StartHost | Assign | EndHost | Vacate | Refuse
