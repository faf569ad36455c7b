"""Forks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.errors import BranchInUse, Conflict, InvalidInput, NotFound
from chronicle.journal.chain import check_events, empty_head
from chronicle.journal.records import BranchChange, Head, Snapshot
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract.writer import IDS, NOW_MS, Contract, Writer, ids_of

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore

__all__ = ["ForkContract"]


class ForkContract(Contract):
    """A fork reads its parent and goes on counting."""

    def test_a_fork_reads_its_parent_and_goes_on_counting(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        events = writer.turns(4)
        fork = writer.fork(4)
        assert fork.head == Head(fork.head.branch_id, 4, events[3].event_id, events[3].hash, 2)
        branch = store.branch(fork.head.branch_id)
        assert (branch.parent_branch_id, branch.parent_seq) == (writer.head.branch_id, 4)
        assert list(store.events(fork.head.branch_id)) == events[:4]
        own = fork.turns(2)
        writer.turns(1)
        assert [event.seq for event in own] == [5, 6, 7, 8]
        assert fork.head.turn == 4
        assert list(store.events(fork.head.branch_id)) == events[:4] + own
        assert list(store.events(fork.head.branch_id, 3, 5)) == [events[3], own[0]]
        assert list(store.events(fork.head.branch_id, 1, 3, ["turn.committed"])) == [events[1]]
        assert list(store.events(fork.head.branch_id, 4)) == own
        assert store.find_event(own[0].event_id) == own[0]
        assert list(store.events(writer.head.branch_id, 0, 8)) == events
        assert check_events(empty_head(writer.head.branch_id), store.events(fork.head.branch_id)) == fork.head

    def test_forks_of_forks(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        line = writer.turns(3)
        forks = [writer]
        for number in range(4):
            seq = len(line) - 1 if number % 2 else len(line)
            forks.append(forks[-1].fork(seq))
            line = line[:seq] + forks[-1].turns(1)
            assert list(store.events(forks[-1].head.branch_id)) == line
        shallow = forks[-1].fork(2)  # below where its parent begins: read from the grandparents
        assert list(store.events(shallow.head.branch_id)) == line[:2]
        assert store.find_event(shallow.turns(1)[0].event_id) is not None
        assert list(store.events(shallow.head.branch_id, 0, 2)) == line[:2]
        assert verify_session(store, writer.session).ok

    def test_a_fork_at_nothing_begins_anew(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(1)
        fork = writer.fork(0)
        assert fork.head == empty_head(fork.head.branch_id)
        own = fork.turns(1)
        assert list(store.events(fork.head.branch_id)) == own
        assert verify_session(store, writer.session).ok

    def test_a_fork_into_a_session_of_its_own(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        events = writer.turns(3)
        fork = store.fork_session(
            writer.head.branch_id, 4, "hello/bob", IDS.session(NOW_MS), IDS.branch(NOW_MS), NOW_MS + 1
        )
        assert store.session("hello/bob") == fork
        assert [branch.branch_id for branch in store.branches(fork.session_id)] == [fork.main_branch_id]
        twin = Writer(store, fork, store.head(fork.main_branch_id))
        twin.turns(1)
        assert ids_of(list(store.events(fork.main_branch_id)))[:4] == ids_of(events[:4])
        assert store.lease(fork.session_id) is None
        report = verify_session(store, fork)
        assert (report.ok, report.events, report.branches) == (True, 6, 2)
        with pytest.raises(Conflict):
            store.fork_session(writer.head.branch_id, 4, "hello/bob", IDS.session(1), IDS.branch(1), 1)
        with pytest.raises(Conflict):
            store.fork_session(writer.head.branch_id, 4, "hello/c", fork.session_id, IDS.branch(1), 1)

    def test_forks_where_nothing_is_are_refused(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(1)
        for seq in (3, -1, 2**40):
            with pytest.raises(InvalidInput):
                writer.fork(seq)
        with pytest.raises(Conflict):
            store.fork_branch(writer.head.branch_id, 1, writer.head.branch_id, 1)
        assert len(store.branches(writer.session.session_id)) == 1

    def test_deleting_a_branch(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(2)
        fork = writer.fork(2)
        (event, _) = fork.turns(1, snapshot=Snapshot(fork.head.branch_id, 4, b"state"))
        inner = fork.fork(3)
        with pytest.raises(InvalidInput):
            store.delete_branch(writer.head.branch_id, 1)
        with pytest.raises(BranchInUse) as caught:
            store.delete_branch(fork.head.branch_id, 1)
        assert (caught.value.branch_id, caught.value.forks) == (fork.head.branch_id, (inner.head.branch_id,))
        store.delete_branch(inner.head.branch_id, NOW_MS)
        store.delete_branch(fork.head.branch_id, NOW_MS + 1)
        assert store.find_event(event.event_id) is None
        with pytest.raises(NotFound):
            store.events(fork.head.branch_id)
        with pytest.raises(NotFound):
            fork.turns(1)
        assert [branch.branch_id for branch in store.branches(writer.session.session_id)] == [writer.head.branch_id]
        changes = [(entry.change, entry.branch_id) for entry in store.catalogue(writer.session.session_id)]
        assert changes == [
            (BranchChange.CREATED, writer.head.branch_id),
            (BranchChange.CREATED, fork.head.branch_id),
            (BranchChange.CREATED, inner.head.branch_id),
            (BranchChange.DELETED, inner.head.branch_id),
            (BranchChange.DELETED, fork.head.branch_id),
        ]
        last = store.catalogue(writer.session.session_id)[-1]
        assert (last.number, last.seq, last.branch_hash, last.ts) == (5, 4, fork.head.hash, NOW_MS + 1)
        assert verify_session(store, writer.session).ok
        again = writer.fork(2)  # may take the deleted one's place inside the store
        assert store.snapshot(again.head.branch_id) is None
        with pytest.raises(NotFound):
            fork.turns(1)
        assert store.head(again.head.branch_id) == again.head
