"""A host's process on a simulated node: the real deliveries and hosted agent, around podium's simulated host."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.errors import ChronicleError
from coordinator.fleet.model import Ended
from coordinator.host.delivery import DeliveryServer, Notice
from coordinator.host.hosted_agent import HostedAgent
from podium.errors import AgentAsleep, Evicted, TurnsLost, UnknownAgent
from podium.testing.simulation.faults import Link
from podium.testing.simulation.host import SimulatedAgent, SimulatedHost, WatchedActivation
from podium.testing.simulation.puppet import STAGE, Puppet
from podium.testing.simulation.world import LEASE_MS
from podium.turn.message_loop import Ending
from tests.stateful.cluster.store_process import HostStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from chronicle.ids import MessageId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Lease
    from coordinator.fleet.model import Loaded, ProjectView
    from podium.address import Address
    from podium.turn.activation import Activation
    from podium.turn.stream import Frame
    from tests.stateful.cluster.nodes import ClusterNode
    from tests.stateful.cluster.world import ClusterWorld

__all__ = ["HostProcess"]

_GRACE_S: Final = 2.0
"""Grace period of a hook after its deadline."""


class _ProcessLink(Link):
    """The link between a process and the world; a death that it draws is one of the process."""

    def __init__(self, process: HostProcess, world: ClusterWorld) -> None:
        store = cast("JournalStore", HostStore(process.place.store, process.host_id))
        name = process.host_id[-6:]
        super().__init__(store, world.generator, lambda: world.fault_rates, lambda *what: world.note(name, *what))
        self._process = process

    def die(self) -> None:
        """Kill the process."""
        super().die()
        self._process.place.lose_process(self._process)


class HostProcess(SimulatedHost):
    """A process for one agent; its public methods are those of `coordinator.ray.host_actor.HostActor`."""

    def __init__(self, world: ClusterWorld, node: ClusterNode, host_id: str, loaded: Loaded) -> None:
        self._cluster = world
        self.place = node
        self.host_id = host_id
        self.imported = loaded
        self.dead = asyncio.Event()
        self.address: Address | None = None
        self._restores = 0
        """Of the database, before the agent got here."""
        self._workspace = None
        self.agent: HostedAgent | None = None
        self._ends: list[Ended] = []
        self._an_end = asyncio.Event()
        self._link = _ProcessLink(self, world)
        self._deliveries = DeliveryServer(self._deliver)
        self.link, self.node = self._link, node.number
        world.network.places[host_id] = node

    def end_process(self) -> None:
        """End, as a killed process does."""
        if not self.dead.is_set():
            self.dead.set()
            self.link.die()
            self._cluster.network.end_server(self.host_id)
            if self._workspace is not None:
                self._workspace.workspace.close()

    # -- calls ----------------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        """Answer."""

    async def loaded(self) -> Loaded:
        """Return the code."""
        return self.imported

    async def activate(
        self,
        address: Address,
        lease: Lease,
        unclean: bool,
        lost: str | None,
        withdrawn: Sequence[MessageId],
        project: ProjectView,
    ) -> int:
        """Activate an agent; as `coordinator.host.agent_host.AgentHost.activate`."""
        STAGE.set(self)
        self._restores = self._cluster.restores.count
        session = self._cluster.store.session(address.name, address.tenant)
        super().__init__(self._cluster, SimulatedAgent(address, session), self.host_id, lease, unclean=unclean)
        self.link, self.node = self._link, self.place.number
        self.address = address
        self.place.check_drain(address)
        environment = self._cluster.environment(self.link, self._open)
        activation = WatchedActivation(address, lease, environment, self)
        try:
            await activation.start(unclean=unclean, lost=lost)
            for message_id in withdrawn:
                await activation.cancel(message_id)
            await self._deliveries.start(Path(self.host_id))
        except BaseException:
            await activation.abandon()
            raise
        self.activation = activation
        self.agent = HostedAgent(activation, Puppet.idle_timeout_s, self.link.store)
        self._deliveries.tell(Notice(address, lease.epoch, activation.turn, project.config))
        _ = self.link.spawn(self._run_agent(self.agent), f"agent {address}")
        _ = self.link.spawn(self._watch(self.agent), f"watch {address}")
        return activation.turn

    async def wait_ended(self, seen: int) -> Sequence[Ended]:
        """Return the ends of activations."""
        while len(self._ends) <= seen:
            self._an_end.clear()
            await self._an_end.wait()
        return self._ends[seen:]

    async def runs(self, address: Address) -> bool:
        """Whether an agent is awake here."""
        return self.agent is not None and self.address == address

    async def poke(self, address: Address) -> None:
        """Check the inbox."""
        if self.agent is not None and self.address == address:
            self.agent.poke()

    async def stop(self, address: Address, grace_s: float | None = None) -> None:
        """End an agent after its turn."""
        if self.agent is not None and self.address == address:
            self.agent.stop(grace_s)

    async def retire(self, address: Address, grace_s: float | None = None) -> None:
        """End an agent after its turn, and begin no other."""
        self._agent_of(address).retire(grace_s)

    async def cancel(self, address: Address, message_id: MessageId) -> None:
        """Cancel a message."""
        await self._agent_of(address).cancel(message_id)

    async def preempt(self, address: Address, message_id: MessageId, policy: Any) -> MessageId | None:
        """Preempt the running turn."""
        return self._agent_of(address).preempt(message_id, policy)

    async def set_types_to_tell(self, types: tuple[str, ...] | None) -> None:
        """Messages of these simulations go to any type."""

    def _agent_of(self, address: Address) -> HostedAgent:
        if self.agent is None or self.address != address:
            raise AgentAsleep(f"host {self.host_id} does not run {address}")
        return self.agent

    # -- inside ---------------------------------------------------------------------------------------------------

    def handled(self, activation: Activation, seq: int) -> None:
        """Compare the activation's memory with the record, unless that may have gone back."""
        if self._cluster.restores.count == self._restores:
            super().handled(activation, seq)

    async def _deliver(self, address: Address, *message: Any) -> AsyncGenerator[list[Frame], None]:
        async for batch in self._agent_of(address).deliver(*message):
            yield [{**frame, "epoch": self.lease.epoch} for frame in batch]

    async def _run_agent(self, agent: HostedAgent) -> None:
        ending, problem = "failed", None
        try:
            ending = await agent.run()
            if ending is not Ending.EVICTED:
                released = [(self.lease.session_id, self.lease.epoch)]
                await self.link.run_blocking(self.link.store.release_leases, released)
        except (ChronicleError, Evicted, OSError) as error:
            problem = f"{type(error).__name__}: {error}"
        except (TurnsLost, UnknownAgent) as error:
            if self._cluster.restores.count == self._restores:
                self._cluster.failed(self.host_id, error)
            problem = str(error)
        except Exception as error:  # noqa: BLE001  a bug
            self._cluster.failed(self.host_id, error)
        self.agent = None
        self._deliveries.tell(Notice(agent.address, self.lease.epoch, None))
        self._deliveries.close()
        self._ends.append(Ended(1, agent.address, ending, problem))
        self._an_end.set()

    async def _watch(self, agent: HostedAgent) -> None:
        """Renew the lease, and end the process if a hook ignores its deadline, as `HostWatch` does in a thread."""
        while self.agent is agent:
            await asyncio.sleep(LEASE_MS / 3000)
            deadline_s = agent.activation.deadline_s
            if deadline_s is not None and self._cluster.loop.time() > deadline_s + _GRACE_S:
                self.place.lose_process(self)
                return
            leases = [(self.lease.session_id, self.lease.epoch)]
            try:
                renew = self.link.store.renew_leases
                if await self.link.run_blocking(renew, leases, self._cluster.clock.now_ms(), LEASE_MS):
                    agent.evict()
            except ChronicleError:
                continue
