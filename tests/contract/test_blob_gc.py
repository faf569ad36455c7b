"""Collection of unreachable packs, and that it takes nothing from a commit in progress."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest

from chronicle.blobs import blob_id, ident
from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.gc import collector
from chronicle.blobs.gc.collector import GcReport, collect
from chronicle.blobs.packs.catalog import PACK_FOLDER, pack_object
from chronicle.blobs.packs.opening import open_medium
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Conflict, Corrupt, InvalidInput, NotFound, Unavailable
from chronicle.ids import BlobId
from chronicle.testing.blob_contract import named
from tests.s3_server import BUCKET, S3Server, point_at, running_s3

GRACE_S = 100.0


class Place:
    """A store, with a clock."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = ManualClock()

    def open(self) -> PackBlobStore:
        return PackBlobStore(self.url, clock=self.clock, cache_bytes=0)

    def packs(self) -> dict[str, int]:
        """Return the packs that there are, with their bytes."""
        objects, _, _ = open_medium(self.url, lambda: uuid4().hex)
        return dict(objects.sizes(PACK_FOLDER))

    def collect(self, *reached: bytes, alone: bool = False, dry_run: bool = False, keep_from: float = 0.5) -> GcReport:
        return self.collect_with(lambda: named(*reached), alone=alone, dry_run=dry_run, keep_from=keep_from)

    def collect_with(
        self,
        reached: Callable[[], dict[BlobId, bytes]],
        alone: bool = False,
        dry_run: bool = False,
        keep_from: float = 0.5,
        roots: Callable[[], str] | None = None,
    ) -> GcReport:
        return collect(
            self.url,
            reached,
            roots=roots,
            grace_s=GRACE_S,
            alone=alone,
            dry_run=dry_run,
            keep_from=keep_from,
            clock=self.clock,
        )


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


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


def present(store: PackBlobStore, *blobs: bytes) -> list[bytes]:
    found = []
    for data in blobs:
        try:
            assert store.get(blob_id(data)) == data
        except NotFound:
            continue
        found.append(data)
    return found


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
    assert collected("two").dropped == 0  # whoever names the roots says that they reach what they did
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


def test_a_commit_that_skipped_a_blob_before_the_mark_keeps_it(place: Place) -> None:
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


def test_a_put_that_sees_the_mark_puts_again(place: Place) -> None:
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
    report = place.collect()  # the commit has not reached the journal: a put under the mark needs no grace
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
        collect(f"memory://{uuid4().hex}", dict, grace_s=30)


def test_a_damaged_mark_stops_writers(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    store.put(named(b"a"))
    (tmp_path / "store" / "condemned").write_text("?")
    with pytest.raises(Corrupt, match="mark of gc"):
        store.put(named(b"b"))
    assert present(store, b"a")


@contextmanager
def failing_from(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[list[object]]:
    """Let renames and removals fail from the n-th on; yield what was asked for."""
    calls: list[object] = []

    def fails(real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object, **options: object) -> None:
            calls.append(arguments)
            if len(calls) >= number:
                raise OSError(5, "Input/output error")
            real(*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", fails(os.rename))
        patched.setattr(os, "unlink", fails(os.unlink))
        yield calls


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


def lines_of(version: int) -> bytes:
    """A version of a text: one line of 200 is its own."""
    return b"\n".join(b"this is line %d of a text that has many" % n for n in range(200)) + b"\nversion %d" % version


def test_many_small_packs_are_merged_and_what_is_alike_is_stored_once(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    versions = [lines_of(number) for number in range(40)]
    for data in versions:
        store.put(named(data))
        place.clock.advance(1)
    before = sum(path.stat().st_size for path in (tmp_path / "store" / "packs").rglob("*") if path.is_file())
    place.clock.advance(GRACE_S)
    report = place.collect(*versions[1:])
    assert (report.condemned, report.merged, report.copied, report.dropped) == (40, 39, 39, 0)
    writer = place.open()
    assert writer.missing(named(*versions)) == set(named(versions[0]))  # the copies count at once
    place.clock.advance(GRACE_S)
    report = place.collect(*versions[1:])
    assert (report.dropped, report.copied, report.condemned) == (40, 0, 0)
    after = sum(path.stat().st_size for path in (tmp_path / "store" / "packs").rglob("*") if path.is_file())
    assert after < before / 5
    for reader in (store, writer, place.open()):
        assert present(reader, *versions) == versions[1:]
        assert reader.get_many(list(named(*versions[1:]))) == named(*versions[1:])
        asked = blob_id(versions[5])
        assert reader.get_stretch(asked, 10**6)[asked] == versions[5]


def test_a_merge_that_had_no_room_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    versions = [lines_of(number) for number in range(20)]
    for data in versions:
        store.put(named(data))

    def collected() -> GcReport:
        return place.collect_with(lambda: named(*versions), alone=True, roots=lambda: "one")

    with monkeypatch.context() as full:
        full.setattr(collector, "free_bytes", lambda _: 0)
        assert collected().merged == 0
        assert collected().merged == 0
    assert collected().merged == 20
    assert collected().packs == 1
    assert present(place.open(), *versions) == versions


def test_what_is_reached_in_the_meantime_survives_a_merge(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    versions = [lines_of(number) for number in range(40)]
    for data in versions:
        store.put(named(data))
    place.clock.advance(GRACE_S + 1)
    writer = place.open()
    writer.put(named(versions[3]))  # found, and skipped
    assert place.collect(*versions[10:]).condemned == 40
    place.clock.advance(GRACE_S)
    assert place.collect(versions[3], *versions[10:]).dropped == 40
    assert present(place.open(), *versions) == [versions[3], *versions[10:]]


def test_a_merge_in_one_call_leaves_few_packs(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    versions = [b"", *(lines_of(number) for number in range(20))]
    store.put(named(*versions[:2]))
    for data in versions[2:]:
        store.put(named(data))
    assert place.collect(*versions, alone=True, dry_run=True).merged == 20
    assert place.collect(*versions, alone=True).damaged == []
    again = place.collect(*versions, alone=True)
    assert (again.packs, again.condemned) == (1, 0)
    assert present(place.open(), *versions) == versions
    store = place.open()
    store.put(named(b"later"))
    assert place.collect(*versions[:4], b"later", alone=True, keep_from=1.0).dropped == 1  # a group is left in part
    assert present(place.open(), *versions, b"later") == [*versions[:4], b"later"]


def test_a_damaged_blob_stops_no_merge_and_keeps_its_pack(tmp_path: Path) -> None:
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    versions = [lines_of(number) for number in range(20)]
    for data in versions:
        store.put(named(data))
    victim = min((tmp_path / "store" / "packs").rglob("0*"), key=lambda path: (path.is_dir(), path.name))
    whole = victim.read_bytes()
    victim.write_bytes(whole[:30] + bytes([whole[30] ^ 1]) + whole[31:])
    report = place.collect(*versions, alone=True)
    assert (report.dropped, len(report.damaged)) == (19, 1)
    assert victim.exists()
    readable = 0
    for data in versions:
        try:
            readable += place.open().get(blob_id(data)) == data
        except Corrupt:
            continue
    assert readable == 19


@pytest.mark.parametrize("failing", range(1, 6))
def test_a_merge_that_stops_halfway_loses_nothing_and_is_gone_on_with(
    tmp_path: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing the copies, the index, the mark and then each deletion fails."""
    place = Place(f"file://{tmp_path}/store")
    store = place.open()
    versions = [lines_of(number) for number in range(20)]
    for data in versions:
        store.put(named(data))
    with failing_from(monkeypatch, failing), pytest.raises((Unavailable, OSError)):
        place.collect(*versions, alone=True)
    for reader in (store, place.open()):
        assert present(reader, *versions) == versions
    for _ in range(2):
        place.collect(*versions, alone=True)
    assert place.collect(*versions, alone=True).packs == 1
    for reader in (store, place.open()):
        assert present(reader, *versions) == versions
