"""Reading a local blob store that cannot be written."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import NotFound, Unavailable
from tests.unit.read_only import listing, without_write_access

if TYPE_CHECKING:
    from pathlib import Path

DATA = [b"%d" % number for number in range(5)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "blobs"
    store = PackBlobStore(f"file://{root}")
    for data in DATA:
        store.put({blob_id(data): data})
    return root


def read_all(root: Path) -> None:
    store = PackBlobStore(f"file://{root}", cache_bytes=0)
    assert [store.get(blob_id(data)) for data in DATA] == DATA
    assert store.missing([blob_id(data) for data in DATA]) == set()
    assert set(store.blob_ids()) == {blob_id(data) for data in DATA}
    with pytest.raises(NotFound):
        store.get(blob_id(b"else"))


def test_it_is_read_without_a_trace(root: Path) -> None:
    before = listing(root)
    read_all(root)
    assert listing(root) == before
    without_write_access(root, lambda: read_all(root))
    assert listing(root) == before


def test_an_index_that_is_lost_or_torn_is_done_without(root: Path) -> None:
    log = root / "index" / "log"
    data = log.read_bytes()
    for torn in (data[:-3], data[:100], data[:20], b"", data[:60] + b"xxxx" + data[64:]):
        log.write_bytes(torn)
        without_write_access(root, lambda: read_all(root))
    (root / "index" / "lock").unlink()
    without_write_access(root, lambda: read_all(root))
    shutil.rmtree(root / "index")
    before = listing(root)
    without_write_access(root, lambda: read_all(root))
    assert listing(root) == before
    read_all(root)


def test_a_put_is_refused(root: Path) -> None:
    def refused() -> None:
        with pytest.raises(Unavailable, match="could not be written"):
            PackBlobStore(f"file://{root}").put({blob_id(b"new"): b"new"})

    without_write_access(root, refused)
    PackBlobStore(f"file://{root}").put({blob_id(b"new"): b"new"})
