"""Agents beyond the number of awake ones that their tenant may have wait, in the order of the requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.clock import ManualClock
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from coordinator.access.quotas import Quota
from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.model import Code, Placement
from coordinator.fleet.state import FleetState
from coordinator.fleet.wakes.quotas import held_asleep
from podium.address import Address

if TYPE_CHECKING:
    from pathlib import Path

HELLO = Code("/agents/hello.py", "Hello", "hello")
QUOTAS = {"acme": Quota(awake_agents=2), "zeta": Quota(agents=1)}


def agents(tenant: str, *keys: str) -> list[Address]:
    return [Address("hello", key, tenant) for key in keys]


def wanted(*addresses: Address) -> list[tuple[Address, Code]]:
    return [(address, HELLO) for address in addresses]


def test_only_tenants_with_a_limit_wait_and_the_oldest_requests_come_first() -> None:
    a, b, c = agents("acme", "a", "b", "c")
    others = [*agents("zeta", "a", "b", "c"), *agents("default", "a", "b", "c")]
    why = "the tenant acme may have 2 agents awake, and has them"
    assert held_asleep(wanted(c, *others, a, b), [], QUOTAS) == {b: why}
    assert held_asleep(wanted(c, b), [a, *others], QUOTAS) == {b: why}
    assert held_asleep(wanted(c), [a, b], QUOTAS) == {c: why}
    assert held_asleep(wanted(c), [a, b], {}) == {}
    assert set(held_asleep(wanted(c), [], {"acme": Quota(awake_agents=0)})) == {c}


async def test_an_agent_is_woken_when_another_one_sleeps(tmp_path: Path) -> None:
    file = tmp_path / "hello.py"
    file.write_text("")
    code = Code(str(file), "Hello", "hello")
    state = FleetState(MemoryJournalStore(), ManualClock(), IdSource(), quotas=lambda: QUOTAS)
    awake, first, second = agents("acme", "awake", "first", "second")
    state.hosts.add(Host("host_1", code, "", HostStatus.WARM))
    state.hosts.place(Placement("host_1", awake, epoch=1))
    state.requests.add(first, code)
    state.requests.add(second, code)
    assert (state.observe().wanted, set(state.over_quota)) == (((first, code),), {second})
    state.hosts.remove(state.hosts["host_1"])
    assert (state.observe().wanted, state.over_quota) == (((first, code), (second, code)), {})
