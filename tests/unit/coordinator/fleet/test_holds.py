"""Agents that are held asleep, leases for hosts, and waits that look around meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from chronicle.clock import ManualClock, SystemClock
from chronicle.errors import LeaseHeld
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from coordinator.fleet.leases import HostLeases
from coordinator.fleet.liveness import with_probes
from coordinator.fleet.wakes.sleep_holds import SleepHolds
from podium.address import Address
from podium.history.branching import sleeping_lease

ALICE, BOB = Address("hello", "alice"), Address("hello", "bob")


# -- holds -------------------------------------------------------------------------------------------------------------


def test_an_agent_is_held_until_all_let_go() -> None:
    holds = SleepHolds(ManualClock())
    holds.renew(ALICE, "one")
    holds.renew(ALICE, "two")
    assert ALICE in holds
    assert BOB not in holds
    holds.release(ALICE, "one")
    holds.release(ALICE, "one")
    assert (ALICE in holds, holds.is_held_by(ALICE, "one"), holds.is_held_by(ALICE, "two")) == (True, False, True)
    holds.release(ALICE, "two")
    assert ALICE not in holds


def test_a_hold_that_nobody_renews_ends_by_itself() -> None:
    clock = ManualClock()
    holds = SleepHolds(clock)
    holds.renew(ALICE, "gone")
    clock.advance(59)
    holds.renew(ALICE, "there")
    assert holds.is_held_by(ALICE, "gone")
    clock.advance(2)
    assert (ALICE in holds, holds.is_held_by(ALICE, "gone"), holds.is_held_by(ALICE, "there")) == (True, False, True)
    clock.advance(59)
    assert ALICE not in holds


# -- leases ------------------------------------------------------------------------------------------------------------


class Leases:
    """A store with one agent, and the hosts that live."""

    def __init__(self) -> None:
        self.store = MemoryJournalStore()
        self.clock = ManualClock()
        self.alive: set[str] = set()
        ids = IdSource()
        self.session = self.store.ensure_session(str(ALICE), ids.session(0), ids.branch(0), 0)
        self.leases = HostLeases(self.store, self.clock, 15.0, self.alive.__contains__)


def test_the_lease_of_a_dead_host_is_taken_and_that_of_a_living_one_is_not() -> None:
    made = Leases()
    assert made.leases.take(ALICE, "host_1")[1] is False
    made.alive.add("host_1")
    with pytest.raises(LeaseHeld):
        made.leases.take(ALICE, "host_2")
    made.alive.clear()
    lease, unclean = made.leases.take(ALICE, "host_2")
    assert (lease.holder, lease.epoch, unclean) == ("host_2", 2, True)
    made.store.release_lease(made.session.session_id, 2)
    assert made.leases.take(ALICE, "host_3")[1] is False


def test_a_command_that_writes_in_between_does_not_hide_that_a_host_died() -> None:
    made = Leases()
    made.leases.take(ALICE, "host_1")
    made.clock.advance(16)
    with sleeping_lease(made.store, made.session, made.clock.now_ms()), pytest.raises(LeaseHeld):
        made.leases.take(ALICE, "host_2")
    assert made.leases.take(ALICE, "host_2")[1] is True


def test_a_command_that_writes_to_a_sleeping_agent_leaves_no_trace() -> None:
    made = Leases()
    with sleeping_lease(made.store, made.session, made.clock.now_ms()):
        pass
    assert made.leases.take(ALICE, "host_1")[1] is False


def test_a_command_that_died_or_was_overtaken_tried_no_message() -> None:
    made = Leases()
    now_ms = made.clock.now_ms()
    made.store.acquire_lease(made.session.session_id, "podium-cli", now_ms, 30_000)  # it died with it
    with sleeping_lease(made.store, made.session, now_ms), sleeping_lease(made.store, made.session, now_ms):
        pass
    assert made.leases.take(ALICE, "host_1")[1] is False
    made.clock.advance(16)
    for _ in range(2):  # what the host did not give back is passed on from one to the next
        with sleeping_lease(made.store, made.session, made.clock.now_ms()):
            pass
    assert made.leases.take(ALICE, "host_2")[1] is True


async def test_a_lease_is_waited_for_and_not_for_ever() -> None:
    made = Leases()
    with sleeping_lease(made.store, made.session, made.clock.now_ms()):
        waiting = asyncio.ensure_future(made.leases.wait_for(ALICE, "host_1", 30.0))
        with pytest.raises(TimeoutError):
            await made.leases.wait_for(ALICE, "host_2", 0.3)
        assert not waiting.done()
    lease, _ = await waiting
    assert lease.holder == "host_1"


# -- waits -------------------------------------------------------------------------------------------------------------


async def test_an_answer_is_waited_for_as_long_as_the_check_is_content() -> None:
    checks: list[float] = []
    clock = SystemClock()

    async def check() -> None:
        checks.append(clock.monotonic_s())
        if len(checks) == 3:
            raise ConnectionError("gone")

    assert await with_probes(asyncio.sleep(0.03, "late"), 0.02, check) == "late"
    checks.clear()
    with pytest.raises(ConnectionError):
        await with_probes(asyncio.Event().wait(), 0.01, check)
    assert len(checks) == 3
