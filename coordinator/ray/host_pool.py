"""Hosts' processes and actors: starts, watches and ends them through the node manager, and calls them for agents.

What states a host has is in `coordinator.fleet.host`; `coordinator.fleet.plan` decides which hosts are wanted, and
`coordinator.fleet.deaths.deaths` what follows from their ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import ray
import structlog

from coordinator.fleet.facts import node_facts, unreachable_node
from coordinator.fleet.host import HostStatus
from coordinator.fleet.leases import LEASE_POLL_S
from coordinator.fleet.liveness import PROBES_PER_SILENCE, fate_of_silent, until_ended, with_probes
from coordinator.fleet.model import AgentsLost
from coordinator.fleet.nodes.nodes import NodeId
from coordinator.ray.cluster import cause_of, find_actor
from coordinator.ray.host_deaths import known_cause, named_culprit, probe_host
from podium.errors import AgentAsleep, HostDied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence

    from chronicle.ids import MessageId
    from coordinator.fleet.deaths.deaths import Deaths
    from coordinator.fleet.facts import NodeFacts, NodeState
    from coordinator.fleet.host import Host
    from coordinator.fleet.host_table import HostTable
    from coordinator.fleet.model import Code, Ended, Loaded, Placement
    from coordinator.fleet.nodes.drains import Drains
    from coordinator.ray.coordinator_config import CoordinatorConfig
    from coordinator.ray.node_pool import NodePool
    from podium.address import Address
    from podium.sandbox.policy import Rung
    from podium.tasks import BackgroundTasks
    from podium.turn.busy import BusyPolicy

__all__ = ["HostPool"]

_ORDERLY_END_S: Final = 10.0
"""Timeout for a host to end after its activation; then its process is killed."""
_TURN_SHARE: Final = 0.6
"""The running turn's share of the timeout of an end; the rest is for its interruption and ``on_shutdown``."""
_START_DEADLINE_S: Final = 180.0
"""Timeout for a node to start a host: longer than the node's own timeouts for the process and its imports."""
_ANSWER_S: Final = 10.0
"""Timeout for a host to report its imported code, which runs none of the agent's code."""
_DOING_S: Final = 3.0
"""Timeout for a host to report what an agent does, which it does even while user code blocks."""
_LAYERS_S: Final = 1.0
"""Timeout for a node to say which layers it has: a wake waits for it."""
_NODE_DEADLINE_S: Final = 60.0
"""Timeout of all other calls to a node."""

_log = structlog.stdlib.get_logger("coordinator")

_T = TypeVar("_T")


class HostPool:
    """The hosts' processes. It removes a host from the table when its process has ended.

    Args:
        table: the hosts.
        config: the configuration of the coordinator.
        tasks: run the watches and the ends of hosts.
        changed: called when a host is removed, or an agent has left it.
        deaths: settles the ends.
        nodes: where they are.
    """

    def __init__(
        self,
        table: HostTable,
        config: CoordinatorConfig,
        tasks: BackgroundTasks,
        changed: Callable[[], None],
        deaths: Deaths,
        nodes: NodePool,
    ) -> None:
        self._table = table
        self._config = config
        self._tasks = tasks
        self._changed = changed
        self._deaths = deaths
        self._nodes = nodes

    async def check_node(self, node: NodeId) -> None:
        """Return when a node is ready for agents, or gone: then others are.

        Raises:
            Exception: the reason why it is not.
        """
        try:
            await self._nodes.ask(node, _NODE_DEADLINE_S, "ready")
        except HostDied:
            if node in self._nodes:
                raise

    async def describe_nodes(self, drains: Drains) -> list[NodeFacts]:
        """Return the nodes and their hosts as they are now, by name, and those that are drained, or not used."""
        states = [await self._describe(node) for node in sorted(self._nodes)]
        states += [unreachable_node(node, "it is gone") for node in drains if node not in self._nodes]
        states += [unreachable_node(name, problem) for name, problem in self._nodes.unused]
        named = [(NodeId(state["node"]), state) for state in states]
        return [
            node_facts(state, self._hosts_of(node), drained=node in drains or self._nodes.ends(node))
            for node, state in named
        ]

    async def _describe(self, node: NodeId) -> NodeState:
        try:
            state: NodeState = await self._nodes.ask(node, _ANSWER_S, "describe")
        except (HostDied, TimeoutError, ray.exceptions.RayError) as error:
            return unreachable_node(node, str(cause_of(error)) or "its manager does not answer")
        return state

    def _hosts_of(self, node: NodeId) -> list[Host]:
        return [host for host in self._table if host.node == node]

    async def processes(self, hosts: Collection[Host]) -> dict[str, tuple[int, int]]:
        """Return the ids and the memory, bytes, of hosts' processes by host id, as far as their nodes know them."""
        found: dict[str, tuple[int, int]] = {}
        by_node: dict[NodeId, list[str]] = {}
        for host in hosts:
            by_node.setdefault(host.node, []).append(host.host_id)
        for node, host_ids in by_node.items():
            try:
                found |= await self._nodes.ask(node, _ANSWER_S, "processes", host_ids)
            except (HostDied, TimeoutError, ray.exceptions.RayError) as error:
                _log.warning("processes_not_known", node=node, error=str(cause_of(error)))
        return found

    async def find_workspaces(self, agents: Sequence[Address]) -> dict[Address, NodeId]:
        """Return on which node the latest layer of each agent's workspace is; those that have none are left out."""
        ids = {address.workspace_id: address for address in agents}
        nodes = list(self._nodes)
        answers = await asyncio.gather(
            *(self._nodes.ask(node, _LAYERS_S, "layers", list(ids)) for node in nodes), return_exceptions=True
        )
        latest: dict[Address, tuple[int, NodeId]] = {}
        for node, found in zip(nodes, answers, strict=True):
            if isinstance(found, BaseException):
                _log.warning("layers_not_known", node=node, error=str(found))
                continue
            for workspace_id, epoch in found.items():
                address = ids[workspace_id]
                latest[address] = max(latest.get(address, (0, node)), (epoch, node))
        return {address: node for address, (_, node) in latest.items()}

    def release(self, node: NodeId) -> None:
        """Leave a node without hosts alone until `recall`; see `NodePool.release`."""
        self._nodes.release(node)

    def recall(self) -> None:
        """Have the nodes that were released joined again."""
        self._nodes.recall()

    async def lacks(self, node: NodeId, bundle: str) -> str:
        """Return what a node lacks for a code bundle; empty for nothing.

        Raises:
            HostDied, TimeoutError, ray.exceptions.RayError: as `NodePool.ask`.
        """
        found: str = await self._nodes.ask(node, _NODE_DEADLINE_S, "lacks", bundle)
        return found

    async def forget_workspace(self, address: Address) -> None:
        """Have the nodes remove the layers and logs of an agent that is deleted, as far as they answer."""
        nodes = list(self._nodes)
        answers = await asyncio.gather(
            *(self._nodes.ask(node, _ANSWER_S, "forget", address.workspace_id) for node in nodes),
            return_exceptions=True,
        )
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, BaseException):
                _log.warning("workspace_not_forgotten", node=node, agent_id=str(address), error=str(answer))

    # -- start and end --------------------------------------------------------------------------------------------

    async def start(self, host: Host, code: Code) -> Loaded:
        """Have the node start a host that is in the table; return the code that it imported.

        Raises:
            Exception: the start failed; the host is being ended.
        """
        try:
            loaded: Loaded = await self._nodes.ask(
                host.node, _START_DEADLINE_S, "start_host", host.host_id, code, host.isolation, host.needs
            )
            host.actor = find_actor(host.host_id)
            if host.actor is not None:
                async with asyncio.timeout(_NODE_DEADLINE_S):
                    await host.actor.ping.remote()  # the first call costs its look-up, and a new connection
            if host.status is HostStatus.LOST:
                raise HostDied("its process has ended")
        except Exception:
            _ = self.begin_end(host)
            raise
        return loaded

    def handle(self, host: Host) -> Any | None:
        """Return the handle of a host's actor; ``None`` if it is known to be dead."""
        return host.actor or find_actor(host.host_id)

    async def ask_loaded(self, host_id: str) -> Loaded | None:
        """Return the code that a recovered host imported; ``None`` if it does not answer."""
        handle = find_actor(host_id)
        if handle is None:
            return None
        try:
            async with asyncio.timeout(_ANSWER_S):
                loaded: Loaded | None = await handle.loaded.remote()
        except (TimeoutError, ray.exceptions.RayError) as error:
            _log.warning("host_code_not_reported", host_id=host_id, error=str(error))
            return None
        return loaded

    def begin_end(self, host: Host, why: str | None = None) -> asyncio.Task[None]:
        """Begin to end a host's process, whatever its state; return the task of its end, which removes the host.

        A host has one end: the node reports the end of a process only once, and may have to wait for it.

        Args:
            why: what is wrong with the host, if that is known; it counts although the end has begun.
        """
        if why is not None and host.host_id in self._table:
            host.cause = why
        if host.end is None:
            died, host.status = host.status is HostStatus.LOST, HostStatus.ENDING
            host.end = self._tasks.start_logged(self._end(host, died=died), f"end-{host.host_id}")
        return host.end

    async def end(self, host: Host, why: str | None = None) -> None:
        """End a host as `begin_end`, and wait for it."""
        await asyncio.wait({self.begin_end(host, why)})

    async def _end(self, host: Host, *, died: bool) -> None:
        how: str | None = None
        try:
            how = await self._nodes.ask(host.node, _NODE_DEADLINE_S, "end_host", host.host_id, died=died)
        except Exception as error:  # noqa: BLE001  the agent must get another host in any case
            _log.warning("host_not_ended", host_id=host.host_id, error=str(cause_of(error)))
            if host.node not in self._nodes:
                await self._clear_after_node(host.host_id, host.node)
        if how is not None:
            host.cause = host.cause or how
            _log.info("host_ended_by_itself", host_id=host.host_id, how=how)
        shared, alone = (host.loaded, None) if host.is_shared else (None, host.loaded)
        died = died or how is not None or host.node not in self._nodes
        lost = AgentsLost(list(host.placements.values()), host.cause, shared, died=died, alone=alone)
        if lost.agents and (lost.died or (host.is_shared and host.cause is not None)):
            try:
                if host.node in self._nodes:
                    culprit = await named_culprit(self._nodes, host.node, host.host_id)
                    await self._deaths.note_end(replace(lost, culprit=culprit))
                else:
                    await self._deaths.note_node_gone(lost)
            except Exception as error:  # noqa: BLE001  likewise
                _log.warning("end_not_noted", host_id=host.host_id, error=str(error))
        agents = self._table.remove(host)
        self._changed()
        if host.is_shared or any(placement.epoch is not None for placement in agents):  # else its wake sees to it
            died = lost.died or host.cause is not None
            await self._deaths.agents_lost(replace(lost, agents=agents, how=host.cause, died=died))

    def log_of(self, host: Host, address: Address) -> str:
        """Return where the log of an agent of a host is, for messages."""
        return self._nodes.log_of(host.node, address)

    async def _clear_after_node(self, host_id: str, gone: NodeId | None) -> None:
        """Have another node on the machine end what a host has left whose node is gone.

        Args:
            gone: the node; ``None`` for one of the service's machine.
        """
        for node in self._nodes.beside(gone):
            try:
                await self._nodes.ask(node, _NODE_DEADLINE_S, "end_host", host_id, died=True)
            except Exception as error:  # noqa: BLE001  the agent's next host clears its path, too
                _log.warning("host_left_behind", host_id=host_id, error=str(cause_of(error)))
            else:
                return

    def end_lost(self, host_ids: Sequence[str]) -> None:
        """Kill hosts that no node knows, and have what they have left on the machine cleared in the background."""
        for host_id in host_ids:
            handle = find_actor(host_id)
            if handle is not None:
                ray.kill(handle)
        self._tasks.spawn(self._clear_lost(host_ids), "clear-lost")

    async def _clear_lost(self, host_ids: Sequence[str]) -> None:
        for host_id in host_ids:
            await self._clear_after_node(host_id, None)

    async def end_unknown(self, known: Mapping[str, NodeId]) -> None:
        """End the hosts of the nodes, except those that are known.

        One that is gone meanwhile has none any more, and one that does not answer must not keep the others back.

        Args:
            known: where they are, by their names.
        """

        async def end_others(node: NodeId) -> None:
            kept = [host_id for host_id, place in known.items() if place == node]
            try:
                await self._nodes.ask(node, _NODE_DEADLINE_S, "end_others", kept)
            except (HostDied, TimeoutError, ray.exceptions.RayError) as error:
                _log.warning("hosts_not_ended", node=node, error=str(cause_of(error)) or "its manager does not answer")

        await asyncio.gather(*(end_others(node) for node in self._nodes))

    async def stop_all(self, timeout_s: float) -> list[Placement]:
        """End all agents in order, within the timeout, then all hosts.

        Returns:
            the agents that did not end in time: their processes were killed.
        """
        for host in self._table:
            handle = find_actor(host.host_id)
            if handle is not None and host.watch is not None:
                handle.stop_all.remote(timeout_s * _TURN_SHARE)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for placement in self._table.placements():
                    if placement.epoch is not None:
                        await placement.left.wait()
        late = [placement for placement in self._table.placements() if placement.epoch is not None]
        for host in self._table:
            await self.end(host)
        return late

    def node_gone(self, node: NodeId) -> list[str]:
        """Note that a node is gone, and so the processes of its hosts are; return these."""
        hosts = self._hosts_of(node)
        for host in hosts:
            host.lose()
            _ = self.begin_end(host, f"its node {node} is gone")
        return [host.host_id for host in hosts]

    # -- watch ----------------------------------------------------------------------------------------------------

    def watch(self, host: Host) -> None:
        """Watch a host for its end and those of its agents: from its first activation, a shared one from its start."""
        if host.watch is None:
            host.watch = self._tasks.start_logged(self._watch(host), f"watch-{host.host_id}")

    def process_ended(self, host_id: str) -> None:
        """Note that the process of a host has ended.

        A host is ended by its watch; before it has one, by the activation of its agent, or by its start.
        """
        host = self._table.get(host_id)
        if host is None or host.status is HostStatus.ENDING:
            return
        _log.warning("process_ended", host_id=host_id)
        is_free = host.status is HostStatus.WARM and host.watch is None
        host.lose()
        if is_free:
            _ = self.begin_end(host)

    async def answer_of(self, host: Host, answer: Awaitable[_T]) -> _T:
        """Await an answer of a host.

        Raises:
            HostDied: its process has ended.
        """
        return await until_ended(answer, host.lost)

    async def wait_gone(self, address: Address, host_id: str) -> None:
        """Wait until an agent has left a host, to which there was a route that is stale.

        Most often the activation is ending in order; a kill would make that look like the host's death. A shared host
        is not killed for one agent: an activation that does not end is stopped.
        """
        host = self._table.host_of(address)
        if host is None or host.host_id != host_id or await self._left(host, address):
            return
        if not host.is_shared:
            await self.end(host)
        elif not await self._runs(host_id, address):
            self._leave(host, address)
        elif (handle := find_actor(host_id)) is not None:
            handle.stop.remote(address, 0.0)
            await self._left(host, address)

    async def check_recovered(self, agents: Sequence[Placement]) -> AsyncIterator[Address]:
        """Take agents off a host that a restarted coordinator found with their leases, and that does not run them.

        Their activations have failed while there was no coordinator, or were never asked for; one that is under way has
        the time of a wake. They are asked for one after the other: a shared host has thousands.

        Yields:
            each agent that the host did not run.
        """
        await asyncio.sleep(self._config.wake_timeout_s)
        for placement in agents:
            if await self._take_off_unless_it_runs(placement):
                yield placement.address

    async def _take_off_unless_it_runs(self, placement: Placement) -> bool:
        now = self._table.placement(placement.address)
        is_there = now is not None and (now.host_id, now.epoch) == (placement.host_id, placement.epoch)
        if not is_there or await self._runs(placement.host_id, placement.address):
            return False
        _log.warning("agent_not_on_host", host_id=placement.host_id, agent_id=str(placement.address))
        await self.wait_gone(placement.address, placement.host_id)
        return True

    async def withdraw(self, host: Host, address: Address, *, died: bool) -> None:
        """Take an agent off a host that did not activate it; end the host, unless it is shared and alive."""
        if host.is_shared and not died:
            if (handle := find_actor(host.host_id)) is not None:
                handle.stop.remote(address, 0.0)  # its activation may only have taken too long, and go on
            self._leave(host, address)
            return
        if died:
            host.lose()
        if host.watch is not None:  # it finds out more
            await asyncio.wait({host.watch})
        await self.end(host)

    async def _left(self, host: Host, address: Address) -> bool:
        """Wait until an activated agent has left its host; return whether it has after the time of an orderly end."""
        placement = host.placements.get(address)
        if placement is None:
            return True
        if placement.epoch is None or host.watch is None:  # it is being activated: its host is not asked about it
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ORDERLY_END_S):
                await placement.left.wait()
        return placement.left.is_set()

    async def _runs(self, host_id: str, address: Address) -> bool:
        handle = find_actor(host_id)
        if handle is None:
            return False
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                return bool(await handle.runs.remote(address))
        return True

    def _leave(self, host: Host, address: Address) -> Placement | None:
        """Remove an agent from a shared host."""
        placement = self._table.leave(host, address)
        if placement is not None:
            self._changed()
        return placement

    async def _watch(self, host: Host) -> None:
        host_id = host.host_id
        handle, why = find_actor(host_id), None
        if handle is not None:
            try:
                why = await self._follow_ends(host, handle)
            except Exception as error:  # noqa: BLE001  such as the failure of a probe
                if host_id not in self._table or (host.is_shared and host.status is HostStatus.ENDING):
                    return  # it was ended, or is being ended
                if isinstance(error, ray.exceptions.RayActorError) or host.lost.is_set():
                    _log.warning("host_died", host_id=host_id, error=str(error))
                    host.lose()
                    why = await known_cause(handle)
                else:
                    cause = cause_of(error)
                    _log.warning("host_lost", host_id=host_id, error=str(cause))
                    why = str(cause) if isinstance(cause, HostDied) else f"{type(cause).__name__}: {cause}"
        await self.end(host, why)

    async def _follow_ends(self, host: Host, handle: Any) -> str | None:
        """Follow the ends of activations on a host; return the first one's problem unless the host is shared."""
        silence_s, hang_s, seen = self._config.silence_s, self._config.hang_s, 0
        while True:
            ends: Sequence[Ended] = await with_probes(
                self.answer_of(host, handle.wait_ended.remote(seen)),
                silence_s / PROBES_PER_SILENCE,
                lambda: probe_host(handle, self._nodes, host, hang_s, silence_s),
            )
            for end in ends:
                _log.info("agent_ended", host_id=host.host_id, agent_id=str(end.address), ending=end.ending)
                seen = end.number
                if not host.is_shared:
                    return end.problem
                placement = self._leave(host, end.address)
                if placement is not None:
                    left = AgentsLost([placement], end.problem)
                    self._tasks.spawn(self._deaths.agents_lost(left), f"left-{end.address}")

    # -- calls for an agent ---------------------------------------------------------------------------------------

    def poke(self, address: Address) -> bool:
        """Have an activated agent check its inbox; return ``False`` if it is not activated."""
        route = self._table.route(address)
        handle = find_actor(route.host_id) if route is not None else None
        if handle is None:
            return False
        handle.poke.remote(address)
        return True

    async def doing(self, address: Address) -> tuple[MessageId | None, float | None, Rung | None, str | None]:
        """Return what an agent's host answers (`AgentHost.doing`), and what becomes of one that is silent."""
        placement = self._table.placement(address)
        handle = find_actor(placement.host_id) if placement is not None else None
        if handle is None:
            return None, None, None, None
        try:
            async with asyncio.timeout(_DOING_S):
                return *await handle.doing.remote(address), None
        except TimeoutError:
            silence_s = self._config.silence_s
            return None, None, None, fate_of_silent(silence_s / PROBES_PER_SILENCE, self._config.hang_s, silence_s)
        except (AgentAsleep, ray.exceptions.RayError):
            return None, None, None, None

    def tell_types(self, host_id: str, types: tuple[str, ...] | None) -> None:
        """Set the agent types that the agents of a host may send messages to; ``None`` for any."""
        handle = find_actor(host_id)
        if handle is not None:
            handle.set_types_to_tell.remote(types)

    async def retire(self, address: Address, host_id: str, timeout_s: float | None = None) -> None:
        """End an agent on a host after its running turn; it begins no other turn there.

        Args:
            timeout_s: of its end; when the turn's share of it is over, the turn is interrupted, and no attempt counted.
                ``None``: no limit.
        """
        host = self._table.get(host_id)
        if host is not None and not host.is_shared:
            host.drain()
        handle = find_actor(host_id)
        if handle is not None:
            try:
                await handle.retire.remote(address, timeout_s * _TURN_SHARE if timeout_s is not None else None)
            except (AgentAsleep, ray.exceptions.RayActorError):
                return

    async def wait_asleep(self, address: Address, wanted: Callable[[], bool], poll_s: float) -> None:
        """End an agent after its running turn, and return when no host has it.

        Args:
            wanted: called before each wait; ``False`` ends the wait early.
            poll_s: interval of these calls.
        """
        stopped = None
        while wanted() and (placement := self._table.placement(address)) is not None:
            if placement.epoch is None:  # the host is activating the agent
                await asyncio.sleep(LEASE_POLL_S)
                continue
            if stopped != placement.host_id and (handle := find_actor(placement.host_id)) is not None:
                handle.stop.remote(address)
                stopped = placement.host_id
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(poll_s):
                    await placement.left.wait()

    async def cancel(self, address: Address, message_id: MessageId) -> bool:
        """See `coordinator.fleet.cancellation.HostCalls`."""
        placement = self._table.placement(address)
        if placement is None:
            return False
        handle = find_actor(placement.host_id)
        if handle is None or placement.epoch is None:  # the host is activating the agent, or has ended
            await asyncio.sleep(LEASE_POLL_S)
            return True
        try:
            await handle.cancel.remote(address, message_id)
        except (AgentAsleep, ray.exceptions.RayActorError):
            await self.wait_gone(address, placement.host_id)
        return True

    async def preempt(self, address: Address, message_id: MessageId, policy: BusyPolicy) -> MessageId | None:
        """See `coordinator.fleet.cancellation.HostCalls`."""
        route = self._table.route(address)
        handle = find_actor(route.host_id) if route is not None else None
        if handle is None:
            return None
        try:
            async with asyncio.timeout(self._config.wake_timeout_s):
                stopped: MessageId | None = await handle.preempt.remote(address, message_id, policy)
        except (AgentAsleep, ray.exceptions.RayActorError):
            return None
        return stopped
