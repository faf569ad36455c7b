"""Agents that are wanted: who is told what when the hosts that are started for them die."""

from __future__ import annotations

import pytest

from coordinator.fleet.model import Code, Route
from coordinator.fleet.wake_requests import WakeRequests
from podium.address import Address
from podium.errors import HostDied

HELLO = Code("/agents/hello.py", "Hello", "hello")
OTHER = Code("/agents/other.py", "Other", "other")
ALICE, BOB, EVE = Address("hello", "alice"), Address("hello", "bob"), Address("other", "eve")
DIED = HostDied("it died")


async def test_hosts_that_die_on_their_way_are_replaced_so_many_times() -> None:
    requests = WakeRequests(lambda: None)
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
    requests = WakeRequests(lambda: None)
    assert not requests.start_lost(HELLO, DIED, 2)
