"""Renewals of a node's leases: together, never too late, and each host learns which of its own are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.clock import ManualClock
from chronicle.errors import Unavailable
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from coordinator.store.renewals import Renewals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import SessionId

IDS = IdSource()
TTL_MS = 30_000
ASKS_S = 10.0
"""Hosts ask as often."""
HOSTS = 100


class Store(MemoryJournalStore):
    """Counts renewals, and refuses as many as it is told."""

    calls = 0
    refusals = 0

    def renew_leases(self, leases: Sequence[tuple[SessionId, int]], now_ms: int, ttl_ms: int) -> Sequence[SessionId]:
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("not now")
        self.calls += 1
        return super().renew_leases(leases, now_ms, ttl_ms)


class Node:
    """Hosts with an agent each, and their store process."""

    def __init__(self, hosts: int) -> None:
        self.clock = ManualClock()
        self.store = Store()
        self.renewals = Renewals(self.store, self.clock.monotonic_s)
        self.leases = [self.take(f"agent {number}", f"host_{number}") for number in range(hosts)]

    def take(self, name: str, host_id: str, *, takeover: bool = False) -> tuple[SessionId, int]:
        now_ms = self.clock.now_ms()
        session = self.store.ensure_session(name, IDS.session(now_ms), IDS.branch(now_ms), now_ms)
        lease = self.store.acquire_lease(session.session_id, host_id, now_ms, TTL_MS, takeover=takeover)
        return lease.session_id, lease.epoch

    def ask(self, number: int) -> list[SessionId]:
        return self.renewals.renew(f"host_{number}", [self.leases[number]], self.clock.now_ms(), TTL_MS)

    def left_s(self, number: int) -> float:
        """Return for how long a lease is in force."""
        lease = self.store.lease(self.leases[number][0])
        assert lease is not None
        return (lease.expires_ms - self.clock.now_ms()) / 1000


def test_a_node_renews_the_leases_of_its_hosts_in_one_call_each_time() -> None:
    node = Node(HOSTS)
    for number in range(HOSTS):
        node.ask(number)
    node.store.calls = 0
    for _ in range(20):
        for number in range(HOSTS):  # in turn, as they were started
            node.clock.advance(ASKS_S / HOSTS)
            assert node.ask(number) == []
            assert node.left_s(number) > TTL_MS / 1000 / 4
    assert node.store.calls <= 22


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 0.2)), min_size=30, max_size=120))
def test_no_lease_ends_while_its_host_asks(late: list[tuple[int, float]]) -> None:
    """Hosts ask when they like, and each at the latest a fifth after its time."""
    node = Node(5)
    asks_s = [ASKS_S] * 5
    for number, slack in late:
        now_s = node.clock.monotonic_s()
        first = min(range(5), key=asks_s.__getitem__)
        chosen = number if asks_s[number] <= asks_s[first] + ASKS_S / 5 else first
        node.clock.advance(max(asks_s[chosen] - now_s, 0.0))
        assert node.ask(chosen) == []
        asks_s[chosen] = node.clock.monotonic_s() + ASKS_S * (1 + slack)
        assert all(node.left_s(each) > 0 for each in range(5))


def test_a_host_learns_what_it_has_lost() -> None:
    node = Node(3)
    for number in range(3):
        node.ask(number)
    lost, _ = node.leases[1]
    taken = node.take("agent 1", "host_9", takeover=True)
    node.clock.advance(ASKS_S)
    assert node.ask(0) == []
    assert node.ask(1) == [lost]
    assert node.renewals.renew("host_9", [taken], node.clock.now_ms(), TTL_MS) == []
    node.clock.advance(ASKS_S)
    assert node.renewals.renew("host_9", [taken], node.clock.now_ms(), TTL_MS) == []
    assert node.ask(1) == [lost]
    node.clock.advance(2 * TTL_MS / 1000)
    assert node.store.lease(taken[0]) is not None


def test_a_host_that_asks_no_more_keeps_no_lease() -> None:
    """It was killed, or stands still."""
    node = Node(2)
    for _ in range(6):
        node.clock.advance(ASKS_S)
        node.ask(0)
    assert node.left_s(0) > 0
    assert node.left_s(1) <= 0


def test_a_renewal_that_failed_is_made_by_the_next_host_that_asks() -> None:
    node = Node(2)
    for number in range(2):
        node.ask(number)
    node.clock.advance(ASKS_S)
    node.store.refusals = 1
    with pytest.raises(Unavailable):
        node.ask(0)
    assert node.ask(1) == []
    assert node.left_s(0) == node.left_s(1) == TTL_MS / 1000


def test_a_lease_that_was_released_is_not_renewed() -> None:
    node = Node(2)
    for number in range(2):
        node.ask(number)
    session_id, epoch = node.leases[1]
    node.renewals.forget("host_1", [session_id])
    node.store.release_lease(session_id, epoch)
    node.clock.advance(ASKS_S)
    assert node.ask(0) == []
    assert node.store.lease(session_id) is None
