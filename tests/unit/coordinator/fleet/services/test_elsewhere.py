"""Agents that end their turns on the cluster of a service that has handed the home over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from chronicle.clock import ManualClock
from chronicle.errors import Unavailable
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from coordinator.documents import FileDocuments
from coordinator.fleet.model import Code
from coordinator.fleet.services import handover
from coordinator.fleet.services.elsewhere import Elsewhere
from coordinator.fleet.services.handover import Freshness, MemberState, member, tell_draining, tell_member
from coordinator.fleet.state import FleetState
from podium.address import Address

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.journal.records import Lease

ANN, BOB, EVE = (Address("hello", key) for key in ("ann", "bob", "eve"))
TTL_MS = 15_000


class Home:
    def __init__(self, directory: Path) -> None:
        self.documents = FileDocuments(directory)
        self.store = MemoryJournalStore()
        self.clock = ManualClock()
        self.living = {"host_mine"}
        self.elsewhere = Elsewhere(self.documents, self.store, self.clock, alive=self.living.__contains__)
        self._ids = IdSource()

    def lease(self, address: Address, host: str) -> Lease:
        now_ms = self.clock.now_ms()
        session = self.store.ensure_session(address.name, self._ids.session(now_ms), self._ids.branch(now_ms), now_ms)
        return self.store.acquire_lease(session.session_id, host, now_ms, TTL_MS)

    def release(self, lease: Lease) -> None:
        self.store.release_lease(lease.session_id, lease.epoch)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_nobody_is_elsewhere_unless_a_service_drains(home: Home) -> None:
    home.lease(ANN, "host_theirs")
    assert home.elsewhere.look() == 0
    assert ANN not in home.elsewhere
    assert not home.elsewhere.is_draining


def test_an_agent_is_elsewhere_until_its_lease_is_released(home: Home) -> None:
    theirs, _ = home.lease(ANN, "host_theirs"), home.lease(BOB, "host_mine")
    tell_draining(home.documents, "old")
    assert home.elsewhere.look() > 0
    assert ANN in home.elsewhere
    assert BOB not in home.elsewhere
    home.release(theirs)
    home.lease(EVE, "host_new_of_mine")
    assert home.elsewhere.look() > 0
    assert ANN not in home.elsewhere
    assert EVE not in home.elsewhere, "a host that has come since is not of the service before"
    tell_draining(home.documents, "another", ended=True)
    assert home.elsewhere.look() > 0
    tell_draining(home.documents, "old", ended=True)
    assert home.elsewhere.look() == 0
    assert not home.elsewhere.is_draining


def test_a_lease_that_has_ended_holds_nobody(home: Home) -> None:
    home.lease(ANN, "host_theirs")
    tell_draining(home.documents, "old")
    home.clock.advance(2 * TTL_MS / 1000)
    home.elsewhere.look()
    assert ANN not in home.elsewhere


def test_a_service_that_is_killed_while_it_drains_holds_its_agents_for_a_while_only(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home.lease(ANN, "host_theirs")
    tell_draining(home.documents, "old")
    home.elsewhere.look()
    monkeypatch.setattr(handover, "STALE_S", -1.0)
    assert home.elsewhere.look_again() == 0
    assert "draining_service_gone" in caplog.text
    assert ANN not in home.elsewhere
    assert not home.elsewhere.is_draining


def test_what_was_told_long_ago_does_not_count_before_it_is_told_again() -> None:
    freshness = Freshness(is_seen=False)
    assert not freshness.holds(1)
    assert freshness.holds(2)
    assert freshness.holds(2)
    assert not freshness.holds(None)
    assert not freshness.holds(2)


def test_a_member_is_read_as_it_told_of_itself(tmp_path: Path) -> None:
    documents = FileDocuments(tmp_path)
    assert member(documents, "n1") is None
    tell_member(documents, "n1", MemberState.STANDBY, "0.2.0")
    found = member(documents, "n1")
    assert found is not None
    assert (found.state, found.podium) == (MemberState.STANDBY, "0.2.0")
    assert member(documents, "n2") is None
    tell_member(documents, "n1", None, "0.2.0")
    assert member(documents, "n1") is None


async def test_nothing_is_planned_for_agents_elsewhere_nor_for_anybody_while_another_service_has_the_home(
    home: Home, tmp_path: Path
) -> None:
    state = FleetState(home.store, home.clock, IdSource())
    state.elsewhere = home.elsewhere
    code = Code(str(tmp_path / "x.py"), "X", "hello")
    home.lease(ANN, "host_theirs")
    tell_draining(home.documents, "old")
    home.elsewhere.look()
    for address in (ANN, EVE):
        state.requests.add(address, code)
    assert state.observe().wanted == ((EVE, code),)
    state.is_waiting = True
    assert state.observe().wanted == ()


def test_time_in_which_nothing_could_be_read_is_no_silence(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.lease(ANN, "host_theirs")
    tell_draining(home.documents, "old")
    home.elsewhere.look()
    now_s = time.monotonic()

    def refuse(_name: str) -> bytes:
        raise Unavailable("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(time, "monotonic", lambda: now_s + 60)
        with monkeypatch.context() as away:
            away.setattr(home.documents, "read", refuse)
            with pytest.raises(Unavailable):
                home.elsewhere.look()
        assert home.elsewhere.look() > 0
        assert ANN in home.elsewhere
