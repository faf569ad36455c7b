"""gc among writers and readers: whatever the order, nothing that a commit refers to is ever missing.

A commit is a put, then, within the grace, its entry in the journal. Meanwhile others put the same blobs, older commits
are deleted, collections run, processes come, sleep and go.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import ManualClock
from chronicle.ids import BlobId, IdSource
from chronicle.testing.blob_contract import named

GRACE_S = 100
PROCESSES = 3
UNIVERSE = [
    *(bytes([number]) * (100 * number + 1) for number in range(4)),
    *(b"\n".join(b"a line that all of them share %d" % line for line in range(40)) + b"\n%d" % n for n in range(4)),
]
"""The last ones are alike, and share frames when they are copied."""

processes = st.integers(0, PROCESSES - 1)
choices = st.sets(st.sampled_from(UNIVERSE), min_size=1, max_size=4).map(lambda blobs: named(*blobs))


class GcModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.url = f"file://{self.folder}/store"
        self.clock = ManualClock()
        self.ids = IdSource(random.Random(1))
        self.journal: list[dict[BlobId, bytes]] = []
        self.in_flight: list[tuple[int, dict[BlobId, bytes]]] = []

    @initialize()
    def open_all(self) -> None:
        self.stores = [self.open() for _ in range(PROCESSES)]

    def open(self) -> PackBlobStore:
        return PackBlobStore(self.url, clock=self.clock, ids=self.ids, cache_bytes=0)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(process=processes, blobs=choices)
    def put(self, process: int, blobs: dict[BlobId, bytes]) -> None:
        self.stores[process].put(blobs)
        self.in_flight.append((self.clock.now_ms(), blobs))

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        if self.in_flight:
            place = data.draw(st.integers(0, len(self.in_flight) - 1))
            self.journal.append(self.in_flight.pop(place)[1])

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        if self.in_flight:
            self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1)))

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if self.journal:
            self.journal.pop(data.draw(st.integers(0, len(self.journal) - 1)))

    @rule(seconds=st.sampled_from([1, GRACE_S // 2, GRACE_S, GRACE_S * 3]), commits=st.booleans())
    def advance(self, seconds: int, commits: bool) -> None:
        """Time passes; who has put reaches the journal before its grace is over, or never does."""
        later = self.clock.now_ms() + seconds * 1000
        late = [blobs for put_ms, blobs in self.in_flight if later - put_ms >= GRACE_S * 1000]
        self.in_flight = [(put_ms, blobs) for put_ms, blobs in self.in_flight if later - put_ms < GRACE_S * 1000]
        if commits:
            self.journal.extend(late)
        self.clock.advance(seconds)

    @rule(keep_from=st.sampled_from([0.5, 1.0]), merge_from=st.sampled_from([2, 100]))
    def collect(self, keep_from: float, merge_from: int) -> None:
        collect(
            self.url,
            self.reached,
            GcRules(grace_s=GRACE_S, keep_from=keep_from, merge_from=merge_from),
            clock=self.clock,
            ids=self.ids,
        )

    def reached(self) -> set[BlobId]:
        return {identifier for blobs in self.journal for identifier in blobs}

    @rule(process=processes)
    def restart(self, process: int) -> None:
        self.stores[process] = self.open()

    @rule()
    def lose_the_index(self) -> None:
        shutil.rmtree(self.folder / "store" / "index", ignore_errors=True)

    @invariant()
    def what_is_committed_is_there(self) -> None:
        if self.journal:
            process = len(self.journal) % PROCESSES
            for reader in (self.stores[process], self.open()):
                for blobs in self.journal:
                    assert {identifier: reader.get(identifier) for identifier in blobs} == blobs


TestGcModel = GcModel.TestCase
TestGcModel.settings = settings(stateful_step_count=30, max_examples=60)
