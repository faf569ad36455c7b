"""gc of a far store from two nodes, among commits, reads and restores of the journal: nothing needed is missing.

The steps of the collections are interleaved with everything else: a collection stands still at its reading of the roots
and before each change that it makes to the store. It may be killed there, and may stand there until another one has its
lease. A restore gives the journal a state that it had within the backup window; what that refers to is there as well.
"""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import fsspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.blobs.media.fsspec_objects import RemoteObjects
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Conflict
from chronicle.ids import IdSource
from chronicle.testing.blob_contract import named

if TYPE_CHECKING:
    from chronicle.ids import BlobId

STAMP_S: Final = 60
GRACE_S: Final = 200
COMMIT_S: Final = GRACE_S - STAMP_S
"""A commit reaches the journal within this time of its put, which may have read the list of condemned packs a minute
before."""
WINDOW_S: Final = 1_000
LEASE_S: Final = 150
WRITERS: Final = 2
NODES: Final = 2
DEADLINE_S: Final = 60.0
UNIVERSE: Final = [bytes([number]) * (50 * number + 1) for number in range(3)]

writers = st.integers(0, WRITERS - 1)
choices = st.lists(st.sampled_from(UNIVERSE), min_size=1, max_size=2, unique=True).map(lambda blobs: named(*blobs))


class Killed(BaseException):
    """Ends a collection as SIGKILL does: what it has done stays."""


class Lease:
    """The lease of collections, as the database of a home has it."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._holder: Collection | None = None
        self._ends_s = 0.0

    def is_free(self) -> bool:
        return self._holder is None or self._clock.monotonic_s() >= self._ends_s

    def take(self, holder: Collection) -> None:
        self._holder = holder
        self._ends_s = holder.ends_s = self._clock.monotonic_s() + LEASE_S

    def renew(self, holder: Collection) -> None:
        if self._holder is holder:
            self.take(holder)

    def release(self, holder: Collection) -> None:
        if self._holder is holder:
            self._holder = None


class Collection:
    """A collection in a thread, which goes on from one standstill to the next when it is told to."""

    def __init__(self, model: GcFarModel, rules: GcRules) -> None:
        self._model = model
        self._rules = rules
        self._go = threading.Semaphore(0)
        self._stands = threading.Semaphore(0)
        self._is_killed = False
        self._failure: Exception | None = None
        self.is_over = False
        self.ends_s = 0.0
        """Until when it has the lease, for all it knows."""
        model.lease.take(self)
        threading.Thread(target=self._run, daemon=True).start()
        assert self._stands.acquire(timeout=DEADLINE_S)

    def step(self) -> None:
        """Go on to the next standstill, or to the end."""
        if not self.is_over:
            self._go.release()
            assert self._stands.acquire(timeout=DEADLINE_S)
        if self._failure is not None:
            raise self._failure

    def kill(self) -> None:
        self._is_killed = True
        while not self.is_over:
            self.step()

    def _stand(self) -> None:
        self._stands.release()
        assert self._go.acquire(timeout=DEADLINE_S)
        if self._is_killed:
            raise Killed

    def _held(self) -> None:
        self._stand()
        if self._model.clock.monotonic_s() >= self.ends_s:
            raise Conflict("the lease was lost")

    def _reached(self) -> set[BlobId]:
        self._stand()
        return self._model.reached()

    def _run(self) -> None:
        model = self._model
        try:
            collect(model.url, self._reached, self._rules, held=self._held, clock=model.clock, ids=model.ids)
        except (Conflict, Killed):
            pass
        except Exception as error:  # noqa: BLE001  raised by `step`
            self._failure = error
        else:
            model.lease.release(self)
        self.is_over = True
        self._stands.release()


class GcFarModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.url = f"memory://{uuid4().hex}"
        self.clock = clock = ManualClock()
        self.ids = IdSource(random.Random(1))
        self.lease = Lease(self.clock)
        self.collections: list[Collection] = []
        self.generation = 0
        self.journal: list[dict[BlobId, bytes]] = []
        self.past: list[tuple[float, list[dict[BlobId, bytes]]]] = []
        """The states that the journal had, and when each ended."""
        self.in_flight: list[tuple[float, dict[BlobId, bytes]]] = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(RemoteObjects, "stamp", lambda _self, _name: clock.monotonic_s() // STAMP_S)

    @initialize()
    def open_all(self) -> None:
        self.stores = [self.open() for _ in range(WRITERS)]

    def open(self) -> PackBlobStore:
        return PackBlobStore(self.url, clock=self.clock, ids=self.ids, cache_bytes=0)

    def teardown(self) -> None:
        for collection in self.collections:
            collection.kill()
        self.patch.undo()
        if (files := fsspec.filesystem("memory")).exists(self.url):
            files.rm(self.url, recursive=True)

    def reached(self) -> set[BlobId]:
        return {identifier for blobs in self.journal for identifier in blobs}

    def states(self) -> list[list[dict[BlobId, bytes]]]:
        """The states that the journal had within the window."""
        since_s = self.clock.monotonic_s() - WINDOW_S
        return [journal for ended_s, journal in self.past if ended_s > since_s]

    def change(self, journal: list[dict[BlobId, bytes]]) -> None:
        self.past.append((self.clock.monotonic_s(), self.journal))
        self.journal = journal

    # -- writers --------------------------------------------------------------------------------------------------

    @rule(writer=writers, blobs=choices)
    def put(self, writer: int, blobs: dict[BlobId, bytes]) -> None:
        self.stores[writer].put(blobs)
        self.in_flight.append((self.clock.monotonic_s(), blobs))

    @rule(writer=writers, blobs=choices)
    def put_and_commit(self, writer: int, blobs: dict[BlobId, bytes]) -> None:
        self.stores[writer].put(blobs)
        self.change([*self.journal, blobs])

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.in_flight) - 1))
        self.change([*self.journal, self.in_flight.pop(place)[1]])

    @precondition(lambda self: self.journal)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.journal) - 1))
        self.change([*self.journal[:place], *self.journal[place + 1 :]])

    @precondition(lambda self: self.states())
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """Give the journal a state of the window; what was under way is refused, as it names a head that is lost."""
        states = self.states()
        self.change(states[data.draw(st.integers(0, len(states) - 1))])
        self.generation += 1
        self.in_flight.clear()

    @rule(writer=writers)
    def restart(self, writer: int) -> None:
        self.stores[writer] = self.open()

    @rule(seconds=st.sampled_from([STAMP_S, LEASE_S, GRACE_S, WINDOW_S]), commits=st.booleans())
    def advance(self, seconds: int, commits: bool) -> None:
        """Time passes; what was put reaches the journal in time, or never does."""
        now_s = self.clock.monotonic_s()
        late = [blobs for put_s, blobs in self.in_flight if now_s + seconds - put_s >= COMMIT_S]
        self.in_flight = [(put_s, blobs) for put_s, blobs in self.in_flight if now_s + seconds - put_s < COMMIT_S]
        if commits and late:
            self.change([*self.journal, *late])
        self.clock.advance(seconds)

    # -- collections ----------------------------------------------------------------------------------------------

    def running(self) -> list[Collection]:
        return [collection for collection in self.collections if not collection.is_over]

    @precondition(lambda self: len(self.running()) < NODES and self.lease.is_free())
    @rule(keep_from=st.sampled_from([0.5, 1.0]), merge_from=st.sampled_from([2, 100]))
    def begin(self, keep_from: float, merge_from: int) -> None:
        rules = GcRules(
            grace_s=GRACE_S,
            keep_from=keep_from,
            merge_from=merge_from,
            kept_s=WINDOW_S,
            generation=self.generation,
        )
        self.collections.append(Collection(self, rules))

    @precondition(lambda self: len(self.running()) < NODES and self.lease.is_free())
    @rule(seconds=st.sampled_from([0, GRACE_S, WINDOW_S]), keep_from=st.sampled_from([0.5, 1.0]))
    def collect(self, seconds: int, keep_from: float) -> None:
        """Have a collection that nothing interrupts."""
        self.advance(seconds, commits=True)
        self.begin(keep_from, 100)
        collection = self.collections[-1]
        while not collection.is_over:
            collection.step()

    @precondition(lambda self: self.running())
    @rule(data=st.data(), steps=st.sampled_from([1, 2, 3, 4, 5, 99]), renewed=st.booleans())
    def go_on(self, data: st.DataObject, steps: int, renewed: bool) -> None:
        collection = data.draw(st.sampled_from(self.running()))
        if renewed:
            self.lease.renew(collection)
        for _ in range(steps):
            collection.step()

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.running())).kill()

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def what_the_journal_refers_to_is_there(self) -> None:
        self.check(self.stores[len(self.journal) % WRITERS], [self.journal])

    @invariant()
    def what_a_restored_journal_refers_to_is_there(self) -> None:
        self.check(self.open(), [self.journal, *self.states()])

    def check(self, reader: PackBlobStore, journals: list[list[dict[BlobId, bytes]]]) -> None:
        needed = {identifier: data for journal in journals for blobs in journal for identifier, data in blobs.items()}
        assert {identifier: reader.get(identifier) for identifier in needed} == needed


class GcFarModelForLong(GcFarModel):
    pass


TestGcFarModel = GcFarModel.TestCase
TestGcFarModel.settings = settings(stateful_step_count=40, max_examples=60)
TestGcFarModelForLong = pytest.mark.slow(pytest.mark.timeout(3600)(GcFarModelForLong.TestCase))
TestGcFarModelForLong.settings = settings(stateful_step_count=50, max_examples=4_000)
