"""What others do in the middle of a collection, clocks that are set, copies that are damaged, and a disk that fills."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.catalog import read_pack_index
from chronicle.blobs.fsspec_objects import RemoteObjects
from chronicle.blobs.fsspec_store import FsspecBlobStore
from chronicle.blobs.gc import GcReport, collect
from chronicle.blobs.local_catalog import LocalCatalog
from chronicle.blobs.objects import LocalObjects
from chronicle.blobs.packs import PackEntry
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

    def open(self) -> FsspecBlobStore:
        return FsspecBlobStore(self.url, clock=self.clock, cache_bytes=0)

    def collect(self, *reached: bytes, alone: bool = False) -> GcReport:
        return collect(self.url, lambda: named(*reached), grace_s=GRACE_S, alone=alone, clock=self.clock)

    def has(self, data: bytes) -> bool:
        return self.open().get(blob_id(data)) == data


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_who_looks_while_packs_go_does_not_make_others_skip_what_was_in_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is condemned is in no index any more, and is there: whoever looks for something takes it in again."""
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

    def read(*arguments: Any) -> list[PackEntry]:
        entries = read_pack_index(*arguments)
        if not dropped:
            dropped.append(1)
            dropped.append(store.collect(b"kept").dropped)
        return entries

    with monkeypatch.context() as patch:
        patch.setattr("chronicle.blobs.catalog.read_pack_index", read)
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


def test_a_far_writer_whose_look_at_the_packs_failed_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has seen the mark, and not yet what has gone: what it knows must not count until it has."""
    monkeypatch.setattr(RemoteObjects, "stamp", lambda _self, _name: uuid4().hex)
    url, clock = f"memory://{uuid4().hex}", ManualClock()

    def collected() -> GcReport:
        clock.advance(GRACE_S + 1)
        return collect(url, dict, grace_s=GRACE_S, clock=clock)

    sleeper = FsspecBlobStore(url, clock=clock, cache_bytes=0)
    sleeper.put(named(b"gone"))
    assert (collected().condemned, collected().dropped) == (1, 1)

    def away(_: RemoteObjects, folder: str) -> dict[str, int]:
        raise Unavailable(folder)

    with monkeypatch.context() as patch:
        patch.setattr(RemoteObjects, "sizes", away)
        with pytest.raises(Unavailable):
            sleeper.put(named(b"gone"))
    sleeper.put(named(b"gone"))
    assert FsspecBlobStore(url, clock=clock, cache_bytes=0).get(blob_id(b"gone")) == b"gone"
    fsspec.filesystem("memory").rm(url, recursive=True)
