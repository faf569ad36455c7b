"""The coordinator's control loop: observe, plan, act. It starts hosts, assigns agents, and replaces dead hosts.

The decisions are made by `coordinator.fleet.plan`, which is pure; the journal is authoritative for leases.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import ray
import structlog

from chronicle.errors import ChronicleError, StorageRefused, Unavailable
from coordinator.access.outbox_quotas import check_of_receivers
from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.leases import HOST_PREFIX, HostLeases
from coordinator.fleet.model import Assign, EndHost, Placement, ProjectView, Refuse, Route, StartHost, Vacate
from coordinator.fleet.nodes.demand import demand_of
from coordinator.fleet.plan import plan
from coordinator.fleet.wakes.requests import QuietPeriod
from coordinator.fleet.wakes.retries import may_pass
from coordinator.fleet.wakes.spans import WakeSpans
from coordinator.ray.cluster import cause_of, lives
from coordinator.ray.node_requests import NodeRequests
from coordinator.telemetry.instruments import REMINDERS_FIRED
from podium.address import Address
from podium.agent_record import find_session
from podium.code.manifest import short_id
from podium.errors import BundleRefused, HostDied, InvalidAddress, PodiumError
from podium.messages.courier import Courier
from podium.reminders.firing import ReminderTask
from podium.turn.telemetry import NO_TRACER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chronicle.journal.records import Lease
    from coordinator.fleet.cancellation import Withdrawals
    from coordinator.fleet.deaths.deaths import Deaths
    from coordinator.fleet.model import Action, Code
    from coordinator.fleet.nodes.nodes import Needs, NodeId
    from coordinator.fleet.state import FleetState
    from coordinator.fleet.wakes.requests import WakeRequest
    from coordinator.ray.coordinator_config import CoordinatorConfig
    from coordinator.ray.host_pool import HostPool
    from podium.tasks import BackgroundTasks
    from podium.turn.telemetry import Tracer

__all__ = ["TICK_S", "Reconciler"]

TICK_S: Final = 2.0
"""Longest interval between iterations: edited code and lost hosts are detected within it."""
_MAX_LOSSES: Final = 2
"""Hosts that may die under one wake request before it fails: warm hosts die unnoticed. Deaths that a message pays for
do not count, as its attempts are limited, nor do those of shared hosts, whose agents come back apart."""

_IDLE_NODE_S: Final = 15.0
"""Time after which a node without hosts is left to Ray's autoscaler, which has a time of its own before it ends it."""
_MAX_SOUGHT: Final = 1000
"""Agents whose workspaces are looked for before one plan; a plan assigns no more in a storm."""

_log = structlog.stdlib.get_logger("coordinator")


class Reconciler:
    """Repeatedly brings the hosts closer to the target state.

    Args:
        config: the configuration of the coordinator.
        state: the coordinator's state.
        pool: the hosts' processes.
        withdrawals: messages that an activation has to drop first.
        deaths: settles the deaths of hosts.
        tasks: run the starts of hosts and the activations of agents.
        tracer: opens the spans of wakes.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        state: FleetState,
        pool: HostPool,
        withdrawals: Withdrawals,
        deaths: Deaths,
        tasks: BackgroundTasks,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self._config = config
        self._state = state
        self._pool = pool
        self._withdrawals = withdrawals
        self._deaths = deaths
        self._tasks = tasks
        self._wake_spans = WakeSpans(state.store, state.clock, tracer)
        self._leases = HostLeases(state.store, state.clock, config.lease_ttl_s, alive=self._may_live)
        self.courier = Courier(
            state.store,
            state.ids,
            state.clock,
            self._poke_or_retry,
            config.inbox_limit,
            lambda: check_of_receivers(state.quotas(), state.store),
        )
        """Delivers messages between agents; a receiver whose code is not known keeps them in its inbox."""
        self._asked: set[tuple[NodeId, str]] = set()
        """The nodes that are asked what they lack for which bundles."""
        self._demand: tuple[Needs, ...] | None = None
        """What Ray's autoscaler was told last; ``None`` if not by this process."""
        self._told_s = 0.0
        self._telling = False
        self._node_requests = NodeRequests(state.clock)
        self._idle_since_s: dict[NodeId, float] = {}
        """Since when nodes have no hosts."""
        self._quiet = QuietPeriod(state.clock)
        """When warm hosts are started."""
        self.reminders = ReminderTask(state.store, state.ids, state.clock, self._reminded, sent=self.courier.notice)
        """Sends the messages of reminders that are due; likewise."""

    async def recover(self, nodes: Mapping[str, NodeId]) -> None:
        """Recover the awake agents after a restart of the coordinator, and end all other hosts.

        Args:
            nodes: where each host is.
        """
        held = await asyncio.to_thread(self._held_by_hosts)
        alive = {host_id: nodes[host_id] for host_id in held if host_id in nodes and lives(host_id)}
        # Those of a service that drains are no loss; if that is killed, the next wake of each agent sees to it.
        lost = [host_id for host_id in held if host_id not in alive] if not self._state.elsewhere.is_draining else []
        self._pool.end_lost([host_id for host_id in lost if host_id not in nodes])
        # What may fail comes first, as this is called again then. The other hosts are warm or starting, or left by a
        # killed service.
        await self._deaths.note_lost([placement for host_id in lost for placement in held[host_id]])
        warm = {host.host_id: host.node for host in self._state.hosts}  # since it stood by
        await self._pool.end_unknown({**warm, **alive})
        await asyncio.gather(*(self._recover_host(host_id, node, held[host_id]) for host_id, node in alive.items()))

    async def run(self) -> None:
        """Run the loop until `stop`."""
        state, config = self._state, self._config
        while not state.stopping:
            state.changed.clear()
            try:
                for code in state.codes.to_try_again(state.clock.monotonic_s()):
                    await state.register(code)
                await self._retry_wakes()
                await self._find_workspaces()
                self._ask_of_bundles()
                reserve = config.warm_hosts if self._quiet.is_now() else None
                most = config.most_starting, config.shared_agents, config.most_warm_hosts
                fleet = state.observe()
                actions = plan(fleet, reserve, *most)
                for action in actions:
                    self._act(action)
                if config.autoscaler:
                    self._ask_for_nodes(demand_of(fleet, actions, config.shared_agents))
                    self._release_idle_nodes()
            except Exception:  # noqa: BLE001  a bug must not end the loop: no agent would wake again
                _log.exception("planning_failed")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await state.changed.wait()

    def _ask_for_nodes(self, demand: tuple[Needs, ...]) -> None:
        """Tell Ray's autoscaler what has no room, unless it knows that; again after a while, as nodes have come."""
        if demand and demand != self._demand:  # not for what waits for ever
            self._pool.recall()
        again = bool(demand) and self._state.clock.monotonic_s() - self._told_s > TICK_S
        if (demand != self._demand or again) and not self._telling:
            self._telling = True
            self._tasks.spawn(self._tell(demand), "autoscaler")

    def _release_idle_nodes(self) -> None:
        """Leave nodes to Ray that have had no hosts for a while, so that its autoscaler ends them.

        What waits meanwhile has no room there; else it would have a host.
        """
        state, now_s = self._state, self._state.clock.monotonic_s()
        busy = {host.node for host in state.hosts}
        idle = {node.node_id for node in state.nodes if node.node_id not in busy}
        self._idle_since_s = {node: self._idle_since_s.get(node, now_s) for node in idle}
        for node, since_s in self._idle_since_s.items():
            if now_s - since_s > _IDLE_NODE_S:
                self._pool.release(node)

    async def _tell(self, demand: tuple[Needs, ...]) -> None:
        try:
            await asyncio.to_thread(self._node_requests.ask, demand)
            self._demand, self._told_s = demand, self._state.clock.monotonic_s()
        except Exception as error:  # noqa: BLE001  such as a restart of Ray's control process
            _log.warning("autoscaler_not_told", error=str(error))
            await asyncio.sleep(TICK_S)
        finally:
            self._telling = False
        self._state.changed.set()

    async def _retry_wakes(self) -> None:
        for address in self._state.retries.take_due():
            await self._poke_or_retry(address)

    async def _find_workspaces(self) -> None:
        """Ask the nodes where workspaces of requested agents are warm, as far as it is not known."""
        state = self._state
        if len(state.nodes) > 1:
            unknown = state.hosts.without_last_node(address for address, _ in state.requests.waiting())[:_MAX_SOUGHT]
            found = await self._pool.find_workspaces(unknown) if unknown else {}
            for address in unknown:
                state.hosts.note_last_node(address, found.get(address))

    def _ask_of_bundles(self) -> None:
        """Ask the nodes what they lack for the code bundles in use, as far as it is not known."""
        for node, bundle in self._state.bundles_to_ask():
            if (node, bundle) not in self._asked:
                self._asked.add((node, bundle))
                self._tasks.spawn(self._ask_of_bundle(node, bundle), f"bundle-{node}")

    async def _ask_of_bundle(self, node: NodeId, bundle: str) -> None:
        try:
            self._state.bundles.note(node, bundle, await self._pool.lacks(node, bundle))
        except (ChronicleError, PodiumError, TimeoutError, ray.exceptions.RayError) as error:
            _log.warning("bundle_not_checked", node=node, bundle=bundle, error=str(cause_of(error)))
            await asyncio.sleep(TICK_S)
        finally:
            self._asked.discard((node, bundle))
        self._state.changed.set()

    async def follow_elsewhere(self) -> None:
        """Wake the agents that have ended their turns on the cluster of a service that drains, until all have."""
        state, attended_s = self._state, 0.0
        while left_s := await asyncio.to_thread(state.elsewhere.look_again):
            state.changed.set()
            now_s = state.clock.monotonic_s()
            if now_s - attended_s > TICK_S:  # what is still sent there is for agents to be woken here
                attended_s = now_s
                state.host_died.set()
            await asyncio.sleep(left_s)
        state.changed.set()
        state.host_died.set()

    def _may_live(self, host_id: str) -> bool:
        """Whether a host may be alive: one that is not on this cluster may be that of a service that drains."""
        return lives(host_id) or self._state.elsewhere.is_draining

    async def wake_unnotified(self) -> None:
        """Wake the agents with messages that nobody has told of them, after each death of a host, until cancelled.

        A host admits the questions of its agents itself, and may die before it has the receiver woken. An asker that is
        not handled again, as after its last attempt, does not repeat that.
        """
        while True:
            await self._state.host_died.wait()
            self._state.host_died.clear()
            try:
                for address in await self._state.unattended():
                    await self._poke_or_retry(address)
            except ChronicleError as error:
                _log.warning("inboxes_not_read", error=str(error))
                await asyncio.sleep(TICK_S)
                self._state.host_died.set()
            except Exception:  # noqa: BLE001  a bug must not end the task: no such agent would be woken again
                _log.exception("attending_failed")

    async def end_agents(self, timeout_s: float) -> None:
        """End all agents in order, then all hosts. No further host is started, and no agent is woken.

        The lease of an agent whose process had to be killed is released: so the next activation counts no attempt.
        """
        self._state.stopping = True
        if self._config.autoscaler:
            await self._tell(())
        for placement in await self._pool.stop_all(timeout_s):
            if placement.epoch is not None:
                session = await asyncio.to_thread(find_session, self._state.store, placement.address)
                await self._deaths.release(session.session_id, placement.epoch)

    async def poke(self, address: Address) -> bool:
        """Have an agent check its inbox; wake it if it has pending messages.

        Returns:
            ``False`` if its code is not known: the agent checks its inbox with a client's next message.
        """
        if self._pool.poke(address):
            return True
        code = self._state.codes.get(address.agent_type)
        if code is None:
            return False
        if await self._state.has_pending(address):
            if self._pool.poke(address):  # activated meanwhile
                return True
            request = self._state.requests.add(address, code)
            request.poked = request.poked or self._state.hosts.host_of(address) is not None
        else:
            self._state.retries.forget(address)
        self._state.changed.set()
        return True

    async def _reminded(self, address: Address) -> None:
        """Count a reminder that fired, and have its agent look for the message."""
        self._state.totals.recorder.add(REMINDERS_FIRED, (address.agent_type, address.tenant))
        await self._poke_or_retry(address)

    async def _poke_or_retry(self, address: Address) -> None:
        """Poke an agent; later, if its inbox cannot be read now."""
        try:
            await self.poke(address)
        except ChronicleError as error:
            _log.warning("inbox_not_read", agent_id=str(address), error=str(error))
            self._state.retries.failed(address, error)

    # -- act ------------------------------------------------------------------------------------------------------

    def _act(self, action: Action) -> None:
        hosts = self._state.hosts
        match action:
            case StartHost(code, stamp, isolation, group, node, needs):
                host_id = self._state.ids.other(HOST_PREFIX, self._state.clock.now_ms())
                host = hosts.add(Host(host_id, code, stamp, isolation=isolation, group=group, node=node, needs=needs))
                self._tasks.spawn(self._start_host(host, code, stamp), f"start-{host_id}")
            case Assign(host_id, address):
                hosts.assign(host_id, address)
                request = self._state.requests.begin(address)
                self._state.codes.note_use(request.code)
                self._tasks.spawn(self._wake(hosts[host_id], address, request), f"wake-{address}")
            case EndHost(host_id):
                _ = self._pool.begin_end(hosts[host_id])
            case Vacate(host_id, agents, timeout_s):
                hosts[host_id].vacates(agents, timeout_s)
                for address in agents:
                    self._tasks.spawn(self._pool.retire(address, host_id, timeout_s), f"move-{address}")
            case Refuse(code, problem):
                self._refuse(code, problem)

    def _refuse(self, code: Code, problem: str) -> None:
        """Fail the requests for agents of a code that no node can run; they are tried again, as nodes may join.

        With an autoscaler they wait for a node, unless a node lacks what the code's bundle requires.
        """
        if self._config.autoscaler and not self._state.lacks_for_bundle(code):
            return
        _log.warning("no_node_for_class", agent_type=code.agent_type, problem=problem)
        error: Exception
        if self._state.lacks_for_bundle(code):
            error = BundleRefused(
                f"no node can run {code.class_name} of the code bundle {short_id(code.bundle)}: {problem}; install "
                "what is lacking, or deploy from what a node has"
            )
            self._state.bundles.forget_lacking()
        else:
            error = Unavailable(
                f"no node has what class {code.class_name} in {code.file} declares: {problem}; change its resources or "
                "labels, or add such a node"
            )
        for address in self._state.requests.fail_all(code, error):
            self._state.retries.failed(address, error)

    async def _start_host(self, host: Host, code: Code, stamp: str) -> None:
        state = self._state
        try:
            loaded = await self._pool.start(host, code)
        except Exception as failure:  # noqa: BLE001  it becomes the answer of the wake requests
            error = cause_of(failure)
            edited = (
                not may_pass(error) and state.codes.stamp_of(code) != stamp
            )  # meanwhile: nothing is known of it yet
            if edited or (isinstance(error, HostDied) and state.requests.start_lost(code, error, _MAX_LOSSES)):
                state.changed.set()
            else:
                _ = state.requests.fail_all(code, error)
                state.codes.drop(code, str(error), state.clock.monotonic_s() if may_pass(error) else None)
            return
        state.loads(loaded)
        learned = state.codes.learn_sources(loaded, stamp)
        if learned is not None:
            state.hosts.restamp(code, stamp, learned)
        host.loads(loaded)
        if host.is_shared:
            self._pool.watch(host)
        state.progressed()
        state.changed.set()

    async def _wake(self, host: Host, address: Address, request: WakeRequest) -> None:
        """Acquire an agent's lease for a warm host, and have the host activate the agent."""
        self._quiet.wake_began()
        try:
            async with self._wake_spans.waking(address, request, host.host_id) as span:
                error = await self._activate(host, address, request)
                if error is not None:
                    span.fail(type(error).__name__, str(error))
        finally:
            self._state.requests.end(address)
            asyncio.get_running_loop().call_later(self._quiet.wake_ended(), self._state.changed.set)

    async def _activate(self, host: Host, address: Address, request: WakeRequest) -> Exception | None:
        """Wake an agent; return the error if that failed, which was seen to."""
        hosts, host_id, loaded = self._state.hosts, host.host_id, host.loaded
        lease: Lease | None = None
        unclean = False
        try:
            handle = self._pool.handle(host)
            if handle is None:
                raise HostDied(f"host {host_id} died while it was warm")
            lease, unclean = await self._leases.wait_for(address, host_id, self._config.wake_timeout_s)
            withdrawn = await self._withdrawals.withdrawn(address)
            async with asyncio.timeout(self._config.wake_timeout_s):
                death = hosts.death_of(address)
                known, config = self._state.known, self._state.config_of(address.agent_type)
                host.activates(address, config)
                project = ProjectView(config, known.types_to_tell)
                activating = handle.activate.remote(address, lease, unclean, death, withdrawn, project)
                turn = await self._pool.answer_of(host, activating)
        except Exception as error:  # noqa: BLE001  it becomes the answer of the wake request
            _log.warning("wake_failed", agent_id=str(address), host_id=host_id, error=str(error))
            died = isinstance(error, ray.exceptions.RayActorError | HostDied)
            await self._pool.withdraw(host, address, died=died)
            if died:  # it begins with the inbox before it answers
                self._state.host_died.set()
            paid = lease is not None and await self._deaths.settle_waking(address, lease, loaded, unclean=unclean)
            failure = self._with_death(host, address, cause_of(error))
            costs_loss = not paid and not (died and host.is_shared)
            await self._wake_failed(host, address, request, failure, costs_loss=costs_loss)
            return failure
        hosts.note_death(address, None)
        self._state.retries.forget(address)
        host.activated(address, lease.epoch, turn)
        if self._state.known is not known:  # registered meanwhile
            self._pool.tell_types(host_id, self._state.known.types_to_tell)
        self._state.progressed()
        self._state.requests.fulfil(address, request, Route(host_id, lease.epoch, turn, loaded, config, host.node))
        if request.poked:
            self._pool.poke(address)
        self._pool.watch(host)
        return None

    def _with_death(self, host: Host, address: Address, error: Exception) -> Exception:
        """Return the error of a wake, with the cause of death if its host died."""
        if host.cause is None or not isinstance(error, HostDied):
            return error
        log = self._pool.log_of(host, address)
        return HostDied(f"the agent's process died while it was being woken: {host.cause}; {log} says more")

    async def _wake_failed(
        self, host: Host, address: Address, request: WakeRequest, error: Exception, *, costs_loss: bool
    ) -> None:
        """Retry a wake with another host if the host or the node's mount service died; otherwise fail the request."""
        again = isinstance(error, HostDied | Unavailable) and not isinstance(error, StorageRefused)
        if again and not (costs_loss or await self._has_pending(address)):  # its message was parked
            again = False
        if again and request.losses + costs_loss <= _MAX_LOSSES:
            request.losses += costs_loss
            try:
                await self._pool.check_node(host.node)
            except Exception as failure:  # noqa: BLE001  the state of the node is the better answer
                error = cause_of(failure)
            else:
                self._state.changed.set()
                return
        self._state.requests.fail(address, request, error)
        if may_pass(error):
            self._state.retries.failed(address, error)
        else:
            self._state.retries.refused(address)

    async def _has_pending(self, address: Address) -> bool:
        try:
            return await self._state.has_pending(address)
        except ChronicleError:  # the next activation finds out
            return True

    def _held_by_hosts(self) -> dict[str, list[Placement]]:
        """Return the agents whose leases hosts hold, by host."""
        held: dict[str, list[Placement]] = {}
        for session, lease in self._state.store.held_sessions(HOST_PREFIX):
            with contextlib.suppress(InvalidAddress):
                placement = Placement(lease.holder, Address.of(session), epoch=lease.epoch)
                held.setdefault(lease.holder, []).append(placement)
        return held

    async def _recover_host(self, host_id: str, node: NodeId, agents: Sequence[Placement]) -> None:
        state = self._state
        loaded = await self._pool.ask_loaded(host_id)
        if loaded is not None and not loaded.is_alone:
            state.loads(loaded)
            state.codes.learn_sources(loaded, state.codes.stamp_of(loaded.code))
            host = Host(host_id, loaded.code, loaded.stamp, HostStatus.WARM, loaded, "shared")
        else:
            host = Host(host_id, None, "", HostStatus.ASSIGNED, loaded)
        host.node = node
        host.needs = state.needs_of_host(loaded.needs if loaded is not None else None)
        state.hosts.add(host)
        for placement in agents:
            state.hosts.place(placement)
        self._tasks.spawn(self._check_recovered(agents), f"check-{host_id}")
        self._pool.watch(host)

    async def _check_recovered(self, agents: Sequence[Placement]) -> None:
        async for _ in self._pool.check_recovered(agents):
            self._state.host_died.set()  # of what came for it meanwhile only that host was told
