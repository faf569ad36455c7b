"""The service's router to agents: the routes to their hosts, and all Ray calls of the service."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import ray
import structlog

from chronicle.canonical import encode
from chronicle.clock import SystemClock
from chronicle.fuse import available
from chronicle.ids import IdSource
from coordinator.environment import ray_address
from coordinator.fleet.code.code_stamp import SharedStamps
from coordinator.fleet.liveness import PROBES_PER_SILENCE, with_probes
from coordinator.fleet.nodes.machines import published_machine
from coordinator.fleet.nodes.nodes import LOCAL_NODE
from coordinator.fleet.services.handover import HandedOver
from coordinator.homes.opening import open_records
from coordinator.host.delivery import DELIVERIES
from coordinator.ray.cluster import (
    COORDINATOR_NAME,
    cause_of,
    disconnect,
    end_actors,
    find_actor,
    has_actors,
    join,
    living_nodes,
    lost_process,
    of_machine,
    on_node,
    probe,
    start,
)
from coordinator.ray.coordinator_actor import CoordinatorActor
from coordinator.ray.coordinator_config import CoordinatorConfig
from coordinator.ray.node_manager import NodeConfig, start_node_manager
from coordinator.ray.reading import ray_errors, read_agent
from coordinator.ray.route_cache import RouteCache
from coordinator.registry.known_agents import KnownAgents, keep_known_agents, kept_known_agents
from coordinator.registry.registry import source_of
from coordinator.store.links import COORDINATOR
from podium.code.manifest import short_id
from podium.errors import AgentAsleep, HomeError, HostDied
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from chronicle.ids import MessageId
    from coordinator.fleet.deaths.losses import Seen
    from coordinator.fleet.facts import AgentFacts, AwakeFacts, NodeFacts
    from coordinator.fleet.model import Code, Route
    from coordinator.fleet.nodes.node_names import Member
    from coordinator.fleet.nodes.nodes import NodeId
    from coordinator.home import Home
    from coordinator.registry.registry import Registry
    from coordinator.settings import Settings
    from coordinator.store.links import StoreAccess
    from coordinator.telemetry.recorder import Series, Value
    from podium.address import Address
    from podium.turn.busy import BusyPolicy
    from podium.turn.reading import Read
    from podium.turn.stream import Frame

__all__ = ["Router"]

_log: Final = structlog.stdlib.get_logger(__name__)

_LOSSES_AGAIN_S: Final = 1.0
_END_MARGIN_S: Final = 10.0
"""Margin for the ends of hosts' processes beyond the timeout of their agents."""
_MAX_RETIRING: Final = 10_000
"""Agents of which it is known that they will be reloaded; it is reported with their next message."""


class Router:
    """The actors of one home, and the routes to its agents.

    Args:
        home: the home.
        settings: the settings of this process.
        store: the store process, if no actor is to open the home's stores itself.
    """

    def __init__(self, home: Home, settings: Settings, store: StoreAccess | None = None) -> None:
        self._home = home
        self._store = store
        self._settings = settings
        self._coordinator: Any = None
        self._agents_ended = False
        self._is_embedded = True
        self._is_joined = False
        documents = open_records(home).documents() if home.is_shared else None
        self._find_machine = partial(published_machine, documents) if documents is not None else _no_machine
        self.routes = RouteCache(home.run_dir / DELIVERIES, find_machine=self._find_machine)
        self._stamps = SharedStamps()
        self._known_path = home.run_dir / "known-agents.json"
        self._serving_path = home.run_dir / "serving"
        self._known = kept_known_agents(self._known_path)
        self._retiring: dict[Address, int] = {}
        """Lease epochs of hosts that are retired because their code changed, the latest `_MAX_RETIRING`."""
        self._waking = BackgroundTasks()
        """Calls of the coordinator that wake agents."""
        self._ids = IdSource()
        self._clock = SystemClock()
        self._left: asyncio.Future[None] | None = None
        """See `_leaving`."""
        self.notice: str | None = None
        """Notice for clients, if workspaces are plain directories on this machine: the reason."""

    async def stand_by(self, deployed: Registry | None, on_stage: Callable[[str], None]) -> bool:
        """Join the cluster of ``RAY_ADDRESS`` and start what may run while another service has the home.

        Args:
            deployed: the classes of the current deploy, of which hosts are kept warm.
            on_stage: called with a short description of each stage.

        Returns:
            whether that was done: not for an embedded Ray, and not while the cluster has actors of the home, such as of
            a service that was killed, or of the one that has the home.

        Raises:
            Exception: the cluster cannot be joined.
        """
        if not ray_address():
            return False
        self._serving_path.unlink(missing_ok=True)  # of a service that was killed
        if not self._is_joined:
            await self._join(on_stage)
        if self._coordinator is None and not await asyncio.to_thread(has_actors):
            on_stage("starting the coordinator")
            await self._start_coordinator()
            self._known = KnownAgents(deployed)
            await asyncio.to_thread(keep_known_agents, self._known_path, self._known)
            coordinator: Any = self._coordinator
            await self._in_start(coordinator.stand_by.remote(self._known))
        return self._coordinator is not None

    async def start(self, on_stage: Callable[[str], None]) -> None:
        """Start Ray, or join the cluster of ``RAY_ADDRESS``, and start the coordinator and the managers of nodes.

        What `stand_by` has started is used. The caller has the claim on the home.

        Args:
            on_stage: called with a short description of each stage of the start.

        Raises:
            Exception: Ray did not start, or the cluster cannot be joined.
        """
        self._serving_path.touch()
        started = None
        if self._coordinator is None:
            if not self._is_joined:
                await self._join(on_stage)
            if not self._is_embedded:
                await asyncio.to_thread(end_actors)  # those that an earlier service has left
            on_stage("starting the coordinator")
            started = await self._start_coordinator()
        await self._in_start(started or self._coordinator.recover.remote())
        if not self._is_embedded:
            self._waking.spawn(self._follow_losses(), "losses")

    async def _join(self, on_stage: Callable[[str], None]) -> None:
        address, namespace = ray_address(), f"podium-{self._home.id}"
        on_stage("starting Ray" if not address else "joining the Ray cluster")
        self._is_embedded = not address
        if self._is_embedded:
            await asyncio.to_thread(start, namespace, self._home.run_dir, self._home.logs / "hosts.log")
        else:
            await asyncio.to_thread(join, address, namespace)
            await asyncio.to_thread(lambda: self._check_machines(address, living_nodes()))
        self._home.note_cluster(address)
        self._is_joined = True

    async def _start_coordinator(self) -> Any:
        """Start the coordinator; return the answer to wait for of a node manager that was started beside it, if any."""
        is_embedded = self._is_embedded
        settings, home = self._settings, self._home
        own, node = ray.get_runtime_context().get_node_id(), self._node_config()
        started = start_node_manager(own, node).ready.remote() if is_embedded else None  # beside the coordinator
        self._coordinator = CoordinatorActor.options(  # type: ignore[attr-defined]
            name=COORDINATOR_NAME,
            num_cpus=0,
            resources={} if is_embedded else await asyncio.to_thread(of_machine, own),  # its files are there
            scheduling_strategy=on_node(own, or_another=True),
        ).remote(
            CoordinatorConfig(
                home=home.path,
                home_id=home.id,
                journal=node.journal,
                store=self._store.link(COORDINATOR) if self._store is not None else None,
                logs=home.logs,
                node=node,
                named_nodes={own: LOCAL_NODE} if is_embedded else {},
                is_embedded=is_embedded,
                known_agents=self._known_path,
                serving=self._serving_path,
                host_cpus=settings.host_cpus,
                inbox_limit=settings.inbox_limit,
                shared_agents=settings.shared_agents,
                warm_hosts=settings.warm_hosts,
                most_warm_hosts=settings.most_warm_hosts,
                most_starting=settings.most_starting,
                autoscaler=settings.autoscaler and not is_embedded,
                lease_ttl_s=settings.lease_ttl_s,
                silence_s=settings.silence_s,
                hang_s=settings.hang_s,
                wake_timeout_s=settings.wake_timeout_s,
            )
        )
        return started

    async def _in_start(self, answer: Any) -> None:
        async with asyncio.timeout(self._settings.start_timeout_s):
            await answer

    def _check_machines(self, address: str, nodes: Sequence[Member]) -> None:
        """Check that all nodes can open the home; set `notice` if some are not used.

        Raises:
            HomeError: some cannot.
        """
        elsewhere = sorted({node.hostname for node in nodes} - {socket.gethostname()})
        if not elsewhere:
            return
        machines = ", ".join(elsewhere)
        if not self._home.is_shared:
            raise HomeError(
                f"the Ray cluster at {address} has nodes on other machines ({machines}), and the home "
                f"{self._home.path} keeps its journal in a directory of this one; move it to a database with "
                "`podium migrate`, or take another cluster"
            )
        unknown = ", ".join(name for name in elsewhere if self._find_machine(name) is None)
        if unknown:
            self.notice = f"Agents run on the nodes of {unknown} when `podium node` runs there."

    def _node_config(self) -> NodeConfig:
        settings, home = self._settings, self._home
        return NodeConfig(
            node=LOCAL_NODE,
            home=str(home.path),
            journal=home.journal_url if self._store is None else "",
            blobs_url=home.blobs_url if self._store is None else "",
            store=self._store,
            home_id=home.id,
            home_identity=home.identity,
            workspaces=str(settings.workspaces),
            run_dir=str(home.run_dir),
            logs=str(home.logs),
            log_bytes=settings.log_bytes,
            presentation=self._presentation(),
            fuse_transport=settings.fuse_transport,
            inbox_limit=settings.inbox_limit,
            lease_ttl_s=settings.lease_ttl_s,
            report_interval_s=settings.metrics_interval_s,
            shared_host_bytes=settings.shared_host_bytes,
            block_limit_s=settings.block_limit_s,
            owner_pid=os.getpid(),
            models=str(home.models_socket),
            group=None,
            ends_with_coordinator=not self._is_embedded,
        )

    def leave(self) -> None:
        """Wake no agent any more, as another service has the home: wakes that are asked for raise `HandedOver`."""
        if not self._leaving.done():
            self._leaving.set_result(None)

    @property
    def _leaving(self) -> asyncio.Future[None]:
        """Done when the home is handed over to another service."""
        if self._left is None:
            self._left = asyncio.get_running_loop().create_future()
        return self._left

    async def end_agents(self, timeout_s: float) -> None:
        """End all agents in order, and wake none any more; deliveries of running turns continue meanwhile.

        Args:
            timeout_s: timeout of running turns and of the agents' shutdown. A turn that goes on longer is rolled back:
                its message stays pending, and no attempt is counted.
        """
        if self._coordinator is None or self._agents_ended:
            return
        self._agents_ended = True
        try:
            async with asyncio.timeout(timeout_s + _END_MARGIN_S):
                await self._coordinator.stop.remote(timeout_s)
        except (TimeoutError, ray.exceptions.RayError) as error:
            _log.warning("agents_not_ended_in_order", error=str(error))

    async def _follow_losses(self) -> None:
        """Have nothing reach clients any more that comes from hosts whose nodes are gone."""
        seen: Seen | None = None
        while True:
            try:
                now, hosts = await self._coordinator.lost_hosts.remote(seen)
            except ray.exceptions.RayError as error:  # the coordinator does not come back: the service is about to end
                _log.warning("losses_not_known", error=str(cause_of(error)))
                await asyncio.sleep(_LOSSES_AGAIN_S)
                continue
            for host_id in hosts:
                self.routes.lose(host_id)
            if seen is None or now[0] != seen[0]:
                await self._probe_reached()
            seen = now

    async def _probe_reached(self) -> None:
        """Lose the hosts that have died while no coordinator could tell so."""
        for route in self.routes.reached():
            try:
                await self.probe_host(route)
            except (AgentAsleep, HostDied):
                self.routes.lose(route.host_id)

    async def lost(self) -> str:
        """Wait until the embedded Ray has died; return what did. Then no agent can be ended in order."""
        what = await lost_process()
        self._agents_ended = True
        return what

    async def stop(self) -> None:
        """End all agents in order, unless `end_agents` did, and leave Ray."""
        await self.end_agents(self._settings.stop_timeout_s)
        self._waking.cancel()
        if not self._is_embedded and self._coordinator is not None:
            await asyncio.to_thread(end_actors)  # an embedded Ray ends with them
        await asyncio.to_thread(disconnect)

    # -- routes and wakes ---------------------------------------------------------------------------------------------

    async def prepare(self, address: Address, code: Code) -> int | None:
        """Have messages admitted after this call handled by the current content of a code.

        If the agent is awake with other code, its host ends after the running turn, and another host takes over.

        Returns:
            the epoch of the lease under which the agent is awake with that content, if it is known.

        Raises:
            TimeoutError: the coordinator does not answer.
        """
        route = self.routes.get(address)
        config = encode(self._known.config_of(address.agent_type)).decode()
        if route is not None and await self._runs(route, code, config):
            return route.epoch
        retired: Route | None = await self._in_time(self._coordinator.prepare.remote(address, code))
        if retired is not None:
            self._note_retiring(address, retired)
        return None

    def epoch_of(self, address: Address) -> int | None:
        """Return the epoch of the lease under which an agent is awake, if it is known."""
        route = self.routes.get(address)
        return route.epoch if route is not None else None

    @property
    def known(self) -> KnownAgents:
        """The agent classes that are known: at the start those of a service that was killed, else none."""
        return self._known

    async def know(self, known: KnownAgents) -> None:
        """Replace the agent classes that are known; agents of registered classes with pending messages are woken.

        Raises:
            TimeoutError: the coordinator does not answer.
        """
        self._known = known
        await asyncio.to_thread(keep_known_agents, self._known_path, known)
        await self._in_time(self._coordinator.know.remote(known))

    async def reload(self) -> list[Address]:
        """Have awake agents of registered classes end after their turns if their code or configuration is outdated.

        Their next messages are handled by other hosts. Classes that could not be loaded are tried again.

        Returns:
            these agents.
        """
        retired: list[tuple[Address, Route]] = await self._ask(self._coordinator.reload.remote())
        for address, route in retired:
            self._note_retiring(address, route)
        return [address for address, _ in retired]

    async def problems(self) -> dict[str, str]:
        """Return why classes cannot be loaded, by agent type."""
        problems: dict[str, str] = await self._in_time(self._coordinator.problems.remote())
        return problems

    async def wake(self, address: Address, code: Code, lost: Route | None, *, may_be_early: bool) -> Route:
        """Have the coordinator wake an agent, and return the route to it.

        Args:
            lost: a stale route; the result is a different one.
            may_be_early: whether to return the route as soon as the host tells that the activation begins, which it
                does to an edge that is connected to it; the coordinator knows of the activation a little later.

        Raises:
            PodiumError: the agent cannot be woken.
            HandedOver: another service has the home.
        """
        if self._leaving.done():
            raise HandedOver
        asked = self._waking.start(self._ask(self._coordinator.wake.remote(address, code, lost)), f"wake {address}")
        asked.add_done_callback(_retrieve)
        route: Route
        try:
            with self.routes.waking(address) as begun:
                early = {begun} if may_be_early else set()
                await asyncio.wait({asked, self._leaving, *early}, return_when=asyncio.FIRST_COMPLETED)
                if not asked.done() and begun.done() and (lost is None or begun.result().epoch > lost.epoch):
                    return begun.result()
            if not asked.done():
                await asyncio.wait({asked, self._leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                asked.cancel()
                raise HandedOver
            route = await asked
        except asyncio.CancelledError:
            asked.cancel()
            raise
        return route

    async def read(self, address: Address, code: Code, message: dict[str, Any]) -> Read:
        """Call a read-only handler of an agent, which is woken for it; again if its host ends meanwhile.

        Raises:
            PodiumError: the agent cannot be woken, or the handler failed.
            HostDied: its hosts died of it, one after the other.
        """
        return await read_agent(address, message, lambda lost: self.wake(address, code, lost, may_be_early=False))

    def agent_start(self, address: Address, route: Route) -> Frame | None:
        """Return the ``agent_start`` frame of a new route, with the agent's code and whether it was reloaded.

        Returns:
            ``None`` if the host is being retired: the agent starts again.
        """
        if route.epoch == self._retiring.get(address):
            return None
        frame: Frame = {"type": "agent_start", "agent": address.name, "turn": route.turn}
        if route.loaded is not None:
            code = route.loaded.code
            stamp = short_id(code.bundle) or route.loaded.stamp
            frame["code"] = {"source": self._source_of(code), "file": code.file, "stamp": stamp}
            frame["reloaded"] = self._retiring.pop(address, None) is not None
        return frame

    async def preempt(self, address: Address, message_id: MessageId, policy: BusyPolicy) -> None:
        """Apply the policy of an admitted message to the running turn.

        Raises:
            HostDied: the coordinator died.
        """
        with ray_errors():
            await self._ask(self._coordinator.preempt.remote(address, message_id, policy))

    async def probe_host(self, route: Route) -> None:
        """Probe the liveness of an agent's host.

        Raises:
            AgentAsleep: it is gone.
            HostDied: it is dead, or does not answer.
        """
        host = find_actor(route.host_id)
        if host is None:
            raise AgentAsleep(f"host {route.host_id} is gone")
        with ray_errors():
            await probe(host, self._settings.silence_s)

    # -- other calls about an agent -------------------------------------------------------------------------------

    async def cancel(self, address: Address, message_id: MessageId) -> None:
        """Cancel a pending, running or parked message; durable on return.

        Raises:
            NotFound: the agent has no such message, or has handled it.
            TimeoutError: the agent's code did not stop.
        """
        await self._ask(self._coordinator.cancel.remote(address, message_id))

    async def poke(self, address: Address) -> bool:
        """Have an agent check its inbox; return ``False`` if its code is not known yet."""
        looks: bool = await self._ask(self._coordinator.poke.remote(address))
        return looks

    async def forget(self, address: Address) -> None:
        """Have the nodes remove what they keep of an agent that is deleted, as far as they answer.

        Raises:
            AgentAwake: it has a host.
        """
        await self._ask(self._coordinator.forget.remote(address))

    @asynccontextmanager
    async def asleep(self, address: Address) -> AsyncIterator[None]:
        """Put an agent to sleep after its running turn, and keep it asleep while the context lasts."""
        holder = self._ids.other("hold_", self._clock.now_ms())
        try:
            await self._ask(self._coordinator.hold.remote(address, holder))
            yield
        finally:
            self._coordinator.release.remote(address, holder)

    async def running(self) -> list[dict[str, Any]]:
        """Return the hosts as plain values."""
        hosts: list[dict[str, Any]] = await self._in_time(self._coordinator.running.remote())
        return hosts

    async def facts(self, address: Address) -> AgentFacts:
        """Return what the fleet knows of an agent."""
        facts: AgentFacts = await self._in_time(self._coordinator.facts.remote(address))
        return facts

    async def awake(self, agents: Sequence[Address]) -> dict[str, AwakeFacts]:
        """Return those of agents that have a host, by address."""
        awake: dict[str, AwakeFacts] = await self._in_time(self._coordinator.awake.remote(list(agents)))
        return awake

    async def nodes(self) -> list[NodeFacts]:
        """Return the nodes and their hosts."""
        nodes: list[NodeFacts] = await self._in_time(self._coordinator.nodes.remote())
        return nodes

    async def drain(self, node: NodeId, *, undo: bool) -> None:
        """Move the agents of a node to other nodes, or use a drained node again.

        Raises:
            NotFound: there is no such node.
        """
        await self._ask(self._coordinator.drain.remote(node, undo=undo))

    async def measured(self) -> dict[Series, Value]:
        """Return the sums and gauges of the coordinator.

        Raises:
            TimeoutError: the coordinator does not answer.
        """
        sums: dict[Series, Value] = await self._in_time(self._coordinator.measured.remote())
        return sums

    async def _ask(self, answer: Any) -> Any:
        """Await a result of the coordinator, without a time limit while it answers liveness probes."""
        silence_s = self._settings.silence_s
        try:
            return await with_probes(
                answer, silence_s / PROBES_PER_SILENCE, lambda: probe(self._coordinator, silence_s)
            )
        except ray.exceptions.RayTaskError as error:
            raise cause_of(error) from error

    async def _in_time(self, answer: Any) -> Any:
        """Await a result of a call that has no effect unless the coordinator answers within the wake timeout.

        Raises:
            TimeoutError: it did not answer.
        """
        limit_s = self._settings.wake_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError:
            raise TimeoutError(
                f"the coordinator has not answered for {limit_s:g} s; nothing was done: try again"
            ) from None

    async def _runs(self, route: Route, code: Code, config: str) -> bool:
        """As `Route.runs`, without blocking the event loop."""
        loaded = route.loaded
        if route.config not in (None, config) or loaded is None:
            return loaded is None and route.config in (None, config)
        return loaded.code == code and await self._stamps.of(loaded.sources) == loaded.stamp

    def _note_retiring(self, address: Address, route: Route) -> None:
        self._retiring.pop(address, None)
        self._retiring[address] = route.epoch
        if len(self._retiring) > _MAX_RETIRING:
            del self._retiring[next(iter(self._retiring))]

    def _source_of(self, code: Code) -> str:
        known = self._known.find(code.agent_type)
        same = known is not None and (known.file, known.class_name) == (code.file, code.class_name)
        return known.source if known is not None and same else source_of(code.file, code.class_name)

    def _presentation(self) -> Literal["fuse", "dir"]:
        """Return how workspaces are presented; set `notice` if FUSE was preferred and is not available."""
        if self._settings.presentation == "dir":
            return "dir"
        reason = available(self._settings.fuse_transport)
        if reason is None:
            return "fuse"
        if self._settings.presentation == "fuse":
            raise RuntimeError(reason)
        self.notice = f"{reason} Without it, workspaces are plain directories, versioned per turn."
        return "dir"


def _no_machine(hostname: str) -> None:
    """Return what is told of a machine in a home of one machine."""
    del hostname


def _retrieve(asked: asyncio.Task[Route]) -> None:
    """Mark an error as retrieved: `wake` raises it, or, of an agent that was awake before, its next delivery."""
    if not asked.cancelled():
        asked.exception()
