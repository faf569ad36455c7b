"""The nodes of a cluster as they come and go, without Ray."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import ray

from chronicle.errors import ChronicleError, Unavailable
from coordinator.door import Door
from coordinator.fleet.nodes.machines import Machine
from coordinator.fleet.nodes.node_names import Member
from coordinator.fleet.nodes.nodes import Node, NodeId
from coordinator.ray import node_pool
from coordinator.ray.node_pool import NodePool
from coordinator.store.links import StoreAccess
from podium.address import Address
from podium.errors import HostDied
from podium.tasks import BackgroundTasks, beside
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from coordinator.ray.coordinator_config import CoordinatorConfig
    from coordinator.ray.node_manager import NodeConfig

pytestmark = pytest.mark.usefixtures("caplog")  # lost nodes are logged as warnings

HERE = socket.gethostname()


class Manager:
    """The manager of a node, which answers at once."""

    def __init__(self, name: str, hosts: tuple[str, ...] = (), failure: Exception | None = None) -> None:
        async def ready() -> None:
            if failure is not None:
                raise failure

        self.ready = remote(ready)
        self.measure = remote(lambda: soon(Node(NodeId(name))))
        self.hosts = remote(lambda: soon(list(hosts)))
        self.ended: list[Any] = []

        async def end_others(known: list[str]) -> None:
            self.ended.append(known)

        self.end_others = remote(end_others)
        self.never = remote(asyncio.Event().wait)
        self.is_stopped = self.is_killed = False

        async def stop() -> None:
            self.is_stopped = True

        self.stop = remote(stop)


async def soon(value: Any) -> Any:
    return value


def remote(method: Callable[..., Awaitable[Any]]) -> Any:
    return SimpleNamespace(remote=method)


class Cluster:
    """The nodes that Ray takes for alive, and their managers."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.machines: dict[str, Machine] = {}
        self.managers: dict[str, Manager] = {}
        self.broken: set[str] = set()
        self.changes: list[list[NodeId]] = []
        self.lost: list[NodeId] = []
        self.configs: dict[str, NodeConfig] = {}
        self.away: ChronicleError | None = None
        """The error of the database."""
        self.podium = version("podium")
        """What nodes of other machines have."""
        self.named: dict[str, NodeId] = {}
        self.lease_ttl_s = 3600.0

    def add(self, ray_id: str, name: str, hostname: str = HERE) -> None:
        self.members.append(Member(ray_id, name, "10.0.0.1", hostname))

    def start(self, ray_id: str, config: NodeConfig) -> Manager:
        self.configs[ray_id] = config
        if ray_id in self.broken:
            return Manager(config.node, failure=RuntimeError("no Python there"))
        return self.managers.setdefault(ray_id, Manager(config.node))

    def machine(self, hostname: str) -> Machine | None:
        if self.away is not None:
            raise self.away
        return self.machines.get(hostname)

    def kill(self, manager: Manager) -> None:
        manager.is_killed = True
        self.managers = {ray_id: each for ray_id, each in self.managers.items() if each is not manager}

    @asynccontextmanager
    async def pool(self) -> AsyncIterator[NodePool]:
        async with BackgroundTasksUntilEnd() as tasks:
            config = cast(
                "CoordinatorConfig",
                SimpleNamespace(named_nodes=self.named, node=NodeConfigLike(), lease_ttl_s=self.lease_ttl_s),
            )
            yield NodePool(config, self.machine, tasks, self._changed, self.lost.append)

    def _changed(self, nodes: Sequence[Node]) -> None:
        self.changes.append([node.node_id for node in nodes])


class BackgroundTasksUntilEnd(BackgroundTasks):
    async def __aenter__(self) -> BackgroundTasks:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def NodeConfigLike() -> Any:  # noqa: N802  stands for a class
    from coordinator.ray.node_manager import NodeConfig

    fields = dict.fromkeys(NodeConfig.__dataclass_fields__, cast("Any", None))
    return NodeConfig(**fields)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(node_pool, "living_nodes", lambda: list(cluster.members))
    monkeypatch.setattr(node_pool, "start_node_manager", cluster.start)
    monkeypatch.setattr(node_pool, "find_actor", lambda name: cluster.managers.get(name.removeprefix("node-manager-")))
    monkeypatch.setattr(node_pool, "podium_on", lambda _: soon(cluster.podium))
    monkeypatch.setattr(ray, "kill", cluster.kill)
    monkeypatch.setattr(node_pool, "_LOOK_S", 0.001)
    monkeypatch.setattr(node_pool, "_AGAIN_S", 0.01)
    return cluster


async def test_nodes_are_joined_as_they_come_and_forgotten_when_they_are_gone(cluster: Cluster) -> None:
    cluster.add("1", "a")
    cluster.managers["1"] = Manager("a", ("host_1", "host_2"))
    async with cluster.pool() as pool, asyncio.TaskGroup() as tasks:
        assert await pool.begin() == {"host_1": "a", "host_2": "a"}
        following = tasks.create_task(pool.follow())
        cluster.add("2", "b")
        await until(lambda: NodeId("b") in pool)
        waiting = tasks.create_task(refused(pool.ask(NodeId("a"), 60, "never")))
        await asyncio.sleep(0)
        del cluster.members[0]
        assert await waiting == "its node a is gone"
        assert await refused(pool.ask(NodeId("a"), 60, "ready")) == "its node a is gone"
        assert list(pool) == ["b"]
        assert cluster.changes == [["a"], ["a", "b"], ["b"]]
        ended = {ray_id: manager.ended for ray_id, manager in cluster.managers.items()}
        assert ended == {"1": [], "2": [[]]}, "of a node that comes back, what it has left; of the others none"
        assert cluster.lost == ["a"]
        following.cancel()


async def test_a_node_that_dies_while_a_coordinator_begins_keeps_no_other_one_back(cluster: Cluster) -> None:
    for ray_id, name in (("1", "a"), ("2", "b")):
        cluster.add(ray_id, name)
        cluster.managers[ray_id] = Manager(name, (f"host_{ray_id}",))

    async def gone() -> None:
        cluster.members.clear()
        cluster.add("2", "b")
        raise ray.exceptions.ActorUnschedulableError("its node does not exist any more")

    cluster.managers["1"].hosts = remote(gone)
    async with cluster.pool() as pool:
        assert await pool.begin() == {"host_2": "b"}
        assert list(pool) == ["b"]


async def test_a_node_that_joins_late_keeps_no_hosts_that_nobody_knows(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add("1", "a")
    cluster.add("2", "b")
    cluster.managers["2"] = manager = Manager("b", ("host_2",))
    cluster.named["2"] = NodeId("b")
    measured = asyncio.Event()

    async def measure() -> Node:
        await measured.wait()
        return Node(NodeId("b"))

    manager.measure = remote(measure)
    monkeypatch.setattr(node_pool, "_BEGIN_S", 0.01)
    async with cluster.pool() as pool:
        assert await pool.begin() == {}
        assert list(pool) == ["a"]
        measured.set()
        await until(lambda: NodeId("b") in pool)
        assert manager.ended == [[]]


async def refused(answer: Awaitable[Any]) -> str:
    with pytest.raises(HostDied) as caught:
        await answer
    return str(caught.value)


async def test_a_restarted_coordinator_finds_the_names_that_the_managers_have(cluster: Cluster) -> None:
    cluster.add("1", "10.0.0.1")
    cluster.add("2", "10.0.0.1")
    cluster.managers["1"] = Manager(f"{HERE}-2")
    async with cluster.pool() as pool:
        await pool.begin()
        assert sorted(pool) == [HERE, f"{HERE}-2"]
        assert pool._joined[NodeId(f"{HERE}-2")].ray_id == "1"


async def test_a_node_whose_manager_does_not_start_is_tried_again_and_keeps_no_other_one_back(
    cluster: Cluster,
) -> None:
    cluster.add("1", "a")
    cluster.add("2", "b")
    cluster.broken.add("1")
    async with cluster.pool() as pool, asyncio.TaskGroup() as tasks:
        await pool.begin()
        assert list(pool) == ["b"]
        following = tasks.create_task(pool.follow())
        cluster.broken.clear()
        await until(lambda: NodeId("a") in pool)
        following.cancel()


async def test_what_keeps_all_nodes_from_being_joined_is_said(cluster: Cluster) -> None:
    cluster.add("1", "a")
    cluster.broken.add("1")
    async with cluster.pool() as pool:
        with pytest.raises(RuntimeError, match="no Python there"):
            await pool.begin()
    cluster.members = []
    cluster.add("2", "b", "elsewhere")
    async with cluster.pool() as pool:
        with pytest.raises(Unavailable, match="no podium node of this home runs there"):
            await pool.begin()


async def test_a_manager_that_died_with_its_node_is_not_mistaken_for_one_that_failed(cluster: Cluster) -> None:
    """Ray fails the call before the next look at the nodes."""
    cluster.add("1", "a")
    async with cluster.pool() as pool:
        await pool.begin()

        async def fail() -> None:
            raise ray.exceptions.ActorUnschedulableError("its node does not exist any more")

        cluster.managers["1"].never = remote(fail)
        with pytest.raises(ray.exceptions.ActorUnschedulableError):
            await pool.ask(NodeId("a"), 60, "never")
        cluster.members.clear()
        assert await refused(pool.ask(NodeId("a"), 60, "never")) == "its node a is gone"
        assert cluster.lost == ["a"]


def machine(hostname: str) -> Machine:
    """What ``podium node`` tells of a machine."""
    return Machine(
        hostname=hostname,
        podium="1",
        door=Door("10.0.0.2", 1, "secret"),
        store=StoreAccess("/run/store.sock", "of the machine"),
        home="/there",
        home_identity="id/1:2",
        run_dir="/run",
        models="/run/models.sock",
        logs="/there/logs",
        workspaces="/tmp",
        presentation="auto",
        fuse_transport="raw",
    )


async def test_a_node_of_another_machine_is_used_while_podium_node_tells_of_it(cluster: Cluster) -> None:
    cluster.add("1", "a")
    cluster.add("2", "b", "gpu-7")
    async with cluster.pool() as pool, asyncio.TaskGroup() as tasks:
        await pool.begin()
        assert list(pool) == ["a"]
        [(name, problem)] = pool.unused
        assert (name, "start `podium node` on that machine" in problem) == ("b", True)
        following = tasks.create_task(pool.follow())
        cluster.machines["gpu-7"] = told = machine("gpu-7")
        await until(lambda: NodeId("b") in pool)
        config = cluster.configs["2"]
        assert (config.node, config.home, config.run_dir, config.store) == ("b", "/there", "/run", told.store)
        assert config.owner_pid is None, "the service's process is not to be seen from there"
        assert (pool.machine_of(NodeId("a")), pool.machine_of(NodeId("b")), pool.unused) == ("", "gpu-7", [])
        assert pool.log_of(NodeId("b"), Address("x", "1")).endswith("in /there/logs on the machine gpu-7")

        cluster.machines["gpu-7"] = replace(told, door=Door("10.0.0.2", 2, "secret"))  # it was started again
        cluster.machines["gpu-7"] = replace(told, end_timeout_s=20.0)
        manager = cluster.managers["2"]
        await until(lambda: pool.ends(NodeId("b")))
        assert pool._joined[NodeId("b")].node.end_timeout_s == 20.0
        assert not pool.ends(NodeId("a"))
        assert cluster.lost == []
        del cluster.machines["gpu-7"]
        await until(lambda: cluster.lost == ["b"])
        await until(lambda: manager.is_killed)
        assert manager.is_stopped
        assert pool.beside(NodeId("b")) == [], "what its hosts have left is on that machine"
        await until(lambda: pool.unused)
        following.cancel()


async def test_a_machine_that_tells_nothing_any_more_is_given_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ``podium node`` has died, and its Ray node lives: agents there could commit nothing."""
    monkeypatch.setattr(node_pool, "_SILENT_S", 0.2)
    cluster.lease_ttl_s = 0.2
    cluster.add("1", "a")
    cluster.add("2", "b", "gpu-7")
    cluster.machines["gpu-7"] = told = machine("gpu-7")
    async with cluster.pool() as pool:
        await pool.begin()
        assert list(pool) == ["a", "b"]
        with beside(pool.follow()):
            await until(lambda: cluster.lost == ["b"])
            cluster.machines["gpu-7"] = replace(told, told_ms=1)
            await until(lambda: NodeId("b") in pool)
            await until(lambda: cluster.lost == ["b", "b"])


async def test_a_machine_with_another_directory_is_another_one(cluster: Cluster) -> None:
    cluster.add("1", "a")
    cluster.add("2", "b", "gpu-7")
    cluster.machines["gpu-7"] = machine("gpu-7")
    async with cluster.pool() as pool, asyncio.TaskGroup() as tasks:
        await pool.begin()
        following = tasks.create_task(pool.follow())
        assert NodeId("b") in pool
        first = cluster.managers["2"]
        cluster.machines["gpu-7"] = replace(machine("gpu-7"), home="/elsewhere")
        await until(lambda: first.is_killed and NodeId("b") in pool)
        assert (cluster.configs["2"].home, cluster.lost) == ("/elsewhere", ["b"])
        following.cancel()


async def test_a_node_with_another_podium_is_refused_by_both_versions(cluster: Cluster) -> None:
    cluster.add("1", "a")
    cluster.add("2", "b", "gpu-7")
    cluster.machines["gpu-7"] = machine("gpu-7")
    cluster.podium = "9.9"
    async with cluster.pool() as pool:
        await pool.begin()
        assert list(pool) == ["a"]
        assert pool.unused == [
            ("b", f"it has Podium 9.9, and the service has {version('podium')}: start both with the same version")
        ]
        assert "2" not in cluster.managers


async def test_what_is_known_of_machines_stays_while_the_database_is_away(cluster: Cluster) -> None:
    cluster.add("1", "a")
    cluster.add("2", "b", "gpu-7")
    cluster.machines["gpu-7"] = machine("gpu-7")
    async with cluster.pool() as pool, asyncio.TaskGroup() as tasks:
        await pool.begin()
        following = tasks.create_task(pool.follow())
        cluster.away = Unavailable("no route to the database")
        cluster.add("3", "c", "gpu-8")
        await until(lambda: pool.unused == [("c", "no route to the database")])
        assert NodeId("b") in pool
        assert cluster.lost == []
        del cluster.members[1]
        await until(lambda: cluster.lost == ["b"])
        cluster.away = None
        cluster.machines["gpu-8"] = machine("gpu-8")
        await until(lambda: NodeId("c") in pool)
        following.cancel()
