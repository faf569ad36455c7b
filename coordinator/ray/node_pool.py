"""The nodes of the cluster, each with its manager: they are joined as they come, and forgotten when they are gone.

Ray tells which nodes live. A node is joined when its manager has told what the node has; its hosts are at its end as
soon as Ray takes it for dead. The names of nodes are kept by their managers, so a restarted coordinator finds them.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import ray
import structlog

from coordinator.fleet.liveness import until_ended
from coordinator.fleet.node_names import name_nodes
from coordinator.ray.cluster import cause_of, find_actor, living_nodes, node_manager_name
from coordinator.ray.node_manager import start_node_manager
from podium.errors import HostDied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coordinator.fleet.node_names import Member
    from coordinator.fleet.nodes import Node, NodeId
    from coordinator.ray.coordinator_config import CoordinatorConfig
    from podium.tasks import BackgroundTasks

__all__ = ["NodePool"]

_LOOK_S: Final = 1.0
"""Interval of looks at which nodes live; a look is one call of Ray's control process."""
_JOIN_S: Final = 60.0
"""Timeout for the manager of a node to start."""
_BEGIN_S: Final = 30.0
"""Longest wait of a coordinator for the managers of all nodes: then it begins without those that do not answer."""
_AGAIN_S: Final = 15.0
"""Pause before the manager of a node is started again."""

_log = structlog.stdlib.get_logger("coordinator.nodes")


@dataclass(slots=True, eq=False)
class _Joined:
    """A node with a manager."""

    ray_id: str
    node: Node
    manager: Any
    hosts: Sequence[str] = ()
    """The hosts that a coordinator before this one has left there."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class NodePool:
    """The nodes that have a manager.

    Args:
        config: the configuration of the coordinator.
        tasks: run the starts of managers.
        changed: called with the nodes when one has joined or is gone.
        lost: called with a node that is gone, after ``changed``.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        tasks: BackgroundTasks,
        changed: Callable[[Sequence[Node]], None],
        lost: Callable[[NodeId], None],
    ) -> None:
        self._config = config
        self._tasks = tasks
        self._changed = changed
        self._lost = lost
        self._joined: dict[NodeId, _Joined] = {}
        self._joining: dict[str, asyncio.Task[None]] = {}
        """The starts of managers, by Ray's ids of the nodes; one that has failed stays until it is tried again."""
        self._problems: dict[str, Exception] = {}
        """Why they failed."""
        self._names = dict(config.named_nodes)
        self._looking = asyncio.Lock()
        self._begun = False
        """Whether the hosts of nodes that join now are ended: nobody knows them."""
        self._elsewhere: dict[str, Member] = {}
        """The nodes on other machines, by Ray's ids."""

    def __iter__(self) -> Iterator[NodeId]:
        """Iterate over a snapshot of the nodes."""
        return iter(list(self._joined))

    def __contains__(self, node: NodeId) -> bool:
        """Whether a node is there."""
        return node in self._joined

    @property
    def unused(self) -> list[tuple[str, str]]:
        """The nodes of the cluster that have no manager, by their own names, and why."""
        return [
            (member.name, f"it is on another machine, {member.hostname}, and agents run on the service's only")
            for member in self._elsewhere.values()
        ]

    async def ask(self, node: NodeId, timeout_s: float, method: str, *arguments: object, **named: object) -> Any:
        """Await the answer of a node's manager.

        Args:
            method: of `NodeManagerActor`.

        Raises:
            HostDied: the node is gone, or goes meanwhile.
            TimeoutError: the manager did not answer.
            ray.exceptions.RayError: the call failed.
        """
        joined = self._joined.get(node)
        if joined is None:
            raise HostDied(f"its node {node} is gone")
        try:
            async with asyncio.timeout(timeout_s):
                return await until_ended(getattr(joined.manager, method).remote(*arguments, **named), joined.gone)
        except (HostDied, ray.exceptions.RayActorError, ray.exceptions.ActorUnschedulableError):
            if not joined.gone.is_set():  # Ray may know more of the node than at the last look
                await self._look()
            if joined.gone.is_set():
                raise HostDied(f"its node {node} is gone") from None
            raise

    async def begin(self) -> dict[str, NodeId]:
        """Join the nodes that live; return the hosts that are on them, by name.

        Raises:
            Exception: none of them could be joined.
        """
        await self._look()
        if self._joining:
            await asyncio.wait(list(self._joining.values()), timeout=_BEGIN_S)
        if not self._joined:
            raise next(iter(self._problems.values()), HostDied("the Ray cluster has no node on this machine"))
        self._begun = True
        return {host: node for node, joined in self._joined.items() for host in joined.hosts}

    async def follow(self) -> None:
        """Join nodes as they come, and tell of those that are gone, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001  such as a restart of Ray's control process
                _log.warning("nodes_not_known", error=str(error))

    async def stop(self, timeout_s: float) -> None:
        """Have the managers end their hosts, mounts and workspace paths."""
        for node in self:
            try:
                await self.ask(node, timeout_s, "stop")
            except (HostDied, TimeoutError, ray.exceptions.RayError) as error:
                _log.warning("node_not_stopped", node=node, error=str(cause_of(error)))

    async def _look(self) -> None:
        """Compare the nodes with those that live."""
        async with self._looking:
            await self._look_alone()

    async def _look_alone(self) -> None:
        members = {member.ray_id: member for member in await asyncio.to_thread(living_nodes)}
        for joined in list(self._joined.values()):
            if joined.ray_id not in members:
                self._lose(joined)
        self._elsewhere = {ray_id: member for ray_id, member in self._elsewhere.items() if ray_id in members}
        here = [member for member in members.values() if self._is_here(member)]
        known = {joined.ray_id for joined in self._joined.values()}
        new = [member for member in here if member.ray_id not in known and member.ray_id not in self._joining]
        for member in new:
            await self._find_name(member)
        self._names = name_nodes(here, self._names)
        for member in new:
            joining = self._join(member.ray_id, self._names[member.ray_id])
            self._joining[member.ray_id] = self._tasks.start_logged(joining, f"join-{member.ray_id}")

    def _is_here(self, member: Member) -> bool:
        """Whether a node is on this machine: its hosts are reached through sockets in a directory."""
        if member.hostname == socket.gethostname():
            return True
        if member.ray_id not in self._elsewhere:
            self._elsewhere[member.ray_id] = member
            _log.warning("node_on_another_machine", node=member.name, hostname=member.hostname)
        return False

    async def _find_name(self, member: Member) -> None:
        """Ask the manager of a node that a coordinator before this one has started for the node's name."""
        manager = find_actor(node_manager_name(member.ray_id)) if member.ray_id not in self._names else None
        if manager is not None:
            try:
                async with asyncio.timeout(_JOIN_S):
                    node: Node = await manager.measure.remote()
            except (TimeoutError, ray.exceptions.RayError) as error:
                _log.warning("node_not_named", node=member.name, error=str(cause_of(error)))
            else:
                self._names[member.ray_id] = node.node_id

    async def _join(self, ray_id: str, name: NodeId) -> None:
        """Start the manager of a node; again later, if that fails."""
        try:
            manager = start_node_manager(ray_id, replace(self._config.node, node=name))
            async with asyncio.timeout(_JOIN_S):
                await manager.ready.remote()
                node = await manager.measure.remote()
                hosts: Sequence[str] = await manager.hosts.remote()
                if self._begun:  # `begin` has returned, and does not know them
                    await manager.end_others.remote([])
                    hosts = ()
        except Exception as error:  # noqa: BLE001  such as a missing package there
            cause = self._problems[ray_id] = cause_of(error)
            _log.warning("node_not_joined", node=name, error=str(cause) or type(cause).__name__)
            asyncio.get_running_loop().call_later(_AGAIN_S, self._joining.pop, ray_id, None)
            return
        self._joining.pop(ray_id, None)
        self._problems.pop(ray_id, None)
        self._joined[name] = _Joined(
            ray_id, node, manager, hosts
        )  # atomic from the look at `_begun`, unless it was set
        _log.info("node_joined", node=name)
        self._changed([joined.node for joined in self._joined.values()])

    def _lose(self, joined: _Joined) -> None:
        node = joined.node.node_id
        _log.warning("node_gone", node=node)
        del self._joined[node]
        joined.gone.set()
        self._changed([each.node for each in self._joined.values()])
        self._lost(node)
