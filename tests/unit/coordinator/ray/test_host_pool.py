"""The end of a host that several calls notice at once: it is ended once, and all of its cause is reported."""

from __future__ import annotations

import asyncio
from socket import gethostname
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import ray

from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.host_table import HostTable
from coordinator.fleet.model import AgentsLost, Code, Ended, Loaded, Placement
from coordinator.fleet.nodes.node_names import Member
from coordinator.fleet.nodes.nodes import LOCAL_NODE, NodeId
from coordinator.fleet.nodes.nodes import Node as NodeValue
from coordinator.ray import host_deaths, host_pool, node_pool
from coordinator.ray.host_pool import HostPool
from coordinator.ray.node_pool import NodePool, _Joined
from podium.address import Address
from podium.errors import HostDied
from podium.tasks import BackgroundTasks

if TYPE_CHECKING:
    from coordinator.fleet.deaths.deaths import Deaths
    from coordinator.ray.coordinator_config import CoordinatorConfig

pytestmark = pytest.mark.usefixtures("caplog")  # deaths are logged as warnings

DEADLINE_S = 30
ALICE, BOB = Address("greeter", "alice"), Address("greeter", "bob")
HOW = "killed by SIGSEGV (signal 11)"


class Node:
    """A node manager that tells how a host ended when it has, and only once."""

    def __init__(self) -> None:
        self.calls = 0
        self.ended = asyncio.Event()
        self.end_host = self

    async def remote(self, _host_id: str, *, died: bool) -> str | None:
        self.calls += 1
        if self.calls > 1:
            return None
        await self.ended.wait()
        return HOW


class Fleet:
    """A pool with a host that has an agent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node = Node()
        self.table = HostTable()
        self.lost: list[tuple[Address, str | None]] = []
        self.removed_at_change: list[bool] = []
        monkeypatch.setattr(host_pool, "find_actor", lambda _: self.node)
        self.settled: list[tuple[AgentsLost, bool]] = []
        config = cast(
            "CoordinatorConfig", SimpleNamespace(named_nodes={}, silence_s=60.0, hang_s=5.0, wake_timeout_s=0.0)
        )
        deaths = cast(
            "Deaths",
            SimpleNamespace(note_end=self._settle, note_node_gone=self._node_gone, agents_lost=self._lost),
        )
        self.node_gone: list[AgentsLost] = []
        self.pool = HostPool(self.table, config, BackgroundTasks(), self._changed, deaths, self._nodes(config))
        self.host = self.table.add(Host("host_1", None, "", HostStatus.ASSIGNED))
        self.table.place(Placement("host_1", ALICE, epoch=1))

    def _nodes(self, config: CoordinatorConfig) -> NodePool:
        """A pool of nodes with this one."""
        nodes = NodePool(config, lambda _: None, BackgroundTasks(), lambda _: None, self._node_is_gone)
        self.joined = nodes._joined[LOCAL_NODE] = _Joined("1", NodeValue(LOCAL_NODE), self.node)
        self.nodes = nodes
        return nodes

    def _node_is_gone(self, node: NodeId) -> None:
        self.pool.node_gone(node)

    async def _node_gone(self, lost: AgentsLost) -> None:
        self.node_gone.append(lost)

    def _changed(self) -> None:
        self.removed_at_change.append("host_1" not in self.table)

    async def _settle(self, lost: AgentsLost) -> None:
        self.settled.append((lost, all(self.table.placement(each.address) == each for each in lost.agents)))

    async def _lost(self, lost: AgentsLost) -> None:
        self.lost.extend((placement.address, lost.how) for placement in lost.agents)


async def test_a_sender_that_notices_the_end_while_the_process_still_dies_does_not_hide_its_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(monkeypatch)
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        for _ in range(2):  # the watch of the host, and a sender whose connection broke
            _ = tasks.create_task(fleet.pool.wait_gone(ALICE, "host_1"))
        while not fleet.node.calls:
            await asyncio.sleep(0)
        fleet.node.ended.set()
    assert fleet.lost == [(ALICE, HOW)]
    assert fleet.node.calls == 1
    assert all(fleet.removed_at_change)
    assert fleet.host.cause == HOW


async def test_the_cause_that_its_watch_knows_counts_also_if_another_call_removes_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(monkeypatch)

    async def wait_ended(_: int) -> Any:
        return [Ended(1, ALICE, "failed", "RuntimeError: its state does not fit")]

    fleet.node.wait_ended = type("Method", (), {"remote": staticmethod(wait_ended)})  # type: ignore[attr-defined]
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        _ = tasks.create_task(fleet.pool.wait_gone(ALICE, "host_1"))
        while not fleet.node.calls:
            await asyncio.sleep(0)
        fleet.pool.watch(fleet.host)
        while fleet.host.cause is None:
            await asyncio.sleep(0)
        fleet.node.ended.set()
    assert fleet.lost == [(ALICE, "RuntimeError: its state does not fit")]


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("kind", ["alone", "shared"])
async def test_an_agent_is_taken_off_a_recovered_host_that_does_not_run_it(
    monkeypatch: pytest.MonkeyPatch, kind: str, *, runs: bool
) -> None:
    """The coordinator died after the host had the lease, and the activation failed, or was never asked for."""
    fleet = Fleet(monkeypatch) if kind == "alone" else Shared(monkeypatch, None)
    fleet.node.ended.set()

    async def answer(_: Address) -> bool:
        return runs

    fleet.node.runs = type("Method", (), {"remote": staticmethod(answer)})  # type: ignore[attr-defined]
    left = [address async for address in fleet.pool.check_recovered([Placement("host_1", ALICE, epoch=1)])]
    assert left == ([] if runs else [ALICE])
    assert (fleet.table.placement(ALICE) is not None) is runs
    assert ("host_1" in fleet.table) is (runs or kind == "shared")
    assert not [each async for each in fleet.pool.check_recovered([Placement("host_1", ALICE, epoch=0)])], "it has left"


async def test_the_end_of_a_living_shared_host_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Shared(monkeypatch, None)

    async def end_host(_host_id: str, *, died: bool) -> None:  # it is alive, and ended in order
        assert not died

    monkeypatch.setattr(fleet.node, "end_host", type("Method", (), {"remote": staticmethod(end_host)}))
    await fleet.pool.end(fleet.host, "its loop was cancelled")
    [(noted, before_removal)] = fleet.settled
    assert (noted.how, noted.shared is not None, before_removal) == ("its loop was cancelled", True, True)
    assert fleet.lost == [(ALICE, "its loop was cancelled"), (BOB, "its loop was cancelled")]


async def test_the_reason_that_ray_gives_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch)
    fleet.node.ended.set()
    monkeypatch.setattr(host_deaths, "_REASON_POLL_S", 0.001)
    monkeypatch.setattr(host_deaths, "_REASON_S", DEADLINE_S)
    unavailable = ray.exceptions.ActorUnavailableError("its connection broke", None)
    answers = iter([unavailable, ray.exceptions.RayActorError(error_msg="the node was running low on memory")])

    async def wait_ended(_: int) -> Any:
        raise unavailable

    async def ping() -> None:
        raise next(answers)

    fleet.node.wait_ended = type("Method", (), {"remote": staticmethod(wait_ended)})  # type: ignore[attr-defined]
    fleet.node.ping = type("Method", (), {"remote": staticmethod(ping)})  # type: ignore[attr-defined]
    fleet.pool.watch(fleet.host)
    async with asyncio.timeout(DEADLINE_S):
        while not fleet.lost:
            await asyncio.sleep(0.001)
    assert fleet.lost == [(ALICE, "killed by Ray, because the node was running out of memory")]


async def test_the_end_of_a_process_that_the_node_saw_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch)
    fleet.node.ended.set()

    async def never() -> Any:
        await asyncio.Event().wait()

    async def ping() -> None:
        raise ray.exceptions.RayActorError(error_msg="it died")

    fleet.node.wait_ended = type("Method", (), {"remote": staticmethod(never)})  # type: ignore[attr-defined]
    fleet.node.ping = type("Method", (), {"remote": staticmethod(ping)})  # type: ignore[attr-defined]
    fleet.pool.watch(fleet.host)
    async with asyncio.timeout(DEADLINE_S):
        while not fleet.lost:
            fleet.pool.process_ended("host_1")
            await asyncio.sleep(0.001)
    assert fleet.lost == [(ALICE, HOW)]
    assert fleet.node.calls == 1


async def test_a_warm_host_whose_process_ended_is_given_to_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch)
    fleet.node.ended.set()
    fleet.table.add(Host("host_2", None, "", HostStatus.WARM))
    fleet.pool.process_ended("host_2")
    fleet.pool.process_ended("host_3")  # ended in order, and no longer known
    async with asyncio.timeout(DEADLINE_S):
        while "host_2" in fleet.table:
            await asyncio.sleep(0.001)
    assert "host_1" in fleet.table
    assert fleet.lost == []
    assert fleet.removed_at_change


async def test_a_host_is_ending_and_not_forgotten_until_its_process_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch)
    ended = [fleet.pool.begin_end(fleet.host), fleet.pool.begin_end(fleet.host)]
    assert fleet.host.status is HostStatus.ENDING, "at once, lest the next plan gives it to an agent"
    async with asyncio.timeout(DEADLINE_S):
        while not fleet.node.calls:
            await asyncio.sleep(0)
        fleet.pool.process_ended("host_1")
        assert ("host_1" in fleet.table, fleet.host.status) == (True, HostStatus.ENDING)
        fleet.node.ended.set()
        await asyncio.wait(ended)
    assert ("host_1" in fleet.table, fleet.node.calls) == (False, 1)


async def test_a_host_whose_start_fails_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch)
    fleet.node.ended.set()
    code = Code("greeter.py", "Greeter", "greeter")
    host = fleet.table.add(Host("host_2", code, ""))

    async def start_host(host_id: str, *_: Any) -> Loaded:
        fleet.pool.process_ended(host_id)
        return Loaded(code, (), "")

    async def ping() -> None:
        pass

    fleet.node.start_host = type("Method", (), {"remote": staticmethod(start_host)})  # type: ignore[attr-defined]
    fleet.node.ping = type("Method", (), {"remote": staticmethod(ping)})  # type: ignore[attr-defined]
    with pytest.raises(HostDied, match="its process has ended"):
        await fleet.pool.start(host, code)
    async with asyncio.timeout(DEADLINE_S):
        while "host_2" in fleet.table:
            await asyncio.sleep(0.001)
    assert fleet.node.calls == 1


async def test_an_activation_that_took_too_long_is_given_up_in_its_shared_host(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch)
    stopped: list[tuple[Address, float]] = []
    stop = staticmethod(lambda address, grace_s: stopped.append((address, grace_s)))
    fleet.node.stop = type("Method", (), {"remote": stop})  # type: ignore[attr-defined]
    host = fleet.table.add(Host("host_2", None, "", HostStatus.WARM, isolation="shared"))
    fleet.table.assign("host_2", BOB)
    await fleet.pool.withdraw(host, BOB, died=False)
    assert stopped == [(BOB, 0.0)]
    assert fleet.table.placement(BOB) is None
    assert "host_2" in fleet.table


class Shared(Fleet):
    """A pool with a shared host that has an agent, and activates another one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, culprit: Address | None) -> None:
        super().__init__(monkeypatch)

        async def named(_: str) -> str | None:
            return str(culprit) if culprit is not None else None

        self.node.culprit = type("Method", (), {"remote": staticmethod(named)})  # type: ignore[attr-defined]
        self.loaded = Loaded(Code("greeter.py", "Greeter", "greeter"), ("greeter.py",), "1", "shared")
        self.table.remove(self.host)
        self.host = self.table.add(Host("host_1", None, "", HostStatus.WARM, self.loaded, "shared"))
        self.table.place(Placement("host_1", ALICE, epoch=1))
        self.table.assign("host_1", BOB)


@pytest.mark.parametrize("culprit", [ALICE, None])
async def test_what_is_known_of_a_dead_shared_host_is_settled_before_another_takes_its_agents(
    monkeypatch: pytest.MonkeyPatch, culprit: Address | None
) -> None:
    fleet = Shared(monkeypatch, culprit)
    agents = list(fleet.host.placements.values())
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        _ = tasks.create_task(fleet.pool.withdraw(fleet.host, BOB, died=True))
        while not fleet.node.calls:
            await asyncio.sleep(0)
        assert fleet.table.placement(BOB) is not None, "it is on the host until that is settled"
        assert fleet.table["host_1"].status is HostStatus.ENDING
        fleet.node.ended.set()
    assert fleet.settled == [(AgentsLost(agents, HOW, fleet.loaded, culprit, died=True), True)]
    assert fleet.lost == [(ALICE, HOW), (BOB, HOW)]
    assert "host_1" not in fleet.table


@pytest.mark.parametrize("notices_first", ["host", "node"])
async def test_the_hosts_of_a_node_that_is_gone_end_at_once_and_none_of_their_agents_is_a_suspect(
    monkeypatch: pytest.MonkeyPatch, notices_first: str
) -> None:
    fleet = Shared(monkeypatch, None)  # its manager, which is gone too, never answers
    ended: list[str] = []

    async def end_host(host_id: str, *, died: bool) -> None:
        assert died
        ended.append(host_id)

    other = SimpleNamespace(end_host=SimpleNamespace(remote=end_host))
    fleet.nodes._joined[NodeId("b")] = _Joined("2", NodeValue(NodeId("b")), other)
    agents = list(fleet.host.placements.values())
    async with asyncio.timeout(DEADLINE_S):
        if notices_first == "host":
            _ = fleet.pool.begin_end(fleet.host)
            while not fleet.node.calls:
                await asyncio.sleep(0)
        fleet.nodes._lose(fleet.joined)
        assert fleet.host.end is not None
        await asyncio.wait({fleet.host.end})
    how = "its node local is gone"
    assert fleet.node_gone == [AgentsLost(agents, how, fleet.loaded, died=True)]
    assert fleet.settled == []
    assert ended == ["host_1"], "by another node of the machine"
    assert fleet.lost == [(ALICE, how), (BOB, how)]
    await fleet.pool.check_node(LOCAL_NODE)  # other nodes may be ready: a wake goes on
    assert await fleet.pool.processes([Host("host_2", None, "")]) == {}


async def test_the_workspace_of_an_agent_is_warm_on_the_node_with_the_latest_layer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = Fleet(monkeypatch)
    eve = Address("greeter", "eve")
    epochs = {"a": {ALICE.workspace_id: 3}, "b": {ALICE.workspace_id: 12, BOB.workspace_id: 1}}

    async def fail(_: list[str]) -> None:
        raise ray.exceptions.RayActorError(error_msg="it died")

    for name, found in epochs.items():

        async def layers(ids: list[str], found: dict[str, int] = found) -> dict[str, int]:
            assert len(ids) == 3
            return found

        manager = SimpleNamespace(layers=SimpleNamespace(remote=layers))
        fleet.nodes._joined[NodeId(name)] = _Joined(name, NodeValue(NodeId(name)), manager)
    members = [Member(ray_id, ray_id, "", gethostname()) for ray_id in ("1", "a", "b")]
    monkeypatch.setattr(node_pool, "living_nodes", lambda: members)
    fleet.node.layers = SimpleNamespace(remote=fail)  # type: ignore[attr-defined]
    assert await fleet.pool.find_workspaces([ALICE, BOB, eve]) == {ALICE: "b", BOB: "b"}
    assert "layers_not_known" in caplog.text


async def test_a_node_that_dies_keeps_no_unknown_hosts_of_other_nodes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = Fleet(monkeypatch)
    ended: list[list[str]] = []
    other = NodeId("other")

    async def fail(_: list[str]) -> None:
        fleet.joined.gone.set()
        raise ray.exceptions.ActorUnschedulableError("its node does not exist any more")

    async def end_others(known: list[str]) -> None:
        ended.append(known)

    fleet.node.end_others = SimpleNamespace(remote=fail)  # type: ignore[attr-defined]
    manager = SimpleNamespace(end_others=SimpleNamespace(remote=end_others))
    fleet.nodes._joined[other] = _Joined("2", NodeValue(other), manager)
    await fleet.pool.end_unknown({"host_1": LOCAL_NODE, "host_2": other})
    assert ended == [["host_2"]]
    assert "its node local is gone" in caplog.text
