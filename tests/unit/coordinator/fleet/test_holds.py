"""Agents that are held asleep, leases for hosts, and waits that look around meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from chronicle.clock import ManualClock, SystemClock
from chronicle.errors import LeaseHeld
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from coordinator.fleet.holds import Holds
from coordinator.fleet.leases import HostLeases
from coordinator.fleet.polling import answer_of, ticking
from podium.address import Address
from podium.history.branching import sleeping_lease

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ALICE, BOB = Address("hello", "alice"), Address("hello", "bob")


# -- holds -------------------------------------------------------------------------------------------------------------


def test_an_agent_is_held_until_all_let_go() -> None:
    holds = Holds(ManualClock())
    holds.keep(ALICE, "one")
    holds.keep(ALICE, "two")
    assert ALICE in holds
    assert BOB not in holds
    holds.let_go(ALICE, "one")
    holds.let_go(ALICE, "one")
    assert (ALICE in holds, holds.has(ALICE, "one"), holds.has(ALICE, "two")) == (True, False, True)
    holds.let_go(ALICE, "two")
    assert ALICE not in holds


def test_a_hold_that_nobody_renews_ends_by_itself() -> None:
    clock = ManualClock()
    holds = Holds(clock)
    holds.keep(ALICE, "gone")
    clock.advance(59)
    holds.keep(ALICE, "there")
    assert holds.has(ALICE, "gone")
    clock.advance(2)
    assert (ALICE in holds, holds.has(ALICE, "gone"), holds.has(ALICE, "there")) == (True, False, True)
    clock.advance(59)
    assert ALICE not in holds


# -- leases ------------------------------------------------------------------------------------------------------------


class Fleet:
    """A store with one agent, and the hosts that live."""

    def __init__(self) -> None:
        self.store = MemoryJournalStore()
        self.clock = ManualClock()
        self.alive: set[str] = set()
        ids = IdSource()
        self.session = self.store.ensure_session(str(ALICE), ids.session(0), ids.branch(0), 0)
        self.leases = HostLeases(self.store, self.clock, 15.0, self.alive.__contains__)


def test_the_lease_of_a_dead_host_is_taken_and_that_of_a_living_one_is_not() -> None:
    fleet = Fleet()
    assert fleet.leases.take(ALICE, "host_1")[1] is False
    fleet.alive.add("host_1")
    with pytest.raises(LeaseHeld):
        fleet.leases.take(ALICE, "host_2")
    fleet.alive.clear()
    lease, unclean = fleet.leases.take(ALICE, "host_2")
    assert (lease.holder, lease.epoch, unclean) == ("host_2", 2, True)
    fleet.store.release_lease(fleet.session.session_id, 2)
    assert fleet.leases.take(ALICE, "host_3")[1] is False


def test_a_command_that_writes_in_between_does_not_hide_that_a_host_died() -> None:
    fleet = Fleet()
    fleet.leases.take(ALICE, "host_1")
    fleet.clock.advance(16)
    with sleeping_lease(fleet.store, fleet.session, fleet.clock.now_ms()), pytest.raises(LeaseHeld):
        fleet.leases.take(ALICE, "host_2")
    assert fleet.leases.take(ALICE, "host_2")[1] is True


def test_a_command_that_writes_to_a_sleeping_agent_leaves_no_trace() -> None:
    fleet = Fleet()
    with sleeping_lease(fleet.store, fleet.session, fleet.clock.now_ms()):
        pass
    assert fleet.leases.take(ALICE, "host_1")[1] is False


def test_a_command_that_died_or_was_overtaken_tried_no_message() -> None:
    fleet = Fleet()
    now_ms = fleet.clock.now_ms()
    fleet.store.acquire_lease(fleet.session.session_id, "podium-cli", now_ms, 30_000)  # it died with it
    with sleeping_lease(fleet.store, fleet.session, now_ms), sleeping_lease(fleet.store, fleet.session, now_ms):
        pass
    assert fleet.leases.take(ALICE, "host_1")[1] is False
    fleet.clock.advance(16)
    for _ in range(2):  # what the host did not give back is passed on from one to the next
        with sleeping_lease(fleet.store, fleet.session, fleet.clock.now_ms()):
            pass
    assert fleet.leases.take(ALICE, "host_2")[1] is True


async def test_a_lease_is_waited_for_and_not_for_ever() -> None:
    fleet = Fleet()
    with sleeping_lease(fleet.store, fleet.session, fleet.clock.now_ms()):
        waiting = asyncio.ensure_future(fleet.leases.wait_for(ALICE, "host_1", 30.0))
        with pytest.raises(TimeoutError):
            await fleet.leases.wait_for(ALICE, "host_2", 0.3)
        assert not waiting.done()
    lease, _ = await waiting
    assert lease.holder == "host_1"


# -- waits -------------------------------------------------------------------------------------------------------------


async def test_items_and_ticks_between_them() -> None:
    go_on = asyncio.Event()

    async def items() -> AsyncIterator[int]:
        yield 1
        await go_on.wait()
        yield 2

    seen: list[int | None] = []
    async for item in ticking(items(), 0.01):
        seen.append(item)
        if len(seen) == 3:
            go_on.set()
    assert seen[:3] == [1, None, None]
    assert [item for item in seen if item is not None] == [1, 2]


async def test_what_goes_wrong_with_the_items_comes_through_and_leaving_early_cancels_the_wait() -> None:
    cancelled = asyncio.Event()

    async def items(*, broken: bool) -> AsyncIterator[int]:
        yield 1
        if broken:
            raise ValueError("no")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(ValueError, match="no"):
        _ = [item async for item in ticking(items(broken=True), 60.0)]
    stream = ticking(items(broken=False), 0.01)
    assert [await anext(stream), await anext(stream)] == [1, None]
    await stream.aclose()
    await asyncio.wait_for(cancelled.wait(), 10)


async def test_an_answer_is_waited_for_as_long_as_the_check_is_content() -> None:
    checks: list[float] = []
    clock = SystemClock()

    async def check() -> None:
        checks.append(clock.monotonic_s())
        if len(checks) == 3:
            raise ConnectionError("gone")

    assert await answer_of(asyncio.sleep(0.03, "late"), 0.02, check) == "late"
    checks.clear()
    with pytest.raises(ConnectionError):
        await answer_of(asyncio.Event().wait(), 0.01, check)
    assert len(checks) == 3
