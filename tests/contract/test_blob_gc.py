"""Collection of unreachable packs, and that it takes nothing from a commit in progress."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest

from chronicle.blobs import blob_id, ident
from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.gc.collector import GcReport, GcRules, collect
from chronicle.blobs.packs.catalog import pack_object
from chronicle.errors import Conflict, Corrupt, InvalidInput, Unavailable
from chronicle.ids import BlobId
from chronicle.testing.blob_contract import named
from tests.contract.gc_place import GRACE_S, Place, failing_from, present
from tests.s3_server import BUCKET, S3Server, point_at


@pytest.fixture(params=["file", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(  # a minute passes between any two looks: the manual clock is not the medium's
        "chronicle.blobs.media.fsspec_objects.RemoteObjects.stamp", lambda _self, _name: uuid4().hex
    )
    url = f"file://{tmp_path}/store" if request.param == "file" else f"memory://{uuid4().hex}"
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        point_at(monkeypatch, server.endpoint, tmp_path / "cache")
        monkeypatch.setenv("CHRONICLE_CACHE_BYTES", "0")  # what a node keeps is read when the store has it no more
        url = f"s3://{BUCKET}/{uuid4().hex}"
    yield Place(url)
    if request.param == "memory" and fsspec.filesystem("memory").exists(url):
        fsspec.filesystem("memory").rm(url, recursive=True)


def test_an_empty_store(place: Place) -> None:
    assert place.collect() == GcReport()
    assert place.collect(alone=True) == GcReport()


def test_what_is_unreachable_goes_in_two_halves(place: Place) -> None:
    store = place.open()
    store.put(named(b"kept"))
    store.put(named(b"garbage"))
    place.clock.advance(GRACE_S + 1)
    first = place.collect(b"kept")
    assert (first.packs, first.condemned, first.dropped) == (2, 1, 0)
    assert first.ripe_ms == place.clock.now_ms() + GRACE_S * 1000
    assert present(store, b"kept", b"garbage") == [b"kept", b"garbage"]
    place.clock.advance(GRACE_S / 2)
    assert place.collect(b"kept").dropped == 0
    place.clock.advance(GRACE_S / 2)
    second = place.collect(b"kept")
    assert (second.packs, second.condemned, second.dropped, second.ripe_ms) == (2, 0, 1, None)
    for reader in (store, place.open()):
        assert present(reader, b"kept", b"garbage") == [b"kept"]
        assert reader.missing(named(b"kept", b"garbage")) == set(named(b"garbage"))
        assert set(reader.blob_ids()) == set(named(b"kept"))


def test_a_collection_with_nothing_to_do_does_not_ask_what_is_reachable_again(place: Place) -> None:
    store = place.open()
    for number in range(20):  # enough to be merged
        store.put(named(b"%d" % number))
    store.put(named(b"garbage"))
    wanted = [b"%d" % number for number in range(20)]
    asked = 0

    def reached() -> dict[BlobId, bytes]:
        nonlocal asked
        asked += 1
        return named(*wanted)

    def collected(roots: str, *, keep_from: float = 1.0) -> GcReport:
        return place.collect_with(reached, alone=True, keep_from=keep_from, roots=lambda: roots)

    first = collected("one")
    assert (asked, first.dropped > 0) == (1, True)
    again = collected("one")
    assert asked == 1
    assert (again.packs, again.condemned, again.dropped) == (len(place.packs()), 0, 0)
    assert again.size_bytes == sum(place.packs().values())
    assert place.collect_with(reached, alone=True, keep_from=1.0, dry_run=True, roots=lambda: "one") == again
    assert asked == 1
    collected("one", keep_from=0.5)
    assert asked == 2
    collected("two")
    assert asked == 3
    store.put(named(b"more garbage"))
    assert collected("two").dropped == 1
    assert asked == 4
    wanted.remove(b"7")
    assert collected("two").dropped == 0  # the caller, which names the roots, says that they reach what they did
    assert asked == 4
    assert collected("three").dropped == 1
    assert asked == 5
    assert present(place.open(), b"6", b"7", b"8", b"garbage", b"more garbage") == [b"6", b"8"]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"format": 2}'])
def test_a_note_of_gc_that_cannot_be_read_counts_for_nothing(tmp_path: Path, damage: bytes) -> None:
    place = Place(f"file://{tmp_path}/store")
    place.open().put(named(b"kept"))
    asked: list[bytes] = []

    def reached() -> dict[BlobId, bytes]:
        asked.append(b"")
        return named(b"kept")

    for count in (1, 1):
        place.collect_with(reached, alone=True, roots=str)
        assert len(asked) == count
    (tmp_path / "store" / "collected").write_bytes(damage)
    place.collect_with(reached, alone=True, roots=str)
    assert len(asked) == 2


def test_young_packs_are_left_alone(place: Place) -> None:
    store = place.open()
    store.put(named(b"not committed yet"))
    place.clock.advance(GRACE_S - 1)
    assert place.collect().condemned == 0
    place.clock.advance(2)
    assert place.collect().condemned == 1


def test_a_commit_that_skipped_a_blob_before_its_pack_was_condemned_keeps_it(place: Place) -> None:
    store = place.open()
    store.put(named(b"old", b"more old"))
    place.clock.advance(GRACE_S + 1)
    store.put(named(b"old"))  # found present, skipped; its commit is on its way to the journal
    assert place.collect().condemned == 1
    place.clock.advance(GRACE_S + 1)
    report = place.collect(b"old")
    assert (report.dropped, report.copied) == (1, 1)
    for reader in (store, place.open()):
        assert present(reader, b"old", b"more old") == [b"old"]


def test_a_put_that_sees_the_condemned_packs_puts_again(place: Place) -> None:
    store, other = place.open(), place.open()
    store.put(named(b"old"))
    assert present(other, b"old")
    place.clock.advance(GRACE_S + 1)
    place.collect()
    assert other.missing(named(b"old")) == set(named(b"old"))
    other.put(named(b"old"))
    assert other.missing(named(b"old")) == set()
    assert store.missing(named(b"old")) == set()
    store.put(named(b"old"))
    place.clock.advance(GRACE_S + 1)
    report = place.collect()  # the commit has not reached the journal: a put that sees the list needs no grace
    assert (report.packs, report.dropped, report.copied) == (2, 1, 0)
    for reader in (store, other, place.open()):
        assert present(reader, b"old") == [b"old"]


def test_a_process_that_slept_through_a_collection(place: Place) -> None:
    sleeper = place.open()
    sleeper.put(named(b"gone"))
    assert present(sleeper, b"gone")
    place.clock.advance(GRACE_S + 1)
    place.collect()
    place.clock.advance(GRACE_S + 1)
    assert place.collect().dropped == 1
    sleeper.put(named(b"gone"))
    assert present(place.open(), b"gone") == [b"gone"]


def test_a_buffer_that_spilled_long_ago(place: Place) -> None:
    store = place.open()
    store.put(named(b"x" * 2_000))
    place.clock.advance(GRACE_S + 1)
    buffer = BlobBuffer(store, spill_bytes=1_000)
    buffer.add(b"x" * 2_000)  # spilled at once, and skipped for being there
    place.collect()
    place.clock.advance(GRACE_S * 10)  # a long turn
    buffer.flush()
    assert place.collect().dropped == 1
    assert present(place.open(), b"x" * 2_000)


def test_mostly_dead_packs_are_rewritten(place: Place) -> None:
    store = place.open()
    mostly_dead = [os.urandom(500) for _ in range(10)]
    mostly_alive = [os.urandom(500) for _ in range(10)]
    store.put(named(*mostly_dead))
    store.put(named(*mostly_alive))
    place.clock.advance(GRACE_S + 1)
    alive = [mostly_dead[3], *mostly_alive[1:]]
    assert place.collect(*alive).condemned == 1
    place.clock.advance(GRACE_S + 1)
    report = place.collect(*alive)
    assert (report.dropped, report.copied) == (1, 1)
    for reader in (store, place.open()):
        assert present(reader, *mostly_dead, *mostly_alive) == [mostly_dead[3], *mostly_alive]


def test_alone_every_dead_byte_can_go_at_once(place: Place) -> None:
    store = place.open()
    blobs = [os.urandom(500) for _ in range(10)]
    store.put(named(*blobs))
    store.put(named(b"in a pack of its own"))
    report = place.collect(*blobs[1:], alone=True, keep_from=1.0)
    assert (report.condemned, report.dropped, report.copied) == (2, 2, 9)
    assert present(place.open(), *blobs, b"in a pack of its own") == blobs[1:]
    assert present(store, *blobs) == blobs[1:]
    again = place.collect(*blobs[1:], alone=True, keep_from=1.0)
    assert (again.packs, again.condemned, again.dropped) == (1, 0, 0)


@pytest.mark.parametrize("alone", [True, False])
def test_a_dry_run_changes_nothing(place: Place, alone: bool) -> None:
    store = place.open()
    store.put(named(b"a"))
    store.put(named(b"b"))
    place.clock.advance(GRACE_S + 1)
    report = place.collect(b"a", dry_run=True, alone=alone)
    assert (report.condemned, report.dropped) == (1, 1 if alone else 0)
    place.clock.advance(GRACE_S + 1)
    assert place.collect(b"a", dry_run=True).dropped == 0
    assert place.open().missing(named(b"a", b"b")) == set()


def test_the_newest_of_two_copies_is_enough(place: Place) -> None:
    one, two = place.open(), place.open()
    one.put(named(b"first"))
    two.put(named(b"first", b"second"))
    place.clock.advance(GRACE_S + 1)
    place.collect(b"second")
    one.put(named(b"first"))
    place.clock.advance(GRACE_S + 1)
    place.collect(b"first", b"second")
    assert present(place.open(), b"first", b"second") == [b"first", b"second"]


def test_a_damaged_blob_keeps_its_pack_and_is_reported(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    blobs = [os.urandom(300) for _ in range(10)]
    store.put(named(*blobs))
    found = store._catalog.find(ident.to_raw(blob_id(blobs[0])))
    assert found is not None
    path = tmp_path / "store" / pack_object(found[0])
    data = bytearray(path.read_bytes())
    data[found[1].offset] ^= 1
    path.write_bytes(data)
    report = place.collect(blobs[0], blobs[1], alone=True)
    assert (report.dropped, len(report.damaged)) == (0, 1)
    assert blob_id(blobs[0]) in report.damaged[0]
    fresh = place.open()
    assert present(fresh, blobs[1]) == [blobs[1]]
    with pytest.raises(Corrupt):
        fresh.get(blob_id(blobs[0]))


def test_a_pack_whose_index_is_damaged_stays(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    place.open().put(named(b"a"))
    (path,) = (path for path in (tmp_path / "store" / "packs").rglob("*") if path.is_file())
    path.write_bytes(path.read_bytes()[:-3])
    report = place.collect(alone=True)
    assert (report.packs, report.dropped, len(report.damaged)) == (1, 0, 1)
    assert path.exists()


def test_what_crashes_left_is_cleared(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    place.open().put(named(b"a"))
    for folder in ("tmp", "index"):
        old, new = tmp_path / "store" / folder / "old.tmp", tmp_path / "store" / folder / "new.tmp"
        old.write_bytes(b"half a pack")
        new.write_bytes(b"being written")
        os.utime(old, (time.time() - 90_000,) * 2)
        place.collect(b"a")
        assert (old.exists(), new.exists()) == (False, True)


def test_one_collection_at_a_time(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    place.open().put(named(b"a"))

    def while_running() -> dict[BlobId, bytes]:
        with pytest.raises(Conflict, match="running"):
            place.collect(b"a")
        return named(b"a")

    place.collect_with(while_running)
    assert place.collect(b"a").packs == 1


def test_a_grace_that_remote_writers_cannot_keep_is_refused() -> None:
    with pytest.raises(InvalidInput, match="too short"):
        collect(f"memory://{uuid4().hex}", dict, GcRules(grace_s=30))


def test_a_damaged_list_of_condemned_packs_stops_writers(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    store.put(named(b"a"))
    (tmp_path / "store" / "condemned").write_text("?")
    with pytest.raises(Corrupt, match="list of condemned packs"):
        store.put(named(b"b"))
    assert present(store, b"a")


@pytest.mark.parametrize("failing", range(1, 6))
def test_a_collection_that_stops_halfway_is_gone_on_with(
    tmp_path: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes and deletions of the second half fail from the n-th on; then a new call finishes it."""
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    blobs = [os.urandom(400) for _ in range(6)]
    for number in range(0, 6, 2):
        store.put(named(*blobs[number : number + 2], b"dead " * 300 + b"%d" % number))
    alive = [blobs[0], blobs[2]]
    place.clock.advance(GRACE_S + 1)
    assert place.collect(*alive).condemned == 3
    place.clock.advance(GRACE_S + 1)
    store.put(named(blobs[4]))
    with failing_from(monkeypatch, failing) as calls:
        try:
            place.collect(*alive)
        except (Unavailable, OSError):
            pass
        else:
            assert len(calls) < failing
    for reader in (store, place.open()):
        assert set(present(reader, *alive, blobs[4])) >= {*alive, blobs[4]}
        assert reader.missing(named(blobs[4])) == set()
    for _ in range(3):
        place.clock.advance(GRACE_S + 1)
        place.collect(*alive, blobs[4])
    for reader in (store, place.open()):
        assert present(reader, *blobs) == [*alive, blobs[4]]
