"""`ClusterSimulator`: a home on several nodes, with its coordinator and services, under a seeded schedule of faults.

It extends podium's simulator (`podium.testing.simulator`). What runs is production code, in virtual time: the
coordinator's actor with its loop, plan, pools of hosts and nodes, leases, deaths, withdrawals and courier; the permits
of store processes; deliveries over the protocol between services and hosts; each service's router, with its cache of
routes; and the turn code. Stand-ins are Ray, the node manager and processes (`nodes`, `host_process`), the transport of
the store process (`store_process`), and sockets (`network`).
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast
from unittest.mock import patch

import ray

from chronicle.canonical import encode
from chronicle.errors import ChronicleError, NotFound, Unavailable
from chronicle.journal.memory import MemoryJournalStore
from coordinator.client_messages import Admission
from coordinator.fleet.code.code_stamp import CodeStamps
from coordinator.fleet.model import Code
from coordinator.fleet.nodes.nodes import NodeId
from coordinator.ray import coordinator_actor, host_pool, node_pool, reconciler, router
from coordinator.ray.cluster import COORDINATOR_NAME
from coordinator.ray.coordinator_config import CoordinatorConfig
from coordinator.ray.node_manager import NodeConfig
from coordinator.ray.router import Router
from coordinator.registry.known_agents import KnownAgents
from coordinator.registry.registry import RegisteredAgent
from coordinator.service.message_delivery import MessageDelivery
from podium.address import Address
from podium.errors import PodiumError
from podium.reminders.firing import ReminderTask
from podium.testing.simulation.faults import LATEST_S, NO_FAULTS
from podium.testing.simulation.fleet import SimulatedFleet
from podium.testing.simulation.host import SimulatedAgent
from podium.testing.simulation.puppet import KEYS, script
from podium.testing.simulator import Simulator
from podium.turn.busy import BusyPolicy
from tests.stateful.cluster.nodes import ClusterNode, SimulatedRay
from tests.stateful.cluster.store_process import HostStore
from tests.stateful.cluster.world import ClusterWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.client_messages import Admitted
    from podium.turn.stream import Frame

__all__ = ["ClusterSimulator"]

_NODES: Final = 3
_SERVICES: Final = 2
_PATIENCE_S: Final = 900.0
_CALM: Final = 0.2
"""Share of the runs in which nodes are drained, and nothing else happens."""
_THEFTS: Final = 4
_ARRIVALS_S: Final = 8.0
"""Virtual time during which clients send, and faults are injected."""
_SETTINGS: Final = SimpleNamespace(silence_s=30.0, wake_timeout_s=10.0)
_RAW: Final[Any] = coordinator_actor.CoordinatorActor.__ray_metadata__.modified_class  # type: ignore[attr-defined]
"""The coordinator's class, without Ray."""


class _Documents:
    """The documents of the home."""

    def __init__(self) -> None:
        self._documents: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self._documents.get(name)

    def write(self, name: str, data: bytes) -> None:
        self._documents[name] = data

    def stamp(self, name: str) -> object:
        return self._documents.get(name)

    def place(self, name: str) -> str:
        return name


class ClusterFleet(SimulatedFleet):
    """The agents; the coordinator wakes them."""

    async def _supervise(self, agent: SimulatedAgent) -> None:
        """Leave it to the coordinator."""


class Service:
    """A service: its way to agents."""

    def __init__(self, world: ClusterWorld, cluster: SimulatedRay) -> None:
        home = SimpleNamespace(run_dir=Path("/simulated"), is_shared=False)
        self.router = Router(cast("Any", home), cast("Any", _SETTINGS))
        self.router._coordinator = cluster.find_actor(COORDINATOR_NAME)
        self.delivery = MessageDelivery(self.router, _SETTINGS.silence_s)
        self.delivery._clock = cast("Any", world.clock)


class ClusterSimulator(Simulator):
    """One run.

    Args:
        seed: determines everything.
        file: a file that stands for the code of the agents.
        store: creates the journal, which is one in memory.
        with_restores: whether the database is restored, and there is no calm run.
        verbose: print each step.
    """

    def __init__(
        self,
        seed: int,
        file: Path,
        *,
        store: Callable[[], MemoryJournalStore] = MemoryJournalStore,
        with_restores: bool = False,
        verbose: bool = False,
    ) -> None:
        self.seed = seed
        self._with_restores = with_restores
        calm = random.Random(seed).random() < _CALM and not with_restores
        self._world = self._cluster_world = world = ClusterWorld(seed, store(), calm=calm, verbose=verbose)
        if calm:
            world.fault_rates = NO_FAULTS
        self._fleet = ClusterFleet(world)
        self._code = Code(str(file), "Puppet", "puppet")
        self._nodes = [ClusterNode(world, number) for number in range(_NODES)]
        self._cluster = SimulatedRay(world, self._nodes, CodeStamps().of(()))
        self._documents = _Documents()
        self._services: list[Service] = []
        self._coordinators = 0
        self._more = itertools.count(500)
        """Numbers of further messages."""

    def _command(self) -> str:
        """Return the command that repeats the run."""
        return f"python -m tests.stateful.cluster.simulator {self.seed}{' --restores' * self._with_restores}"

    def run(self) -> Any:
        """Run to the end.

        Raises:
            Broken: an invariant does not hold.
        """
        with ExitStack() as stack:
            for module, names in _STAND_INS.items():
                for name in names:
                    stack.enter_context(patch.object(module, name, self._stand_in(name)))
            return super().run()

    def _stand_in(self, name: str) -> Any:
        world, cluster = self._cluster_world, self._cluster
        context = SimpleNamespace(was_current_actor_reconstructed=False)
        stand_ins: dict[str, Any] = {
            "SystemClock": lambda: world.clock,
            "IdSource": lambda: world.ids,
            "log_to": lambda _: None,
            "_stores": lambda _: (world.link.store, self._documents, dict),
            "ray": SimpleNamespace(get_runtime_context=lambda: context, remote=ray.remote),
            "kept_known_agents": lambda _: self._known(),
            "kill": cluster.kill,
        }
        return stand_ins.get(name) or getattr(cluster, name)

    def _known(self) -> KnownAgents:
        return KnownAgents().noted(RegisteredAgent("puppet", self._code.file, self._code.class_name))

    # -- the run --------------------------------------------------------------------------------------------------

    async def _play(self) -> None:
        world, draw = self._cluster_world, self._world.generator
        for key in draw.choice((KEYS[:1], KEYS[1:], KEYS)):
            self._fleet.add_agent(Address("puppet", key), self._fleet.new_session(f"puppet/{key}"))
        self._begin_coordinator()
        self._services = [Service(world, self._cluster) for _ in range(draw.randrange(1, _SERVICES + 1))]
        async with asyncio.timeout(_PATIENCE_S), asyncio.TaskGroup() as group:
            for number in range(draw.randrange(4, 16)):
                group.create_task(self._send_one(number))
            for _ in range(draw.randrange(2, 9)):
                group.create_task(self._drain() if world.calm else self._disturb())
            if not world.calm:
                for _ in range(_THEFTS):
                    group.create_task(self._steal())
            if self._with_restores:
                for _ in range(draw.randrange(1, 3)):
                    group.create_task(self._restore())
        world.fault_rates = NO_FAULTS
        await asyncio.sleep(LATEST_S)
        for node in self._nodes:
            node.come_back()
        async with asyncio.timeout(_PATIENCE_S):
            while self._is_busy():
                await asyncio.sleep(0.5)
        world.over = True
        self._end_coordinator()
        await asyncio.sleep(2 * LATEST_S)  # calls that are late
        for node in self._nodes:
            node._end_processes()
        world.oracle.check_inboxes()
        if world.calm:
            world.oracle.check_losses()
        for agent in self._agents():
            await self._inspect(agent)

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Leave out what a call of a process that died would have said."""
        if not isinstance(context.get("exception"), (ChronicleError, PodiumError)):
            super()._unexpected(loop, context)

    def _agents(self) -> list[SimulatedAgent]:
        lines = self._world.oracle.lines.values()
        return [SimulatedAgent(Address.of(line.session), line.session) for line in lines]

    def _end_all(self) -> None:
        for node in self._nodes:
            node._end_processes()
        self._end_coordinator()
        self._cluster.end()
        super()._end_all()

    # -- the coordinator ------------------------------------------------------------------------------------------

    def _begin_coordinator(self) -> None:
        world = self._cluster_world
        fields: dict[str, Any] = dict.fromkeys(NodeConfig.__dataclass_fields__)
        config = CoordinatorConfig(
            home=Path("/simulated"),
            home_id="simulated",
            journal="",
            store=None,
            logs=Path("/simulated"),
            node=NodeConfig(**fields),
            named_nodes={},
            is_embedded=False,
            autoscaler=False,
            known_agents=Path("/simulated"),
            serving=Path("/simulated"),
            host_cpus=0.1,
            inbox_limit=1000,
            shared_agents=10,
            warm_hosts=1,
            most_warm_hosts=2,
            most_starting=2,
            lease_ttl_s=2.0,
            hang_s=2.0,
            **vars(_SETTINGS),
        )
        self._cluster.coordinator = actor = _RAW(config)
        generator = random.Random(self.seed + 3 + self._coordinators)
        loop = actor._reconciler
        loop.reminders = ReminderTask(world.link.store, world.ids, world.clock, loop._reminded, generator)
        self._coordinators += 1
        self._cluster.coordinator_died = asyncio.Event()
        self._cluster.coordinator_began.set()
        actor._tasks.spawn(actor._go_on(), "go-on")

    def _end_coordinator(self) -> None:
        if self._cluster.coordinator is not None:
            self._cluster.coordinator._tasks.cancel()
            self._cluster.coordinator = None
            self._cluster.coordinator_began.clear()
            self._cluster.coordinator_died.set()

    # -- disturbances ---------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Drain a node for some time, as an operator does."""
        draw, world = self._world.generator, self._cluster_world
        await asyncio.sleep(draw.random() * _ARRIVALS_S)
        node = draw.choice(self._nodes)
        if len({*world.drained_s, node.name}) == len(self._nodes) or node.name in world.drained_s:
            return
        await self._ask_drain(node, undo=False)
        await asyncio.sleep(2 + 6 * draw.random())
        await self._ask_drain(node, undo=True)

    async def _ask_drain(self, node: ClusterNode, *, undo: bool) -> None:
        world = self._cluster_world
        if undo:
            world.drained_s.pop(node.name, None)
        with suppress(ChronicleError, PodiumError):
            await self._services[0].router.drain(NodeId(node.name), undo=undo)
            if not undo:
                world.drained_s[node.name] = world.loop.time()
                world.note("operator", "drains", node.name)

    async def _disturb(self) -> None:
        """Inject a disturbance at a random time."""
        draw, world = self._world.generator, self._cluster_world
        await asyncio.sleep(draw.random() * _ARRIVALS_S)
        node = draw.choice(self._nodes)
        match draw.choice(
            ("host", "host", "stall", "power", "cut", "cut", "cut", "store", "coordinator", "drain", "away")
        ):
            case "host" | "stall" as what:
                processes = [process for process in node.processes.values() if process.agent is not None]
                if processes and what == "host":
                    node.lose_process(draw.choice(processes))
                elif processes:
                    draw.choice(processes).link.stall(1 + 6 * draw.random())
            case "power" if node.is_up:
                node.lose_power()
                await asyncio.sleep(1 + 6 * draw.random())
                node.come_back()
            case "cut":
                await self._cut_off(node)
            case "store":
                node.store.die(draw.random())
            case "coordinator" if self._cluster.coordinator is not None:
                world.note("coordinator", "dies")
                self._end_coordinator()
                await asyncio.sleep(2 * draw.random())
                self._begin_coordinator()
            case "drain":
                await self._drain()
            case "away":
                world.database_away_until_s = world.loop.time() + 2 * draw.random()

    async def _cut_off(self, node: ClusterNode) -> None:
        """Cut off a node for some time: mostly one with a running turn, behind which another message waits."""
        draw, running = self._world.generator, None
        for _ in range(draw.choice((0, 50, 50))):
            running = next((process for each in self._nodes if (process := each.running()) is not None), None)
            if running is not None:
                node = running.place
                break
            await asyncio.sleep(0.05)
        async with asyncio.TaskGroup() as group:
            if running is not None and running.address is not None:
                group.create_task(self._send_one(next(self._more), running.address))
                await asyncio.sleep(0.5 * draw.random())
            if node.is_up and not node.is_cut:
                await node.cut_off(draw.choice((0.5, 4.0, 5.0)) * (0.7 + 0.6 * draw.random()))
        await asyncio.sleep(3 * draw.random())
        node.come_back()

    async def _restore(self) -> None:
        """Restore the database to a moment ago, in most cases while a node is cut off that has an agent."""
        draw, world = self._world.generator, self._cluster_world
        await asyncio.sleep(draw.random() * _ARRIVALS_S)
        backup = world.restores.back_up()
        await asyncio.sleep(2 * draw.random())
        async with asyncio.TaskGroup() as group:
            if draw.random() < 0.7:
                group.create_task(self._cut_off(draw.choice(self._nodes)))
            await asyncio.sleep(2 * draw.random())
            away_s = draw.random()
            world.database_away_until_s = max(world.database_away_until_s, world.loop.time() + away_s)
            world.restores.restore(backup)

    async def _steal(self) -> None:
        """Have a host ask its store process for the inbox and the lease of an agent that it does not have."""
        draw, world = self._world.generator, self._cluster_world
        await asyncio.sleep(draw.random() * _ARRIVALS_S)
        processes = [process for node in self._nodes for process in node.processes.values() if not process.place.is_cut]
        lines = [line for line in world.oracle.lines.values() if line.held]
        if not processes or not lines:
            return
        thief, line = draw.choice(processes), draw.choice(lines)
        session_id = line.session.session_id
        is_its_own = thief.address is not None and thief.address.name == line.session.name
        if not is_its_own and not world.oracle.has_lease(thief.host_id, session_id):
            store = HostStore(thief.place.store, thief.host_id)
            with suppress(Unavailable, NotFound):
                store.pending(session_id)
                world.oracle.verdict.fail(f"{thief.host_id} has read the inbox of {line.session.name}")
            with suppress(Unavailable):
                store.release_leases([(session_id, line.epoch)])
                world.oracle.must_hold(session_id)

    # -- clients --------------------------------------------------------------------------------------------------

    async def _send_one(self, number: int, agent: Address | None = None) -> None:
        """Send a message, and read its stream to the end; at another service when that of the first breaks.

        Args:
            agent: to one now; else to any, at any time.
        """
        world, draw = self._cluster_world, self._world.generator
        if agent is None:
            await asyncio.sleep(draw.random() * _ARRIVALS_S)
            agent = draw.choice(self._fleet.agents).address
        policy = draw.choice((*(BusyPolicy.ENQUEUE,) * 6, BusyPolicy.INTERRUPT, BusyPolicy.ROLLBACK, BusyPolicy.STEER))
        body, key = encode(script(draw, number)), f"key {number}"
        cancels = draw.random() < 0.15
        if cancels:
            policy = BusyPolicy.ENQUEUE
        while True:
            service = draw.choice(self._services)
            try:
                admission = Admission(world.link.store, world.blobs, world.ids, world.clock, 1000)
                admitted = admission.admit(agent, body, key, policy)
                if cancels:
                    await asyncio.sleep(2 * draw.random())
                    with suppress(ChronicleError, PodiumError, TimeoutError):
                        await service.router.cancel(agent, admitted.message_id)
                await self._follow(service, agent, admitted, leaves_s=6 * draw.random() + 0.5)
            except (ChronicleError, PodiumError, TimeoutError) as error:
                world.note("client", number, type(error).__name__, error)
                await asyncio.sleep(0.3)
                continue
            return

    async def _follow(self, service: Service, agent: Address, admitted: Admitted, leaves_s: float) -> None:
        """Read a message's frames to the end.

        Args:
            leaves_s: the connection to the service breaks after so long, in some cases.
        """
        frames: list[Frame] = []
        world = self._cluster_world
        restores = world.restores.count
        async with asyncio.timeout(leaves_s if self._world.generator.random() < 0.3 else None):
            async for batch in service.delivery.deliver(agent, self._code, admitted):
                for frame in batch:
                    epoch = frame.pop("epoch", None)
                    if epoch is not None:
                        self._check_epoch(service, agent, epoch)
                    frames.append(frame)
        if world.restores.count == restores:  # else what was shown may be lost
            session = world.store.session(agent.name, agent.tenant)
            world.oracle.shown(session.session_id, admitted.message_id, frames)

    def _check_epoch(self, service: Service, agent: Address, epoch: int) -> None:
        """Check that a frame is of no earlier epoch than the service's route to the agent."""
        newest = service.router.routes._newest.get(agent)
        if newest is not None and epoch < newest.epoch:
            self._world.oracle.verdict.fail(
                f"a frame of {agent} of epoch {epoch} is forwarded after {newest.epoch} began"
            )


_STAND_INS: Final[dict[Any, tuple[str, ...]]] = {
    coordinator_actor: ("SystemClock", "IdSource", "log_to", "_stores", "ray", "kept_known_agents"),
    node_pool: ("living_nodes", "start_node_manager", "find_actor"),
    host_pool: ("find_actor",),
    reconciler: ("lives",),
    router: ("find_actor",),
    ray: ("kill",),
}
"""What is replaced in modules for a run: Ray, the clock, the ids, and the stores."""


def main(seed: int, *, with_restores: bool) -> None:
    """Run one seed, and print each step."""
    with TemporaryDirectory() as directory:
        file = Path(directory) / "puppet.py"
        file.touch()
        print(ClusterSimulator(seed, file, with_restores=with_restores, verbose=True).run())


if __name__ == "__main__":
    main(int(sys.argv[1]), with_restores="--restores" in sys.argv)
