"""Folding, erasing and deleting."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import BranchInUse, Conflict, InvalidInput, LeaseHeld, NotFound, StaleEpoch
from chronicle.ids import BranchId, EventId
from chronicle.journal.chain import check_events, empty_head, seal
from chronicle.journal.records import BranchChange, Commit, Head, OutboxMessage, Snapshot
from chronicle.journal.verify import Anchor, verify_session
from chronicle.testing.journal_contract.writer import IDS, NOW_MS, TTL_MS, Contract, Writer

if TYPE_CHECKING:
    from chronicle.ids import BlobId
    from chronicle.journal.port import JournalStore

__all__ = ["DroppingContract"]


class DroppingContract(Contract):
    """Dropped events are gone, and the chain still verifies."""

    def test_folding_drops_what_came_before(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        branch_id = writer.head.branch_id
        events = []
        for seq in (2, 6):
            events += writer.turns(2, snapshot=Snapshot(branch_id, seq, b"at %d" % seq))
        folded = store.fold(branch_id, 5, NOW_MS + 9)
        assert (folded.folded_seq, folded.head) == (4, writer.head)
        for handle in (store, self.other_handle(store)):
            assert handle.branch(branch_id) == folded
            assert list(handle.events(branch_id)) == events[4:]
            assert list(handle.events(branch_id, 1, 6)) == events[4:6]
            assert [handle.find_event(event.event_id) for event in events[3:5]] == [None, events[4]]
            assert handle.snapshot(branch_id) == Snapshot(branch_id, 6, b"at 6")
            assert handle.snapshot(branch_id, 5) is None
        last = store.catalogue(writer.session.session_id)[-1]
        assert (last.change, last.seq, last.branch_hash, last.ts) == (
            BranchChange.FOLDED,
            4,
            events[3].hash,
            NOW_MS + 9,
        )
        report = verify_session(store, writer.session, [Anchor.of(writer.head), Anchor(branch_id, 4, events[3].hash)])
        assert (report.ok, report.events) == (True, 4)
        assert not verify_session(store, writer.session, [Anchor(branch_id, 3, events[2].hash)]).ok
        assert store.fold(branch_id, 5, NOW_MS + 10) == folded
        assert len(store.catalogue(writer.session.session_id)) == 2
        more = writer.turns(1)
        assert store.fold(branch_id, 10, NOW_MS + 11).folded_seq == 9
        assert list(store.events(branch_id)) == more[1:]
        assert verify_session(store, writer.session).ok
        fork = writer.fork(10)
        assert list(store.events(fork.head.branch_id)) == more[1:]
        assert verify_session(store, writer.session).ok
        with pytest.raises(InvalidInput):
            writer.fork(9)

    def test_a_fork_that_was_folded_stands_by_itself(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(2)
        twin = store.fork_session(writer.head.branch_id, 3, "hello/bob", IDS.session(1), IDS.branch(1), NOW_MS)
        fork = Writer(store, twin, store.head(twin.main_branch_id))
        own = fork.turns(1)
        with pytest.raises(BranchInUse):
            store.fold(writer.head.branch_id, 2, NOW_MS)
        with pytest.raises(BranchInUse) as caught:
            store.delete_session(writer.session.session_id, NOW_MS)
        assert caught.value.forks == (twin.main_branch_id,)
        store.fold(twin.main_branch_id, 4, NOW_MS)
        assert list(store.events(twin.main_branch_id)) == own
        assert store.snapshot(twin.main_branch_id) is None
        store.delete_session(writer.session.session_id, NOW_MS)
        report = verify_session(store, twin)
        assert (report.ok, report.events, report.branches) == (True, 2, 1)
        assert list(store.events(twin.main_branch_id)) == own
        fork.turns(1)

    def test_a_branch_that_was_folded_elsewhere_goes_on_here(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        events = writer.turns(3)
        elsewhere, branch_id = BranchId("br_elsewhere"), writer.head.branch_id
        base = Head(branch_id, 4, events[3].event_id, events[3].hash, events[3].turn)
        with pytest.raises(Conflict):
            store.import_session("hello/bob", IDS.session(1), branch_id, base, NOW_MS)
        with pytest.raises(Conflict):
            store.import_session("hello/alice", IDS.session(1), elsewhere, base, NOW_MS)
        for odd in (replace(base, seq=0), replace(base, hash="v1:00"), replace(base, turn=-1)):
            with pytest.raises(InvalidInput):
                store.import_session("hello/bob", IDS.session(1), elsewhere, odd, NOW_MS)
        twin = store.import_session("hello/bob", IDS.session(1), elsewhere, base, NOW_MS)
        assert store.session("hello/bob") == twin
        assert verify_session(store, twin).ok
        branch = store.branch(elsewhere)
        assert (branch.folded_seq, branch.parent_branch_id, branch.parent_seq) == (4, None, 0)
        assert (branch.head.seq, branch.head.hash, branch.head.turn) == (4, base.hash, base.turn)
        assert list(store.events(elsewhere)) == []
        (event,) = seal(store.head(elsewhere), [writer.draft(turn=7)])
        assert event.prev_hash == base.hash
        head = store.commit(Commit(twin.session_id, store.head(elsewhere), (event,), None))
        for handle in (store, self.other_handle(store)):
            assert list(handle.events(elsewhere)) == [event]
            report = verify_session(handle, twin, [Anchor.of(head), Anchor(elsewhere, 4, base.hash)])
            assert (report.ok, report.events) == (True, 1)
        assert store.fork_branch(elsewhere, 5, BranchId("br_fork"), NOW_MS).head.hash == event.hash
        with pytest.raises(InvalidInput):
            store.fork_branch(elsewhere, 4, BranchId("br_none"), NOW_MS)

    def test_folding_at_what_is_not_there(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(2)
        fork = writer.fork(2)
        for branch_id, seq in ((writer.head.branch_id, 5), (writer.head.branch_id, 0), (fork.head.branch_id, 2)):
            with pytest.raises(InvalidInput):
                store.fold(branch_id, seq, NOW_MS)
        assert store.fold(writer.head.branch_id, 1, NOW_MS).folded_seq == 0

    def test_an_erased_payload_is_gone_and_the_chain_verifies(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        events = writer.turns(3)
        large: dict[BlobId, bytes] = {}
        (out_of_line,) = seal(writer.head, [writer.draft(payload="x" * 100_000)], large)
        writer.head = store.commit(Commit(writer.session.session_id, writer.head, (out_of_line,), None))
        assert out_of_line.payload is None
        assert list(large) == [out_of_line.payload_ref]
        assert store.find_event(out_of_line.event_id) == out_of_line
        erased = [events[0].event_id, events[3].event_id, out_of_line.event_id]
        with pytest.raises(NotFound):
            store.erase([*erased, EventId("evt_no")])
        assert list(store.events(writer.head.branch_id)) == [*events, out_of_line]
        store.erase(erased)
        store.erase(erased)
        for event in (*events, out_of_line):
            found = store.find_event(event.event_id)
            if event.event_id in erased:
                assert found == replace(event, payload=None, erased=True)
            else:
                assert found == event
        assert verify_session(store, writer.session).ok
        writer.turns(1)
        assert check_events(empty_head(writer.head.branch_id), store.events(writer.head.branch_id)) == writer.head

    def test_a_deleted_session_leaves_a_tombstone(self, store: JournalStore) -> None:
        writer, other = Writer.on(store), Writer.on(store, "other/one")
        writer.turns(2)
        writer.fork(2).turns(1)
        message_id = writer.admit(key="key")
        other.turns(1)
        outgoing = OutboxMessage(IDS.message(NOW_MS), "other/one", b"{}", NOW_MS)
        (event,) = writer.write(outbox=(outgoing,))
        lease = store.acquire_lease(writer.session.session_id, "host", NOW_MS, TTL_MS)
        with pytest.raises(LeaseHeld):
            store.delete_session(writer.session.session_id, NOW_MS + 1)
        store.release_lease(writer.session.session_id, lease.epoch)
        catalogue = store.catalogue(writer.session.session_id)
        tombstone = store.delete_session(writer.session.session_id, NOW_MS + 2)
        assert (tombstone.session_id, tombstone.name) == (writer.session.session_id, "hello/alice")
        assert (tombstone.deleted_ms, tombstone.events) == (NOW_MS + 2, 7)
        assert tombstone.catalogue_hash == catalogue[-1].hash
        assert list(self.other_handle(store).tombstones()) == [tombstone]
        assert not store.tombstones("other/")
        for ask in (
            lambda: store.session("hello/alice"),
            lambda: store.branch(writer.head.branch_id),
            lambda: store.catalogue(writer.session.session_id),
            lambda: store.message(message_id),
            lambda: store.delete_session(writer.session.session_id, NOW_MS),
            lambda: writer.turns(1),
            writer.admit,
        ):
            with pytest.raises((NotFound, StaleEpoch)):
                ask()
        assert store.find_event(event.event_id) is None
        assert list(store.outbox()) == [outgoing]
        assert not store.sessions_with_pending()
        assert [session.name for session in store.sessions()] == ["other/one"]
        again = Writer.on(store)
        assert again.session.session_id != writer.session.session_id
        again.admit(key="key")
        again.turns(1)
        assert [message.position for message in store.pending(again.session.session_id)] == [1]
        assert verify_session(store, again.session).events == 2
        assert verify_session(store, other.session).ok
