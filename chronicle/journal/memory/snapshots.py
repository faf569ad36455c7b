"""Snapshots in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.errors import InvalidInput
from chronicle.journal.memory.tables import BranchTable, Tables
from chronicle.journal.snapshot_bodies import kept_seqs

if TYPE_CHECKING:
    from chronicle.ids import BranchId
    from chronicle.journal.records import Head, Snapshot

__all__ = ["Snapshots", "check_snapshot", "keep_snapshot"]


class Snapshots(Tables):
    """Look-up and retention of snapshots."""

    def snapshot(self, branch_id: BranchId, at_seq: int | None = None) -> Snapshot | None:
        """Return the newest snapshot at or before ``at_seq``, crossing into parents."""
        with self._open():
            for branch, last_seq in self._lineage(branch_id, at_seq):
                seqs = [seq for seq in branch.snapshots if seq <= last_seq]
                if seqs:
                    return branch.snapshots[max(seqs)]
            return None

    def put_snapshot(self, snapshot: Snapshot) -> None:
        """Store a snapshot taken outside of a commit."""
        with self._open():
            branch = self._branch(snapshot.branch_id)
            check_snapshot(snapshot, branch.record.head)
            keep_snapshot(branch, snapshot)


def check_snapshot(snapshot: Snapshot, head: Head) -> None:
    if snapshot.branch_id != head.branch_id or not 0 <= snapshot.seq <= head.seq:
        raise InvalidInput(
            f"a snapshot of branch {snapshot.branch_id} at {snapshot.seq} does not fit branch {head.branch_id}, "
            f"which ends at {head.seq}"
        )


def keep_snapshot(branch: BranchTable, snapshot: Snapshot) -> None:
    branch.snapshots[snapshot.seq] = snapshot
    kept = kept_seqs(branch.snapshots)
    branch.snapshots = {seq: branch.snapshots[seq] for seq in branch.snapshots if seq in kept}
