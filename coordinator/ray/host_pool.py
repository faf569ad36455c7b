"""Hosts' processes and actors: starts, watches and ends them through the node manager, and calls them for agents.

The state of hosts is in `coordinator.fleet.host_table`; `coordinator.fleet.plan` decides which hosts are wanted.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, TypeVar

import ray
import structlog

from coordinator.fleet.facts import node_facts, unreachable_node
from coordinator.fleet.leases import LEASE_POLL_S
from coordinator.fleet.liveness import fate_of_silent, until_ended, with_probes
from coordinator.fleet.model import AgentsLost, HostStatus
from coordinator.ray.cluster import PROBES_PER_SILENCE, cause_of, find_actor
from coordinator.ray.host_deaths import known_cause, named_culprit, probe_host
from podium.errors import AgentAsleep, HostDied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence

    from chronicle.ids import MessageId
    from coordinator.fleet.background_tasks import BackgroundTasks
    from coordinator.fleet.facts import NodeFacts, NodeState
    from coordinator.fleet.host_table import HostTable
    from coordinator.fleet.model import Code, Ended, Loaded, Placement
    from podium.address import Address
    from podium.agent.base import Isolation
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
_NODE_DEADLINE_S: Final = 60.0
"""Timeout of all other calls to a node."""

_log = structlog.stdlib.get_logger("coordinator")

_T = TypeVar("_T")


class HostPool:
    """The hosts' processes. It removes a host from the table when its process has ended.

    Args:
        table: the hosts.
        node_manager: name of the node manager's actor.
        silence_s: seconds without an answer to a liveness probe after which a host counts as dead.
        hang_s: likewise, of a host that does not compute either.
        wake_timeout_s: timeout of a call that preempts a turn.
        tasks: run the watches of hosts.
        changed: called when a host is removed.
        lost: awaited after the removal of a host that ended or died, with what is known of it, and after an agent has
            left a shared host.
        note_end: awaited when a host with agents has ended by itself, before the host is removed, and so before
            another host may take its agents.
    """

    def __init__(
        self,
        table: HostTable,
        node_manager: str,
        silence_s: float,
        hang_s: float,
        wake_timeout_s: float,
        tasks: BackgroundTasks,
        changed: Callable[[], None],
        lost: Callable[[AgentsLost], Coroutine[Any, Any, None]],
        note_end: Callable[[AgentsLost], Coroutine[Any, Any, None]],
    ) -> None:
        self._table = table
        self._node_manager = node_manager
        self._silence_s = silence_s
        self._hang_s = hang_s
        self._wake_timeout_s = wake_timeout_s
        self._tasks = tasks
        self._changed = changed
        self._lost = lost
        self._note_end = note_end
        self._watches: dict[str, asyncio.Task[None]] = {}
        """The tasks that end with the removal of a host."""
        self._leaving: dict[Address, asyncio.Event] = {}
        """Set when an agent has left its host; for activated agents."""
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, str] = {}
        """Descriptions of how hosts ended by themselves, until `take_end` removes them."""
        self._deaths: dict[str, asyncio.Event] = {}
        """For hosts of which an answer is awaited: set when the process ends."""
        self._handles: dict[str, Any] = {}
        """Of hosts that were started: a look-up by name asks Ray's control process."""
        self._node: Any = None

    def find_node(self) -> None:
        """Look up the node manager; call this first."""
        self._node = find_actor(self._node_manager)

    async def check_node(self) -> None:
        """Return when the node is ready for agents.

        Raises:
            Exception: the reason why it is not.
        """
        async with asyncio.timeout(_NODE_DEADLINE_S):
            await self._node.ready.remote()

    async def describe_node(self) -> NodeFacts:
        """Return the node and its hosts as they are now."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                node: NodeState = await self._node.describe.remote()
        except (TimeoutError, ray.exceptions.RayError) as error:
            node = unreachable_node(self._node_manager, str(cause_of(error)) or "its manager does not answer")
        return node_facts(node, self._table)

    async def processes(self, host_ids: Collection[str]) -> dict[str, tuple[int, int]]:
        """Return the ids and the memory, bytes, of hosts' processes, as far as the node knows them."""
        if not host_ids:
            return {}
        try:
            async with asyncio.timeout(_ANSWER_S):
                found: dict[str, tuple[int, int]] = await self._node.processes.remote(list(host_ids))
        except (TimeoutError, ray.exceptions.RayError) as error:
            _log.warning("processes_not_known", error=str(cause_of(error)))
            return {}
        return found

    # -- start and end --------------------------------------------------------------------------------------------

    async def start(self, host_id: str, code: Code, isolation: Isolation | None = None) -> Loaded:
        """Have the node start a host that is in the table; return the code that it imported.

        Args:
            isolation: as of `StartHost`.

        Raises:
            Exception: the start failed; the host is removed.
        """
        try:
            async with asyncio.timeout(_START_DEADLINE_S):
                loaded: Loaded = await self._node.start_host.remote(host_id, code, isolation)
                handle = self._handles[host_id] = find_actor(host_id)
                if handle is not None:
                    await handle.ping.remote()  # the first call to an actor costs its look-up, and a new connection
        except Exception:
            self._remove(host_id)
            raise
        return loaded

    def handle(self, host_id: str) -> Any | None:
        """Return the handle of a host's actor; ``None`` if it is known to be dead."""
        return self._handles.get(host_id) or find_actor(host_id)

    def _remove(self, host_id: str) -> list[Placement] | None:
        self._deaths.pop(host_id, None)
        self._handles.pop(host_id, None)
        return self._table.remove(host_id)

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

    async def end(self, host_id: str, *, died: bool = False, why: str | None = None) -> Sequence[Placement] | None:
        """End a host's process and remove the host; return its agents, ``None`` if it was already removed.

        If it had ended by itself, `take_end` returns how. A call during another one for the same host waits for the
        latter: the node reports the end of a process only once, and may have to wait for it.

        Args:
            died: whether the host is known to be dead or dying.
            why: what is wrong with a host that is alive.
        """
        ending = self._ending.get(host_id)
        self._table.ending(host_id)
        if ending is None:
            task = self._end(host_id, died=died, why=why)
            ending = self._ending[host_id] = self._tasks.start(task, f"end-{host_id}")
            ending.add_done_callback(lambda _: self._ending.pop(host_id, None))
        await asyncio.wait({ending})
        agents = self._remove(host_id)
        for placement in agents or ():
            self._note_left(placement.address)
        self._changed()
        return agents

    async def _end(self, host_id: str, *, died: bool, why: str | None) -> None:
        how: str | None = None
        try:
            async with asyncio.timeout(_NODE_DEADLINE_S):
                how = await self._node.end_host.remote(host_id, died=died)
            if how is not None and host_id in self._table:
                self._ends.setdefault(host_id, how)
                _log.info("host_ended_by_itself", host_id=host_id, how=how)
        except Exception as error:  # noqa: BLE001  the agent must get another host in any case
            _log.warning("host_not_ended", host_id=host_id, error=str(cause_of(error)))
        host, agents = self._table.get(host_id), self._table.agents_of(host_id)
        is_shared, why = self._table.is_shared(host_id), self._ends.get(host_id, why)  # a failed wake may have taken it
        by_itself = died or how is not None or (is_shared and why is not None)
        if host is not None and agents and by_itself:
            shared, alone = (host.loaded, None) if is_shared else (None, host.loaded)
            culprit = await named_culprit(self._node, host_id)
            try:
                await self._note_end(AgentsLost(agents, why, shared, culprit, alone=alone))
            except Exception as error:  # noqa: BLE001  likewise
                _log.warning("end_not_noted", host_id=host_id, error=str(error))

    def take_end(self, host_id: str) -> str | None:
        """Remove and return the description of how a host ended by itself; ``None`` if it did not, or if not known."""
        return self._ends.pop(host_id, None)

    async def end_unknown(self) -> None:
        """End the hosts of the node that are not in the table."""
        async with asyncio.timeout(_NODE_DEADLINE_S):
            await self._node.end_others.remote([host.host_id for host in self._table])

    async def stop_all(self, timeout_s: float) -> list[Placement]:
        """End all agents in order, within the timeout, then all hosts.

        Returns:
            the agents that did not end in time: their processes were killed.
        """
        for host in self._table:
            handle = find_actor(host.host_id)
            if handle is not None and host.host_id in self._watches:
                handle.stop_all.remote(timeout_s * _TURN_SHARE)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for left in list(self._leaving.values()):
                    await left.wait()
        late = [placement for placement in self._table.placements() if placement.epoch is not None]
        for host in self._table:
            await self.end(host.host_id)
        return late

    # -- watch ----------------------------------------------------------------------------------------------------

    def watch(self, host_id: str, address: Address) -> None:
        """Watch a host that has activated an agent, and the agent, for their ends."""
        if not self._has(host_id, address):  # it has left already
            return
        self._leaving.setdefault(address, asyncio.Event())
        self.watch_host(host_id)

    def watch_host(self, host_id: str) -> None:
        """Watch a host; a shared one from its start, as it may die before it has activated an agent."""
        if host_id not in self._watches:
            task = self._tasks.start(self._watch(host_id), f"watch-{host_id}")
            self._watches[host_id] = task
            task.add_done_callback(lambda _: self._watches.pop(host_id, None))

    def process_ended(self, host_id: str) -> None:
        """Note that the process of a host has ended.

        An assigned host is cleaned up by those who await its answers, and a starting one by its start.
        """
        if host_id not in self._table or host_id in self._ending:
            return
        _log.warning("process_ended", host_id=host_id)
        self._deaths.setdefault(host_id, asyncio.Event()).set()
        if host_id in self._watches:
            self._table.ending(host_id)
        elif self._table[host_id].status is HostStatus.WARM:
            self._tasks.spawn(self.end(host_id, died=True), f"died-{host_id}")

    async def answer_of(self, host_id: str, answer: Awaitable[_T]) -> _T:
        """Await an answer of a host.

        Raises:
            HostDied: its process has ended.
        """
        return await until_ended(answer, self._deaths.setdefault(host_id, asyncio.Event()))

    def _has_died(self, host_id: str) -> bool:
        return host_id in self._deaths and self._deaths[host_id].is_set()

    async def wait_gone(self, address: Address, host_id: str) -> None:
        """Wait until an agent has left a host, to which there was a route that is stale.

        Most often the activation is ending in order; a kill would make that look like the host's death. A shared host
        is not killed for one agent: an activation that does not end is stopped.
        """
        if not self._has(host_id, address) or await self._left(address):
            return
        if not self._table.is_shared(host_id):
            await self._clean_up(host_id)
        elif not await self._runs(host_id, address):
            self._leave(host_id, address)
        elif (handle := find_actor(host_id)) is not None:
            handle.stop.remote(address, 0.0)
            await self._left(address)

    async def withdraw(self, host_id: str, address: Address, *, died: bool) -> None:
        """Take an agent off a host that did not activate it; end the host, unless it is shared and alive."""
        if not self._table.is_shared(host_id):
            await self.end(host_id, died=died)
            return
        if died:  # the agent goes with the host, when it is known who has ended that
            self._table.ending(host_id)
            if host_id in self._watches:
                await asyncio.wait({self._watches[host_id]})
            if host_id in self._table:
                await self._clean_up(host_id, died=True)
            return
        if (handle := find_actor(host_id)) is not None:
            handle.stop.remote(address, 0.0)  # its activation may only have taken too long, and go on
        self._leave(host_id, address)

    def _has(self, host_id: str, address: Address) -> bool:
        placement = self._table.placement(address)
        return placement is not None and placement.host_id == host_id

    async def _left(self, address: Address) -> bool:
        """Wait until an activated agent has left its host; return whether it has after the time of an orderly end."""
        leaving = self._leaving.get(address)
        if leaving is None:  # it is being activated: its host is not asked about it
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ORDERLY_END_S):
                await leaving.wait()
        return leaving.is_set()

    async def _runs(self, host_id: str, address: Address) -> bool:
        handle = find_actor(host_id)
        if handle is None:
            return False
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                return bool(await handle.runs.remote(address))
        return True

    def _leave(self, host_id: str, address: Address) -> Placement | None:
        """Remove an agent from a shared host."""
        placement = self._table.leave(host_id, address)
        if placement is not None:
            self._note_left(address)
            self._changed()
        return placement

    def _note_left(self, address: Address) -> None:
        leaving = self._leaving.pop(address, None)
        if leaving is not None:
            leaving.set()

    async def _watch(self, host_id: str) -> None:
        handle, why, died = find_actor(host_id), None, False
        if handle is not None:
            try:
                why = await self._follow_ends(host_id, handle)
            except Exception as error:  # noqa: BLE001  such as the failure of a probe
                if host_id not in self._table or (self._table.is_shared(host_id) and host_id in self._ending):
                    return  # it was ended, or is being ended
                died = isinstance(error, ray.exceptions.RayActorError) or self._has_died(host_id)
                if died:
                    _log.warning("host_died", host_id=host_id, error=str(error))
                    why = await known_cause(handle)
                else:
                    cause = cause_of(error)
                    _log.warning("host_lost", host_id=host_id, error=str(cause))
                    why = str(cause) if isinstance(cause, HostDied) else f"{type(cause).__name__}: {cause}"
        await self._clean_up(host_id, why, died=died)

    async def _follow_ends(self, host_id: str, handle: Any) -> str | None:
        """Follow the ends of activations on a host; return the first one's problem unless the host is shared."""
        silence_s, hang_s, seen = self._silence_s, self._hang_s, 0
        while True:
            ends: Sequence[Ended] = await with_probes(
                self.answer_of(host_id, handle.wait_ended.remote(seen)),
                silence_s / PROBES_PER_SILENCE,
                lambda: probe_host(handle, self._node, host_id, hang_s, silence_s),
            )
            for end in ends:
                _log.info("agent_ended", host_id=host_id, agent_id=str(end.address), ending=end.ending)
                seen = end.number
                if not self._table.is_shared(host_id):
                    return end.problem
                placement = self._leave(host_id, end.address)
                if placement is not None:
                    left = AgentsLost([placement], end.problem)
                    self._tasks.spawn(self._lost(left), f"left-{end.address}")

    async def _clean_up(self, host_id: str, why: str | None = None, *, died: bool = False) -> None:
        if why is not None and host_id in self._table:
            self._ends[host_id] = why  # reported by the call that removes the host
        host = self._table.get(host_id)
        agents = await self.end(host_id, died=died, why=why)
        if agents is not None:  # else another call has cleaned up
            shared = host.loaded if host is not None and host.isolation == "shared" else None
            how = self.take_end(host_id) or why
            await self._lost(AgentsLost(agents, how, shared, died=died or how is not None))

    # -- calls for an agent ---------------------------------------------------------------------------------------

    def poke(self, address: Address) -> bool:
        """Have an activated agent check its inbox; return ``False`` if it is not activated."""
        route = self._table.route(address)
        handle = find_actor(route.host_id) if route is not None else None
        if handle is None:
            return False
        handle.poke.remote(address)
        return True

    async def doing(self, address: Address) -> tuple[MessageId | None, float | None, str | None]:
        """Return the message of an agent's running turn, the seconds left to it, and what becomes of a silent host."""
        placement = self._table.placement(address)
        handle = find_actor(placement.host_id) if placement is not None else None
        if handle is None:
            return None, None, None
        try:
            async with asyncio.timeout(_DOING_S):
                return *await handle.doing.remote(address), None
        except TimeoutError:
            return None, None, fate_of_silent(self._silence_s / PROBES_PER_SILENCE, self._hang_s, self._silence_s)
        except (AgentAsleep, ray.exceptions.RayError):
            return None, None, None

    def tell_types(self, host_id: str, types: tuple[str, ...] | None) -> None:
        """Set the agent types that the agents of a host may send messages to; ``None`` for any."""
        handle = find_actor(host_id)
        if handle is not None:
            handle.set_types_to_tell.remote(types)

    async def retire(self, address: Address, host_id: str) -> None:
        """End an agent on a host after its running turn; it begins no other turn there."""
        handle = find_actor(host_id)
        if handle is not None:
            try:
                await handle.retire.remote(address)
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
            leaving = self._leaving.get(address)
            if leaving is None:  # the host is activating the agent
                await asyncio.sleep(LEASE_POLL_S)
                continue
            if stopped != placement.host_id and (handle := find_actor(placement.host_id)) is not None:
                handle.stop.remote(address)
                stopped = placement.host_id
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(poll_s):
                    await leaving.wait()

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
            async with asyncio.timeout(self._wake_timeout_s):
                stopped: MessageId | None = await handle.preempt.remote(address, message_id, policy)
        except (AgentAsleep, ray.exceptions.RayActorError):
            return None
        return stopped
