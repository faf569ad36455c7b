"""The nodes of the cluster, each with its manager: they are joined as they come, and forgotten when they are gone.

Ray tells which nodes live. A node is joined when its manager has told what the node has; its hosts are at its end as
soon as Ray takes it for dead. The names of nodes are kept by their managers, so a restarted coordinator finds them.

A node of another machine than the service's is joined if ``podium node`` has told of that machine
(`coordinator.fleet.nodes.machines`), and for as long as it tells of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import ray
import structlog

from chronicle.errors import ChronicleError, Unavailable
from coordinator.fleet.liveness import until_ended
from coordinator.fleet.nodes.machines import TELL_S
from coordinator.fleet.nodes.node_names import name_nodes
from coordinator.ray.cluster import cause_of, find_actor, living_nodes, node_manager_name, podium_on
from coordinator.ray.node_manager import start_node_manager
from podium.errors import HostDied
from podium.tasks import beside

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from coordinator.fleet.nodes.machines import Machine
    from coordinator.fleet.nodes.node_names import Member
    from coordinator.fleet.nodes.nodes import Node, NodeId
    from coordinator.ray.coordinator_config import CoordinatorConfig
    from coordinator.ray.node_manager import NodeConfig
    from podium.address import Address
    from podium.tasks import BackgroundTasks

__all__ = ["NodePool"]

_LOOK_S: Final = 1.0
"""Interval of looks at which nodes live; a look is one call of Ray's control process."""
_JOIN_S: Final = 60.0
"""Timeout for the manager of a node to start."""
_BEGIN_S: Final = 30.0
"""Longest wait of a coordinator for the managers of all nodes: then it begins without those that do not answer."""
_LEAVE_S: Final = 30.0
"""Timeout for the manager of a node that lives, and is not to be used any more, to end its hosts."""
_POLL_S: Final = 0.05
"""Interval of looks whether it has ended."""
_SILENT_S: Final = 5 * TELL_S
"""Shortest time after which a machine that does not tell of itself is given up."""
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
    config: NodeConfig | None = None
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class NodePool:
    """The nodes that have a manager.

    Args:
        config: the configuration of the coordinator.
        find_machine: returns what is told of the machine of a hostname, ``None`` if that is nothing; it blocks.
        tasks: run the starts of managers.
        changed: called with the nodes when one has joined or is gone.
        lost: called with a node that is gone, after ``changed``.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        find_machine: Callable[[str], Machine | None],
        tasks: BackgroundTasks,
        changed: Callable[[Sequence[Node]], None],
        lost: Callable[[NodeId], None],
    ) -> None:
        self._config = config
        self._find_machine = find_machine
        self._tasks = tasks
        self._changed = changed
        self._lost = lost
        self._joined: dict[NodeId, _Joined] = {}
        self._joining: dict[str, asyncio.Task[None]] = {}
        """The starts and ends of managers, by Ray's ids of the nodes; a failed start stays until it is tried again."""
        self._problems: dict[str, Exception] = {}
        """Why nodes are not joined."""
        self._names = dict(config.named_nodes)
        self._looking = asyncio.Lock()
        self._released: set[str] = set()
        """Those that are left alone, by Ray's ids."""
        self._begun = False
        """Whether the hosts of nodes that join now are ended: nobody knows them."""
        self._members: dict[str, Member] = {}
        """The nodes that live, by Ray's ids."""
        self._machines: dict[str, Machine | None] = {}
        """What is told of their machines, but for this one, by hostname."""
        self._unknown: dict[str, ChronicleError] = {}
        """Why it is not known what is told of some of them now."""
        self._told: dict[str, tuple[int, float]] = {}
        """When each of them was told last, by its clock, and since when that is known, by this one's."""
        self._was_on: dict[NodeId, str] = {}
        """The machines of the nodes that were there, as of `Node.machine`."""

    def __iter__(self) -> Iterator[NodeId]:
        """Iterate over a snapshot of the nodes."""
        return iter(list(self._joined))

    def __len__(self) -> int:
        """Return the number of nodes that are there."""
        return len(self._joined)

    def __contains__(self, node: NodeId) -> bool:
        """Whether a node is there."""
        return node in self._joined

    @property
    def unused(self) -> list[tuple[str, str]]:
        """The nodes of the cluster that are not joined, by their own names, and why, if that is known."""
        return [
            (member.name, str(problem))
            for ray_id, member in self._members.items()
            if (problem := self._problems.get(ray_id)) is not None
        ]

    def ends(self, node: NodeId) -> bool:
        """Whether a node that is there ends with its machine, and is drained for that."""
        joined = self._joined.get(node)
        return joined is not None and joined.node.is_drained

    def machine_of(self, node: NodeId) -> str:
        """Return the machine of a node that is there, as of `Node.machine`."""
        joined = self._joined.get(node)
        return joined.node.machine if joined is not None else ""

    def beside(self, node: NodeId | None) -> list[NodeId]:
        """Return the nodes on the machine of a node that is gone; for ``None`` on that of the service."""
        machine = self._was_on.get(node, "") if node is not None else ""
        return [other for other in self if self.machine_of(other) == machine]

    def log_of(self, node: NodeId, address: Address) -> str:
        """Return where the log of an agent on a node is, for messages."""
        machine, joined = self._was_on.get(node, ""), self._joined.get(node)
        if not machine:
            return str(self._config.logs / f"{address.workspace_id}.log")
        logs = joined.config.logs if joined is not None and joined.config is not None else "logs of its home"
        return f"{address.workspace_id}.log in {logs} on the machine {machine}"

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
        self._members = {member.ray_id: member for member in await asyncio.to_thread(living_nodes)}
        await self._find_machines()
        await self._look()
        if self._joining:
            await asyncio.wait(list(self._joining.values()), timeout=_BEGIN_S)
        if not self._joined:
            raise next(iter(self._problems.values()), HostDied("the Ray cluster has no node on this machine"))
        self._begun = True
        return {host: node for node, joined in self._joined.items() for host in joined.hosts}

    async def follow(self) -> None:
        """Join nodes as they come, and tell of those that are gone, until cancelled."""
        with beside(self._follow_machines(), "machines"):  # it may wait for a database, and nodes die meanwhile
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

    def release(self, node: NodeId) -> None:
        """Leave a node without hosts alone until `recall`: with its manager on it Ray would never take it for idle.

        The coordinator's own node is kept.
        """
        joined = self._joined[node]
        if joined.ray_id == ray.get_runtime_context().get_node_id():
            return
        _log.info("node_released", node=node)
        del self._joined[node]
        self._released.add(joined.ray_id)
        joined.gone.set()
        self._tell()
        self._start(joined.ray_id, self._end_manager(joined))

    def recall(self) -> None:
        """Have the nodes that were released joined again, those that live still."""
        self._released.clear()

    async def _look(self) -> None:
        """Compare the nodes with those that live."""
        async with self._looking:
            await self._look_alone()

    async def _look_alone(self) -> None:
        members = self._members = {member.ray_id: member for member in await asyncio.to_thread(living_nodes)}
        self._problems = {ray_id: problem for ray_id, problem in self._problems.items() if ray_id in members}
        for joined in list(self._joined.values()):
            if joined.ray_id not in members:
                self._lose(joined)
            else:
                self._follow_machine(joined, members[joined.ray_id])
        usable = [member for member in members.values() if self._is_usable(member)]
        known = {joined.ray_id for joined in self._joined.values()}
        self._released &= members.keys()
        known |= self._released
        new = [member for member in usable if member.ray_id not in known and member.ray_id not in self._joining]
        for member in new:
            await self._find_name(member)
        self._names = name_nodes(usable, self._names)
        for member in new:
            self._start(member.ray_id, self._join(member, self._names[member.ray_id]))

    def _start(self, ray_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Begin to start or to end the manager of a node."""
        self._joining[ray_id] = self._tasks.start_logged(work, f"join-{ray_id}")

    # -- other machines -------------------------------------------------------------------------------------------

    async def _follow_machines(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            await self._find_machines()

    async def _find_machines(self) -> None:
        """Read what is told of the machines of nodes; of one of which it cannot be known now, what was known stays."""
        found: dict[str, Machine | None] = {}
        for hostname in {member.hostname for member in self._members.values()} - {socket.gethostname()}:
            try:
                machine = await asyncio.to_thread(self._find_machine, hostname)
                found[hostname] = None if machine is None or self._is_silent(machine) else machine
                self._unknown.pop(hostname, None)
            except ChronicleError as error:
                self._told.pop(hostname, None)  # nor could the machine tell
                if str(error) != str(self._unknown.get(hostname)):
                    _log.warning("machine_not_known", hostname=hostname, error=str(error))
                self._unknown[hostname] = error
                found[hostname] = self._machines.get(hostname)
        self._machines = found
        self._told = {hostname: told for hostname, told in self._told.items() if hostname in found}

    def _is_silent(self, machine: Machine) -> bool:
        """Whether a machine has not told of itself for so long that the leases of its hosts have ended."""
        now_s = asyncio.get_running_loop().time()
        told_ms, since_s = self._told.get(machine.hostname, (machine.told_ms, now_s))
        if told_ms != machine.told_ms:
            since_s = now_s
        self._told[machine.hostname] = machine.told_ms, since_s
        return now_s - since_s > max(self._config.lease_ttl_s, _SILENT_S)

    def _is_usable(self, member: Member) -> bool:
        """Whether a node may have agents: if it is on this machine, or on one that is told of."""
        if member.hostname == socket.gethostname():
            return True
        machine = self._machines.get(member.hostname)
        is_joined = any(joined.ray_id == member.ray_id for joined in self._joined.values())
        if is_joined or (machine is not None and machine.end_timeout_s is None):
            return True
        if member.hostname not in self._machines:  # it came a moment ago
            return False
        problem = self._unknown.get(member.hostname) or _no_podium_node(member)
        if str(problem) != str(self._problems.get(member.ray_id)):
            _log.warning("node_not_used", node=member.name, problem=str(problem))
        self._problems[member.ray_id] = problem
        return False

    def _follow_machine(self, joined: _Joined, member: Member) -> None:
        """Have agents leave a node whose machine ends, and leave it if that is told of no more, or is another one."""
        if not joined.node.machine or member.hostname in self._unknown:
            return
        machine = self._machines[member.hostname]
        if machine is None or _of_machine(self._config.node, machine, joined.node.node_id) != joined.config:
            self._lose(joined)
            self._problems[joined.ray_id] = _no_podium_node(member)
            self._start(joined.ray_id, self._leave(joined))
        elif machine.end_timeout_s != joined.node.end_timeout_s:
            timeout_s = machine.end_timeout_s
            joined.node = replace(joined.node, is_drained=timeout_s is not None, end_timeout_s=timeout_s)
            self._tell()

    async def _leave(self, joined: _Joined) -> None:
        """End the manager of a node that lives, and what is there."""
        try:
            async with asyncio.timeout(_LEAVE_S):
                await joined.manager.stop.remote()
        except (TimeoutError, ray.exceptions.RayError) as error:
            _log.warning("node_not_stopped", node=joined.node.node_id, error=str(cause_of(error)))
        await self._end_manager(joined)

    async def _end_manager(self, joined: _Joined) -> None:
        ray.kill(joined.manager)
        with contextlib.suppress(TimeoutError):  # the next manager of the node has its name
            async with asyncio.timeout(_LEAVE_S):
                while find_actor(node_manager_name(joined.ray_id)) is not None:  # noqa: ASYNC110  Ray tells nobody
                    await asyncio.sleep(_POLL_S)
        self._joining.pop(joined.ray_id, None)

    async def _check_version(self, ray_id: str) -> None:
        """Check that a node of another machine has this version of Podium; Ray itself checks its own, and Python's.

        Raises:
            Unavailable: it has another one.
        """
        theirs, ours = await podium_on(ray_id), version("podium")
        if theirs != ours:
            raise Unavailable(f"it has Podium {theirs}, and the service has {ours}: start both with the same version")

    # -- joining --------------------------------------------------------------------------------------------------

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

    async def _join(self, member: Member, name: NodeId) -> None:
        """Start the manager of a node; again later, if that fails."""
        ray_id, machine = member.ray_id, self._machines.get(member.hostname)
        config = replace(self._config.node, node=name)
        try:
            async with asyncio.timeout(_JOIN_S):
                if machine is not None:
                    config = _of_machine(config, machine, name)
                    await self._check_version(ray_id)
                manager = start_node_manager(ray_id, config)
                await manager.ready.remote()
                node: Node = await manager.measure.remote()
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
        node = replace(node, machine=machine.hostname if machine is not None else "")
        self._joined[name] = _Joined(ray_id, node, manager, hosts, config)  # atomic from the look at `_begun`
        self._was_on[name] = node.machine
        _log.info("node_joined", node=name)
        self._tell()

    def _lose(self, joined: _Joined) -> None:
        node = joined.node.node_id
        _log.warning("node_gone", node=node)
        del self._joined[node]
        joined.gone.set()
        self._tell()
        self._lost(node)

    def _tell(self) -> None:
        self._changed([joined.node for joined in self._joined.values()])


def _no_podium_node(member: Member) -> Unavailable:
    return Unavailable(
        f"it is on another machine, {member.hostname}, and no podium node of this home runs there: start `podium node` "
        "on that machine"
    )


def _of_machine(config: NodeConfig, machine: Machine, node: NodeId) -> NodeConfig:
    """Return the configuration of the manager of a node on another machine."""
    return replace(
        config,
        node=node,
        home=machine.home,
        home_identity=machine.home_identity,
        store=machine.store,
        workspaces=machine.workspaces,
        run_dir=machine.run_dir,
        logs=machine.logs,
        presentation=machine.presentation,
        fuse_transport=machine.fuse_transport,
        owner_pid=None,
        models=machine.models,
        group=machine.group,
    )
