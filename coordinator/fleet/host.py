"""One host: the state machine of its process, and the agents on it.

    start ──► STARTING ──loaded──► WARM ──gets the agent that it is for──► ASSIGNED
                  │                 │                                         │
                  │                 ├──short of memory──► DRAINING ◄──retired─┤
                  │                 │                        │                │
                  ├──process ended──┴────────────────────────┴────────────────┴──► LOST
                  │                                                                  │
                  └──end, in each of these states──► ENDING ◄────────────────────────┘
                                                       └──process gone──► (removed from the table)

| event | who reports it |
|---|---|
| loaded, gets an agent | `coordinator.ray.reconciler`, which carries out the plan |
| short of memory | the host itself |
| retired | `HostPool.retire`: a message or a reload came after a change of its code; or its node is drained |
| process ended | the node manager, the watch of the host, or the call that activates an agent on it |
| end | `HostPool.begin_end`, which alone leads to ENDING and out of the table |

| who asks for the end | when |
|---|---|
| the plan (`EndHost`) | it has no agents, and is outdated, drained, more than the reserve, or in another one's way |
| its start, the activation of its agent | it failed |
| its watch | its agent has ended, or its process; `HostPool.process_ended` of a warm host that has no watch |
| a message (`HostPool.wait_gone`) | the route was stale, and its agent does not end in order |
| `HostPool.stop_all` | the service ends |

A shared host stays WARM with agents on it. Only a WARM host gets agents. A host in ENDING is on its way out, whatever
else is reported: its process may be alive, and nobody else may take its agents until it is gone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from coordinator.fleet.nodes.nodes import LOCAL_NODE, NO_NEEDS, Needs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coordinator.fleet.model import Code, Loaded, Placement
    from coordinator.fleet.nodes.nodes import NodeId
    from podium.address import Address
    from podium.agent.base import Isolation

__all__ = ["Host", "HostStatus"]


class HostStatus(StrEnum):
    """The state of a host."""

    STARTING = "starting"
    """Its process starts, or imports code."""
    WARM = "warm"
    """Ready, with code imported. A shared host stays warm when it has agents; another one has none yet."""
    ASSIGNED = "assigned"
    """Assigned to an agent, for the rest of its life."""
    DRAINING = "draining"
    """It gets no more agents, and ends when it has none."""
    LOST = "lost"
    """Its process has ended by itself; its end has not begun."""
    ENDING = "ending"
    """Its process is being ended, and cleaned up after."""


@dataclass(slots=True, eq=False)
class Host:
    """One process for agents. Its methods are the events of the state machine; those that come too late do nothing."""

    host_id: str
    """The name of its actor."""
    code: Code | None
    """The code it imported; ``None`` for a host that a restarted coordinator found running."""
    code_stamp: str
    """Stamp of the source files at the time of their import by the host."""
    status: HostStatus = HostStatus.STARTING
    loaded: Loaded | None = None
    """``None`` before it is warm, and for a host that did not answer `HostPool.ask_loaded`."""
    isolation: Isolation | None = None
    """Whether it is for one agent or for many; ``None`` while it starts and does as its class declares."""
    group: int | None = None
    """The group of suspects that it is for; see `coordinator.fleet.deaths.suspects`."""
    node: NodeId = LOCAL_NODE
    """Where its process is."""
    needs: Needs = NO_NEEDS
    """What Ray reserves for it there."""
    placements: dict[Address, Placement] = field(default_factory=dict)
    """The agents on it, in the order of their assignment."""
    activating: int = 0
    """Those of them whose activation has not completed."""
    cause: str | None = None
    """How it ended by itself, or what was wrong with it, as far as it is known."""
    actor: Any = field(default=None, init=False)
    """The handle of its actor, if this process has started it: a look-up by name asks Ray's control process."""
    watch: asyncio.Task[None] | None = field(default=None, init=False)
    """Follows the ends of its agents and its own; ``None`` before it has any."""
    end: asyncio.Task[None] | None = field(default=None, init=False)
    """Ends it; ``None`` before `HostStatus.ENDING`."""
    lost: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when its process has ended by itself, for those that await an answer of it."""

    @property
    def is_shared(self) -> bool:
        """Whether it is for many agents."""
        return self.isolation == "shared"

    @property
    def agents(self) -> int:
        """The number of agents on it."""
        return len(self.placements)

    @property
    def phase(self) -> HostStatus:
        """The status as it is counted: a host with agents is assigned, although it may be warm, or draining."""
        may_have_agents = self.status in {HostStatus.WARM, HostStatus.DRAINING}
        return HostStatus.ASSIGNED if may_have_agents and self.placements else self.status

    # -- events ---------------------------------------------------------------------------------------------------

    def loads(self, loaded: Loaded) -> None:
        """Note that it has imported its code, and is ready."""
        if self.status is HostStatus.STARTING:
            self.status, self.loaded = HostStatus.WARM, loaded
            self.isolation = self.isolation or loaded.isolation

    def place(self, placement: Placement) -> None:
        """Assign it to an agent."""
        if self.status is HostStatus.WARM and not self.is_shared:
            self.status = HostStatus.ASSIGNED
        self.placements[placement.address] = placement
        self.activating += placement.epoch is None

    def activates(self, address: Address, config: str) -> None:
        """Note that it begins to activate an agent with a configuration, canonical JSON."""
        placement = self.placements.get(address)
        if placement is not None:
            self.placements[address] = replace(placement, config=config)

    def activated(self, address: Address, epoch: int, turn: int) -> None:
        """Note that it has activated an agent.

        Args:
            epoch: epoch of the agent's lease.
            turn: turns committed at the activation.
        """
        placement = self.placements.get(address)
        if placement is not None:
            self.activating -= placement.epoch is None
            self.placements[address] = replace(placement, epoch=epoch, turn=turn)

    def leave(self, address: Address) -> Placement | None:
        """Note that an agent has left it; return its placement, ``None`` if it was not on this host."""
        placement = self.placements.pop(address, None)
        if placement is not None:
            self.activating -= placement.epoch is None
            placement.left.set()
        return placement

    def vacates(self, addresses: Iterable[Address], timeout_s: float | None = None) -> None:
        """Note that it was told to end agents after their running turns, because its node is drained.

        Args:
            timeout_s: of their end; ``None``: no limit.
        """
        self.drain()
        for address in addresses:
            placement = self.placements.get(address)
            if placement is not None:
                self.placements[address] = replace(placement, is_moving=True, end_timeout_s=timeout_s)

    def drain(self) -> None:
        """Give it no more agents."""
        if self.status in {HostStatus.WARM, HostStatus.ASSIGNED}:
            self.status = HostStatus.DRAINING

    def lose(self) -> None:
        """Note that its process has ended by itself."""
        if self.status is not HostStatus.ENDING:
            self.status = HostStatus.LOST
            self.lost.set()

    def leave_all(self) -> Sequence[Placement]:
        """Note that its process is gone; return the agents that were on it."""
        return [placement for address in list(self.placements) if (placement := self.leave(address)) is not None]
