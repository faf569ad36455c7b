"""Many agents of one tenant wake at once: what an agent of another tenant waits for, by the plan and its queue."""

from __future__ import annotations

import pytest

from chronicle.clock import ManualClock
from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.model import Assign, Code, Placement, Route, StartHost
from coordinator.fleet.plan import MAX_ACTIVATING, Observed, plan
from coordinator.fleet.wakes.requests import WakeRequests
from podium.address import Address

HELLO = Code("/agents/hello.py", "Hello", "hello")
STORM, STARTS = 300, 2


def advance(requests: WakeRequests, hosts: dict[str, Host], shared: frozenset[Code]) -> list[Address]:
    """Do what a plan says, and let all of it happen; return the agents that were woken."""
    fleet = Observed(tuple(hosts.values()), wanted=tuple(requests.waiting()), code_stamps={HELLO: "1"}, shared=shared)
    woken = []
    for action in plan(fleet, 0, STARTS, 1000 if shared else 1):
        match action:
            case StartHost(code, stamp):
                host_id = f"h{len(hosts)}"
                hosts[host_id] = Host(
                    host_id, code, stamp, HostStatus.WARM, isolation="shared" if shared else "process"
                )
            case Assign(host_id, address):
                hosts[host_id].place(Placement(host_id, address))
                hosts[host_id].activated(address, 1, 0)
                requests.fulfil(address, requests.begin(address), Route(host_id, 1, 0))
                requests.end(address)
                woken.append(address)
    return woken


@pytest.mark.parametrize(("shared", "at_once"), [(frozenset[Code](), STARTS), (frozenset({HELLO}), MAX_ACTIVATING)])
async def test_agents_of_another_tenant_wake_in_the_middle_of_a_storm(shared: frozenset[Code], at_once: int) -> None:
    requests, hosts = WakeRequests(lambda: None, ManualClock()), dict[str, Host]()
    for number in range(STORM):
        requests.add(Address("hello", str(number), "storm"), HELLO)
    begun = [each for _ in range(4) for each in advance(requests, hosts, shared)]
    assert 0 < len(begun) < STORM
    calm = [Address("hello", str(number), "calm") for number in range(4)]
    for address in calm:
        requests.add(address, HELLO)
    woken: list[Address] = []
    while not set(calm) <= set(woken):
        woken += advance(requests, hosts, shared)
    between = woken[: woken.index(calm[-1])]
    assert sum(each.tenant == "storm" for each in between) <= len(calm) + at_once, "a plan was under way"
    while len(requests):
        woken += advance(requests, hosts, shared)
    assert len(begun) + len(woken) == STORM + len(calm)
