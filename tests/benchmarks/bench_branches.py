"""Forks: late in a long history against early in it, and of many files against few."""

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
from chronicle.journal.records import Commit, Draft
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.workspace.content import store_bytes
from chronicle.workspace.oplog import add_root, first_root
from chronicle.workspace.port import TreeRef
from chronicle.workspace.tree import EMPTY, Entry, Kind, update_tree
from podium.address import Address
from podium.branching import fork_agent
from podium.events import AGENT_CREATED, TURN_COMMITTED, USER_MESSAGE
from tests.benchmarks.__main__ import Row

if TYPE_CHECKING:
    from chronicle.canonical import Json

TURNS = 100_000
BATCH = 10_000
FORKS = 25
NOW_MS = 1_700_000_000_000


def _tree(files: int) -> TreeRef:
    """Return the tree of a workspace with so many files; forking reads none of it, so it need not be kept."""
    buffer = BlobBuffer(MemoryBlobStore())
    content = store_bytes(buffer, b"x")
    entries = {f"{number:05}".encode(): Entry(Kind.FILE, 0o644, content=content) for number in range(files)}
    return TreeRef(update_tree(buffer, EMPTY, entries), add_root(buffer, first_root(0)))


def _make(store: SqliteJournalStore, address: Address, turns: int, tree: TreeRef, ids: IdSource) -> None:
    """Write an agent of so many turns, two events each."""
    session = store.ensure_session(str(address), ids.session(NOW_MS), ids.branch(NOW_MS), NOW_MS)
    keys: dict[str, Json] = {"tree_id": str(tree.tree_id), "oplog_id": str(tree.oplog_id)}
    created: Json = {"agent": str(address), "entity_type": "b", "version": 1, "state": {"count": 0}, **keys}
    drafts = [Draft(ids.event(NOW_MS), AGENT_CREATED, created, 0, NOW_MS)]
    for turn in range(1, turns + 1):
        patch: Json = [{"op": "replace", "path": "/count", "value": turn}]
        committed: Json = {"cause": "message", "state": {"entity_type": "b", "version": 1, "patch": patch}, **keys}
        drafts.append(Draft(ids.event(NOW_MS), USER_MESSAGE, {"message": {"text": "x"}}, turn, NOW_MS))
        drafts.append(Draft(ids.event(NOW_MS), TURN_COMMITTED, committed, turn, NOW_MS))
        if len(drafts) >= BATCH or turn == turns:
            head = store.head(session.main_branch_id)
            store.commit(Commit(session.session_id, head, seal(head, drafts), epoch=None))
            drafts = []


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
        old, young, crowded = (Address("b", key) for key in ("old", "young", "crowded"))
        _make(store, old, TURNS, _tree(10), ids)
        _make(store, young, 10, _tree(10), ids)
        _make(store, crowded, 10, _tree(10_000), ids)
        late, early, many = [], [], []
        for _ in range(FORKS):
            late.append(_fork_s(store, old, TURNS, ids))
            early.append(_fork_s(store, young, 10, ids))
            many.append(_fork_s(store, crowded, 10, ids))
        store.close()
    early_s = median(early)
    floor = f"{early_s * 1000:.2f} ms at turn 10 with 10 files"
    rows = {"fork at turn 100,000": late, "fork with 10,000 files": many}
    return [
        Row(name=name, value=median(taken_s) / early_s, unit="x", target="<= 1.5", floor=floor)
        for name, taken_s in rows.items()
    ]
