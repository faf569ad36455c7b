"""The coordinator's loop without Ray: what becomes of messages when their agents cannot be woken, or must end."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import AsyncMock

import pytest

from chronicle.clock import ManualClock
from chronicle.errors import Unavailable
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import NewMessage
from coordinator.fleet.cancellation import Withdrawals
from coordinator.fleet.deaths.deaths import Deaths
from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.model import AgentsLost, Code, Loaded, Placement, StartHost
from coordinator.fleet.nodes.nodes import Node, NodeId
from coordinator.fleet.plan import plan
from coordinator.fleet.state import FleetState
from coordinator.ray import reconciler
from coordinator.ray.reconciler import Reconciler
from coordinator.telemetry.tracing import Tracing
from podium.address import Address
from podium.errors import HostDied, NotAnAgent
from podium.tasks import BackgroundTasks
from podium.turn.telemetry import NO_TRACER
from tests.otlp_receiver import otlp_receiver
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from chronicle.canonical import JsonObject
    from chronicle.journal.records import Lease
    from coordinator.ray.coordinator_config import CoordinatorConfig
    from coordinator.ray.host_pool import HostPool
    from podium.turn.telemetry import Tracer

ALICE, BOB = Address("hello", "alice"), Address("hello", "bob", "acme")


pytestmark = pytest.mark.usefixtures("caplog")  # deaths are logged as warnings

DEADLINE_S = 60


def _config(logs: Path) -> SimpleNamespace:
    return SimpleNamespace(
        lease_ttl_s=10.0,
        wake_timeout_s=10.0,
        logs=logs,
        inbox_limit=3,
        warm_hosts=0,
        most_warm_hosts=6,
        most_starting=2,
        shared_agents=10,
        autoscaler=False,
    )


class Pool:
    """The hosts' processes: none can be started, and those that are stopped are late."""

    def __init__(self) -> None:
        self.late: list[Placement] = []
        self.failure: Exception = HostDied("it died")
        self.lost: list[list[str]] = []
        self.kept: list[dict[str, NodeId]] = []
        self.watched: list[str] = []

    def handle(self, _: Host) -> None:
        return None

    def poke(self, _: Address) -> bool:
        return False

    async def check_node(self, _: str) -> None:
        pass

    async def withdraw(self, host: Host, address: Address, *, died: bool) -> None:
        pass

    async def answer_of(self, _: Host, answer: Any) -> Any:
        return await answer

    async def start(self, _: Host, __: Code) -> Any:
        raise self.failure

    async def stop_all(self, _: float) -> list[Placement]:
        return self.late

    def end_lost(self, host_ids: Sequence[str]) -> None:
        self.lost.append(list(host_ids))

    async def end_unknown(self, known: Mapping[str, NodeId]) -> None:
        self.kept.append(dict(known))

    async def ask_loaded(self, _: str) -> None:
        return None

    async def check_recovered(self, agents: Sequence[Placement]) -> AsyncIterator[Address]:
        for placement in agents:
            if placement.address == ALICE:
                yield ALICE

    def watch(self, host: Host) -> None:
        self.watched.append(host.host_id)


class Fleet:
    """A control loop whose steps a test calls, and one code that is registered."""

    def __init__(self, tmp_path: Path) -> None:
        file = tmp_path / "hello.py"
        file.write_text("")
        self.code = Code(str(file), "Hello", "hello")
        self.clock, self.ids, self.store, self.pool = ManualClock(), IdSource(), MemoryJournalStore(), Pool()
        self.state = FleetState(self.store, self.clock, self.ids)
        self.withdrawals = Withdrawals(self.store, self.clock, self.ids)
        self.deaths = Deaths(self.state, self.withdrawals)
        self.loop = self.make_loop(tmp_path)
        self.state.codes.register(self.code)
        self.loaded = Loaded(self.code, (self.code.file,), self.state.codes.stamp_of(self.code), "shared")

    def make_loop(self, logs: Path, tracer: Tracer = NO_TRACER) -> Reconciler:
        config, pool = cast("CoordinatorConfig", _config(logs)), cast("HostPool", self.pool)
        return Reconciler(config, self.state, pool, self.withdrawals, self.deaths, BackgroundTasks(), tracer)

    def admit(self, address: Address) -> None:
        ids = self.ids
        session = self.store.ensure_session(address.name, ids.session(0), ids.branch(0), 0, address.tenant)
        self.store.admit(session.session_id, NewMessage(ids.message(0), b"{}", 0))

    def lease(self, address: Address, holder: str) -> Lease:
        session = self.store.session(address.name, address.tenant)
        return self.store.acquire_lease(session.session_id, holder, self.clock.now_ms(), 10_000)

    @property
    def wanted(self) -> list[Address]:
        return [address for address, _ in self.state.requests]

    async def fail_wake(self, address: Address) -> Exception:
        """Have an agent's wake fail for good: its hosts die."""
        request = self.state.requests.add(address, self.code)
        while not request.route.done():
            host = self.state.hosts.add(Host("host_1", self.code, "", HostStatus.WARM))
            self.state.hosts.assign("host_1", address)
            await self.loop._wake(host, address, request)
            self.state.hosts.remove(host)
        error = request.route.exception()
        assert isinstance(error, Exception)
        return error


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


async def test_the_leases_of_all_tenants_are_released_for_hosts_that_had_to_be_killed(fleet: Fleet) -> None:
    for address in (ALICE, BOB):
        fleet.admit(address)
        epoch = fleet.lease(address, f"host_{address.key}").epoch
        fleet.pool.late.append(Placement(f"host_{address.key}", address, epoch=epoch))
    fleet.pool.late.reverse()
    await fleet.loop.end_agents(1.0)
    for address in (ALICE, BOB):
        session = fleet.store.session(address.name, address.tenant)
        assert fleet.store.lease(session.session_id) is None, f"an attempt of {address} is counted"


async def test_an_agent_with_messages_is_woken_again_later_after_its_hosts_died(fleet: Fleet) -> None:
    fleet.admit(BOB)
    delays = []
    for _ in range(4):
        assert isinstance(await fleet.fail_wake(BOB), HostDied)
        seconds = 0
        while not fleet.wanted:
            fleet.clock.advance(1)
            seconds += 1
            await fleet.loop._retry_wakes()
        assert fleet.wanted == [BOB]
        delays.append(seconds)
    assert delays == [15, 30, 60, 120]


async def test_an_agent_whose_messages_are_gone_is_not_woken_again(fleet: Fleet) -> None:
    fleet.admit(ALICE)
    await fleet.fail_wake(ALICE)
    session = fleet.store.session(ALICE.name)
    fleet.store.delete_session(session.session_id, fleet.clock.now_ms())
    fleet.clock.advance(1000)
    await fleet.loop._retry_wakes()
    fleet.clock.advance(1000)
    await fleet.loop._retry_wakes()
    assert fleet.wanted == []


async def test_an_inbox_that_cannot_be_read_when_a_host_ends_is_read_later(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.admit(ALICE)

    def fail(*_: Any, **__: Any) -> Any:
        raise Unavailable("the disk is busy")

    with monkeypatch.context() as patch:
        patch.setattr(fleet.store, "sessions_with_pending", fail)
        await fleet.deaths.agents_lost(AgentsLost([Placement("host_1", ALICE, epoch=1)], None))
    assert fleet.wanted == []
    fleet.clock.advance(15)
    await fleet.loop._retry_wakes()
    assert fleet.wanted == [ALICE]


async def test_a_code_is_registered_while_another_host_loads_it(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start fails, as its node dies, while another host loads the same class: what waits is not left alone."""
    lost, other = (fleet.state.hosts.add(Host(f"host_{n}", fleet.code, "")) for n in (1, 2))
    stamp = fleet.state.codes.stamp_of(fleet.code)
    await fleet.loop._start_host(lost, fleet.code, stamp)
    assert fleet.state.codes.get("hello") is None
    fleet.admit(ALICE)
    assert not await fleet.loop.poke(ALICE), "nobody knows the class"
    monkeypatch.setattr(fleet.pool, "start", AsyncMock(return_value=fleet.loaded))
    monkeypatch.setattr(fleet.pool, "watch", lambda host: None)
    attending = asyncio.create_task(fleet.loop.wake_unnotified())
    try:
        await fleet.loop._start_host(other, fleet.code, stamp)
        assert fleet.state.codes.get("hello") == fleet.code
        await until(lambda: fleet.wanted == [ALICE], "its message was left alone")
    finally:
        attending.cancel()


async def test_messages_for_a_class_that_is_registered_while_the_database_is_away_are_not_left_alone(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.admit(ALICE)
    fleet.state.codes.drop(fleet.code, "it died")

    def fail(*_: Any, **__: Any) -> Any:
        raise Unavailable("the database is away")

    with monkeypatch.context() as patch:
        patch.setattr(fleet.store, "sessions_with_pending", fail)
        with pytest.raises(Unavailable):
            await fleet.state.register(fleet.code)
    attending = asyncio.create_task(fleet.loop.wake_unnotified())
    try:
        await until(lambda: fleet.wanted == [ALICE], "its message was left alone")
    finally:
        attending.cancel()


@pytest.mark.parametrize("died", [True, False])
async def test_agents_with_messages_that_nobody_told_them_of_are_woken_when_a_host_has_died(
    fleet: Fleet, died: bool
) -> None:
    """A host that has admitted a question dies before it has the receiver woken; what failed before is left alone."""
    carol, dan = Address("hello", "carol"), Address("unknown", "dan")
    for address in (ALICE, BOB, carol, dan):
        fleet.admit(address)
    fleet.state.retries.refused(carol)
    attending = asyncio.create_task(fleet.loop.wake_unnotified())
    try:
        eve = Placement("host_1", Address("hello", "eve"), epoch=1)
        fleet.state.requests.add(ALICE, fleet.code)
        await fleet.deaths.agents_lost(AgentsLost([eve], None, died=died))
        if died:
            await until(lambda: len(fleet.wanted) > 1)
        assert fleet.wanted == ([ALICE, BOB] if died else [ALICE])
    finally:
        attending.cancel()
        await asyncio.wait({attending})


async def test_an_agent_whose_wake_failed_for_good_is_one_to_wake_again_after_a_message(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.admit(ALICE)
    handle = SimpleNamespace(activate=SimpleNamespace(remote=AsyncMock(side_effect=NotAnAgent("its state is odd"))))
    monkeypatch.setattr(fleet.pool, "handle", lambda _: handle)
    assert isinstance(await fleet.fail_wake(ALICE), NotAnAgent)
    assert await fleet.state.unattended() == []
    fleet.state.retries.forget(ALICE)  # as a wake does that succeeds
    assert await fleet.state.unattended() == [ALICE]


async def test_who_blocked_a_shared_host_is_told_to_nobody_else(fleet: Fleet) -> None:
    for address in (ALICE, BOB):
        fleet.admit(address)
    epochs = {address: fleet.lease(address, "host_1").epoch for address in (ALICE, BOB)}
    placements = [Placement("host_1", address, epoch=epoch) for address, epoch in epochs.items()]
    how = f"podium ended it, because {ALICE} blocked the event loop of a shared host for 10 s"
    await fleet.deaths.note_end(AgentsLost(placements, how, fleet.loaded, ALICE))
    await fleet.deaths.agents_lost(AgentsLost(placements, how, fleet.loaded))
    assert fleet.state.hosts.death_of(ALICE) == fleet.state.quarantine.reason(ALICE) == how
    assert "alice" not in str(fleet.state.hosts.death_of(BOB))
    assert "another agent of its shared host" in str(fleet.state.hosts.death_of(BOB))
    assert fleet.wanted == [ALICE, BOB]


async def test_nobody_pays_if_a_shared_host_dies_and_nobody_knows_why_and_its_agents_come_back_apart(
    fleet: Fleet,
) -> None:
    fleet.admit(ALICE)
    fleet.store.ensure_session(BOB.name, fleet.ids.session(0), fleet.ids.branch(0), 0, BOB.tenant)
    leases = {address: fleet.lease(address, "host_1") for address in (ALICE, BOB)}
    placements = [Placement("host_1", address, epoch=lease.epoch) for address, lease in leases.items()]
    await fleet.deaths.note_end(AgentsLost(placements, "killed by SIGSEGV (signal 11)", fleet.loaded))
    assert [fleet.store.lease(lease.session_id) for lease in leases.values()] == [None, None]
    assert fleet.state.hosts.death_of(ALICE) == fleet.state.hosts.death_of(BOB) == "killed by SIGSEGV (signal 11)"
    for address in (ALICE, BOB):
        fleet.state.requests.add(address, fleet.code)
    assert fleet.state.observe().alone == {ALICE, BOB}
    for address in (ALICE, BOB):  # their activations end in order
        await fleet.deaths.agents_lost(AgentsLost([Placement("host_2", address, epoch=9)], None))
    assert fleet.state.observe().alone == frozenset()


@pytest.mark.parametrize("blames", [ALICE, BOB, None])
async def test_an_agent_whose_shared_host_dies_during_its_activation_has_attempted_nothing_unless_it_is_blamed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, blames: Address | None
) -> None:
    """Only what is named as the blocker counts an attempt, and the coordinator records it."""
    fleet.admit(ALICE)
    host = fleet.state.hosts.add(Host("host_1", fleet.code, "", HostStatus.WARM, fleet.loaded, "shared"))
    fleet.state.hosts.assign("host_1", ALICE)
    request = fleet.state.requests.add(ALICE, fleet.code)
    wanted_meanwhile: list[Any] = []

    async def withdraw(host: Host, address: Address, *, died: bool) -> None:
        assert (address, died) == (ALICE, True)
        placements = list(host.placements.values())
        await fleet.deaths.note_end(AgentsLost(placements, "it blocked", fleet.loaded, blames))
        fleet.state.hosts.remove(host)
        wanted_meanwhile.extend(fleet.state.observe().wanted)

    async def dies(*_: Any) -> int:
        raise HostDied("it died")

    monkeypatch.setattr(fleet.pool, "withdraw", withdraw)
    handle = SimpleNamespace(activate=SimpleNamespace(remote=dies))
    monkeypatch.setattr(fleet.pool, "handle", lambda _: handle)
    _ = fleet.state.requests.begin(ALICE)
    await fleet.loop._wake(host, ALICE, request)
    lease = fleet.store.lease(fleet.store.session(ALICE.name).session_id)
    assert lease is None
    [message] = fleet.store.pending(fleet.store.session(ALICE.name).session_id)
    assert message.attempts == (blames == ALICE)
    assert wanted_meanwhile == [], "no other host takes it before its lease is settled"
    assert [address for address, _ in fleet.state.observe().wanted] == [ALICE]


@pytest.mark.parametrize(
    ("failure", "again"), [(HostDied("it died"), True), (TimeoutError(), True), (NotAnAgent("it is none"), False)]
)
async def test_a_code_whose_hosts_did_not_start_is_tried_again_if_that_may_help(
    fleet: Fleet, failure: Exception, again: bool
) -> None:
    fleet.pool.failure = failure
    await fleet.loop._start_host(Host("host_1", fleet.code, ""), fleet.code, fleet.loaded.stamp)
    assert fleet.state.codes.get("hello") is None
    assert fleet.state.codes.to_try_again(fleet.clock.monotonic_s() + 15) == ([fleet.code] if again else [])


async def test_the_failure_of_code_that_was_edited_meanwhile_fails_no_request(fleet: Fleet) -> None:
    fleet.pool.failure = NotAnAgent("it was none")
    Path(fleet.code.file).write_text("class Hello: now it is one")
    request = fleet.state.requests.add(ALICE, fleet.code)
    await fleet.loop._start_host(Host("host_1", fleet.code, ""), fleet.code, fleet.loaded.stamp)
    assert not request.route.done()
    assert (fleet.state.codes.get("hello"), fleet.state.changed.is_set()) == (fleet.code, True)
    await fleet.loop._start_host(Host("host_2", fleet.code, ""), fleet.code, fleet.state.codes.stamp_of(fleet.code))
    assert isinstance(request.route.exception(), NotAnAgent)


async def test_an_outbox_that_is_slow_delays_no_wake(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.admit(ALICE)
    fleet.pool.failure = NotAnAgent("its file was emptied")
    reading, may_go_on = threading.Event(), threading.Event()

    def outbox_envelopes() -> list[Any]:
        reading.set()
        may_go_on.wait(DEADLINE_S)
        return []

    monkeypatch.setattr(fleet.store, "outbox_envelopes", outbox_envelopes)
    tasks = [asyncio.create_task(fleet.loop.courier.run()), asyncio.create_task(fleet.loop.run())]
    try:
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.to_thread(reading.wait, DEADLINE_S)
            request = fleet.state.requests.add(ALICE, fleet.code)
            await asyncio.wait({request.route})
        assert isinstance(request.route.exception(), NotAnAgent)
        assert not may_go_on.is_set()
    finally:
        may_go_on.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_wake_is_a_part_of_the_trace_of_its_message(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        tracing = Tracing("coordinator")
        fleet.loop = fleet.make_loop(tmp_path, tracing.tracer)
        ids = fleet.ids
        session = fleet.store.ensure_session(ALICE.name, ids.session(0), ids.branch(0), 0)
        headers: JsonObject = {"trace": f"00-{trace}-{parent}-01"}
        fleet.store.admit(session.session_id, NewMessage(ids.message(0), b"{}", 0, headers=headers))
        await fleet.fail_wake(ALICE)
        await tracing.flush()
    spans = receiver.named("wake hello")
    assert {(span.trace_id, span.parent_id, span.failed) for span in spans} == {(trace, parent, True)}
    assert spans[0].attributes["gen_ai.agent.id"] == "hello/alice"
    assert spans[0].attributes["error.type"] == "HostDied"


async def test_an_agent_that_was_being_activated_when_a_message_came_is_poked(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have read its inbox before, and nobody else tells it of a message of another agent."""
    poked: list[Address] = []

    def poke(address: Address) -> bool:
        if fleet.state.hosts.route(address) is None:
            return False
        poked.append(address)
        return True

    async def activate(*_: Any) -> int:
        assert await fleet.loop.poke(ALICE)
        assert poked == []
        return 7

    monkeypatch.setattr(fleet.pool, "poke", poke)
    monkeypatch.setattr(fleet.pool, "watch", lambda *_: None, raising=False)
    monkeypatch.setattr(fleet.pool, "handle", lambda _: SimpleNamespace(activate=SimpleNamespace(remote=activate)))
    fleet.admit(ALICE)
    host = fleet.state.hosts.add(Host("host_1", fleet.code, "", HostStatus.WARM, fleet.loaded, "shared"))
    request = fleet.state.requests.add(ALICE, fleet.code)
    fleet.state.hosts.assign("host_1", ALICE)
    await fleet.loop._wake(host, ALICE, request)
    assert poked == [ALICE]
    assert fleet.wanted == []


async def test_agents_of_a_drained_node_are_told_to_end_and_get_no_other_host_there(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[Address, str, float | None]] = []

    async def retire(address: Address, host_id: str, timeout_s: float | None) -> None:
        told.append((address, host_id, timeout_s))

    monkeypatch.setattr(fleet.pool, "retire", retire, raising=False)
    fleet.state.nodes = (Node(NodeId("a")), Node(NodeId("b")))
    fleet.state.drains.add(NodeId("a"))
    host = fleet.state.hosts.add(Host("host_1", fleet.code, "", HostStatus.WARM, node=NodeId("a")))
    fleet.state.hosts.place(Placement("host_1", ALICE, epoch=1))
    for _ in range(2):
        for action in plan(fleet.state.observe(), None, None):
            fleet.loop._act(action)
        await asyncio.sleep(0)
    assert told == [(ALICE, "host_1", None)]
    assert host.status is HostStatus.DRAINING
    told.clear()
    fleet.state.nodes = (Node(NodeId("a"), is_drained=True, end_timeout_s=20.0), Node(NodeId("b")))
    for _ in range(2):
        for action in plan(fleet.state.observe(), None, None):
            fleet.loop._act(action)
        await asyncio.sleep(0)
    assert told == [(ALICE, "host_1", 20.0)], "a turn of a node that ends has a limit, also if it was drained before"
    fleet.state.hosts.remove(host)
    fleet.state.requests.add(ALICE, fleet.code)
    assert fleet.state.observe().last_nodes == {ALICE: "a"}
    [start] = plan(fleet.state.observe(), None, None)
    assert isinstance(start, StartHost)
    assert start.node == "b"


async def test_the_nodes_are_asked_once_where_the_workspaces_of_unknown_agents_are(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[Address]] = []

    async def find_workspaces(agents: list[Address]) -> dict[Address, NodeId]:
        asked.append(agents)
        return {ALICE: NodeId("b")}

    monkeypatch.setattr(fleet.pool, "find_workspaces", find_workspaces, raising=False)
    for address in (ALICE, BOB):
        fleet.state.requests.add(address, fleet.code)
    await fleet.loop._find_workspaces()
    assert asked == [], "there is one node only"
    fleet.state.nodes = (Node(NodeId("a")), Node(NodeId("b")))
    for _ in range(2):
        await fleet.loop._find_workspaces()
    assert asked == [[ALICE, BOB]]
    assert fleet.state.observe().last_nodes == {ALICE: "b"}


async def test_a_recovery_that_fails_is_made_again_as_a_whole(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two awake agents one has lost its host; the database is away when that is noted."""
    monkeypatch.setattr(reconciler, "lives", lambda host_id: host_id == "host_alive")
    for address, host_id in ((ALICE, "host_alive"), (BOB, "host_dead")):
        fleet.store.ensure_session(address.name, fleet.ids.session(0), fleet.ids.branch(0), 0, address.tenant)
        fleet.lease(address, host_id)

    def fail(*_: Any, **__: Any) -> Any:
        raise Unavailable("the database is away")

    nodes = {"host_alive": NodeId("a"), "host_warm": NodeId("b")}
    with monkeypatch.context() as patch:
        patch.setattr(fleet.store, "sessions_with_pending", fail)
        with pytest.raises(Unavailable):
            await fleet.loop.recover(nodes)
    assert not list(fleet.state.hosts)
    assert not fleet.pool.watched
    await fleet.loop.recover(nodes)
    assert fleet.pool.kept == [{"host_alive": "a"}]
    assert fleet.pool.lost == [["host_dead"], ["host_dead"]]
    assert fleet.pool.watched == [host.host_id for host in fleet.state.hosts] == ["host_alive"]
    host = fleet.state.hosts.host_of(ALICE)
    assert host is not None
    assert host.node == "a"
    assert fleet.store.lease(fleet.store.session(BOB.name, BOB.tenant).session_id) is None, "it has attempted nothing"
    await until(fleet.state.host_died.is_set, "messages for an agent that its host does not run are left alone")
