"""Group commit."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import BranchVersionConflict, StaleEpoch, Unavailable
from chronicle.journal.committer import GroupCommitter
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import StepWrite, StoredStep
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.records import Commit, Head


class SlowStore(MemoryJournalStore):
    """Holds each write until it is let go, as a disk would, and counts transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Semaphore(0)
        self.busy = threading.Event()
        self.sizes: list[int] = []

    def commit(self, commit: Commit) -> Head:
        self._wait(1)
        return super().commit(commit)

    def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        self._wait(1)
        super().put_step(session_id, step, epoch)

    def commit_many(self, writes: Sequence[Commit | StepWrite]) -> list[Head | Exception | None]:
        self._wait(len(writes))
        outcomes: list[Head | Exception | None] = []
        for write in writes:
            try:
                if isinstance(write, StepWrite):
                    super().put_step(write.session_id, write.step, write.epoch)
                outcomes.append(None if isinstance(write, StepWrite) else super().commit(write))
            except (BranchVersionConflict, StaleEpoch) as error:
                outcomes.append(error)
        return outcomes

    def _wait(self, size: int) -> None:
        self.busy.set()
        assert self.go.acquire(timeout=60)
        self.sizes.append(size)

    def let_all_through(self) -> None:
        """Let all writes through."""
        for _ in range(100):
            self.go.release()


@pytest.fixture
def store() -> Iterator[SlowStore]:
    """A new one."""
    store = SlowStore()
    yield store
    store.close()


async def started(store: SlowStore) -> None:
    """Wait until the writer thread is at the disk."""
    await asyncio.to_thread(store.busy.wait, 10)
    store.busy.clear()


async def test_commits_gather_while_the_disk_works(store: SlowStore) -> None:
    committer = GroupCommitter(store)
    writers = [Writer.on(store, f"agent/{number}") for number in range(6)]
    async with asyncio.TaskGroup() as group:
        first = group.create_task(committer.commit(writers[0].commit_of()))
        await started(store)
        others = [group.create_task(committer.commit(writer.commit_of())) for writer in writers[1:]]
        await asyncio.sleep(0)
        store.let_all_through()
    assert store.sizes == [1, 5]
    assert [task.result().seq for task in (first, *others)] == [1] * 6
    committer.close()
    for writer in writers:
        assert verify_session(store, writer.session).events == 1


async def test_commits_of_one_iteration_of_the_loop_are_one_batch(store: SlowStore) -> None:
    committer = GroupCommitter(store)
    writers = [Writer.on(store, f"agent/{number}") for number in range(6)]
    store.let_all_through()
    await asyncio.gather(*(committer.commit(writer.commit_of()) for writer in writers))
    assert store.sizes == [6]
    committer.close()


async def test_each_gets_its_own_answer(store: SlowStore) -> None:
    committer = GroupCommitter(store)
    writer, other = Writer.on(store, "agent/0"), Writer.on(store, "agent/1")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(committer.commit(writer.commit_of()))
        await started(store)
        stale = asyncio.ensure_future(committer.commit(writer.commit_of()))
        good = group.create_task(committer.commit(other.commit_of()))
        await asyncio.sleep(0)
        store.let_all_through()
    assert first.result() == store.head(writer.head.branch_id)
    assert good.result() == store.head(other.head.branch_id)
    with pytest.raises(BranchVersionConflict):
        await stale
    committer.close()


async def test_steps_gather_with_commits(store: SlowStore) -> None:
    committer = GroupCommitter(store)
    writer, other = Writer.on(store, "agent/0"), Writer.on(store, "agent/1")
    session_id = writer.session.session_id
    steps = [StoredStep(writer.admit(), number, "step", b"{}") for number in range(1, 4)]
    async with asyncio.TaskGroup() as group:
        group.create_task(committer.put_step(session_id, steps[0], None))
        await started(store)
        stale = asyncio.ensure_future(committer.put_step(session_id, steps[1], 7))
        last = group.create_task(committer.put_step(session_id, steps[2], None))
        commit = group.create_task(committer.commit(other.commit_of()))
        await asyncio.sleep(0)
        store.let_all_through()
    assert store.sizes == [1, 3]
    assert last.result() is None
    assert commit.result() == store.head(other.head.branch_id)
    assert list(store.steps_of_session(session_id)) == [steps[0], steps[2]]
    with pytest.raises(StaleEpoch):
        await stale
    committer.close()


async def test_one_that_was_cancelled_in_the_queue_is_not_begun(store: SlowStore) -> None:
    committer = GroupCommitter(store)
    writers = [Writer.on(store, f"agent/{number}") for number in range(3)]
    first = asyncio.ensure_future(committer.commit(writers[0].commit_of()))
    await started(store)
    queued = asyncio.ensure_future(committer.commit(writers[1].commit_of()))
    last = asyncio.ensure_future(committer.commit(writers[2].commit_of()))
    await asyncio.sleep(0)
    first.cancel()  # begun already: it happens, though nobody waits
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    store.let_all_through()
    assert (await last).seq == 1
    committer.close()
    assert [store.head(writer.head.branch_id).seq for writer in writers] == [1, 0, 1]
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_closing_writes_what_was_handed_in(store: SlowStore) -> None:
    committer = GroupCommitter(store)
    writers = [Writer.on(store, f"agent/{number}") for number in range(4)]
    waiting = [asyncio.ensure_future(committer.commit(writer.commit_of())) for writer in writers]
    await started(store)
    store.let_all_through()
    await asyncio.to_thread(committer.close)
    assert [(await each).seq for each in waiting] == [1] * 4
    with pytest.raises(Unavailable, match="closed"):
        await committer.commit(writers[0].commit_of())
    committer.close()


async def test_an_error_of_the_store_reaches_everyone(store: SlowStore) -> None:
    committer = GroupCommitter(store)
    writers = [Writer.on(store, f"agent/{number}") for number in range(3)]
    waiting = [asyncio.ensure_future(committer.commit(writer.commit_of())) for writer in writers]
    await started(store)
    store.close()
    store.let_all_through()
    for each in waiting:
        with pytest.raises(Unavailable):
            await each
    committer.close()


def test_event_loops_come_and_go(store: SlowStore) -> None:
    committer = GroupCommitter(store)
    store.let_all_through()
    writer = Writer.on(store)
    for seq in (1, 2):
        writer.head = asyncio.run(committer.commit(writer.commit_of()))
        assert writer.head.seq == seq

    async def leave() -> None:
        waiting = asyncio.ensure_future(committer.commit(writer.commit_of()))
        await asyncio.sleep(0)
        assert not waiting.done()  # and the loop ends before the answer

    asyncio.run(leave())
    committer.close()


def test_closing_one_that_was_never_used(store: SlowStore) -> None:
    GroupCommitter(store).close()
