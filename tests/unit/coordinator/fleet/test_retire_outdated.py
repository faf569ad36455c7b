"""Hosts that are just being given their agent: they are retired if its code was edited, and told what preempts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.clock import ManualClock
from chronicle.ids import IdSource, MessageId
from chronicle.journal.memory import MemoryJournalStore
from coordinator.fleet.cancellation import Withdrawals
from coordinator.fleet.code.code_stamp import CodeStamps
from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.model import Code, Loaded, Route
from coordinator.fleet.state import FleetState
from coordinator.ray.coordinator_actor import CoordinatorActor
from coordinator.registry.known_agents import KnownAgents
from coordinator.registry.registry import RegisteredAgent, Registry
from podium.address import Address
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from pathlib import Path

    from coordinator.fleet.host_table import HostTable

ALICE = Address("hello", "alice")
DEADLINE_S = 60


class Pool:
    """The processes of hosts: they take note of what they are told."""

    def __init__(self, hosts: HostTable) -> None:
        self._hosts = hosts
        self.preempted: list[tuple[MessageId, BusyPolicy]] = []

    async def retire(self, address: Address, host_id: str) -> None:
        pass

    async def preempt(self, address: Address, message_id: MessageId, policy: BusyPolicy) -> None:
        """As the pool does, which finds the host by its route."""
        if self._hosts.route(address) is not None:
            self.preempted.append((message_id, policy))


class Config:
    """What `prepare` looks at."""

    wake_timeout_s = 2.0 * DEADLINE_S


def coordinator_of(host: Host, monkeypatch: pytest.MonkeyPatch, address: Address = ALICE) -> Any:
    """A coordinator without Ray, with one host that was given to an agent."""

    async def begun(_: object) -> None:
        pass

    cls = CoordinatorActor.__ray_metadata__.modified_class  # type: ignore[attr-defined]
    monkeypatch.setattr(cls, "_begin", begun)
    made = cls.__new__(cls)
    made._state = state = FleetState(MemoryJournalStore(), ManualClock(), IdSource())
    made._config, made._pool = Config, Pool(state.hosts)
    made._withdrawals = Withdrawals(state.store, state.clock, state.ids)
    made._state.hosts.add(host)
    made._state.hosts.assign(host.host_id, address)
    return made


@pytest.mark.parametrize("edited", [True, False])
async def test_a_host_that_is_just_being_given_an_agent_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: bool
) -> None:
    file = tmp_path / "agent.py"
    file.write_text("first = 1\n")
    code = Code(str(file), "Agent", "hello")
    loaded = Loaded(code, (str(file),), CodeStamps().of([str(file)]))
    host = Host("host_1", code, loaded.stamp, HostStatus.ASSIGNED, loaded)
    coordinator = coordinator_of(host, monkeypatch)
    request = coordinator._state.requests.add(ALICE, code)
    if edited:
        file.write_text("second = 2\n")
    retiring = asyncio.create_task(coordinator.prepare(ALICE, code))
    if not edited:
        assert await asyncio.wait_for(retiring, DEADLINE_S) is None, "its waking is not waited for"
        return
    for _ in range(3):
        await asyncio.to_thread(lambda: None)
    route = Route("host_1", 1, 0, loaded)
    coordinator._state.hosts["host_1"].activated(ALICE, 1, 0)
    coordinator._state.requests.fulfil(ALICE, request, route)
    assert await asyncio.wait_for(retiring, DEADLINE_S) == route


async def test_a_host_that_activates_an_agent_with_an_earlier_configuration_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "agent.py"
    file.write_text("first = 1\n")
    code = Code(str(file), "Agent", "hello")
    loaded = Loaded(code, (str(file),), CodeStamps().of([str(file)]))
    coordinator = coordinator_of(Host("host_1", code, loaded.stamp, HostStatus.ASSIGNED, loaded), monkeypatch)
    state = coordinator._state
    request = state.requests.add(ALICE, code)
    state.hosts["host_1"].activates(ALICE, state.config_of("hello"))
    assert await asyncio.wait_for(coordinator.prepare(ALICE, code), DEADLINE_S) is None
    state.known = KnownAgents(Registry([RegisteredAgent("hello", str(file), "Agent", {"model": "large"})]))
    reloading = asyncio.create_task(coordinator.reload())
    for _ in range(3):
        await asyncio.to_thread(lambda: None)
    state.hosts["host_1"].activated(ALICE, 1, 0)
    route = Route("host_1", 1, 0, loaded, "{}")
    state.requests.fulfil(ALICE, request, route)
    assert await asyncio.wait_for(reloading, DEADLINE_S) == [(ALICE, route)]


async def test_an_awake_agent_whose_class_moves_to_another_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its running message is pending until it is settled, so the new class has a request of the agent, too."""
    code, moved = (Code(str(tmp_path / name), "Agent", "hello") for name in ("agent.py", "moved.py"))
    loaded = Loaded(code, (), "")
    coordinator = coordinator_of(Host("host_1", code, "", HostStatus.ASSIGNED, loaded), monkeypatch)
    state = coordinator._state
    state.hosts["host_1"].activated(ALICE, 1, 0)
    state.requests.add(ALICE, moved)
    state.known = KnownAgents(Registry([RegisteredAgent("hello", moved.file, "Agent")]))
    retired = await asyncio.wait_for(coordinator.reload(), DEADLINE_S / 2)
    assert [address for address, _ in retired] == [ALICE]


async def test_an_agent_that_waits_for_a_host_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = Code(str(tmp_path / "agent.py"), "Agent", "hello")
    other = Host("host_1", code, "", HostStatus.ASSIGNED)
    coordinator = coordinator_of(other, monkeypatch, Address("hello", "bob"))
    coordinator._state.requests.add(ALICE, code)
    assert await asyncio.wait_for(coordinator.prepare(ALICE, code), DEADLINE_S) is None


async def test_a_message_preempts_a_turn_that_began_before_there_was_a_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared host tells the service itself that an agent is awake, so a message may come before its answer does."""
    code = Code(str(tmp_path / "agent.py"), "Agent", "hello")
    coordinator = coordinator_of(Host("host_1", code, "", HostStatus.WARM, isolation="shared"), monkeypatch)
    state, message = coordinator._state, (MessageId("second"), BusyPolicy.INTERRUPT)
    request = state.requests.add(ALICE, code)
    preempting = asyncio.create_task(coordinator.preempt(ALICE, *message))
    for _ in range(3):
        await asyncio.to_thread(lambda: None)
    assert not preempting.done()
    state.hosts["host_1"].activated(ALICE, 1, 0)
    state.requests.fulfil(ALICE, request, Route("host_1", 1, 0))
    await asyncio.wait_for(preempting, DEADLINE_S)
    assert coordinator._pool.preempted == [message]
