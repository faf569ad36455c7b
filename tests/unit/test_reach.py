"""What a tree reaches, and verification of all of it."""

from __future__ import annotations

import random

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import NotFound
from chronicle.ids import BlobId
from chronicle.workspace import nodes, tree
from chronicle.workspace.content import Content, chunk_list, store_bytes
from chronicle.workspace.reach import Reach, reachable, verify_tree
from chronicle.workspace.tree import EMPTY, Entry, Kind

DIR = Entry(Kind.DIR, 0o755)
BIG = random.Random(1).randbytes(700_000)


@pytest.fixture
def store() -> MemoryBlobStore:
    return MemoryBlobStore()


def make(store: MemoryBlobStore) -> BlobId:
    buffer = BlobBuffer(store)
    changes: dict[bytes, Entry | None] = {b"d": DIR, b"d/e": DIR, b"empty": DIR, b"none": file(buffer, b"")}
    changes.update({b"d/name-%04d" % number: file(buffer, b"%d" % number) for number in range(500)})
    changes[b"d/e/big"] = file(buffer, BIG)
    changes[b"link"] = Entry(Kind.SYMLINK, 0o777, target=b"d")
    root = tree.update_tree(buffer, EMPTY, changes)
    buffer.flush()
    return root


def file(buffer: BlobBuffer, data: bytes) -> Entry:
    return Entry(Kind.FILE, 0o644, content=store_bytes(buffer, data))


def only(store: MemoryBlobStore, kept: set[BlobId]) -> MemoryBlobStore:
    copy = MemoryBlobStore()
    copy.put({identifier: store.get(identifier) for identifier in kept})
    return copy


def test_reachable_is_all_that_is_needed_and_no_more(store: MemoryBlobStore) -> None:
    root = make(store)
    assert reachable(store, [root, EMPTY]) == set(store.blob_ids())
    store.put({blob_id(b"else"): b"else"})
    reached = reachable(store, [root])
    assert blob_id(b"else") not in reached
    assert verify_tree(only(store, reached), root).first is None
    for identifier in random.Random(3).sample(sorted(reached), 40):
        assert verify_tree(only(store, reached - {identifier}), root).damaged >= 1


def test_a_file_with_the_bytes_of_a_node_hides_nothing(store: MemoryBlobStore) -> None:
    buffer = BlobBuffer(store)
    inner = tree.update_tree(buffer, EMPTY, {b"deep": file(buffer, b"deep down")})
    long = store_bytes(buffer, BIG)
    decoys = {b"a": file(buffer, buffer.get(inner)), b"b": file(buffer, buffer.get(long.id))}
    root = tree.update_tree(
        buffer,
        EMPTY,
        {**decoys, b"z": Entry(Kind.DIR, 0o755, subtree=inner), b"zz": Entry(Kind.FILE, 0o644, content=long)},
    )
    buffer.flush()
    reach = Reach(store)
    reach.add_tree(root)
    assert blob_id(b"deep down") in reach
    assert {chunk.id for chunk in chunk_list(store, long)} <= reach.ids()
    assert verify_tree(store, root).blobs == len(reach.ids())


def test_maps_and_blobs_can_be_roots(store: MemoryBlobStore) -> None:
    buffer = BlobBuffer(store)
    root = nodes.update(buffer, None, {b"%d" % number: b"x" * 50 for number in range(500)})
    buffer.flush()
    reach = Reach(store)
    reach.add_map(root)
    reach.add_map(None)
    reach.add_blob(blob_id(b"alone"))
    assert reach.ids() == {*store.blob_ids(), blob_id(b"alone")}


def test_a_sound_tree(store: MemoryBlobStore) -> None:
    root = make(store)
    report = verify_tree(store, root)
    assert (report.first, report.damaged) == (None, 0)
    assert (report.directories, report.entries) == (4, 506)
    assert report.blobs == len(set(store.blob_ids()))
    assert report.size_bytes == sum(len(store.get(identifier)) for identifier in store.blob_ids())
    assert verify_tree(store, EMPTY).first is None


def test_damage_is_counted_and_the_first_is_named(store: MemoryBlobStore) -> None:
    root = make(store)
    store._blobs[blob_id(b"123")] = b"124"
    del store._blobs[blob_id(b"7")]
    report = verify_tree(store, root)
    assert report.damaged == 2
    assert report.first is not None
    assert report.first.path in (b"d/name-0007", b"d/name-0123")
    assert blob_id(b"7") in report.first.reason or blob_id(b"123") in report.first.reason
    chunk = next(chunk_list(store, store_bytes(BlobBuffer(store), BIG)))
    del store._blobs[chunk.id]
    assert verify_tree(store, root).damaged == 3
    del store._blobs[root]
    lost = verify_tree(store, root)
    assert (lost.directories, lost.damaged) == (1, 1)
    assert lost.first is not None
    assert lost.first.path == b""
    with pytest.raises(NotFound):
        reachable(store, [root])


def test_what_is_not_canonical_is_damage(store: MemoryBlobStore) -> None:
    """Content must have one id only, or equal trees would differ."""
    buffer = BlobBuffer(store)
    entry = tree.encode_entry(file(buffer, b"x"))
    names = [b"name-%04d" % number for number in range(200)]
    too_large = buffer.add(nodes.encode_node(0, names, [entry] * 200))
    bad_name = nodes.update(buffer, None, {b"a/b": entry})
    loose = nodes.update(buffer, None, {b"a": entry[:1] + b"\xdc\x00" + bytes([entry[1] & 15]) + entry[2:]})
    cut = nodes.update(
        buffer, None, {(4).to_bytes(8, "big"): (4).to_bytes(4, "big") + bytes.fromhex(buffer.add(b"four"))}
    )
    assert cut is not None
    small = tree.update_tree(buffer, EMPTY, {b"c": Entry(Kind.FILE, 0o644, content=Content(cut, 4, chunked=True))})
    wrong_size = tree.update_tree(
        buffer, EMPTY, {b"c": Entry(Kind.FILE, 0o644, content=Content(buffer.add(b"four"), 5, chunked=False))}
    )
    for root in (too_large, bad_name, loose, small, wrong_size):
        assert root is not None
        report = verify_tree(buffer, root)
        assert report.damaged == 1, root
        assert report.first is not None
