"""The blob store contract on each store, and what is particular to packs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest

from chronicle.blobs import blob_id, ident
from chronicle.blobs.cache import BlobCache
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.packs.catalog import pack_object
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.blobs.port import BlobStore
from chronicle.errors import Corrupt, InvalidInput, NotFound, Unavailable, UnsupportedFormat
from chronicle.ids import BlobId
from chronicle.testing.blob_contract import BlobStoreContract, Opener, named
from tests.s3_server import BUCKET, S3Server


class TestMemory(BlobStoreContract):
    @pytest.fixture
    def opener(self) -> Opener:
        store = MemoryBlobStore()
        return lambda: store

    def damage(self, store: BlobStore, identifier: BlobId) -> None:
        assert isinstance(store, MemoryBlobStore)
        store._blobs[identifier] = flipped(store._blobs[identifier], 0)


class TestFile(BlobStoreContract):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return lambda: PackBlobStore(f"file://{tmp_path}/deep/store")

    def damage(self, store: BlobStore, identifier: BlobId) -> None:
        assert isinstance(store, PackBlobStore)
        place = store._catalog.find(ident.to_raw(identifier))
        assert place is not None
        name, entry = place
        path = Path(store.url.removeprefix("file://")) / pack_object(name)
        path.write_bytes(flipped(path.read_bytes(), entry.offset + entry.stored // 2))


class TestFsspecMemory(BlobStoreContract):
    @pytest.fixture
    def opener(self) -> Iterator[Opener]:
        url = f"memory://{uuid4().hex}"
        yield lambda: PackBlobStore(url)
        fsspec.filesystem("memory").rm(url, recursive=True) if fsspec.filesystem("memory").exists(url) else None

    def damage(self, store: BlobStore, identifier: BlobId) -> None:
        assert isinstance(store, PackBlobStore)
        place = store._catalog.find(ident.to_raw(identifier))
        assert place is not None
        name, entry = place
        memory = fsspec.filesystem("memory")
        path = f"{store.url}/{pack_object(name)}"
        memory.pipe_file(path, flipped(memory.cat_file(path), entry.offset + entry.stored // 2))


# C.4
class TestS3(BlobStoreContract):
    """Over HTTP, with this node's cache."""

    @pytest.fixture
    def opener(self, s3: S3Server, tmp_path: Path) -> Opener:
        url = f"s3://{BUCKET}/{uuid4().hex}"
        return lambda: PackBlobStore(url, options=s3.options(), cache=BlobCache(tmp_path / "cache", 50_000_000))

    def damage(self, store: BlobStore, identifier: BlobId) -> None:
        assert isinstance(store, PackBlobStore)
        assert store._disk is not None
        place = store._catalog.find(ident.to_raw(identifier))
        assert place is not None
        name, entry = place
        pack = store._objects.read(pack_object(name))
        store._objects.write(pack_object(name), [flipped(pack, entry.offset + entry.stored // 2)])
        shutil.rmtree(store._disk.directory)


class TestS3WithoutCache(TestS3):
    @pytest.fixture
    def opener(self, s3: S3Server) -> Opener:
        url = f"s3://{BUCKET}/{uuid4().hex}"
        return lambda: PackBlobStore(url, options=s3.options(), cache=None)

    def damage(self, store: BlobStore, identifier: BlobId) -> None:
        assert isinstance(store, PackBlobStore)
        place = store._catalog.find(ident.to_raw(identifier))
        assert place is not None
        name, entry = place
        pack = store._objects.read(pack_object(name))
        store._objects.write(pack_object(name), [flipped(pack, entry.offset + entry.stored // 2)])


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def open_at(root: Path) -> PackBlobStore:
    return PackBlobStore(f"file://{root}")


def pack_files(root: Path) -> list[Path]:
    return [path for path in (root / "packs").rglob("*") if path.is_file()]


def test_one_put_is_one_pack_and_a_repeated_one_is_none(root: Path) -> None:
    store = open_at(root)
    store.put(named(*(f"blob {number}".encode() for number in range(50))))
    assert len(pack_files(root)) == 1
    before = sorted(root.rglob("*"))
    store.put(named(b"blob 7", b"blob 8"))
    open_at(root).put(named(b"blob 9"))
    assert sorted(root.rglob("*")) == before
    assert list((root / "tmp").iterdir()) == []


def test_another_writers_pack_is_not_stored_again(root: Path) -> None:
    one, two = open_at(root), open_at(root)
    one.put(named(b"a"))
    two.put(named(b"a"))
    two.put(named(b"b"))
    one.put(named(b"b"))
    assert len(pack_files(root)) == 2


def test_compressible_blobs_are_compressed(root: Path) -> None:
    open_at(root).put(named(b"compress me " * 100_000))
    assert pack_files(root)[0].stat().st_size < 20_000


def test_the_index_can_be_lost(root: Path) -> None:
    store = open_at(root)
    blobs = [named(f"{number}".encode()) for number in range(20)]
    for blob in blobs:
        store.put(blob)
    for path in (root / "index").iterdir():
        path.unlink()
    again = open_at(root)
    again.put(blobs[3])
    assert len(pack_files(root)) == 20
    for blob in blobs:
        assert not again.missing(blob)
    for blob in blobs:
        for identifier, data in blob.items():
            assert open_at(root).get(identifier) == store.get(identifier) == data


@pytest.mark.parametrize("tail", [b"CHRL\xff\xff", b"x" * 100, b"\0" * 5_000])
def test_a_torn_log_is_mended(root: Path, tail: bytes) -> None:
    store = open_at(root)
    store.put(named(b"before"))
    log = root / "index" / "log"
    whole = log.read_bytes()
    log.write_bytes(whole + tail)
    store.put(named(b"after"))
    for reader in (store, open_at(root)):
        assert reader.get(blob_id(b"before")) == b"before"
        assert reader.get(blob_id(b"after")) == b"after"
    store.put(named(b"last"))
    header = 33
    assert log.read_bytes()[header:].startswith(whole[header:])
    assert tail not in log.read_bytes()
    log.write_bytes(log.read_bytes()[:-5])
    fresh = open_at(root)
    for data in (b"before", b"after", b"last"):
        assert fresh.get(blob_id(data)) == data
        assert store.get(blob_id(data)) == data


def test_a_log_with_a_torn_header_is_mended(root: Path) -> None:
    store = open_at(root)
    store.put(named(b"before"))
    (root / "index" / "log").write_bytes(b"CHRL")
    store.put(named(b"after"))
    for reader in (store, open_at(root)):
        assert reader.get(blob_id(b"before")) == b"before"
        assert reader.get(blob_id(b"after")) == b"after"


def test_an_index_that_was_lost_and_made_again_is_followed(root: Path) -> None:
    """Also where the new log has the inode of the old one."""
    store, other = open_at(root), open_at(root)
    for number in range(5):
        store.put(named(b"%d" % number))
        assert other.get(blob_id(b"%d" % number))
    shutil.rmtree(root / "index")
    open_at(root).put(named(b"new"))
    for reader in (store, other):
        assert reader.get(blob_id(b"new")) == b"new"
        assert not reader.missing(named(b"0", b"4", b"new"))


def test_a_damaged_segment_is_not_used(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronicle.blobs.packs.local_catalog._LOG_BYTES", 2_000)
    store = open_at(root)
    blobs = named(*(f"{number}".encode() for number in range(100)))
    for identifier, data in blobs.items():
        store.put({identifier: data})
    segments = list((root / "index").glob("*.idx"))
    assert 1 <= len(segments) <= 6
    for segment in segments:
        segment.write_bytes(flipped(segment.read_bytes(), 200))
    again = open_at(root)
    assert {identifier: again.get(identifier) for identifier in blobs} == blobs
    assert sorted(again.blob_ids()) == sorted(blobs)


def test_a_reader_follows_when_the_log_is_folded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronicle.blobs.packs.local_catalog._LOG_BYTES", 2_000)
    writer, reader = open_at(root), open_at(root)
    for number in range(200):
        data = f"{number}".encode()
        writer.put(named(data))
        if number % 7 == 0:
            assert reader.get(blob_id(data)) == data
            assert not reader.missing(named(b"0", data))
    assert sorted(reader.blob_ids()) == sorted(writer.blob_ids())
    assert len(list((root / "index").glob("*.idx"))) <= 6


def test_an_index_is_left_by_a_process_that_lists_many_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chronicle.blobs.packs.linked_catalog._UNCOVERED_LIMIT", 5)
    url = f"memory://{uuid4().hex}"
    writer = PackBlobStore(url)
    expected: dict[BlobId, bytes] = {}
    for number in range(60):
        blob = named(f"{number}".encode(), b"%d more" % number)
        writer.put(blob)
        expected |= blob
        if number % 8 == 7:
            reader = PackBlobStore(url)
            assert sorted(reader.blob_ids()) == sorted(expected)
    memory = fsspec.filesystem("memory")
    assert len(memory.find(f"{url}/index")) >= 3
    with monkeypatch.context() as patched:
        patched.setattr("chronicle.blobs.packs.linked_catalog.LinkedCatalog.scan", lambda _self: None)
        opened = PackBlobStore(url)
        covered = list(expected)[: 2 * 56]
        assert {identifier: opened.get(identifier) for identifier in covered} == {key: expected[key] for key in covered}
    memory.rm(url, recursive=True)


def test_a_damaged_pack_hurts_only_its_own_blobs(root: Path) -> None:
    store = open_at(root)
    store.put(named(b"lost"))
    lost = pack_files(root)[0]
    store.put(named(b"kept"))
    lost.write_bytes(lost.read_bytes()[:-10])
    for path in (root / "index").iterdir():
        path.unlink()
    again = open_at(root)
    assert again.get(blob_id(b"kept")) == b"kept"
    with pytest.raises(Corrupt, match=lost.name):
        again.get(blob_id(b"lost"))


def test_a_pack_of_a_newer_format_is_refused(root: Path) -> None:
    store = open_at(root)
    store.put(named(b"x"))
    (pack,) = pack_files(root)
    pack.write_bytes(pack.read_bytes()[:-1] + b"\x03")
    for path in (root / "index").iterdir():
        path.unlink()
    with pytest.raises(UnsupportedFormat, match="has format"):
        open_at(root).get(blob_id(b"x"))


def test_a_store_of_a_newer_format_is_refused(root: Path) -> None:
    open_at(root).put(named(b"x"))
    (root / "format").write_text('{"format": 2}')
    with pytest.raises(UnsupportedFormat, match="has format"):
        open_at(root)
    for text in ("?", "1", '{"format": 0}', '{"format": 1}\n'):
        (root / "format").write_text(text)
        with pytest.raises(Corrupt, match=r'format is damaged: it should hold \{"format": 1\}'):
            open_at(root)


def test_a_url_of_no_known_kind_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nosuch"):
        PackBlobStore("nosuch://place")


def test_a_store_that_cannot_be_written_says_so(root: Path) -> None:
    root.write_text("a file where the store's folder should be")
    with pytest.raises(Unavailable, match=str(root)):
        open_at(root).put(named(b"x"))


def test_a_full_disk_leaves_nothing_behind(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_at(root)
    store.put(named(b"before"))

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Unavailable, match="No space left"):
            store.put(named(b"after"))
    assert list((root / "tmp").iterdir()) == []
    assert len(pack_files(root)) == 1
    with pytest.raises(NotFound):
        store.get(blob_id(b"after"))
    store.put(named(b"after"))
    assert store.get(blob_id(b"after")) == b"after"


def test_small_blobs_are_cached_up_to_a_bound(root: Path) -> None:
    store = PackBlobStore(f"file://{root}", cache_bytes=10_000)
    small = [bytes([number]) * 1_000 for number in range(30)]
    store.put(named(*small, b"large" * 20_000))
    assert store._reader._cache._blobs.currsize <= 10_000
    for data in small:
        assert store.get(blob_id(data)) == data
    assert store._reader._cache._blobs.currsize <= 10_000
    for path in pack_files(root):
        path.unlink()
    assert store.get(blob_id(small[-1])) == small[-1]
    with pytest.raises(NotFound):
        store.get(blob_id(small[0]))
