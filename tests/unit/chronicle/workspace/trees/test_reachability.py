"""What a tree reaches."""

from __future__ import annotations

import random

import pytest

from chronicle.blobs import blob_id
from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import Corrupt, NotFound
from chronicle.ids import BlobId
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.content.content import chunk_list, store_bytes
from chronicle.workspace.trees import nodes, tree
from chronicle.workspace.trees.reachability import Reach
from chronicle.workspace.trees.tree import EMPTY, Entry, Kind

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


def reachable(store: MemoryBlobStore, roots: list[BlobId]) -> set[BlobId]:
    reach = Reach(store)
    for root in roots:
        reach.add_tree(root)
    return reach.ids()


def test_reachable_is_all_that_is_needed_and_no_more(store: MemoryBlobStore) -> None:
    root = make(store)
    assert reachable(store, [root, EMPTY]) == set(store.blob_ids())
    store.put({blob_id(b"else"): b"else"})
    reached = reachable(store, [root])
    assert blob_id(b"else") not in reached
    TreeChecker(only(store, reached)).check_tree(root)
    for identifier in random.Random(3).sample(sorted(reached), 40):
        with pytest.raises(Corrupt, match=identifier):
            TreeChecker(only(store, reached - {identifier})).check_tree(root)
    with pytest.raises(NotFound):
        reachable(only(store, reached - {root}), [root])


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
    checker = TreeChecker(store)
    checker.check_tree(root)
    assert checker.blobs == len(reach.ids())


def test_maps_and_blobs_can_be_roots(store: MemoryBlobStore) -> None:
    buffer = BlobBuffer(store)
    root = nodes.update(buffer, None, {b"%d" % number: b"x" * 50 for number in range(500)})
    buffer.flush()
    reach = Reach(store)
    reach.add_map(root)
    reach.add_map(None)
    reach.add_blob(blob_id(b"alone"))
    assert reach.ids() == {*store.blob_ids(), blob_id(b"alone")}
