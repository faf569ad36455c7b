"""What others do in the middle of a collection, clocks that are set, copies that are damaged, and a disk that fills."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.gc.collector import GcReport, GcRules, collect
from chronicle.blobs.media.fsspec_objects import RemoteObjects
from chronicle.blobs.media.objects import LocalObjects
from chronicle.blobs.packs.catalog import PACK_FOLDER, read_pack_index
from chronicle.blobs.packs.local_catalog import LocalCatalog
from chronicle.blobs.packs.pack_format import PackIndex
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Unavailable
from chronicle.testing.blob_contract import named

GRACE_S = 100.0


class Store:
    """A store on this disk, with a clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"file://{folder}"
        self.clock = ManualClock()

    def open(self) -> PackBlobStore:
        return PackBlobStore(self.url, clock=self.clock, cache_bytes=0)

    def collect(self, *reached: bytes, alone: bool = False, keep_from: float = 0.5) -> GcReport:
        return collect(
            self.url,
            lambda: named(*reached),
            GcRules(grace_s=GRACE_S, alone=alone, keep_from=keep_from),
            clock=self.clock,
        )

    def has(self, data: bytes) -> bool:
        return self.open().get(blob_id(data)) == data


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_who_looks_while_packs_go_does_not_make_others_skip_what_was_in_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is condemned is in no index any more, and is there: a process that looks for it takes it in again."""
    store.open().put(named(b"garbage"))
    store.open().put(named(b"kept"))
    store.clock.advance(GRACE_S + 1)
    store.collect(b"kept")
    store.clock.advance(GRACE_S + 1)
    lookers = []
    really = LocalObjects.delete

    def delete(objects: LocalObjects, name: str) -> None:
        looker = threading.Thread(target=lambda: store.open().missing(named(b"nowhere")))
        lookers.append(looker)
        looker.start()
        looker.join(0.3)  # it may have to wait until the packs are gone
        really(objects, name)

    with monkeypatch.context() as patch:
        patch.setattr(LocalObjects, "delete", delete)
        assert store.collect(b"kept").dropped == 1
    for looker in lookers:
        looker.join(30)
    store.open().put(named(b"garbage"))
    assert store.has(b"garbage")


def test_who_has_read_a_pack_before_it_goes_does_not_tell_others_of_it_afterwards(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.open().put(named(b"garbage"))
    store.open().put(named(b"kept"))
    store.clock.advance(GRACE_S + 1)
    store.collect(b"kept")
    store.clock.advance(GRACE_S + 1)

    def dies(_: LocalObjects, name: str) -> None:
        raise Unavailable(name)

    with monkeypatch.context() as patch:
        patch.setattr(LocalObjects, "delete", dies)
        with pytest.raises(Unavailable):
            store.collect(b"kept")  # the index is made anew, and then it dies
    dropped: list[int] = []

    def read(*arguments: Any) -> PackIndex:
        index = read_pack_index(*arguments)
        if not dropped:
            dropped.append(1)
            dropped.append(store.collect(b"kept").dropped)
        return index

    with monkeypatch.context() as patch:
        patch.setattr("chronicle.blobs.packs.catalog.read_pack_index", read)
        store.open().missing(named(b"nowhere"))
    assert dropped == [1, 1]
    store.open().put(named(b"garbage"))
    assert store.has(b"garbage")


def test_an_index_that_has_what_is_gone_is_not_believed_and_is_mended(store: Store) -> None:
    """A file that was removed by hand, a backup of one folder only, or an older version's collection."""
    store.open().put(named(b"gone"))
    (pack,) = (path for path in (store.folder / "packs").rglob("*") if path.is_file())
    pack.unlink()
    writer = store.open()
    assert writer.missing(named(b"gone")) == set(named(b"gone"))
    writer.put(named(b"gone"))
    assert store.has(b"gone")
    for number in range(20):
        store.open().put(named(b"%d" % number))
    store.collect(b"gone", *(b"%d" % number for number in range(20)), alone=True)
    places = LocalCatalog(LocalObjects(store.folder), lambda: "0" * 26)
    places.scan()
    assert {name for name, _ in places.entries()} == {path.name for path in (store.folder / "packs").glob("*/*")}
    assert [path.name for path in (store.folder / "index").glob("*.tmp")] == []


def test_a_far_writer_that_cannot_look_for_a_pack_does_not_rely_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has seen the list, and not yet what has gone: what it knows must not count until it has."""
    monkeypatch.setattr(RemoteObjects, "stamp", lambda _self, _name: uuid4().hex)
    url, clock = f"memory://{uuid4().hex}", ManualClock()

    def collected() -> GcReport:
        clock.advance(GRACE_S + 1)
        return collect(url, dict, GcRules(grace_s=GRACE_S), clock=clock)

    sleeper = PackBlobStore(url, clock=clock, cache_bytes=0)
    sleeper.put(named(b"gone"))
    assert (collected().condemned, collected().dropped) == (1, 1)

    read = RemoteObjects.read

    def packs_are_away(objects: RemoteObjects, name: str, *place: int) -> bytes:
        if name.startswith(PACK_FOLDER):
            raise Unavailable(name)
        return read(objects, name, *place)

    with monkeypatch.context() as patch:
        patch.setattr(RemoteObjects, "read", packs_are_away)
        with pytest.raises(Unavailable):
            sleeper.put(named(b"gone"))
    sleeper.put(named(b"gone"))
    assert PackBlobStore(url, clock=clock, cache_bytes=0).get(blob_id(b"gone")) == b"gone"
    fsspec.filesystem("memory").rm(url, recursive=True)


def damaged_copies(store: Store, data: bytes, *, first: bool) -> None:
    """Put a blob twice, as two writers at once do, and damage one of the copies."""
    store.open().put(named(data))
    store.clock.advance(1)  # packs are named in the order of time
    other = store.open()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalCatalog, "find", lambda *_: None)
        other.put(named(data, b"beside it"))
    copies = sorted((store.folder / "packs").glob("*/*"), key=lambda path: path.name)
    assert len(copies) == 2
    for path in copies[:1] if first else copies[1:]:
        whole = bytearray(path.read_bytes())
        at = whole.index(data)
        whole[at] ^= 1
        path.write_bytes(whole)


@pytest.mark.parametrize("first", [True, False])
def test_of_two_copies_that_go_the_sound_one_is_copied(store: Store, first: bool) -> None:
    data = os.urandom(300)
    damaged_copies(store, data, first=first)
    many = [b"%d" % number for number in range(20)]
    for one in many:
        store.open().put(named(one))
    report = store.collect(data, b"beside it", *many, alone=True)
    assert (report.merged, report.dropped, report.damaged) == (22, 22, [])
    assert store.has(data)


def test_a_copy_elsewhere_that_is_damaged_is_none(store: Store) -> None:
    """The pack with the sound one is nearly dead, the one with the damaged one is not."""
    data = os.urandom(300)
    damaged_copies(store, data, first=True)
    (_, nearly_dead) = sorted((store.folder / "packs").glob("*/*"), key=lambda path: path.name)
    entries = read_pack_index(LocalObjects(store.folder), nearly_dead.name).entries
    assert len(entries) == 2
    assert store.collect(data, alone=True, keep_from=0.99).dropped == 1
    assert not nearly_dead.exists()
    assert store.has(data)


def test_merged_packs_are_read_back_before_the_others_go(store: Store) -> None:
    many = [b"%d" % number * 30 for number in range(20)]
    for one in many:
        store.open().put(named(one))
    before = {path.name for path in (store.folder / "packs").glob("*/*")}
    store.clock.advance(GRACE_S + 1)
    assert store.collect(*many).merged == 20
    (merged,) = (path for path in (store.folder / "packs").glob("*/*") if path.name not in before)
    whole = bytearray(merged.read_bytes())
    whole[20] ^= 1  # the disk lost a bit of it
    merged.write_bytes(whole)
    store.clock.advance(GRACE_S + 1)
    report = store.collect(*many)
    assert (report.dropped, report.damaged) == (20, [])
    assert report.copied > 0
    assert all(store.has(one) for one in many)


def test_a_clock_that_is_set_back_holds_nothing_up(store: Store) -> None:
    store.open().put(named(b"garbage"))
    store.clock.advance(GRACE_S + 1)
    assert store.collect().condemned == 1
    earlier = ManualClock(store.clock.now_ms() - 10**9)
    store.clock = earlier
    earlier.advance(1)
    report = store.collect()
    assert report.ripe_ms == earlier.now_ms() + GRACE_S * 1000
    earlier.advance(GRACE_S - 1)
    assert store.collect().dropped == 0
    earlier.advance(1)
    assert store.collect().dropped == 1


def test_deleting_for_good_does_not_spare_what_a_wrong_clock_has_dated(store: Store) -> None:
    store.open().put(named(b"of next year"))
    store.clock = ManualClock(store.clock.now_ms() - 10**9)
    assert store.collect(alone=True).dropped == 1
    assert list((store.folder / "packs").glob("*/*")) == []


class Stopped(ManualClock):
    """A machine whose date goes on while it does not: it sleeps, or its clock is put forward."""

    ran_s = 0.0

    def monotonic_s(self) -> float:
        return self.ran_s


def test_a_grace_does_not_run_while_the_machine_sleeps(store: Store) -> None:
    """Who was between its put and its commit has slept as well."""
    clock = store.clock = Stopped()
    store.open().put(named(b"found by a commit that is on its way"))
    clock.advance(GRACE_S + 1)
    assert store.collect().condemned == 1
    clock.advance(10 * GRACE_S)
    clock.ran_s += 1
    report = store.collect()
    assert (report.dropped, report.ripe_ms) == (0, clock.now_ms() + (GRACE_S - 1) * 1000)
    clock.advance(GRACE_S)
    clock.ran_s += GRACE_S
    assert store.collect().dropped == 1


@pytest.mark.parametrize("alone", [True, False])
def test_nothing_is_merged_without_room_for_it(store: Store, alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [os.urandom(100_000) for number in range(20)]
    for one in many:
        store.open().put(named(one))
    store.open().put(named(b"garbage"))
    store.clock.advance(GRACE_S + 1)
    monkeypatch.setattr("chronicle.blobs.gc.collector.free_bytes", lambda _: 5 * 1024 * 1024)
    report = store.collect(*many, alone=alone)
    assert (report.merged, report.condemned, report.copied) == (0, 1, 0)


def test_what_needs_no_copy_goes_first_when_there_is_little_room(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    alive, dead = os.urandom(1_000_000), os.urandom(4_000_000)
    store.open().put(named(dead))
    store.open().put(named(alive, os.urandom(3_000_000)))
    store.clock.advance(GRACE_S + 1)
    assert store.collect(alive).condemned == 2
    store.clock.advance(GRACE_S + 1)
    there: list[int] = []
    really = LocalObjects.write

    def write(objects: LocalObjects, name: str, parts: Sequence[bytes]) -> None:
        if name.startswith("packs"):
            there.append(len(list((store.folder / "packs").glob("*/*"))))
        really(objects, name, parts)

    monkeypatch.setattr(LocalObjects, "write", write)
    monkeypatch.setattr("chronicle.blobs.gc.collector.free_bytes", lambda _: 5 * 1024 * 1024)
    assert store.collect(alive).dropped == 2
    assert there == [1]
    assert store.has(alive)
