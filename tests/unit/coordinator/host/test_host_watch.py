"""A shared host that ends itself: which messages count an attempt."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from chronicle.clock import ManualClock
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from coordinator.host.host_watch import HostWatch
from coordinator.host.loop_watch import Blockage
from coordinator.host.node.process_exit import last_culprit, last_words
from podium.address import Address

if TYPE_CHECKING:
    from pathlib import Path

    from coordinator.host.host_config import HostConfig

ALICE, BOB = Address("hello", "alice"), Address("hello", "bob")


class Exited(BaseException):
    """The process would have ended."""


@pytest.mark.usefixtures("caplog")
@pytest.mark.parametrize(("culprit", "kept"), [(ALICE, [ALICE]), (None, [ALICE, BOB])])
def test_attempts_are_not_counted_of_others_than_the_culprit_if_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, culprit: Address | None, kept: list[Address]
) -> None:
    def leave(_: int) -> None:
        raise Exited

    monkeypatch.setattr(os, "_exit", leave)
    store, clock, ids = MemoryJournalStore(), ManualClock(), IdSource()
    words = tmp_path / "words"
    config = SimpleNamespace(host_id="host_1", lease_ttl_s=60.0, block_limit_s=10.0, last_words=str(words))
    watch = HostWatch(cast("HostConfig", config), store, clock, lambda _: None)
    sessions = {}
    for address in (ALICE, BOB):
        session = store.ensure_session(address.name, ids.session(0), ids.branch(0), 0)
        lease = store.acquire_lease(session.session_id, "host_1", clock.now_ms(), 60_000)
        watch._leases[address] = lease
        sessions[address] = session.session_id
    watch.loop_watch = cast("Any", SimpleNamespace(check=lambda: Blockage(culprit, 11.0)))
    with pytest.raises(Exited):
        watch._enforce_limits([])
    assert [address for address, session_id in sessions.items() if store.lease(session_id) is not None] == kept
    assert last_culprit(words) == (str(culprit) if culprit is not None else None)
    assert "blocked the event loop of a shared host" in (last_words(words) or "")


def test_a_lease_is_sure_until_a_renewal_is_overdue_and_again_from_the_next_one(tmp_path: Path) -> None:
    store, clock, ids = MemoryJournalStore(), ManualClock(), IdSource()
    config = SimpleNamespace(host_id="host_1", lease_ttl_s=30.0, block_limit_s=10.0, last_words=str(tmp_path / "words"))
    watch = HostWatch(cast("HostConfig", config), store, clock, lambda _: None)
    session_id = store.ensure_session(ALICE.name, ids.session(0), ids.branch(0), 0).session_id
    lease = store.acquire_lease(session_id, "host_1", clock.now_ms(), 30_000)
    assert not watch.is_sure(lease), "it is not held here"
    watch.hold(ALICE, lease)
    try:
        clock.advance(10)
        assert watch.is_sure(lease), "the renewal is due"
        clock.advance(5)
        assert not watch.is_sure(lease)
        assert watch.renew(lease)
        assert watch.is_sure(lease)
        clock.suspend(15)
        assert not watch.is_sure(lease), "it went on while the machine was suspended"
        assert watch.renew(lease)
        clock.advance(40)
        store.acquire_lease(session_id, "host_2", clock.now_ms(), 30_000)
        assert not watch.renew(lease)
        assert not watch.is_sure(lease)
    finally:
        watch.remove(ALICE)


@pytest.mark.parametrize(("ttl_s", "late_s", "sure_s"), [(30.0, 0, 12.0), (30.0, 10, 2.0), (3.0, 0, 1.5)])
def test_a_lease_is_sure_from_when_it_was_acquired_and_never_for_as_long_as_it_lives(
    tmp_path: Path, ttl_s: float, late_s: float, sure_s: float
) -> None:
    store, clock, ids = MemoryJournalStore(), ManualClock(), IdSource()
    words = str(tmp_path / "words")
    config = SimpleNamespace(host_id="host_1", lease_ttl_s=ttl_s, block_limit_s=10.0, last_words=words)
    watch = HostWatch(cast("HostConfig", config), store, clock, lambda _: None)
    session_id = store.ensure_session(ALICE.name, ids.session(0), ids.branch(0), 0).session_id
    lease = store.acquire_lease(session_id, "host_1", clock.now_ms(), int(ttl_s * 1000))
    clock.advance(late_s)
    watch._renewed_s[session_id] = clock.boottime_s() - watch._age_s(lease)  # as `hold`, without its thread
    clock.advance(sure_s)
    assert watch.is_sure(lease)
    clock.advance(1)
    assert not watch.is_sure(lease)
