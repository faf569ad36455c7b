"""The cluster simulator over many seeds, and that it finds what it is for: broken fences, permits and drains."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.journal.chain import event_hash
from chronicle.journal.memory import MemoryJournalStore
from coordinator.fleet.nodes.drains import Drains
from coordinator.homes import generation
from coordinator.homes.postgres import gone_back
from coordinator.host.delivery import DeliveryChannel
from coordinator.ray.host_pool import HostPool
from coordinator.store.permits import HostPermits
from podium.testing import Broken
from tests.stateful.cluster.simulator import ClusterSimulator
from tests.stateful.test_simulator import NoFence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.records import Commit, Event, Head
    from podium.address import Address

CODE = Path(__file__)
"""A file that stands for the agents' code: nobody reads more of it than its state."""
SEEDS = 60
"""Seeds of a part, and of the runs in which nothing is broken."""
ENOUGH = 200
"""Seeds within which a broken part must be found; `docs/internals/simulator.md` has the rate of each."""


def part_of(first: int, *, with_restores: bool = False) -> int:
    """Run some seeds, and return how many commits they made."""
    runs = (ClusterSimulator(seed, CODE, with_restores=with_restores) for seed in range(first, first + SEEDS))
    return sum(run.run().commits for run in runs)


@pytest.mark.parametrize("with_restores", [False, True])
def test_nothing_is_broken_on_nodes_that_come_and_go(with_restores: bool) -> None:
    assert part_of(0, with_restores=with_restores) > 10 * SEEDS


def test_an_agent_that_nobody_wakes_after_a_restore_has_new_epochs_too() -> None:
    """In this run only its inspection acquires its lease after the second restore."""
    ClusterSimulator(400156, CODE, with_restores=True).run()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("with_restores", [False, True])
def test_nothing_is_broken_in_ten_thousand_runs_on_nodes(with_restores: bool) -> None:
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        part = partial(part_of, with_restores=with_restores)
        assert all(pool.map(part, range(SEEDS, SEEDS + 10_000, SEEDS)))


# -- what must be found ------------------------------------------------------------------------------------------------


class TakesLateRenewals(MemoryJournalStore):
    """Says of each renewal that it is valid, also of one that comes late."""

    def renew_leases(self, leases: Sequence[tuple[SessionId, int]], now_ms: int, ttl_ms: int) -> list[SessionId]:
        super().renew_leases(leases, now_ms, ttl_ms)
        return []


class TakesAnyHead(MemoryJournalStore):
    """Puts commits on the head that there is, whichever they name."""

    def commit(self, commit: Commit) -> Head:
        events: list[Event] = []
        now = self.head(commit.expected.branch_id)
        for number, event in enumerate(commit.events):
            moved = replace(event, seq=now.seq + 1 + number, prev_hash=events[-1].hash if events else now.hash)
            events.append(replace(moved, hash=event_hash(moved)))
        return super().commit(replace(commit, expected=now, events=tuple(events)))


def found_within(store: type[MemoryJournalStore] = MemoryJournalStore, *, with_restores: bool = False) -> str:
    """Return how the simulator says that something is broken."""
    for seed in range(ENOUGH):
        try:
            ClusterSimulator(seed, CODE, store=store, with_restores=with_restores).run()
        except Broken as broken:
            return str(broken)
    pytest.fail(f"{ENOUGH} seeds did not find it")


def test_commits_of_any_epoch_are_found() -> None:
    assert "was accepted under epoch" in found_within(NoFence)


def test_a_late_renewal_that_is_taken_for_valid_is_found() -> None:
    assert "was renewed, but" in found_within(TakesLateRenewals)


def test_a_store_process_that_makes_commits_of_an_old_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes them under the epoch that is in force, of another host."""

    def vouch(self: HostPermits, write: Commit) -> None:
        lease = self._store.lease(write.session_id)
        object.__setattr__(write, "epoch", lease.epoch if lease is not None else write.epoch)

    monkeypatch.setattr(HostPermits, "check_write", vouch)
    said = found_within()
    assert "has committed under epoch" in said or "of which nothing is recorded" in said


def test_a_store_process_that_serves_sessions_of_other_hosts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def note(self: HostPermits, session_id: SessionId, epoch: int) -> None:
        self._epochs[session_id] = epoch

    monkeypatch.setattr(HostPermits, "_check_epoch", note)
    assert "a host has released the lease of another one" in found_within()


def test_an_inbox_that_is_read_by_another_host_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostPermits, "_check_session", lambda self, session_id: None)
    assert "has read the inbox of" in found_within()


def test_a_drained_node_that_is_given_agents_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Drains, "__contains__", lambda self, node: False)
    assert "which is drained" in found_within()


def test_an_attempt_that_is_counted_for_a_drain_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def end(self: HostPool, address: Address, host_id: str, timeout_s: float | None = None) -> None:
        host = self._table.get(host_id)
        if host is not None:
            await self.end(host)

    monkeypatch.setattr(HostPool, "retire", end)
    assert "attempts were lost with hosts" in found_within()


def test_frames_of_a_fenced_copy_that_are_forwarded_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stays: Callable[[Any, Address], None] = lambda self, address: None  # noqa: E731
    monkeypatch.setattr(DeliveryChannel, "abort", stays)
    assert "is forwarded after" in found_within()


def test_a_generation_that_is_not_raised_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone_back, "why_gone_back", lambda *_: None)
    assert "was given out before the restore, too" in found_within(with_restores=True)


def test_epochs_that_do_not_follow_the_generation_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "least_epoch", lambda _: 0)
    assert "was given out before the restore, too" in found_within(with_restores=True)


def test_commits_on_a_head_that_a_restore_has_lost_are_found() -> None:
    said = found_within(TakesAnyHead, with_restores=True)
    assert "but the branch ends at" in said
