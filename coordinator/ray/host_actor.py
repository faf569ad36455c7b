"""The host's Ray actor: a thin wrapper of :class:`coordinator.host.agent_host.AgentHost`."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ray

from chronicle.errors import Unavailable
from coordinator.host.agent_host import AgentHost
from coordinator.host.loop_watch import running_agent
from coordinator.host.node.process_exit import tell_of_os_exit
from coordinator.ray.cluster import COORDINATOR_NAME, find_actor
from coordinator.ray.reading import ray_errors, read_agent
from coordinator.ray.token_auth import forget_token
from podium.errors import HostDied
from podium.turn.stream import TERMINAL_FRAMES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import MessageId
    from chronicle.journal.records import Lease
    from coordinator.fleet.model import Code, Ended, Loaded, ProjectView, Route
    from coordinator.host.host_config import HostConfig
    from coordinator.telemetry.reports import Report
    from podium.address import Address
    from podium.agent.base import Isolation
    from podium.sandbox.policy import Rung
    from podium.turn.busy import BusyPolicy
    from podium.turn.reading import Read
    from podium.turn.stream import Frame

__all__ = ["HostActor"]


_CONTROL_CALLS: Final = 10_000
"""Limit of concurrent calls to a blocked host. Each cancellation waits for a message of an agent's inbox, and a shared
host has thousands of agents; liveness probes must not wait behind them."""
_MAX_READERS: Final = 500
"""Limit of agents that read answers of a host while it makes them, half of the calls that Ray runs at once: activations
must not wait behind them. Others get the texts when the turn has ended."""
_FIRST_LOOK_S: Final = 0.02
_LONGEST_LOOK_S: Final = 1.0
"""Interval of looks for the host of an agent that was asked; a turn that has paused is not read on sooner."""


def _announce() -> None:
    """Notify the coordinator that the outbox is not empty; if the call is lost, its periodic check finds that."""
    coordinator = find_actor(COORDINATOR_NAME)
    if coordinator is not None:
        coordinator.outbox_filled.remote()


async def _report(report: Report) -> None:
    """Report measurements to the coordinator; they are counted on return.

    Raises:
        HostDied: no coordinator runs now.
        ray.exceptions.RayError: whether they were counted is not known.
    """
    coordinator = find_actor(COORDINATOR_NAME)
    if coordinator is None:
        raise HostDied("there is no coordinator now")
    await coordinator.report.remote(report)


async def _wake(address: Address) -> None:
    """Have the coordinator wake an agent that was asked; the asker repeats what is lost."""
    coordinator = find_actor(COORDINATOR_NAME)
    if coordinator is not None:
        coordinator.poke.remote(address)


async def _frames(address: Address, message_id: MessageId) -> AsyncGenerator[Sequence[Frame], None]:
    """Yield the frames of a message of an agent from whichever host runs it; see `podium.turn.ports.Environment`."""
    pause_s = _FIRST_LOOK_S
    while True:
        host = await _host_of(address)
        if host is not None:
            batches = host.frames.remote(address, message_id)
            try:
                async for batch in batches:
                    yield (found := await batch)
                    pause_s = _LONGEST_LOOK_S if found[-1]["type"] in TERMINAL_FRAMES else _FIRST_LOOK_S
            except ray.exceptions.RayError:  # it has died, or does not run the agent any more
                pass
            finally:
                ray.cancel(batches)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_LOOK_S)


async def _read(address: Address, message: JsonObject) -> Json:
    """Call a read-only handler of another agent; see `podium.turn.ports.Environment`."""

    async def wake(lost: Route | None) -> Route:
        coordinator = find_actor(COORDINATOR_NAME)
        if coordinator is None:
            raise Unavailable("there is no coordinator now; try again")
        with ray_errors():
            route: Route = await coordinator.wake_to_read.remote(address, lost)
            return route

    return (await read_agent(address, message, wake)).data


async def _host_of(address: Address) -> Any | None:
    """Return the actor of the host that runs an agent; ``None`` if none does, or nobody can tell."""
    coordinator = find_actor(COORDINATOR_NAME)
    if coordinator is None:
        return None
    try:
        route: Route | None = await coordinator.route.remote(address)
    except ray.exceptions.RayError:
        return None
    return find_actor(route.host_id) if route is not None else None


def _note_full(host_id: str) -> None:
    """Have the coordinator give a host no more agents; the host repeats it."""
    coordinator = find_actor(COORDINATOR_NAME)
    if coordinator is not None:
        coordinator.host_full.remote(host_id)


@ray.remote(max_restarts=0, concurrency_groups={"control": _CONTROL_CALLS})  # type: ignore[call-overload]  # Ray's stubs lack it
class HostActor:
    """One process for agents. Its methods are those of `AgentHost`; arguments and results are pickled.

    Calls that must reach a host whose agent blocks the event loop run in a separate loop and thread (``control``).
    """

    def __init__(self, config: HostConfig) -> None:
        forget_token()
        self._readers = 0
        """Calls of `frames` and `read` that go on."""
        self._host = AgentHost(config, _announce, _report, _wake, _note_full, _frames, _read)
        tell_of_os_exit(Path(config.last_words), running_agent, self._host.on_exit_call)

    @ray.method(concurrency_group="control")
    async def process_id(self) -> int:
        """Return the id of this process."""
        return os.getpid()

    async def load(self, code: Code, isolation: Isolation | None = None) -> Loaded:
        """Import an agent's class, and prepare to activate an agent; return the code and its sources."""
        loaded = self._host.load(code, isolation)
        await self._host.prepare()
        return loaded

    @ray.method(concurrency_group="control")
    async def loaded(self) -> Loaded | None:
        """Return the imported code; ``None`` before `load`."""
        return self._host.loaded

    @ray.method(concurrency_group="control")
    async def retire(self, address: Address, grace_s: float | None = None) -> None:
        """End an agent in order after its running turn, which is interrupted after a grace; it begins no other turn."""
        self._host.retire(address, grace_s)

    async def activate(
        self,
        address: Address,
        lease: Lease,
        unclean: bool,
        lost: str | None,
        withdrawn: Sequence[MessageId],
        project: ProjectView,
    ) -> int:
        """Activate an agent; return the number of turns that it has committed."""
        return await self._host.activate(
            address, lease, unclean=unclean, lost=lost, withdrawn=withdrawn, project=project
        )

    @ray.method(concurrency_group="control")
    async def set_types_to_tell(self, types: tuple[str, ...] | None) -> None:
        """Set the agent types that the agent may send messages to; ``None`` for any."""
        self._host.types_to_tell = types

    @ray.method(concurrency_group="control")
    async def cancel(self, address: Address, message_id: MessageId) -> None:
        """Cancel a message of an agent; durable on return."""
        await self._host.cancel(address, message_id)

    @ray.method(concurrency_group="control")
    async def preempt(self, address: Address, message_id: MessageId, policy: BusyPolicy) -> MessageId | None:
        """Apply the policy of an admitted message if its agent is busy."""
        return self._host.preempt(address, message_id, policy)

    @ray.method(concurrency_group="control")
    async def ping(self) -> None:
        """Answer a liveness probe, even if the agent's code blocks."""

    @ray.method(concurrency_group="control")
    async def doing(self, address: Address) -> tuple[MessageId | None, float | None, Rung | None]:
        """Answer as `AgentHost.doing`, even if the agent's code blocks."""
        return self._host.doing(address)

    @ray.method(concurrency_group="control")
    async def runs(self, address: Address) -> bool:
        """Whether an agent is awake on this host."""
        return self._host.runs(address)

    async def read(self, address: Address, message: dict[str, Any]) -> Read:
        """Call a read-only handler of an agent."""
        if self._readers >= _MAX_READERS:
            raise Unavailable("too many reads run in this process; try again")
        self._readers += 1
        try:
            return await self._host.read(address, message)
        finally:
            self._readers -= 1

    @ray.method(num_returns="streaming")
    async def frames(self, address: Address, message_id: MessageId) -> AsyncGenerator[list[Frame], None]:
        """Yield the frames of a message of an agent, for another agent that has asked; none if too many are read."""
        if self._readers >= _MAX_READERS:
            return
        self._readers += 1
        try:
            async with aclosing(self._host.deliver(address, message_id, None, None)) as batches:
                async for batch in batches:
                    yield batch
        finally:
            self._readers -= 1

    async def poke(self, address: Address) -> None:
        """Have an agent check its inbox for a new message."""
        self._host.poke(address)

    async def stop(self, address: Address, grace_s: float | None = None) -> None:
        """End an agent in order after its running turn; interrupt the turn after a grace, unless it is ``None``."""
        self._host.stop(address, grace_s)

    async def stop_all(self, grace_s: float) -> None:
        """End all agents in order after their running turns; interrupt turns after a grace."""
        self._host.stop_all(grace_s)

    async def wait_ended(self, seen: int) -> Sequence[Ended]:
        """Wait for an end of an activation after those that are known, and return the new ones."""
        return await self._host.wait_ended(seen)
