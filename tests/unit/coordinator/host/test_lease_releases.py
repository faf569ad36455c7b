"""Releases of many leases share transactions."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Unavailable
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from coordinator.host.lease_releases import LeaseReleases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.records import Lease

DEADLINE_S = 60


class Store(MemoryJournalStore):
    """Counts the transactions."""

    batches: list[int]
    fails = False

    def release_leases(self, leases: Sequence[tuple[SessionId, int]]) -> None:
        self.batches.append(len(leases))
        if self.fails:
            raise Unavailable("the disk is busy")
        super().release_leases(leases)


def leases_of(store: Store, count: int) -> list[Lease]:
    store.batches = []
    ids = IdSource()
    sessions = [store.ensure_session(f"a/{number}", ids.session(0), ids.branch(0), 0) for number in range(count)]
    return [store.acquire_lease(session.session_id, "host_1", 0, 1000) for session in sessions]


async def test_those_that_come_meanwhile_are_written_together() -> None:
    store = Store()
    leases = leases_of(store, 50)
    releases = LeaseReleases(store)
    await asyncio.gather(*(releases.release(lease) for lease in leases))
    assert [store.lease(lease.session_id) for lease in leases] == [None] * 50
    assert len(store.batches) <= 2
    assert sum(store.batches) == 50


async def test_agents_that_block_all_threads_of_theirs_do_not_keep_others_awake() -> None:
    store = Store()
    (lease,) = leases_of(store, 1)
    loop, go_on = asyncio.get_running_loop(), threading.Event()
    with ThreadPoolExecutor(1) as of_agents:
        loop.set_default_executor(of_agents)
        blocked = asyncio.create_task(asyncio.to_thread(go_on.wait))
        try:
            async with asyncio.timeout(DEADLINE_S):
                await LeaseReleases(store).release(lease)
            assert not blocked.done()
        finally:
            go_on.set()
        await blocked
    loop.set_default_executor(ThreadPoolExecutor())
    assert store.lease(lease.session_id) is None


async def test_one_that_fails_is_told() -> None:
    store = Store()
    (lease,) = leases_of(store, 1)
    store.fails = True
    with pytest.raises(Unavailable):
        await LeaseReleases(store).release(lease)
