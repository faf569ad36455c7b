"""Agents that are wanted: who is told what when the hosts that are started for them die."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.clock import ManualClock
from coordinator.fleet.model import Code, Route
from coordinator.fleet.wakes.requests import QuietPeriod, WakeRequests
from coordinator.telemetry.instruments import WAKE_DURATION, WAKES
from coordinator.telemetry.recorder import Recorder
from podium.address import Address
from podium.errors import HostDied

HELLO = Code("/agents/hello.py", "Hello", "hello")
OTHER = Code("/agents/other.py", "Other", "other")
ALICE, BOB, EVE = Address("hello", "alice"), Address("hello", "bob"), Address("other", "eve")
DIED = HostDied("it died")


async def test_hosts_that_die_on_their_way_are_replaced_so_many_times() -> None:
    requests = WakeRequests(lambda: None, ManualClock())
    alice = requests.add(ALICE, HELLO)
    assert requests.start_lost(HELLO, DIED, 2)
    bob, eve = requests.add(BOB, HELLO), requests.add(EVE, OTHER)
    assert requests.start_lost(HELLO, DIED, 2)
    assert [request.route.done() for request in (alice, bob)] == [False, False]
    assert requests.start_lost(HELLO, DIED, 2), "bob has waited for two of them only"
    with pytest.raises(HostDied):
        alice.route.result()
    requests.fulfil(BOB, bob, Route("host_1", 1, 0))
    assert not requests.start_lost(HELLO, DIED, 2), "nobody waits for it any more"
    assert (await bob.route).host_id == "host_1"
    assert (eve.losses, eve.route.done()) == (0, False)
    assert list(requests) == [(EVE, OTHER)]


def test_a_start_that_nobody_waits_for_is_not_tried_again() -> None:
    requests = WakeRequests(lambda: None, ManualClock())
    assert not requests.start_lost(HELLO, DIED, 2)


async def test_a_wake_is_an_event_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    requests = WakeRequests(lambda: None, ManualClock())
    requests.fulfil(ALICE, requests.add(ALICE, HELLO), Route("host_1", 7, 3))
    assert "event=agent_woken agent_id=hello/alice host_id=host_1 epoch=7 turn=3" in caplog.text


async def test_the_time_of_wakes_is_measured_once_for_each_request() -> None:
    clock, recorder = ManualClock(), Recorder()
    requests = WakeRequests(lambda: None, clock, recorder)
    alice = requests.add(ALICE, HELLO)
    clock.advance(0.2)
    assert requests.add(ALICE, HELLO) is alice
    requests.fulfil(ALICE, alice, Route("host_1", 1, 0))
    requests.fulfil(ALICE, alice, Route("host_1", 1, 0))
    requests.fail(EVE, requests.add(EVE, OTHER), DIED)
    sums = recorder.sums()
    assert sums[WAKES.name, ("hello", "default", "woken")] == 1
    assert sums[WAKES.name, ("other", "default", "failed")] == 1
    durations = sums[WAKE_DURATION.name, ("hello", "default")]
    assert isinstance(durations, list)
    assert durations[0] == pytest.approx(0.2)
    assert sum(durations[1:]) == 1
    assert (WAKE_DURATION.name, ("other", "default")) not in sums
    assert len(requests) == 0


def test_there_is_a_lull_after_a_wake_and_its_first_turn() -> None:
    clock = ManualClock()
    lull = QuietPeriod(clock)
    assert lull.is_now()
    lull.wake_began()
    assert not lull.is_now()
    after_s = lull.wake_ended()
    assert not lull.is_now()
    clock.advance(after_s)
    assert lull.is_now()


def test_wakes_without_end_hold_up_nothing_for_long() -> None:
    clock = ManualClock()
    lull = QuietPeriod(clock)
    lull.wake_began()
    waited_s = 0.0
    while not lull.is_now():
        lull.wake_began()
        clock.advance(0.1)
        waited_s += 0.1
        lull.wake_ended()
    assert 1 < waited_s < 3
    clock.advance(1)
    lull.wake_ended()
    clock.advance(1)
    assert lull.is_now()
    lull.wake_began()
    assert not lull.is_now(), "the next ones are new"


async def test_a_wake_completes_the_request_that_was_made_since_its_own_failed() -> None:
    requests = WakeRequests(lambda: None, ManualClock())
    first = requests.add(ALICE, HELLO)
    requests.fail(ALICE, first, TimeoutError())
    second = requests.add(ALICE, HELLO)
    route = Route("host_1", 1, 0)
    requests.fulfil(ALICE, first, route)
    assert second.route.done(), "its callers would wait in vain: the agent is awake, and the request gone"
    assert second.route.result() == route
    assert requests.get(ALICE) is None


# -- tenants -----------------------------------------------------------------------------------------------------------


def order(requests: WakeRequests) -> list[str]:
    return [f"{address.tenant} {address.key}" for address, _ in requests.waiting()]


async def test_an_agent_waits_for_one_of_a_storm_of_another_tenants() -> None:
    requests = WakeRequests(lambda: None, ManualClock())
    for number in range(1000):
        requests.add(Address("hello", str(number), "storm"), HELLO)
    for number in range(500):
        requests.begin(Address("hello", str(number), "storm"))
    for key in ("a", "b"):
        requests.add(Address("hello", key, "calm"), HELLO)
    assert order(requests)[:5] == ["calm a", "storm 500", "calm b", "storm 501", "storm 502"]
    requests.fulfil(address := Address("hello", "a", "calm"), requests.begin(address), Route("host_1", 1, 0))
    assert order(requests)[:3] == ["storm 500", "calm b", "storm 501"]


async def test_a_tenant_that_asks_for_one_agent_after_the_other_has_one_turn_in_each_round() -> None:
    requests = WakeRequests(lambda: None, ManualClock())
    for number in range(3):
        requests.add(Address("hello", str(number), "storm"), HELLO)
    woken = []
    for number in range(6):
        requests.add(Address("hello", str(number), "busy"), HELLO)
        address, _ = next(requests.waiting())
        requests.fulfil(address, requests.begin(address), Route("host_1", 1, 0))
        requests.end(address)
        woken.append(address.tenant)
    assert woken == ["storm", "busy"] * 3
    assert len(requests) == 3


@given(
    st.lists(
        st.one_of(st.tuples(st.just("add"), st.sampled_from("xyz")), st.tuples(st.just("serve"), st.just(""))),
        max_size=60,
    )
)
def test_no_request_waits_for_more_than_two_of_another_tenant_once_it_is_the_first_of_its_own(
    events: list[tuple[str, str]],
) -> None:
    async def check() -> None:
        requests = WakeRequests(lambda: None, ManualClock())
        waiting: dict[str, list[Address]] = {tenant: [] for tenant in "xyz"}
        served: dict[str, Counter[str]] = {tenant: Counter() for tenant in "xyz"}
        """By tenant: those of others that were served since its first one has been the first."""
        for number, (event, tenant) in enumerate([*events, *[("serve", "")] * len(events)]):
            if event == "add":
                address = Address("hello", str(number), tenant)
                if not waiting[tenant]:
                    served[tenant].clear()
                waiting[tenant].append(address)
                requests.add(address, HELLO)
            elif (first := next(requests.waiting(), None)) is not None:
                address = first[0]
                assert waiting[address.tenant].pop(0) == address, "of a tenant in the order of the requests"
                requests.fulfil(address, requests.begin(address), Route("host_1", 1, 0))
                requests.end(address)
                served[address.tenant].clear()
                for other, left in waiting.items():
                    if other != address.tenant and left:
                        served[other][address.tenant] += 1
                        assert served[other][address.tenant] <= 2
        assert not any(waiting.values())
        assert len(requests) == 0

    asyncio.run(check())
