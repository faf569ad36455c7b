"""Snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.errors import InvalidInput
from chronicle.ids import BranchId
from chronicle.journal.records import Snapshot
from chronicle.testing.journal_contract.writer import Contract, Writer

if TYPE_CHECKING:
    from chronicle.journal.port import JournalStore

__all__ = ["SnapshotContract"]


class SnapshotContract(Contract):
    """Snapshots are few and near."""

    def test_the_newest_snapshot_at_or_before(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        branch_id = writer.head.branch_id
        assert store.snapshot(branch_id) is None
        bodies = {}
        for seq in range(2, 9, 2):
            bodies[seq] = Snapshot(branch_id, seq, b"state %d" % seq * 1000)
            text = writer.draft()
            writer.write(text, writer.draft(), snapshot=bodies[seq])
        for handle in (store, self.other_handle(store)):
            assert handle.snapshot(branch_id) == bodies[8]
            assert handle.snapshot(branch_id, 7) == bodies[6]
            assert handle.snapshot(branch_id, 2) == bodies[2]
            assert handle.snapshot(branch_id, 1) is None

    def test_snapshots_cross_into_parents(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        for seq in (2, 6):
            writer.turns(2, snapshot=Snapshot(writer.head.branch_id, seq, b"at %d" % seq))
        fork = writer.fork(4)
        assert store.snapshot(fork.head.branch_id) == Snapshot(writer.head.branch_id, 2, b"at 2")
        fork.turns(1, snapshot=Snapshot(fork.head.branch_id, 6, b"fork at 6"))
        assert store.snapshot(fork.head.branch_id) == Snapshot(fork.head.branch_id, 6, b"fork at 6")
        assert store.snapshot(fork.head.branch_id, 5) == Snapshot(writer.head.branch_id, 2, b"at 2")
        assert store.snapshot(writer.head.branch_id) == Snapshot(writer.head.branch_id, 6, b"at 6")

    def test_a_snapshot_is_replaced(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        for body in (b"one" * 9000, b"two", b"", bytes(range(256)) * 9000):
            writer.turns(1, snapshot=Snapshot(writer.head.branch_id, 2, body))
            assert store.snapshot(writer.head.branch_id) == Snapshot(writer.head.branch_id, 2, body)

    def test_a_snapshot_beyond_the_head_is_refused(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        writer.turns(1)
        for seq in (4, 8, -1):
            with pytest.raises(InvalidInput):
                store.commit(writer.commit_of(snapshot=Snapshot(writer.head.branch_id, seq, b"")))
        with pytest.raises(InvalidInput):
            store.commit(writer.commit_of(snapshot=Snapshot(BranchId("br_other"), 1, b"")))

    def test_snapshots_of_a_long_branch_stay_few_and_near(self, store: JournalStore) -> None:
        writer = Writer.on(store)
        branch_id = writer.head.branch_id
        body = b""
        for turn in range(1, 257):
            body += b"%d of a body that grows " % turn * 20
            writer.write(snapshot=Snapshot(branch_id, turn, body))
        found, at = [], 256
        while (snapshot := store.snapshot(branch_id, at)) is not None:
            assert at - snapshot.seq <= 256 - at + 1
            assert body.startswith(snapshot.body)
            found.append(snapshot.seq)
            at = snapshot.seq - 1
        assert found[0] == 256
        assert len(found) <= 20
