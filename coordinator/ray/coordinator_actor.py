"""The coordinator's Ray actor: it answers calls about agents and runs `coordinator.ray.reconciler`.

It has no persistent state: leases are in the journal and hosts are named actors in Ray, so a restarted coordinator
finds both (`Reconciler.recover`). Once the caller has the route, the coordinator is not on the path of a message.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import ray
import structlog

from chronicle.clock import SystemClock
from chronicle.errors import NotFound
from chronicle.ids import IdSource
from chronicle.journal.opening import open_journal
from chronicle.journal.remote import remote_journal
from coordinator.access.stored_quotas import FollowedQuotas, LatestQuotas, StoredQuotas
from coordinator.fleet.cancellation import Withdrawals
from coordinator.fleet.deaths.deaths import Deaths
from coordinator.fleet.deaths.losses import Losses
from coordinator.fleet.deaths.quarantine import Quarantine
from coordinator.fleet.facts import agent_facts, awake_facts
from coordinator.fleet.gauges import gauges_of
from coordinator.fleet.model import Code
from coordinator.fleet.nodes.drains import Drains
from coordinator.fleet.nodes.machines import published_machine
from coordinator.fleet.nodes.nodes import CPU, Needs
from coordinator.fleet.services.elsewhere import Elsewhere
from coordinator.fleet.state import FleetState
from coordinator.home import Home
from coordinator.homes.opening import open_records
from coordinator.logs import log_to
from coordinator.ray.cluster import cause_of, lives
from coordinator.ray.host_pool import HostPool
from coordinator.ray.node_pool import NodePool
from coordinator.ray.reconciler import TICK_S, Reconciler
from coordinator.registry.known_agents import kept_known_agents
from coordinator.store.client import RemoteDocuments, remote_quotas
from coordinator.telemetry.tracing import Tracing
from podium.errors import AgentAwake, HostDied
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chronicle.ids import MessageId
    from chronicle.journal.port import JournalStore
    from coordinator.access.quotas import Quota
    from coordinator.documents import Documents
    from coordinator.fleet.deaths.losses import Seen
    from coordinator.fleet.facts import AgentFacts, AwakeFacts, NodeFacts
    from coordinator.fleet.model import Route
    from coordinator.fleet.nodes.nodes import Node, NodeId
    from coordinator.ray.coordinator_config import CoordinatorConfig
    from coordinator.registry.known_agents import KnownAgents
    from coordinator.telemetry.recorder import Series, Value
    from coordinator.telemetry.reports import Report
    from podium.address import Address
    from podium.turn.busy import BusyPolicy

__all__ = ["CoordinatorActor"]

_NODE_STOP_S: Final = 10.0
"""Timeout for a node to end its mounts; its agents have ended."""

_log = structlog.stdlib.get_logger("coordinator")


@ray.remote(max_restarts=-1, max_task_retries=-1)
class CoordinatorActor:
    """Places agents on hosts. Methods are idempotent: Ray repeats a call during which this actor died.

    Args:
        config: the configuration of this coordinator.
    """

    def __init__(self, config: CoordinatorConfig) -> None:
        self._config = config
        log_to(config.logs / "coordinator.log")
        self._tasks = BackgroundTasks()
        journal, documents, quotas = _stores(config)
        latest = LatestQuotas(quotas)
        self._followed = FollowedQuotas(latest, self._changed) if config.store is not None else None
        self._state = FleetState(
            journal,
            SystemClock(),
            IdSource(),
            Quarantine(documents),
            latest if self._followed is None else self._followed,
            Needs(((CPU, config.host_cpus),)),
            Drains(documents),
            autoscaler=config.autoscaler,
        )
        if config.store is not None:
            self._state.elsewhere = Elsewhere(documents, journal, self._state.clock, alive=lives)
        self._withdrawals = Withdrawals(self._state.store, self._state.clock, self._state.ids)
        deaths = Deaths(self._state, self._withdrawals)
        self._nodes = NodePool(
            config, partial(published_machine, documents), self._tasks, self._nodes_changed, self._node_gone
        )
        self._pool = HostPool(self._state.hosts, config, self._tasks, self._state.changed.set, deaths, self._nodes)
        self._tracing = Tracing("coordinator")
        self._reconciler = Reconciler(
            config, self._state, self._pool, self._withdrawals, deaths, self._tasks, self._tracing.tracer
        )
        self._losses = Losses()
        self._begun = False
        self._beginning = asyncio.Lock()
        if ray.get_runtime_context().was_current_actor_reconstructed and config.serving.exists():
            self._tasks.spawn(self._go_on(), "go-on")

    async def stand_by(self, known: KnownAgents) -> None:
        """Join the nodes and keep hosts warm, while another service has the home; nothing is woken before `recover`."""
        async with self._beginning:
            if self._begun or self._state.is_waiting:
                return
            while not len(self._nodes):
                try:
                    await self._nodes.begin()
                except HostDied as error:  # a busy machine needs more time
                    _log.warning("no_node_yet", error=str(error))
                    await asyncio.sleep(TICK_S)
            self._state.is_waiting, self._state.known = True, known
            for agent_type in known.types:
                await self._state.register(Code.of(known.get(agent_type)))
            self._tasks.spawn(self._nodes.follow(), "nodes")
            self._tasks.spawn(self._reconciler.run(), "coordinator-loop")

    async def recover(self) -> None:
        """Join the nodes, and recover the running hosts."""
        await self._begin()

    async def _go_on(self) -> None:
        """Go on with what this actor did before it died: it may not be called for long, and reminders become due."""
        while not self._begun:
            try:
                await self._begin()
            except Exception as error:  # noqa: BLE001  such as a database that is not reached
                _log.warning("not_recovered", error=str(cause_of(error)) or type(error).__name__)
                await asyncio.sleep(TICK_S)

    async def ping(self) -> None:
        """Answer a liveness probe."""

    # -- waking ---------------------------------------------------------------------------------------------------

    async def prepare(self, address: Address, code: Code) -> Route | None:
        """Register a code, and retire the agent's host if it runs another code, or has another configuration.

        Edited files make a code another one. The host ends after its running turn. A host that is activating the agent
        starts on the inbox before there is a route to the host. So if that host runs another code, or has another
        configuration, this waits for the end of the activation, for half of the wake timeout.

        Returns:
            the route to the retired host, which begins no other message; ``None`` if none was retired.
        """
        await self._begin()
        await self._state.register(code)
        return await self._retire_outdated(address, code)

    async def _retire_outdated(self, address: Address, code: Code) -> Route | None:
        stamps = self._state.codes.stamps
        hosts = self._state.hosts
        host, request = hosts.host_of(address), self._state.requests.get(address)
        config = self._state.config_of(address.agent_type)
        loaded = host.loaded if host is not None else None
        is_awake = hosts.route(address) is not None
        if host is not None and request is not None and loaded is not None and not is_awake:
            if host.placements[address].config in (None, config) and await asyncio.to_thread(
                loaded.is_of, code, stamps
            ):
                return None
            await asyncio.wait({request.route}, timeout=self._config.wake_timeout_s / 2)
        route = hosts.route(address)
        if route is None or await asyncio.to_thread(route.runs, code, config, stamps):
            return None
        _log.info("code_changed", agent_id=str(address), host_id=route.host_id)
        await self._pool.retire(address, route.host_id)
        return route

    async def know(self, known: KnownAgents) -> None:
        """Replace the agent classes that are known.

        Warm hosts are started for registered classes, and their agents with pending messages are woken. Agents that are
        awake keep their code and configuration until they sleep.
        """
        await self._begin()
        before, self._state.known = self._state.known, known
        for agent in known.registry.agents if known.registry is not None else ():
            await self._state.register(Code.of(agent))
        if known.types_to_tell != before.types_to_tell:
            for host in self._state.hosts:
                if any(placement.epoch for placement in host.placements.values()):
                    self._pool.tell_types(host.host_id, known.types_to_tell)

    async def reload(self) -> list[tuple[Address, Route]]:
        """Retire the hosts of registered classes whose code or configuration is outdated; try broken classes again.

        Returns:
            the agents of these hosts, with their routes. They end after their running turns.
        """
        await self._begin()
        self._state.bundles.forget_lacking()
        registry = self._state.known.registry
        retired: list[tuple[Address, Route]] = []
        for agent in registry.agents if registry is not None else ():
            code = Code.of(agent)
            await self._state.register(code)
            for placement in self._state.hosts.placements():
                if placement.address.agent_type == agent.agent_type:
                    route = await self._retire_outdated(placement.address, code)
                    if route is not None:
                        retired.append((placement.address, route))
        return retired

    async def problems(self) -> dict[str, str]:
        """Return why classes cannot be loaded, by agent type."""
        await self._begin()
        return self._state.codes.problems

    async def wake(self, address: Address, code: Code, lost: Route | None = None) -> Route:
        """Return the route to an agent, waking the agent if it sleeps.

        Args:
            code: the agent's class.
            lost: a stale route; the result is a different one.

        Raises:
            PodiumError: the agent's code or state cannot be loaded; its messages stay in its inbox.
            TimeoutError: no host became ready within the wake timeout.
        """
        await self._begin()
        if self._state.codes.get(code.agent_type) is None:  # this coordinator was restarted, or the code did not load
            await self._state.register(code)
        hosts, clock = self._state.hosts, self._state.clock
        route = hosts.route(address)
        if route is not None and lost is not None and route.epoch <= lost.epoch:
            await self._pool.wait_gone(address, route.host_id)
            route = hosts.route(address)
        if route is not None:
            return self._placed(route)
        request = self._state.requests.add(address, code)
        asked_s = clock.monotonic_s()
        while not request.route.done():
            state = self._state
            if address in state.holds or address in state.over_quota or address in state.elsewhere:
                asked_s = clock.monotonic_s()
            # Concurrent requests queue for hosts, so the timeout restarts with each host that becomes ready.
            left_s = max(asked_s, self._state.progress_s) + self._config.wake_timeout_s - clock.monotonic_s()
            if left_s <= 0:
                raise TimeoutError(
                    f"no host was ready for {address} within {self._config.wake_timeout_s:g} s; its messages stay in "
                    f"its inbox, and podium why {address} says what it waits for"
                )
            await asyncio.wait({request.route}, timeout=left_s)
        return self._placed(request.route.result())

    async def wake_to_read(self, address: Address, lost: Route | None) -> Route:
        """Return the route to an agent of a known class that another one reads; see `wake`.

        Raises:
            UnknownAgentType: its class is not known.
        """
        await self._begin()
        return await self.wake(address, Code.of(self._state.known.get(address.agent_type)), lost)

    async def route(self, address: Address) -> Route | None:
        """Return the route to an agent, ``None`` if it is not awake."""
        await self._begin()
        return self._state.hosts.route(address)

    def _placed(self, route: Route) -> Route:
        """Return a route with the machine of its node."""
        return replace(route, machine=self._nodes.machine_of(route.node))

    async def poke(self, address: Address) -> bool:
        """Have an agent check its inbox; wake it if it has pending messages.

        Returns:
            ``False`` if its code is not known: the agent checks its inbox with a client's next message.
        """
        await self._begin()
        return await self._reconciler.poke(address)

    async def process_ended(self, host_id: str) -> None:
        """Note the end of a host's process, which its node manager saw; most often the host was ended in order."""
        await self._begin()
        self._pool.process_ended(host_id)

    async def outbox_filled(self) -> None:
        """Trigger the delivery of messages between agents, and a look at the reminders: a commit has some of either."""
        await self._begin()
        self._reconciler.courier.notice()
        self._reconciler.reminders.notice()

    # -- cancelling and preempting --------------------------------------------------------------------------------

    async def cancel(self, address: Address, message_id: MessageId) -> None:
        """Cancel a message; see `Withdrawals.cancel`."""
        await self._begin()
        await self._withdrawals.cancel(self._pool, address, message_id, self._config.wake_timeout_s)

    async def preempt(self, address: Address, message_id: MessageId, policy: BusyPolicy) -> None:
        """Apply the policy of an admitted message to the running turn; see `Withdrawals.preempt`.

        A host starts on the inbox, and tells clients of it, before there is a route to the host: an activation that is
        under way is waited for.
        """
        await self._begin()
        placement, request = self._state.hosts.placement(address), self._state.requests.get(address)
        if placement is not None and placement.epoch is None and request is not None:
            await asyncio.wait({request.route}, timeout=self._config.wake_timeout_s)
        await self._withdrawals.preempt(self._pool, address, message_id, policy)

    async def forget(self, address: Address) -> None:
        """Have the nodes remove what they keep of an agent that is deleted, as far as they answer.

        Raises:
            AgentAwake: it has a host.
        """
        await self._begin()
        if self._state.hosts.host_of(address) is not None:
            raise AgentAwake(f"{address} is awake")
        await self._pool.forget_workspace(address)

    # -- sleep ----------------------------------------------------------------------------------------------------

    async def hold(self, address: Address, holder: str) -> None:
        """Put an agent to sleep after its running turn; return when it sleeps.

        No request wakes it until `release`, for at most a minute. Messages are admitted meanwhile.

        Args:
            holder: the name of this hold; an agent may have several.
        """
        await self._begin()
        holds = self._state.holds
        holds.renew(address, holder)

        def renewed() -> bool:
            if not holds.is_held_by(address, holder):  # it was released meanwhile
                return False
            holds.renew(address, holder)
            return True

        await self._pool.wait_asleep(address, renewed, TICK_S)

    async def release(self, address: Address, holder: str) -> None:
        """End a hold; an agent with pending messages is woken."""
        self._state.holds.release(address, holder)
        await self.poke(address)

    # -- measurements ---------------------------------------------------------------------------------------------

    async def report(self, report: Report) -> None:
        """Add what a host measured."""
        self._state.totals.add(report)

    async def measured(self) -> dict[Series, Value]:
        """Return the sums of what was measured since the start of this process, and the gauges of the fleet."""
        await self._begin()
        return {
            **self._state.totals.recorder.sums(),
            **gauges_of(self._state.hosts, len(self._state.requests), self._nodes),
        }

    async def host_full(self, host_id: str) -> None:
        """Give a host no more agents: it has too little memory. It ends when its agents have left."""
        host = self._state.hosts.get(host_id)
        if host is not None:
            host.drain()
            self._state.changed.set()

    # -- the fleet ------------------------------------------------------------------------------------------------

    async def running(self) -> list[dict[str, Any]]:
        """Return the hosts as plain values, one for each of its agents; one without an agent has ``agent`` ``None``."""
        await self._begin()
        hosts = self._state.hosts
        return [
            {
                "host_id": host.host_id,
                "node": host.node,
                "status": host.status.value,
                "isolation": host.isolation or "process",
                "agent": str(placement.address) if placement is not None else None,
                "code": f"{host.code.file}:{host.code.class_name}" if host.code else None,
            }
            for host in hosts
            for placement in list(host.placements.values()) or (None,)
        ]

    async def facts(self, address: Address) -> AgentFacts:
        """Return what is known of an agent, its host's answer included."""
        await self._begin()
        facts = agent_facts(self._state, address, self._reconciler.courier.held.get(address))
        host = facts["host"]
        if host is not None:
            known = self._state.hosts.get(host["host_id"])
            processes = await self._pool.processes([known] if known is not None else [])
            host["pid"], _ = processes.get(host["host_id"], (None, None))
        if host is not None and host["activated"]:
            host["message_id"], host["left_s"], host["sandbox_works"], host["silence"] = await self._pool.doing(address)
        return facts

    async def awake(self, agents: Sequence[Address]) -> dict[str, AwakeFacts]:
        """Return those of agents that have a host, by address, with the memory that they take."""
        await self._begin()
        hosts = self._state.hosts
        found = {host for address in agents if (host := hosts.host_of(address)) is not None}
        memory = {host_id: size for host_id, (_, size) in (await self._pool.processes(found)).items()}
        return awake_facts(hosts, memory, agents)

    async def nodes(self) -> list[NodeFacts]:
        """Return the nodes and their hosts."""
        await self._begin()
        return await self._pool.describe_nodes(self._state.drains)

    async def lost_hosts(self, seen: Seen | None) -> tuple[Seen, list[str]]:
        """Wait for hosts that are lost with their nodes; see `Losses.after`."""
        await self._begin()
        return await self._losses.after(seen)

    async def drain(self, node: NodeId, *, undo: bool) -> None:
        """Move the agents of a node to other nodes, after their running turns, and start none there; durable on return.

        Args:
            undo: use a drained node again instead.

        Raises:
            NotFound: there is no such node, nor is one of that name drained.
            ChronicleError: it cannot be recorded.
        """
        await self._begin()
        drains = self._state.drains
        known = set(self._nodes) | set(drains if undo else ())
        if node not in known:
            raise NotFound(
                f"there is no node {node}; there {'are' if len(known) > 1 else 'is'} {', '.join(sorted(known))}"
            )
        await asyncio.to_thread(drains.remove if undo else drains.add, node)
        self._state.changed.set()

    async def stop(self, timeout_s: float) -> None:
        """End all agents in order, then all hosts; no agent is woken afterwards.

        Args:
            timeout_s: timeout of the agents; see `coordinator.ray.router.Router.end_agents`.
        """
        await self._begin()
        await self._reconciler.end_agents(timeout_s)
        await self._nodes.stop(_NODE_STOP_S)
        await self._tracing.flush()
        self._tasks.cancel()

    def _changed(self) -> None:
        self._state.changed.set()

    def _nodes_changed(self, nodes: Sequence[Node]) -> None:
        self._state.nodes = nodes
        self._state.changed.set()

    def _node_gone(self, node: NodeId) -> None:
        self._losses.note(self._pool.node_gone(node))
        self._state.changed.set()

    async def _begin(self) -> None:
        """Recover the running hosts and start the loop, once per process; Ray may have restarted this actor."""
        async with self._beginning:
            if not self._begun:
                if self._followed is not None:
                    await self._followed.update()
                hosts = await self._nodes.begin()
                self._state.known = await asyncio.to_thread(kept_known_agents, self._config.known_agents)
                await asyncio.to_thread(self._state.elsewhere.look)
                await self._reconciler.recover(hosts)
                self._begun, was_waiting, self._state.is_waiting = True, self._state.is_waiting, False
                if not (self._config.is_embedded or was_waiting):
                    self._tasks.spawn(self._nodes.follow(), "nodes")
                if self._followed is not None:
                    self._tasks.spawn(self._followed.follow(), "quotas")
                if not was_waiting:
                    self._tasks.spawn(self._reconciler.run(), "coordinator-loop")  # also if the next lines fail
                self._tasks.spawn(self._reconciler.courier.run(), "courier")
                self._tasks.spawn(self._reconciler.reminders.run(), "reminders")
                self._tasks.spawn(self._reconciler.wake_unnotified(), "attending")
                if self._state.elsewhere.is_draining:
                    self._tasks.spawn(self._reconciler.follow_elsewhere(), "elsewhere")
                for agent_type in self._state.known.types:
                    await self._state.register(Code.of(self._state.known.get(agent_type)))
                self._state.host_died.set()  # perhaps before this coordinator was started


def _stores(config: CoordinatorConfig) -> tuple[JournalStore, Documents, Callable[[], Mapping[str, Quota]]]:
    """Return the journal of the home, its documents, and its quotas by tenant as they are now."""
    if config.store is None:
        records = open_records(Home(config.home))
        return open_journal(config.journal, watched=True), records.documents(), StoredQuotas(records.quotas)
    calls = config.store.calls()
    return remote_journal(calls), RemoteDocuments(calls), partial(remote_quotas, calls)
