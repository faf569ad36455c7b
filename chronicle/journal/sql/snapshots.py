"""Snapshots in SQL: planned outside of the transaction, stored and pruned inside it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from chronicle.errors import Corrupt
from chronicle.journal.records import Snapshot
from chronicle.journal.snapshot_bodies import Kept, Manifest, Plan, kept_seqs, open_pack, plan
from chronicle.journal.sql.rows import MAX_NUMBER, number_of, row_id

if TYPE_CHECKING:
    from chronicle.ids import BranchId
    from chronicle.journal.sql.port import Connection

__all__ = ["PreparedSnapshot", "draft", "keep", "newest", "prune"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedSnapshot:
    """A planned snapshot. It can be written if the branch's snapshots are the same as when it was planned."""

    snapshot: Snapshot
    plan: Plan
    basis: tuple[int | None, int | None]
    """The row ids of the newest snapshot and of the newest pack at the time of planning."""


def draft(db: Connection, key: int, snapshot: Snapshot) -> PreparedSnapshot:
    """Plan how to store a snapshot, outside of the writer lock: the cost is proportional to its size."""
    newest_row, newest_pack = basis = _basis(db, key)
    kept = None
    if newest_row is not None:
        try:
            kept = _load(db, key, newest_row)
        except Corrupt:
            _log.warning("snapshot %s of branch %s is damaged; nothing is shared with it", newest_row, key)
    first_pack = number_of(newest_pack) + 1 if newest_pack is not None else 1
    return PreparedSnapshot(snapshot, plan(snapshot.body, kept, first_pack), basis)


def keep(db: Connection, key: int, ready: PreparedSnapshot) -> None:
    """Write a snapshot and prune the superfluous ones, in the caller's transaction."""
    if _basis(db, key) != ready.basis:
        ready = draft(db, key, ready.snapshot)
    for pack in ready.plan.packs:
        db.execute(
            "INSERT INTO snapshot_pack (id, size, data) VALUES (?, ?, ?)",
            (row_id(key, pack.number), pack.size, pack.data),
        )
    db.execute(
        "INSERT INTO snapshot (id, sha256, manifest) VALUES (?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET sha256 = excluded.sha256, manifest = excluded.manifest",
        (
            row_id(key, ready.snapshot.seq),
            sha256(ready.snapshot.body).digest(),
            ready.plan.manifest.to_bytes(),
        ),
    )
    prune(db, key)


def newest(db: Connection, key: int, branch_id: BranchId, last_seq: int) -> Snapshot | None:
    """Return a branch's own newest snapshot at or before ``last_seq``; a damaged one is skipped, and logged."""
    rows = db.execute(
        "SELECT id FROM snapshot WHERE id BETWEEN ? AND ? ORDER BY id DESC", (row_id(key, 0), row_id(key, last_seq))
    ).fetchall()
    for (row,) in rows:
        try:
            return Snapshot(branch_id, number_of(row), _load(db, key, row).body)
        except Corrupt as error:
            _log.warning("snapshot of branch %s at %s is skipped: %s", branch_id, number_of(row), error)
    return None


def _basis(db: Connection, key: int) -> tuple[int | None, int | None]:
    bounds = (row_id(key, 0), row_id(key, MAX_NUMBER))
    (row,) = db.execute("SELECT max(id) FROM snapshot WHERE id BETWEEN ? AND ?", bounds).fetchone()
    (pack,) = db.execute("SELECT max(id) FROM snapshot_pack WHERE id BETWEEN ? AND ?", bounds).fetchone()
    return row, pack


def _load(db: Connection, key: int, row: int) -> Kept:
    digest, data = db.execute("SELECT sha256, manifest FROM snapshot WHERE id = ?", (row,)).fetchone()
    manifest = Manifest.from_bytes(data)
    sizes: dict[int, int] = {}

    def load(number: int) -> bytes:
        found = db.execute("SELECT size, data FROM snapshot_pack WHERE id = ?", (row_id(key, number),)).fetchone()
        if found is None:
            raise Corrupt(f"pack {number} is missing")
        sizes[number] = found[0]
        return open_pack(found[1])

    body = manifest.body(load)
    if sha256(body).digest() != digest:
        raise Corrupt("its bytes are not those that were written")
    return Kept(body, manifest, sizes)


def prune(db: Connection, key: int) -> None:
    """Delete a branch's superfluous snapshots, and the packs that no snapshot refers to."""
    bounds = (row_id(key, 0), row_id(key, MAX_NUMBER))
    manifests = dict(db.execute("SELECT id, manifest FROM snapshot WHERE id BETWEEN ? AND ?", bounds).fetchall())
    kept = kept_seqs(number_of(row) for row in manifests)
    dropped = [row for row in manifests if number_of(row) not in kept]
    for row in dropped:
        db.execute("DELETE FROM snapshot WHERE id = ?", (row,))
    needed: set[int] = set()
    for row, data in manifests.items():
        if number_of(row) in kept:
            needed |= Manifest.from_bytes(data).packs()
    for (pack,) in db.execute("SELECT id FROM snapshot_pack WHERE id BETWEEN ? AND ?", bounds).fetchall():
        if number_of(pack) not in needed:
            db.execute("DELETE FROM snapshot_pack WHERE id = ?", (pack,))
