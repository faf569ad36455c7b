"""Events, and appending them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.errors import BranchVersionConflict, InvalidInput, NotFound
from chronicle.ids import EventId
from chronicle.journal.chain import check_events, empty_head, genesis_hash, seal
from chronicle.journal.records import Commit, Draft, Head
from chronicle.journal.verify import verify_session
from chronicle.testing.journal_contract.writer import IDS, NOW_MS, Contract, Writer

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore

__all__ = ["EventContract"]


class EventContract(Contract):
    """Events come back as they were sealed, and are put on the head that was named, by one of many."""

    def test_an_empty_branch(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        assert writer.head == empty_head(writer.session.main_branch_id)
        assert writer.head.hash == genesis_hash(writer.session.main_branch_id)
        assert list(store.events(writer.head.branch_id)) == []

    def test_events_come_back_as_they_were_sealed(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        payloads: list[Any] = [
            None,
            0,
            2**80,
            "é\u2028\0",
            [],
            {"b": 1, "a": [1.5, True, {"x" * 900: None}]},
            "x" * 100_000,
        ]
        drafts = [writer.draft(payload=payload) for payload in payloads]
        drafts += [
            Draft(EventId("any id, even é"), "type", 1, 3, -5),
            Draft(IDS.event(NOW_MS), "t", 1, 3, 2**53, None, "msg_b"),
            Draft(IDS.event(NOW_MS), "t", 1, 2**62, 0, "msg_a", "msg_b"),
            Draft(IDS.event(NOW_MS), "t", 1, 2**62, 0, "msg_a", None),
        ]
        events = writer.write(*drafts)
        for handle in (store, self.other_handle(store)):
            assert tuple(handle.events(writer.head.branch_id)) == events
            assert handle.head(writer.head.branch_id) == writer.head
            assert [handle.find_event(event.event_id) for event in events] == list(events)
        assert check_events(empty_head(writer.head.branch_id), store.events(writer.head.branch_id)) == writer.head

    def test_the_head_is_the_last_event(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        events = writer.turns(3)
        assert writer.head == Head(writer.head.branch_id, 6, events[-1].event_id, events[-1].hash, 3)
        assert store.branch(writer.head.branch_id).head == writer.head

    def test_times_of_a_branch_never_go_back(self, store: JournalStore) -> None:
        """Its next writer, or that of a fork, may have a clock that is behind."""
        writer = Writer.on(store)
        ids = iter(range(100))

        def write(writer: Writer, *times: int) -> list[int]:
            drafts = [Draft(EventId(f"{writer.head.branch_id} {next(ids)}"), "note", None, 1, ts) for ts in times]
            return [event.ts for event in writer.write(*drafts)]

        assert write(writer, NOW_MS, NOW_MS - 5, NOW_MS + 1) == [NOW_MS, NOW_MS, NOW_MS + 1]
        assert write(writer, NOW_MS - 60_000) == [NOW_MS + 1]
        other = self.other_handle(store)
        for found in (other.head(writer.head.branch_id), other.branch(writer.head.branch_id).head):
            assert found.ts == NOW_MS + 1
        again = Writer(other, writer.session, other.head(writer.head.branch_id))
        assert write(again, NOW_MS - 1, NOW_MS + 9) == [NOW_MS + 1, NOW_MS + 9]
        assert write(again.fork(1), NOW_MS - 7) == [NOW_MS]
        fork = again.fork(6)
        assert write(Writer(other, fork.session, other.head(fork.head.branch_id)), 0) == [NOW_MS + 9]

    def test_ranges_and_types(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        events = writer.turns(300)
        branch_id = writer.head.branch_id
        assert list(store.events(branch_id)) == events
        assert list(store.events(branch_id, 10)) == events[10:]
        assert list(store.events(branch_id, 10, 12)) == events[10:12]
        assert list(store.events(branch_id, 0, 10_000)) == events
        assert list(store.events(branch_id, 600)) == []
        assert list(store.events(branch_id, 7, 7)) == []
        assert list(store.events(branch_id, types=["turn.committed"])) == events[1::2]
        assert list(store.events(branch_id, 4, 9, ["user_message", "no"])) == events[4:9:2]
        assert list(store.events(branch_id, types=[])) == []

    def test_reading_while_writing(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        before = writer.turns(200)
        reading = store.events(writer.head.branch_id)
        first = next(reading)
        writer.turns(2)
        assert [first, *reading] == before

    def test_a_stale_head_is_refused(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        stale = replace(writer)
        events = writer.turns(1)
        with pytest.raises(BranchVersionConflict) as caught:
            stale.write()
        assert (caught.value.branch_id, caught.value.version) == (writer.head.branch_id, 2)
        assert caught.value.head_event_id == events[-1].event_id
        assert list(store.events(writer.head.branch_id)) == events

    def test_a_head_with_another_hash_is_refused(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(1)
        forged = replace(writer, head=replace(writer.head, hash="v1:" + "0" * 64))
        with pytest.raises(BranchVersionConflict):
            forged.write()

    def test_events_that_were_not_sealed_there_are_refused(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        one, two = seal(writer.head, [writer.draft(), writer.draft()])
        other = Writer.on(store, "other/one")
        for events in ((two,), (two, one), (one, one), (one, replace(two, seq=3)), other.commit_of().events):
            with pytest.raises(InvalidInput):
                store.commit(Commit(writer.session.session_id, writer.head, events, None))
        with pytest.raises(NotFound):
            store.commit(Commit(other.session.session_id, writer.head, (one, two), None))
        assert store.head(writer.head.branch_id) == writer.head

    def test_an_event_id_is_used_once(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        (event,) = writer.write()
        again = Draft(event.event_id, "note", 1, 1, 1)
        with pytest.raises(InvalidInput):
            writer.write(again)
        with pytest.raises(InvalidInput):
            Writer.on(store, "other/one").write(writer.draft(), again)
        assert store.head(Writer.on(store, "other/one").head.branch_id).seq == 0

    def test_one_of_many_appends_wins(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        barrier = threading.Barrier(8)

        def append(_: int) -> bool:
            commit = writer.commit_of()
            barrier.wait()
            try:
                store.commit(commit)
            except BranchVersionConflict:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(append, range(8))) == 1
        assert store.head(writer.head.branch_id).seq == 1

    def test_many_threads_write_their_own_branches(self, store: JournalStore) -> None:
        def work(number: int) -> Writer:
            writer = Writer.on(store, f"agent/{number}")
            writer.turns(10)
            return writer

        with ThreadPoolExecutor(8) as pool:
            writers = list(pool.map(work, range(8)))
        for writer in writers:
            assert store.head(writer.head.branch_id) == writer.head
            assert verify_session(store, writer.session).ok
