"""The port to a home's service: what operations need of it.

`coordinator.service.link.ServiceLink` is a link, `coordinator.service.client.ServiceClient` the client that it gives.
Errors of the service are `coordinator.service.client.ServiceRefused`, a broken connection is a `ServiceError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping, Sequence

    from chronicle.workspace.content.content import Content
    from coordinator.fleet.facts import AgentFacts, AwakeFacts, NodeFacts
    from coordinator.telemetry.recorder import Series, Value
    from podium.caller import Caller
    from podium.events import Part
    from podium.turn.busy import BusyPolicy
    from podium.turn.stream import Frame
    from podium.turn.upload import FileChanged

__all__ = ["AdmittedMessage", "Fleet", "FleetLink"]


class AdmittedMessage(Protocol):
    """The receipt of an admitted message."""

    @property
    def message_id(self) -> str:
        """Its id."""
        ...

    @property
    def position(self) -> int:
        """Its place in the inbox, from 1."""
        ...

    @property
    def before(self) -> int:
        """Messages ahead of it, the one being handled included."""
        ...


class Fleet(Protocol):
    """The running agents of a home. Agents are given by their addresses."""

    async def admit(
        self,
        agent: str,
        message: dict[str, Any],
        idempotency_key: str | None = None,
        when_busy: BusyPolicy = ...,
        trace: str | None = None,
        caller: Caller = ...,
    ) -> AdmittedMessage:
        """Admit a message, durably; it is handled whether anyone follows it or not."""
        ...

    def follow(self, agent: str, message_id: str) -> AsyncGenerator[Frame, None]:
        """Yield the frames of a message, the terminal one last."""
        ...

    async def cancel(self, agent: str, message_id: str) -> None:
        """Cancel a pending, running or parked message, durably."""
        ...

    async def poke(self, agent: str) -> bool:
        """Have an agent check its inbox."""
        ...

    async def forget(self, agent: str) -> None:
        """Have the nodes remove what they keep of a sleeping agent that is deleted."""
        ...

    async def passivate(self, agent: str) -> None:
        """Put an agent to sleep after its running turn."""
        ...

    async def rewind(self, agent: str, turn: int, only: Collection[Part] | None) -> tuple[int, int | None]:
        """Rewind an agent after its running turn; return the turns before and after."""
        ...

    async def change_file(self, agent: str, path: str, content: Content | None) -> FileChanged:
        """Put or delete a file after the agent's running turn."""
        ...

    async def read(self, agent: str, message: dict[str, Any]) -> tuple[int, Any]:
        """Call a read-only handler; return the turn whose state it has read, and its result."""
        ...

    async def facts(self, agent: str) -> AgentFacts:
        """Return what the fleet knows of an agent, beside the journal."""
        ...

    async def awake(self, agents: Sequence[str]) -> Mapping[str, AwakeFacts]:
        """Return those of agents that have a host, by address."""
        ...

    async def nodes(self) -> list[NodeFacts]:
        """Return the nodes and their hosts."""
        ...

    async def drain(self, node: str, *, undo: bool = False) -> None:
        """Move the agents of a node to other nodes after their running turns, or use a drained node again."""
        ...

    async def redeploy(self) -> list[str]:
        """Have awake agents move to the current deploy after their running turns; return them."""
        ...

    async def types(self) -> list[dict[str, Any]]:
        """Return the agent types that are known, with their handlers."""
        ...

    async def metrics(self) -> dict[Series, Value]:
        """Return the metrics of the home."""
        ...


class FleetLink(Protocol):
    """A connection to the service that is made again after a loss."""

    async def client(self) -> Fleet:
        """Return a live client.

        Raises:
            ServiceError: no service runs, or it cannot be reached.
        """
        ...
