"""The hosts of the fleet, from the order to a node to the end of their processes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import ray
import structlog

from coordinator.fleet.model import Host, HostStatus
from coordinator.fleet.polling import answer_of
from coordinator.ray.cluster import BEATS, cause_of, check_answers, find_actor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from coordinator.fleet.background_tasks import Tasks
    from coordinator.fleet.model import Code, Loaded
    from podium.address import Address

__all__ = ["Hosts"]

_ORDERLY_END_S: Final = 10.0
"""Time a host has to give back what it holds after it let go of its messages; then its process is ended."""
_START_DEADLINE_S: Final = 180.0
"""For a node to start a host: longer than it gives the host's process and its imports itself."""
_ANSWER_S: Final = 10.0
"""For a host to say what it imported, which needs nothing of the agent's code."""
_NODE_DEADLINE_S: Final = 60.0
"""For all else that is asked of a node."""
_SHORT_OF_MEMORY: Final = "running low on memory"
"""In Ray's text of the death of an actor that its memory monitor killed."""
_NO_MEMORY: Final = "killed by Ray, because the node was running out of memory"

_log = structlog.stdlib.get_logger("coordinator")


class Hosts:
    """What hosts there are, by their ids, which are their actors' names; and who watches over them.

    Args:
        node_manager: name of the node manager's actor.
        silence_s: how long a host may be silent before it is taken to hang, seconds.
        tasks: in which hosts are watched.
        changed: called when a host is gone.
        lost: awaited when a host that was given to an agent ended or died, once it is forgotten, with how it died in a
            few words, if that is known.
    """

    def __init__(
        self,
        node_manager: str,
        silence_s: float,
        tasks: Tasks,
        changed: Callable[[], None],
        lost: Callable[[Host, str | None], Awaitable[None]],
    ) -> None:
        self._node_manager = node_manager
        self._silence_s = silence_s
        self._tasks = tasks
        self._changed = changed
        self._lost = lost
        self._known: dict[str, Host] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, str] = {}
        self._node: Any = None

    def find_node(self) -> None:
        """Find the node on which hosts run; to be called before anything is asked of it."""
        self._node = find_actor(self._node_manager)

    def __iter__(self) -> Iterator[Host]:
        """Yield those there are now."""
        return iter(list(self._known.values()))

    def of(self, address: Address) -> Host | None:
        """Return the host that an agent was given to."""
        return next((host for host in self._known.values() if host.address == address), None)

    def add(self, host: Host) -> None:
        """Note a host that is about to be started, or was found running."""
        self._known[host.host_id] = host

    def assign(self, host_id: str, address: Address) -> None:
        """Note that a host is given to an agent."""
        self._known[host_id] = replace(self._known[host_id], status=HostStatus.ASSIGNED, address=address)

    def forget(self, host_id: str) -> None:
        """Drop a host that is about to be ended."""
        del self._known[host_id]

    async def start(self, host_id: str, code: Code) -> Loaded:
        """Have the node start a host that was added; return what it imported. `warm` is to be called then.

        Raises:
            Exception: whatever went wrong; the host is forgotten.
        """
        try:
            async with asyncio.timeout(_START_DEADLINE_S):
                loaded: Loaded = await self._node.start_host.remote(host_id, code)
        except Exception:
            self._known.pop(host_id, None)
            raise
        return loaded

    def warm(self, host_id: str, loaded: Loaded) -> None:
        """Note that a host that was started can be given to an agent, unless it was forgotten meanwhile."""
        if host_id in self._known:
            self._known[host_id] = replace(self._known[host_id], status=HostStatus.WARM, loaded=loaded)

    def loaded(self, host_id: str) -> Loaded | None:
        """Return what a host imported."""
        return self._known[host_id].loaded

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

    def stamp_again(self, code: Code, before: str, now: str) -> None:
        """Give the hosts of a code that have one stamp another one: it is of more files, and none of them changed."""
        for host in self:
            if (host.code, host.code_stamp) == (code, before):
                self._known[host.host_id] = replace(host, code_stamp=now)

    async def end(self, host_id: str, *, died: bool = False) -> Host | None:
        """End a host's process and forget it; return what was known of it, ``None`` the second time.

        If it had ended by itself, `take_end` tells how.

        Args:
            died: whether it is known to be dead or dying.
        """
        try:
            async with asyncio.timeout(_NODE_DEADLINE_S):
                how = await self._node.end_host.remote(host_id, died=died)
            if how is not None and host_id in self._known:  # else nobody asks
                self._ends[host_id] = how
                _log.info("host_ended_by_itself", host_id=host_id, how=how)
        except Exception as error:  # noqa: BLE001  its agent must not be stuck with it
            _log.warning("host_not_ended", host_id=host_id, error=str(cause_of(error)))
        self._changed()
        return self._known.pop(host_id, None)

    def take_end(self, host_id: str) -> str | None:
        """Return how a host ended by itself, in a few words, and forget it; ``None`` if it did not or nobody knows."""
        return self._ends.pop(host_id, None)

    async def end_others(self) -> None:
        """End whatever hosts the node has that are not known here."""
        async with asyncio.timeout(_NODE_DEADLINE_S):
            await self._node.end_others.remote(list(self._known))

    async def check_node(self) -> None:
        """Return when the node can take agents.

        Raises:
            Exception: what ails it.
        """
        async with asyncio.timeout(_NODE_DEADLINE_S):
            await self._node.ready.remote()

    def watch_over(self, host_id: str) -> None:
        """Wait from now on for the end of a host that an agent was given to."""
        task = self._tasks.start(self._watch(host_id), f"watch-{host_id}")
        self._watches[host_id] = task
        task.add_done_callback(lambda _: self._watches.pop(host_id, None))

    def watch_of(self, host_id: str) -> asyncio.Task[None] | None:
        """Return what ends when a host has and is cleared up after; ``None`` if it is just being given to an agent."""
        return self._watches.get(host_id)

    async def wait_gone(self, host_id: str) -> None:
        """Wait until a host that does not work any more is gone.

        Most often it is just ending in order: ended in the middle of that, it would seem to have died.
        """
        watch = self._watches.get(host_id)
        if watch is not None:
            await asyncio.wait({watch}, timeout=_ORDERLY_END_S)
        if host_id in self._known:
            await self._clear_up(host_id)

    async def _watch(self, host_id: str) -> None:
        """Wait for a host's end, whether in order or not, and clear up after it."""
        handle, why, died = find_actor(host_id), None, False
        if handle is not None:
            try:
                silence_s = self._silence_s
                ending = await answer_of(
                    handle.wait_ended.remote(), silence_s / BEATS, lambda: check_answers(handle, silence_s)
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
        await self._clear_up(host_id, why, died=died)

    async def _clear_up(self, host_id: str, why: str | None = None, *, died: bool = False) -> None:
        host = await self.end(host_id, died=died)
        ended = self.take_end(host_id)
        if host is not None and host.address is not None:  # else someone else has just done it
            await self._lost(host, why or ended)
