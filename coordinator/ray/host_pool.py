"""Hosts' processes and actors: started, watched over and ended through the node manager, and called for an agent.

What is known of hosts is in `coordinator.fleet.host_table`; which hosts are wanted is the plan's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import ray
import structlog

from coordinator.fleet.leases import LEASE_POLL_S
from coordinator.fleet.liveness import with_probes
from coordinator.fleet.model import HostStatus
from coordinator.ray.cluster import PROBES_PER_SILENCE, cause_of, find_actor, probe
from podium.errors import AgentAsleep

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.ids import MessageId
    from coordinator.fleet.background_tasks import BackgroundTasks
    from coordinator.fleet.host_table import HostTable
    from coordinator.fleet.model import Code, Host, Loaded
    from podium.address import Address
    from podium.turn.busy import BusyPolicy

__all__ = ["HostPool"]

_ORDERLY_END_S: Final = 10.0
"""Limit for a host to end after its activation: then its process is killed."""
_START_DEADLINE_S: Final = 180.0
"""For a node to start a host: longer than the node's own limits for the process and its imports."""
_ANSWER_S: Final = 10.0
"""For a host to say what it imported, which needs nothing of the agent's code."""
_NODE_DEADLINE_S: Final = 60.0
"""For all other calls to a node."""
_SHORT_OF_MEMORY: Final = "running low on memory"
"""In Ray's text of the death of an actor that its memory monitor killed."""
_NO_MEMORY: Final = "killed by Ray, because the node was running out of memory"

_log = structlog.stdlib.get_logger("coordinator")


class HostPool:
    """The hosts' processes. It removes a host from the table when the host's process has ended.

    Args:
        table: the hosts.
        node_manager: name of the node manager's actor.
        silence_s: seconds without a sign of life after which a host counts as hanging.
        wake_timeout_s: for a call that preempts a turn.
        tasks: in which hosts are watched.
        changed: called when a host is removed.
        lost: awaited when an assigned host ended or died and was removed, with how it died in a few words, if known.
    """

    def __init__(
        self,
        table: HostTable,
        node_manager: str,
        silence_s: float,
        wake_timeout_s: float,
        tasks: BackgroundTasks,
        changed: Callable[[], None],
        lost: Callable[[Host, str | None], Awaitable[None]],
    ) -> None:
        self._table = table
        self._node_manager = node_manager
        self._silence_s = silence_s
        self._wake_timeout_s = wake_timeout_s
        self._tasks = tasks
        self._changed = changed
        self._lost = lost
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, str] = {}
        """How hosts ended by themselves, until `take_end`."""
        self._node: Any = None

    def find_node(self) -> None:
        """Find the node on which hosts run; before any other call."""
        self._node = find_actor(self._node_manager)

    async def check_node(self) -> None:
        """Return when the node can take agents.

        Raises:
            Exception: why it cannot.
        """
        async with asyncio.timeout(_NODE_DEADLINE_S):
            await self._node.ready.remote()

    # -- start and end --------------------------------------------------------------------------------------------

    async def start(self, host_id: str, code: Code) -> Loaded:
        """Have the node start a host that is in the table; return what it imported.

        Raises:
            Exception: whatever went wrong; the host is removed.
        """
        try:
            async with asyncio.timeout(_START_DEADLINE_S):
                loaded: Loaded = await self._node.start_host.remote(host_id, code)
        except Exception:
            self._table.remove(host_id)
            raise
        return loaded

    async def ask_loaded(self, host_id: str) -> Loaded | None:
        """Ask a host that was found running what it imported; ``None`` if it does not say."""
        handle = find_actor(host_id)
        if handle is None:
            return None
        try:
            async with asyncio.timeout(_ANSWER_S):
                loaded: Loaded | None = await handle.loaded.remote()
        except (TimeoutError, ray.exceptions.RayError) as error:
            _log.warning("host_does_not_say_what_it_imported", host_id=host_id, error=str(error))
            return None
        return loaded

    async def end(self, host_id: str, *, died: bool = False) -> Host | None:
        """End a host's process and remove the host; return it, ``None`` the second time.

        If it had ended by itself, `take_end` tells how. A call while another one ends the same host waits for that: the
        node tells only once how a process ended, and may have to wait for it.

        Args:
            died: whether it is known to be dead or dying.
        """
        ending = self._ending.get(host_id)
        if ending is None:
            ending = self._ending[host_id] = self._tasks.start(self._end(host_id, died=died), f"end-{host_id}")
            ending.add_done_callback(lambda _: self._ending.pop(host_id, None))
        await asyncio.wait({ending})
        host = self._table.remove(host_id)
        self._changed()
        return host

    async def _end(self, host_id: str, *, died: bool) -> None:
        try:
            async with asyncio.timeout(_NODE_DEADLINE_S):
                how = await self._node.end_host.remote(host_id, died=died)
            if how is not None and host_id in self._table:
                self._ends.setdefault(host_id, how)
                _log.info("host_ended_by_itself", host_id=host_id, how=how)
        except Exception as error:  # noqa: BLE001  its agent must not be stuck with it
            _log.warning("host_not_ended", host_id=host_id, error=str(cause_of(error)))

    def take_end(self, host_id: str) -> str | None:
        """Return how a host ended by itself, in a few words, and forget it; ``None`` if it did not or it is unknown."""
        return self._ends.pop(host_id, None)

    async def end_unknown(self) -> None:
        """End the hosts of the node that are not in the table."""
        async with asyncio.timeout(_NODE_DEADLINE_S):
            await self._node.end_others.remote([host.host_id for host in self._table])

    async def stop_all(self, timeout_s: float) -> None:
        """End all agents in order, as far as the time allows, then all hosts."""
        ending = []
        for host in self._table:
            handle = find_actor(host.host_id)
            if host.status is HostStatus.ASSIGNED and handle is not None:
                ending.append(asyncio.ensure_future(_stop(handle)))
        if ending:
            await asyncio.wait(ending, timeout=timeout_s)
        for host in self._table:
            await self.end(host.host_id)

    # -- watch ----------------------------------------------------------------------------------------------------

    def watch(self, host_id: str) -> None:
        """Begin to wait for the end of a host that has activated an agent."""
        task = self._tasks.start(self._watch(host_id), f"watch-{host_id}")
        self._watches[host_id] = task
        task.add_done_callback(lambda _: self._watches.pop(host_id, None))

    def watch_of(self, host_id: str) -> asyncio.Task[None] | None:
        """Return the task that ends when a host was removed; ``None`` while the host still activates its agent."""
        return self._watches.get(host_id)

    async def wait_gone(self, host_id: str) -> None:
        """Wait until a host that does not work any more is removed.

        Most often it is ending in order: a kill in the middle of that would look like its death.
        """
        watch = self._watches.get(host_id)
        if watch is not None:
            await asyncio.wait({watch}, timeout=_ORDERLY_END_S)
        if host_id in self._table:
            await self._clean_up(host_id)

    async def _watch(self, host_id: str) -> None:
        handle, why, died = find_actor(host_id), None, False
        if handle is not None:
            try:
                silence_s = self._silence_s
                ending = await with_probes(
                    handle.wait_ended.remote(), silence_s / PROBES_PER_SILENCE, lambda: probe(handle, silence_s)
                )
                _log.info("agent_ended", host_id=host_id, ending=str(ending))
            except ray.exceptions.RayActorError as error:
                _log.warning("host_died", host_id=host_id, error=str(error))
                died = True
                why = _NO_MEMORY if _SHORT_OF_MEMORY in str(error) else None
            except Exception as error:  # noqa: BLE001  an activation may break in any way
                cause = cause_of(error)
                _log.warning("host_lost", host_id=host_id, error=str(cause))
                why = f"{type(cause).__name__}: {cause}"
        await self._clean_up(host_id, why, died=died)

    async def _clean_up(self, host_id: str, why: str | None = None, *, died: bool = False) -> None:
        if why is not None and host_id in self._table:
            self._ends[host_id] = why  # whichever call removes the host, it reports this
        host = await self.end(host_id, died=died)
        if host is not None and host.address is not None:  # else it was cleaned up by another call
            await self._lost(host, self.take_end(host_id))

    # -- calls for an agent ---------------------------------------------------------------------------------------

    def poke(self, address: Address) -> bool:
        """Let an activated agent look into its inbox; return ``False`` if it is not activated."""
        route = self._table.route(address)
        handle = find_actor(route.host_id) if route is not None else None
        if handle is None:
            return False
        handle.poke.remote()
        return True

    async def retire(self, host_id: str) -> None:
        """Let a host end after the turn that runs; it begins no other one from now on."""
        handle = find_actor(host_id)
        if handle is not None:
            try:
                await handle.retire.remote()
            except (AgentAsleep, ray.exceptions.RayActorError):
                return

    async def wait_asleep(self, address: Address, wanted: Callable[[], bool], poll_s: float) -> None:
        """Let an agent's host end after the turn that runs, and return when the agent has no host.

        Args:
            wanted: called before each wait; ``False`` ends the wait early.
            poll_s: how often it is called.
        """
        stopped = None
        while wanted() and (host := self._table.of(address)) is not None:
            watch = self._watches.get(host.host_id)
            if watch is None:  # it still activates the agent
                await asyncio.sleep(LEASE_POLL_S)
                continue
            if stopped != host.host_id and (handle := find_actor(host.host_id)) is not None:
                handle.stop.remote(patient=True)
                stopped = host.host_id
            await asyncio.wait({watch}, timeout=poll_s)

    async def cancel(self, address: Address, message_id: MessageId) -> bool:
        """See `coordinator.fleet.cancellation.HostCalls`."""
        host = self._table.of(address)
        if host is None:
            return False
        handle = find_actor(host.host_id)
        if handle is None or host.host_id not in self._watches:  # it still activates the agent, or is gone
            await asyncio.sleep(LEASE_POLL_S)
            return True
        try:
            await handle.cancel.remote(message_id)
        except (AgentAsleep, ray.exceptions.RayActorError):
            await self.wait_gone(host.host_id)
        return True

    async def preempt(self, address: Address, message_id: MessageId, policy: BusyPolicy) -> MessageId | None:
        """See `coordinator.fleet.cancellation.HostCalls`."""
        route = self._table.route(address)
        handle = find_actor(route.host_id) if route is not None else None
        if handle is None:
            return None
        try:
            async with asyncio.timeout(self._wake_timeout_s):
                stopped: MessageId | None = await handle.preempt.remote(message_id, policy)
        except (AgentAsleep, ray.exceptions.RayActorError):
            return None
        return stopped


async def _stop(handle: Any) -> None:
    try:
        await handle.stop.remote()
        await handle.wait_ended.remote()
    except ray.exceptions.RayError:
        return
