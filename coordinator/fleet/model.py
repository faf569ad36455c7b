"""Value types of the fleet: the input and output of :mod:`coordinator.fleet.plan`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.fleet.code_stamp import CodeStamps
    from coordinator.registry.registry import RegisteredAgent
    from podium.address import Address
    from podium.agent.base import Isolation

__all__ = [
    "Action",
    "AgentsLost",
    "Assign",
    "Code",
    "Ended",
    "Host",
    "HostStatus",
    "Loaded",
    "Observed",
    "Placement",
    "ProjectView",
    "Retire",
    "Route",
    "StartHost",
]


@dataclass(frozen=True, slots=True, order=True)
class Code:
    """An agent class, by file and name, that a host imports."""

    file: str
    """Absolute path."""
    class_name: str
    agent_type: str

    @classmethod
    def of(cls, agent: RegisteredAgent) -> Code:
        """Return the code of a class of a registry."""
        return cls(agent.file, agent.class_name, agent.agent_type)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The code that a host imported."""

    code: Code
    sources: tuple[str, ...]
    """Absolute paths of the agent's file and of the modules of its directory that it imported."""
    stamp: str
    """Stamp of the content of the sources; see `coordinator.fleet.code_stamp`."""
    isolation: Isolation = "process"
    """What the class declares."""
    is_alone: bool = False
    """Whether the host that imported it is for one agent."""
    max_attempts: int = 3
    """Of a message, as the class declares."""

    def is_of(self, code: Code, stamps: CodeStamps) -> bool:
        """Whether this is ``code``, with the current content of its files."""
        return self.code == code and stamps.of(self.sources) == self.stamp


class HostStatus(StrEnum):
    """The phase of a host's life."""

    STARTING = "starting"
    """Its process starts, or imports code."""
    WARM = "warm"
    """Ready, with code imported. A shared host stays warm when it has agents; another one has none yet."""
    ASSIGNED = "assigned"
    """Assigned to an agent, for the rest of its life."""
    ENDING = "ending"
    """Its process has ended, or is being ended."""


@dataclass(frozen=True, slots=True)
class Host:
    """One process for agents."""

    host_id: str
    code: Code | None
    """The code it imported; ``None`` for a host that a restarted coordinator found running."""
    code_stamp: str
    """Stamp of the source files at the time of their import by the host."""
    status: HostStatus
    loaded: Loaded | None = None
    """``None`` before it is warm, and for a host that did not answer `HostPool.ask_loaded`."""
    isolation: Isolation | None = None
    """Whether it is for one agent or for many; ``None`` while it starts and does as its class declares."""
    group: int | None = None
    """The group of suspects that it is for; see `coordinator.fleet.suspects`."""
    agents: int = 0
    """The agents on it."""
    activating: int = 0
    """Those of them whose activation has not completed."""

    @property
    def is_in_use(self) -> bool:
        """Whether it is ready and has agents: a shared host stays warm then."""
        return self.status is HostStatus.ASSIGNED or (self.status is HostStatus.WARM and self.agents > 0)


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
    """The location of an awake agent: the name of its host's actor, and the epoch of its lease."""

    host_id: str
    epoch: int
    turn: int
    """Turns committed when it was woken."""
    loaded: Loaded | None = None
    """The code that its host runs, if known."""
    config: str | None = None
    """The configuration that the agent has, if known, as canonical JSON."""

    def runs(self, code: Code, config: str, stamps: CodeStamps) -> bool:
        """Whether the host runs the current content of a code with a configuration; what is unknown counts as equal."""
        return self.config in (None, config) and (self.loaded is None or self.loaded.is_of(code, stamps))


@dataclass(frozen=True, slots=True)
class ProjectView:
    """What an activation knows of the project."""

    config: str = "{}"
    """The agent's configuration, canonical JSON."""
    types_to_tell: tuple[str, ...] | None = None
    """The agent types that it may send messages to; ``None`` for any."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot of the wanted agents and the hosts."""

    hosts: tuple[Host, ...] = ()
    wanted: tuple[tuple[Address, Code], ...] = ()
    """Agents to wake that have no host, in the order of the requests."""
    code_stamps: dict[Code, str] = field(default_factory=dict)
    """The current stamp of each code in use."""
    shared: frozenset[Code] = frozenset()
    """The codes whose classes are known to declare shared isolation."""
    unknown: frozenset[Code] = frozenset()
    """The codes that no host has loaded: whether they are shared is not known."""
    latest: tuple[Code, ...] = ()
    """The codes in the order of their use, the latest first; then those that were not used, in the order of their
    registration."""
    alone: frozenset[Address] = frozenset()
    """Of the wanted agents, those that get a process of their own although their class is shared."""
    groups: Mapping[Address, int] = field(default_factory=dict)
    """Of the wanted agents, those that get a shared host of their group; see `coordinator.fleet.suspects`."""


@dataclass(frozen=True, slots=True)
class StartHost:
    """Start a host that imports a code."""

    code: Code
    code_stamp: str
    isolation: Isolation | None = None
    """``process`` for an agent of a shared class that is to be alone; ``None`` for what the class declares."""
    group: int | None = None
    """As of `Host`."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Assign a warm host to an agent."""

    host_id: str
    address: Address


@dataclass(frozen=True, slots=True)
class Retire:
    """End a warm host that is outdated, because its code changed, or in excess of the reserve."""

    host_id: str


Action: TypeAlias = StartHost | Assign | Retire
