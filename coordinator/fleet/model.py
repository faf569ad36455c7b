"""What the coordinator knows of its fleet, as plain values: the input and output of :mod:`coordinator.fleet.plan`."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from coordinator.fleet.code_stamp import CodeStamps
    from podium.address import Address

__all__ = ["Action", "Assign", "Code", "Host", "HostStatus", "Loaded", "Observed", "Retire", "Route", "StartHost"]


@dataclass(frozen=True, slots=True, order=True)
class Code:
    """An agent class by path and name: what a host imports."""

    file: str
    """Absolute path."""
    class_name: str
    agent_type: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a host imported."""

    code: Code
    sources: tuple[str, ...]
    """The agent's file and the modules of its directory that were imported with it, absolute paths."""
    stamp: str
    """Of the content of the sources; see `coordinator.fleet.code_stamp`."""

    def is_of(self, code: Code, stamps: CodeStamps) -> bool:
        """Whether it is a code as its files are now."""
        return self.code == code and stamps.of(self.sources) == self.stamp


class HostStatus(StrEnum):
    """Where a host stands."""

    STARTING = "starting"
    """Its process is being made, or imports code."""
    WARM = "warm"
    """Ready, with code imported, and given to no agent yet."""
    ASSIGNED = "assigned"
    """Given to an agent, for the rest of its life."""


@dataclass(frozen=True, slots=True)
class Host:
    """One process for one agent."""

    host_id: str
    code: Code | None
    """What it imported; ``None`` for an assigned host that this coordinator found running."""
    code_stamp: str
    """What identifies the source files as they were when the host imported them."""
    status: HostStatus
    address: Address | None = None
    """The agent it was given to."""
    loaded: Loaded | None = None
    """``None`` before it is warm, and of a host that did not say."""
    epoch: int | None = None
    """Of the lease under which it runs its agent; ``None`` until it has activated it."""
    turn: int = 0
    """Turns committed when it activated its agent."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where an agent is: the name of its host's actor, and under which epoch."""

    host_id: str
    epoch: int
    turn: int
    """Turns committed when it was woken."""
    loaded: Loaded | None = None
    """The code that its host runs, if that is known."""

    def runs(self, code: Code, stamps: CodeStamps) -> bool:
        """Whether the host runs a code as its files are now; ``True`` if what it runs is not known."""
        return self.loaded is None or self.loaded.is_of(code, stamps)


@dataclass(frozen=True, slots=True)
class Observed:
    """The wanted agents and the hosts, at one moment."""

    hosts: tuple[Host, ...] = ()
    wanted: tuple[tuple[Address, Code], ...] = ()
    """Agents to be woken that have no host, in the order in which they were asked for."""
    code_stamps: dict[Code, str] = field(default_factory=dict)
    """Each code in use, and its stamp as the files are now."""


@dataclass(frozen=True, slots=True)
class StartHost:
    """Start a host and let it import some code."""

    code: Code
    code_stamp: str


@dataclass(frozen=True, slots=True)
class Assign:
    """Give a warm host to an agent."""

    host_id: str
    address: Address


@dataclass(frozen=True, slots=True)
class Retire:
    """End a warm host that nobody will want: its code changed, or there are too many."""

    host_id: str


Action: TypeAlias = StartHost | Assign | Retire
