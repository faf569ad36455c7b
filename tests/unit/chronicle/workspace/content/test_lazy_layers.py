"""Files of a layer whose bytes are fetched from the store when they are read or changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.blobs import blob_id
from chronicle.clock import SystemClock
from chronicle.errors import Unavailable
from chronicle.workspace.content import content
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode, FileNode
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.unit.chronicle.workspace.content.counting_store import LARGE, CountingStore

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.ids import BlobId
    from chronicle.workspace.layer.layer import Layer


def spec(directory: Path, base: TreeRef | None) -> LayerSpec:
    return LayerSpec(workspace_id="w", layers=directory, base=base, epoch=1, turn=1)


def file_at(layer: Layer, path: bytes) -> FileNode:
    node = layer.resolve(path)
    assert isinstance(node, FileNode)
    return node


def put(layer: Layer, directory: DirNode, name: bytes, data: bytes) -> None:
    handle = layer.create(directory, name, 0o644, *layer.owner)
    layer.write(handle, 0, data)
    layer.flush(handle)
    layer.release(handle)


@pytest.fixture
def made(tmp_path: Path) -> tuple[CountingStore, TreeRef, dict[BlobId, bytes]]:
    """A workspace that was stored from another node; its contents' blobs."""
    store = CountingStore()
    layer, _ = open_layer(spec(tmp_path / "there", None), store, SystemClock())
    root = layer.resolve(b"")
    assert isinstance(root, DirNode)
    before = set(store.blob_ids())
    contents = {}
    for number in range(300):
        data = b"%d\n" % number * 20
        contents[blob_id(data)] = data
        put(layer, root, b"file %d" % number, data)
    put(layer, root, b"large", LARGE)
    ref = layer.seal()
    layer.adopt(ref)
    large = file_at(layer, b"large").content
    assert large is not None
    for chunk in content.chunk_list(store, large):
        contents[chunk.id] = LARGE[chunk.start : chunk.end]
    layer.close()
    assert contents.keys() <= set(store.blob_ids()) - before
    store.fetched.clear()
    return store, ref, contents


def test_names_and_sizes_are_there_at_once_and_no_content_is_fetched(
    made: tuple[CountingStore, TreeRef, dict[BlobId, bytes]], tmp_path: Path
) -> None:
    store, ref, contents = made
    layer, _ = open_layer(spec(tmp_path / "here", ref), store, SystemClock())
    root = layer.resolve(b"")
    assert isinstance(root, DirNode)
    sizes = {name: node.size for name, node in layer.entries(root)}
    assert len(sizes) == 301
    assert (sizes[b"large"], sizes[b"file 7"]) == (len(LARGE), 40)
    assert not set(store.fetched) & contents.keys()
    handle = layer.open(file_at(layer, b"large"))
    assert not set(store.fetched) & contents.keys(), "opening fetches nothing either"
    assert layer.read(handle, 8_000_000, 4_096) == LARGE[8_000_000:8_004_096]
    assert 1 <= len([one for one in store.fetched if one in contents]) <= 2
    layer.release(handle)
    store.fetched.clear()
    handle = layer.open(file_at(layer, b"file 7"), truncate=True)
    layer.write(handle, 0, b"new")
    layer.release(handle)
    assert not set(store.fetched) & contents.keys(), "what is emptied need not be had"
    assert list((tmp_path / "here" / "w" / "1" / "data").iterdir()), "that one, and no other"
    layer.close()


def test_a_file_that_is_read_and_changed_at_once(
    made: tuple[CountingStore, TreeRef, dict[BlobId, bytes]], tmp_path: Path
) -> None:
    store, ref, _ = made
    layer, _ = open_layer(spec(tmp_path / "here", ref), store, SystemClock())
    node = file_at(layer, b"large")
    reader, writer = layer.open(node), layer.open(node)
    expected = bytearray(LARGE)
    assert layer.read(reader, 0, 100) == expected[:100]
    layer.write(writer, 5_000_000, b"changed")
    expected[5_000_000:5_000_007] = b"changed"
    assert layer.read(reader, 4_999_999, 20) == expected[4_999_999:5_000_019]
    layer.flush(writer)
    layer.truncate(node, 9_000_000)
    del expected[9_000_000:]
    assert layer.read(reader, 8_999_990, 20) == expected[8_999_990:]
    layer.release(writer)
    layer.release(reader)
    with layer.at("large", 1) as old:
        assert old.read() == LARGE
    sealed = layer.seal()
    layer.adopt(sealed)
    layer.close()
    again, _ = open_layer(spec(tmp_path / "elsewhere", sealed), store, SystemClock())
    handle = again.open(file_at(again, b"large"))
    assert again.read(handle, 0, len(LARGE)) == expected
    again.truncate(handle.node, 100)  # without a handle, while it is open and nothing of it is here
    assert again.read(handle, 0, 1_000) == expected[:100]
    again.release(handle)
    node = file_at(again, b"file 3")
    handle = again.open(node)
    assert again.read(handle, 0, 4) == b"3\n3\n"
    other = again.open(node, truncate=True)
    assert again.read(handle, 0, 4) == b""
    again.release(other)
    again.release(handle)
    again.close()


def test_a_change_that_cannot_have_the_old_bytes_leaves_nothing(
    made: tuple[CountingStore, TreeRef, dict[BlobId, bytes]], tmp_path: Path
) -> None:
    store, ref, _ = made
    layer, _ = open_layer(spec(tmp_path / "here", ref), store, SystemClock())
    node = file_at(layer, b"large")
    handle = layer.open(node)
    small = layer.open(file_at(layer, b"file 7"))
    store.away = True
    for action in (
        lambda: layer.write(small, 5, b"x"),
        lambda: layer.truncate(small.node, 1),
        lambda: layer.read(small, 0, 10),
        lambda: layer.read(handle, 0, 10),
    ):
        with pytest.raises(Unavailable):
            action()
    assert list((tmp_path / "here" / "w" / "1" / "data").iterdir()) == []
    assert layer.seal() == ref
    layer.write(handle, 5, b"x")  # of a large file nothing is needed
    layer.flush(handle)
    for action in (
        lambda: layer.write(handle, 6, b"y"),  # what the version has there
        lambda: layer.truncate(node, 100),
        lambda: layer.read(handle, 0, 10),
    ):
        with pytest.raises(Unavailable):
            action()
    store.away = False
    assert layer.read(handle, 0, 10) == LARGE[:5] + b"x" + LARGE[6:10]
    layer.write(handle, 6, b"y")
    assert layer.read(handle, 0, 10) == LARGE[:5] + b"xy" + LARGE[7:10]
    layer.release(small)
    layer.release(handle)
    layer.close()


def test_a_reader_of_what_was_rolled_back(
    made: tuple[CountingStore, TreeRef, dict[BlobId, bytes]], tmp_path: Path
) -> None:
    store, ref, _ = made
    layer, _ = open_layer(spec(tmp_path / "here", ref), store, SystemClock())
    handle = layer.open(file_at(layer, b"large"))
    layer.read(handle, 0, 10)
    layer.rollback()
    with pytest.raises(OSError, match="rolled back"):
        layer.read(handle, 0, 10)
    layer.release(handle)
    layer.close()
