"""Two collections in a home in PostgreSQL, its blobs in a bucket: one has the lease, is killed, or stands still."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.blobs.packs.catalog import PACK_FOLDER
from chronicle.blobs.packs.condemned import read_condemned
from chronicle.blobs.packs.opening import open_objects
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Conflict
from chronicle.testing.blob_contract import named
from coordinator.homes.postgres import collection_lease
from coordinator.homes.postgres.collection_lease import PostgresCollectionLease
from coordinator.homes.postgres.database import open_schema
from tests.crash.home.gc_work import GRACE_S, WINDOW_S
from tests.s3_server import BUCKET, S3Server, point_at
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
GARBAGE, KEPT = 6, 3
SHORT_S, LONG_S = 2.0, 600.0
"""Times to live of leases."""


class Place:
    """A bucket whose garbage the next collection drops, and the records of its home."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo, self.schema = conninfo, f"home_{uuid4().hex}"
        self.url = f"s3://{BUCKET}/{uuid4().hex}"
        self.clock = ManualClock()
        self.kept = named(*(b"kept %d" % number for number in range(KEPT)))
        self.records = open_schema(conninfo, self.schema, create=True)
        for number in range(GARBAGE):
            self.open().put(named(b"garbage %d" % number))
        for identifier, data in self.kept.items():
            self.open().put({identifier: data})
        for wait_s in (GRACE_S + 1, GRACE_S + 1, 0.0):
            self.clock.advance(wait_s)
            collect(self.url, lambda: self.kept, GcRules(grace_s=GRACE_S, kept_s=WINDOW_S), clock=self.clock)
        self.clock.advance(WINDOW_S + 1)

    def open(self) -> PackBlobStore:
        return PackBlobStore(self.url, clock=self.clock, cache_bytes=0, cache=None)

    def packs(self) -> int:
        return len(open_objects(self.url).names(PACK_FOLDER))

    def has_the_rest(self) -> None:
        """See that all that is needed is there, and nothing else."""
        assert {identifier: self.open().get(identifier) for identifier in self.kept} == self.kept
        assert self.packs() == KEPT
        assert not read_condemned(open_objects(self.url)).packs

    @contextmanager
    def collecting(self, directory: str, ttl_s: float) -> Iterator[subprocess.Popen[str]]:
        """Begin a collection in another process."""
        given = (self.conninfo, self.schema, directory, self.url, str(self.clock.now_ms()), str(ttl_s), *self.kept)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.home.gc_work", *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def take_over(self, directory: str) -> str:
        """Have a collection as soon as nobody else has the lease, and return its last word."""
        said = ""

        def is_done() -> bool:
            nonlocal said
            with self.collecting(directory, LONG_S) as process:
                said = to_the_end(process)
            return "another gc" not in said

        wait_until(is_done, "the other collection has the lease")
        return said


def go_on(process: subprocess.Popen[str]) -> str:
    """Let a collection make its next change; return what it says then."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def first_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def to_the_end(process: subprocess.Popen[str]) -> str:
    said = first_of(process)
    while said == "change":
        said = go_on(process)
    return said


def until_a_removal(place: Place, process: subprocess.Popen[str]) -> None:
    """Let a collection go on until it has removed one of the packs, and is about to remove another."""
    assert first_of(process) == "change"
    before = place.packs()
    while place.packs() == before:
        assert go_on(process) == "change"


@pytest.fixture
def place(server: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    point_at(monkeypatch, s3.endpoint, tmp_path / "cache")
    return Place(server)


def test_one_collects_and_the_next_one_goes_on_where_it_was_killed(place: Place) -> None:
    with place.collecting("/one", SHORT_S) as first:
        until_a_removal(place, first)
        with place.collecting("/two", LONG_S) as second:
            assert f"another gc of this home is running, at {gethostname()}:/one" in to_the_end(second)
        first.kill()
    assert place.packs() > KEPT
    assert place.take_over("/two").startswith("dropped")
    place.has_the_rest()


def test_one_that_stood_still_removes_nothing_after_another_has_taken_over(place: Place) -> None:
    """Its next removal would take a pack that was made since, under the name that it had meant."""
    with place.collecting("/one", SHORT_S) as first:
        until_a_removal(place, first)
        first.send_signal(signal.SIGSTOP)
        assert place.take_over("/two").startswith("dropped")
        for number in range(GARBAGE):
            place.open().put(again := named(b"garbage %d" % number))
            place.kept |= again
        first.send_signal(signal.SIGCONT)
        assert "this gc has lost its lease" in go_on(first)
    assert {identifier: place.open().get(identifier) for identifier in place.kept} == place.kept


def test_a_lease_that_the_database_does_not_know_any_more_is_lost(place: Place) -> None:
    """Such as one that was restored."""
    with place.collecting("/one", SHORT_S) as first:
        until_a_removal(place, first)
        with place.records.writing() as db:
            db.execute(collection_lease._LOCK)  # no renewal is under way
            db.execute("DELETE FROM document")
        with PostgresCollectionLease(place.records, Path("/two")).hold() as held:
            wait_until(lambda: go_on(first) != "change", "the first collection goes on")
            held()


def test_a_lease_is_free_when_its_holder_has_ended(place: Place) -> None:
    one, two = (PostgresCollectionLease(place.records, Path(name)) for name in ("/one", "/two"))
    for lease, other in ((one, two), (two, one), (one, two)):
        with lease.hold() as held:
            held()
            with pytest.raises(Conflict, match="another gc of this home is running"), other.hold():
                pytest.fail("two have it")
