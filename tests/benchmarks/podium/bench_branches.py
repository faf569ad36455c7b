"""Forks and openings: late in a long history against early in it, and forks of many files against few."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.ids import IdSource
from chronicle.journal.chain import seal
from chronicle.journal.records import Commit, Draft, Snapshot
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.workspace.content.content import store_bytes
from chronicle.workspace.history.oplog import add_root, first_root
from chronicle.workspace.port import TreeRef
from chronicle.workspace.trees.tree import EMPTY, Entry, Kind, update_tree
from podium.address import Address
from podium.agent_record import read_agent, snapshot_body
from podium.events import AGENT_CREATED, TURN_COMMITTED, USER_MESSAGE
from podium.history.branching import fork_agent
from podium.turn.journal.snapshot_policy import MAX_TURNS

if TYPE_CHECKING:
    from chronicle.canonical import Json, JsonObject
    from tests.benchmarks.__main__ import Row

TURNS = 100_000
FEW_TURNS = 100
REPEATS = 100
STATE: JsonObject = {"count": 0, "text": "x" * 1_000}
NOW_MS = 1_700_000_000_000


def _tree(files: int) -> TreeRef:
    """Return the tree of a workspace with so many files; forking reads none of it, so it need not be kept."""
    buffer = BlobBuffer(MemoryBlobStore())
    content = store_bytes(buffer, b"x")
    entries = {f"{number:05}".encode(): Entry(Kind.FILE, 0o644, content=content) for number in range(files)}
    return TreeRef(update_tree(buffer, EMPTY, entries), add_root(buffer, first_root(0)))


def _make(store: SqliteJournalStore, address: Address, turns: int, tree: TreeRef, ids: IdSource) -> None:
    """Write an agent of so many turns, two events each, and a snapshot as often as an activation keeps one."""
    session = store.ensure_session(str(address), ids.session(NOW_MS), ids.branch(NOW_MS), NOW_MS)
    keys: dict[str, Json] = {"tree_id": str(tree.tree_id), "oplog_id": str(tree.oplog_id)}
    created: Json = {"agent": str(address), "entity_type": "b", "version": 1, "state": STATE, **keys}
    drafts = [Draft(ids.event(NOW_MS), AGENT_CREATED, created, 0, NOW_MS)]
    for turn in range(1, turns + 1):
        patch: Json = [{"op": "replace", "path": "/count", "value": turn}]
        committed: Json = {"cause": "message", "state": {"entity_type": "b", "version": 1, "patch": patch}, **keys}
        now_ms = NOW_MS + turn
        drafts.append(Draft(ids.event(now_ms), USER_MESSAGE, {"message": {"text": "x"}}, turn, now_ms))
        drafts.append(Draft(ids.event(now_ms), TURN_COMMITTED, committed, turn, now_ms))
        if turn % MAX_TURNS == 0 or turn == turns:
            head, snapshot = store.head(session.main_branch_id), None
            if turn % MAX_TURNS == 0:
                body = snapshot_body(turn, "b", 1, {**STATE, "count": turn}, tree)
                snapshot = Snapshot(session.main_branch_id, 2 * turn + 1, body)
            store.commit(Commit(session.session_id, head, seal(head, drafts), epoch=None, snapshot=snapshot))
            drafts = []


def _open_s(store: SqliteJournalStore, blobs: MemoryBlobStore, address: Address) -> float:
    began_s = time.perf_counter()
    read_agent(store, blobs, address)
    return time.perf_counter() - began_s


def _fork_s(store: SqliteJournalStore, source: Address, turn: int, ids: IdSource) -> float:
    target = Address(source.agent_type, ids.other("k", NOW_MS))
    began_s = time.perf_counter()
    fork_agent(store, source, turn, target, ids, NOW_MS)
    return time.perf_counter() - began_s


def run() -> list[Row]:
    """Measure and return the rows."""
    ids = IdSource()
    with tempfile.TemporaryDirectory(prefix="podium-bench-", dir=Path.cwd()) as directory:
        store = SqliteJournalStore(Path(directory) / "journal.db")
        old, young, new, crowded = (Address("b", key) for key in ("old", "young", "new", "crowded"))
        _make(store, old, TURNS, _tree(10), ids)
        _make(store, young, FEW_TURNS, _tree(10), ids)
        _make(store, new, 10, _tree(10), ids)
        _make(store, crowded, 10, _tree(10_000), ids)
        blobs = MemoryBlobStore()
        late, early, many, opened, opened_young = [], [], [], [], []
        for _ in range(REPEATS):
            late.append(_fork_s(store, old, TURNS, ids))
            early.append(_fork_s(store, new, 10, ids))
            many.append(_fork_s(store, crowded, 10, ids))
            opened.append(_open_s(store, blobs, old))
            opened_young.append(_open_s(store, blobs, young))
        store.close()
    fork = f"{median(early) * 1000:.2f} ms at turn 10 with 10 files"
    opening = f"{median(opened_young) * 1000:.2f} ms at turn {FEW_TURNS}"
    return [
        _row("fork at turn 100,000", median(late) / median(early), "<= 1.5", fork),
        _row("fork with 10,000 files", median(many) / median(early), "<= 1.5", fork),
        _row("open at turn 100,000, state of equal size", median(opened) / median(opened_young), "<= 2", opening),
    ]


def _row(name: str, value: float, target: str, against: str) -> Row:
    return {"name": name, "value": round(value, 3), "unit": "x", "target": target, "floor": against}
