"""The nodes of a simulated cluster, and what Ray does there: actors, their calls, and deaths, of which it learns late.

It behaves as the coordinator relies on: a call of an actor that dies fails; one of a node that is cut off has no answer
until the node is connected again or taken for dead; a call of the coordinator is repeated by its next process.
"""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import ray

from coordinator.fleet.model import Code, Loaded
from coordinator.fleet.nodes.node_names import Member
from coordinator.fleet.nodes.nodes import CPU, Node, NodeId
from coordinator.ray.cluster import COORDINATOR_NAME, node_manager_name
from podium.tasks import BackgroundTasks
from tests.stateful.cluster.host_process import HostProcess
from tests.stateful.cluster.network import Place
from tests.stateful.cluster.store_process import StoreProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coordinator.ray.node_manager import NodeConfig
    from podium.address import Address
    from tests.stateful.cluster.world import ClusterWorld

__all__ = ["ClusterNode", "SimulatedRay"]

_TAKEN_FOR_DEAD_S: Final = 3.0
"""After so long without an answer Ray takes a node for dead."""
_DRAIN_S: Final = 1.5
"""An activation on a node that was drained for longer was not under way."""


class ClusterNode(Place):
    """A node over its lives; its disk keeps layers and the links of its hosts."""

    def __init__(self, world: ClusterWorld, number: int) -> None:
        self._world = world
        self.number = number
        self.name = f"n{number}"
        self.life = 1
        self.is_up = True
        self.ray_dead = asyncio.Event()
        """Set when Ray takes this life for dead."""
        self.store = StoreProcess(world, self)
        self.processes: dict[str, HostProcess] = {}
        self.links: dict[str, None] = {}
        """Hosts that were started and not ended; on its disk."""
        self.told: Any = None
        """Told of the end of a process."""

    @property
    def ray_id(self) -> str:
        """Ray's id of this life."""
        return f"{self.name}-{self.life}"

    def lose_process(self, process: HostProcess) -> None:
        """Have a process die, and tell the coordinator."""
        if not process.dead.is_set():
            self._world.note("node", self.name, "loses", process.host_id[-6:])
            process.end_process()
            self._world.note_loss(process.address)
            if self.told is not None and self.is_up and not self.is_cut:
                self.told(process.host_id)

    def lose_power(self) -> None:
        """Die with all processes."""
        self._world.note("node", self.name, "dies")
        self.is_up = False
        self._end_processes()
        self.store.die(0.0)
        self._world.loop.call_later(_TAKEN_FOR_DEAD_S * self._world.generator.random(), self.ray_dead.set)

    async def cut_off(self, seconds: float) -> None:
        """Be cut off for some time; if Ray has taken it for dead meanwhile, its processes end some time after."""
        self._world.note("node", self.name, "is cut off", f"{seconds:.1f}s")
        life, self.is_cut = self.life, True
        if seconds > _TAKEN_FOR_DEAD_S:
            self._world.loop.call_later(_TAKEN_FOR_DEAD_S, self.ray_dead.set)
        await asyncio.sleep(seconds)
        self.is_cut = False
        self._world.note("node", self.name, "is connected again")
        if self.is_up and self.life == life and self.ray_dead.is_set():
            await asyncio.sleep(2 * self._world.generator.random())
            self.is_up = False
            self._end_processes()

    def come_back(self) -> None:
        """Join again, as another node for Ray."""
        if not self.is_up and not self.is_cut:
            self.ray_dead.set()
            self.life, self.is_up, self.ray_dead = self.life + 1, True, asyncio.Event()
            self._world.note("node", self.name, "comes back")

    def running(self) -> HostProcess | None:
        """Return a process with a running turn, if there is one."""
        agents = ((process, process.agent) for process in self.processes.values())
        return next((process for process, agent in agents if agent and agent.activation.running_message_id), None)

    def check_drain(self, address: Address) -> None:
        """Check that no agent is activated here when the node was drained long ago."""
        since_s = self._world.drained_s.get(self.name)
        if since_s is not None and self._world.loop.time() > since_s + _DRAIN_S:
            self._world.oracle.verdict.fail(f"{address} is activated on {self.name}, which is drained")

    def _end_processes(self) -> None:
        for process in self.processes.values():
            process.end_process()
        self.processes.clear()


class Manager:
    """The manager of a node; its public methods are those of `coordinator.ray.node_manager.NodeManagerActor`."""

    def __init__(self, world: ClusterWorld, node: ClusterNode, name: NodeId, clusters: SimulatedRay) -> None:
        self._world = world
        self._node = node
        self._name = name
        self._ray = clusters

    async def ready(self) -> None:
        """Be ready."""

    async def measure(self) -> Node:
        """Return what the node has."""
        return Node(self._name, {CPU: 8.0}, {}, 2)

    async def hosts(self) -> list[str]:
        """Return the hosts that were started and not ended."""
        return list(self._node.links)

    async def layers(self, workspace_ids: Sequence[str]) -> dict[str, int]:
        """Return no layers: where workspaces are warm matters to speed only."""
        del workspace_ids
        return {}

    async def start_host(self, host_id: str, code: Code, isolation: Any, needs: Any) -> Loaded:
        """Start a host."""
        del isolation, needs
        self._node.links[host_id] = None
        await asyncio.sleep(0.1 + 0.5 * self._world.generator.random())
        loaded = Loaded(code, (), self._ray.stamp, is_alone=True)
        if host_id in self._node.links:
            self._node.processes[host_id] = HostProcess(self._world, self._node, host_id, loaded)
        return loaded

    async def end_host(self, host_id: str, *, died: bool = False) -> str | None:
        """End a host; it may be of a node that is gone."""
        self._node.links.pop(host_id, None)
        process = self._node.processes.pop(host_id, None)
        if process is None:
            return None
        had_died = process.dead.is_set()
        process.end_process()
        return "killed by a fault" if died or had_died else None

    async def end_others(self, host_ids: Sequence[str]) -> None:
        """End all hosts but some."""
        for host_id in list(self._node.links):
            if host_id not in host_ids:
                await self.end_host(host_id)

    async def culprit(self, host_id: str) -> str | None:
        """Blame the agent of a host that has one agent."""
        process = self._ray.process(host_id)
        return str(process.address) if process is not None and process.address is not None else None

    async def computes(self, host_id: str) -> bool:
        """Say that no process computes."""
        del host_id
        return False


class _Handle:
    """The handle of an actor."""

    def __init__(self, cluster: SimulatedRay, name: str) -> None:
        self._cluster = cluster
        self._name = name

    def __getattr__(self, method: str) -> Any:
        def call(*arguments: Any, **named: Any) -> asyncio.Task[Any]:
            return self._cluster.call(self._name, method, arguments, named)

        return SimpleNamespace(remote=call)


class SimulatedRay:
    """The cluster, as the coordinator and services see it."""

    def __init__(self, world: ClusterWorld, nodes: Sequence[ClusterNode], stamp: str) -> None:
        self._world = world
        self._nodes = nodes
        self.stamp = stamp
        self._managers: dict[str, Manager] = {}
        self._known_dead_s: dict[str, float] = {}
        self._tasks = BackgroundTasks()
        self.coordinator: Any = None
        self.coordinator_died = asyncio.Event()
        self.coordinator_began = asyncio.Event()
        for node in nodes:
            node.told = self._tell

    # -- what `coordinator.ray` asks for --------------------------------------------------------------------------

    def living_nodes(self) -> list[Member]:
        """Return the nodes that Ray takes for alive."""
        alive = [node for node in self._nodes if not node.ray_dead.is_set()]
        return [Member(node.ray_id, node.name, "10.0.0.1", socket.gethostname()) for node in alive]

    def start_node_manager(self, ray_id: str, config: NodeConfig) -> _Handle:
        """Start the manager of a node unless it has one."""
        node = next((node for node in self._nodes if node.ray_id == ray_id), None)
        if node is not None and ray_id not in self._managers:
            self._managers[ray_id] = Manager(self._world, node, config.node, self)
        return _Handle(self, node_manager_name(ray_id))

    def find_actor(self, name: str) -> _Handle | None:
        """Return the handle of an actor that Ray takes for alive."""
        if name == COORDINATOR_NAME:
            return _Handle(self, name)
        for node in self._nodes:
            if not node.ray_dead.is_set():
                if name == node_manager_name(node.ray_id) and node.ray_id in self._managers:
                    return _Handle(self, name)
                process = node.processes.get(name)
                if process is not None and not self._knows_dead(process):
                    return _Handle(self, name)
        return None

    def lives(self, name: str) -> bool:
        """Whether Ray takes an actor for alive."""
        return self.find_actor(name) is not None

    def kill(self, handle: _Handle) -> None:
        """Kill a host."""
        process = self.process(handle._name)
        if process is not None and not process.place.is_cut:
            process.end_process()

    def process(self, host_id: str) -> HostProcess | None:
        """Return the process of a host."""
        return next((node.processes[host_id] for node in self._nodes if host_id in node.processes), None)

    # -- calls ----------------------------------------------------------------------------------------------------

    def call(self, name: str, method: str, arguments: Any, named: Any) -> asyncio.Task[Any]:
        """Call a method of an actor."""
        calling = self._call_coordinator if name == COORDINATOR_NAME else self._call
        task = self._tasks.start(calling(name, method, arguments, named), f"{name}.{method}")
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _call(self, name: str, method: str, arguments: Any, named: Any) -> Any:
        node, target, dead = self._target(name)
        await self._world_pauses()
        await self._reach(node)
        if dead is not None and dead.is_set():
            raise ray.exceptions.RayActorError(error_msg="it died")
        working = asyncio.ensure_future(getattr(target, method)(*arguments, **named))
        ends = [asyncio.ensure_future(event.wait()) for event in (dead, node.ray_dead) if event is not None]
        try:
            await asyncio.wait({working, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ray.exceptions.RayActorError(error_msg="it died")
            if working.cancelled():
                raise ray.exceptions.RayActorError(error_msg="it died")
            answer = working.result()
            await self._world_pauses()
            await self._reach(node)
            return answer
        finally:
            for each in (working, *ends):
                each.cancel()

    async def _call_coordinator(self, _: str, method: str, arguments: Any, named: Any) -> Any:
        while True:
            await self.coordinator_began.wait()
            await self._world_pauses()
            if self.coordinator is None:
                continue
            working = asyncio.ensure_future(getattr(self.coordinator, method)(*arguments, **named))
            died = asyncio.ensure_future(self.coordinator_died.wait())
            try:
                await asyncio.wait({working, died}, return_when=asyncio.FIRST_COMPLETED)
                if working.done() and not working.cancelled():
                    return working.result()
            finally:
                working.cancel()
                died.cancel()

    def _target(self, name: str) -> tuple[ClusterNode, Any, asyncio.Event | None]:
        for node in self._nodes:
            if name == node_manager_name(node.ray_id):
                return node, self._managers[node.ray_id], None
            if name in node.processes:
                return node, node.processes[name], node.processes[name].dead
        raise ray.exceptions.RayActorError(error_msg="it is gone")

    async def _reach(self, node: ClusterNode) -> None:
        life = node.life
        while node.is_cut or not node.is_up:
            if node.ray_dead.is_set() or node.life != life:
                raise ray.exceptions.RayActorError(error_msg="its node is gone")
            await asyncio.sleep(0.1)
        if node.ray_dead.is_set() or node.life != life:
            raise ray.exceptions.RayActorError(error_msg="its node is gone")

    async def _world_pauses(self) -> None:
        await asyncio.sleep(0.01 * self._world.generator.random() ** 2)

    def _knows_dead(self, process: HostProcess) -> bool:
        if not process.dead.is_set():
            return False
        now_s = self._world.loop.time()
        known_s = self._known_dead_s.setdefault(process.host_id, now_s + self._world.generator.random())
        return now_s >= known_s

    def _tell(self, host_id: str) -> None:
        _ = self.call(COORDINATOR_NAME, "process_ended", (host_id,), {})

    def end(self) -> None:
        """End all calls."""
        self._tasks.cancel()
