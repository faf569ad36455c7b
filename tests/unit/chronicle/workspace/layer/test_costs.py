"""What operations on a layer cost as there is more of what they are about: counted, not timed."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.workspace.history import path_histories
from chronicle.workspace.history.oplog import read_root
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode
from chronicle.workspace.port import LayerSpec
from chronicle.workspace.trees import nodes
from tests.layers import file_at

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.layer.layer import Layer

MANY = 600
FILES = 3000


class Counting:
    """Counts the reads of a reader, whether or not it had to ask the store."""

    def __init__(self, reader: BlobReader, monkeypatch: pytest.MonkeyPatch) -> None:
        self._get = reader.get
        self.count = 0
        monkeypatch.setattr(reader, "get", self.get)

    def get(self, blob_id: BlobId) -> bytes:
        self.count += 1
        return self._get(blob_id)


def filled(directory: Path) -> Layer:
    """Return a layer with a directory of many files."""
    layer, _ = open_layer(LayerSpec("w", directory, None, 1, 1), MemoryBlobStore(), ManualClock())
    parent = layer.make(layer.root, b"d", stat.S_IFDIR | 0o755, 0, 0)
    assert isinstance(parent, DirNode)
    for number in range(FILES):
        layer.release(layer.create(parent, b"file-%05d" % number, 0o644, 0, 0))
    return layer


class CountingName(bytes):
    """A name that counts how often it was compared with another one."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountingName.comparisons += 1
        return bytes.__eq__(self, other)

    def __lt__(self, other: bytes) -> bool:
        CountingName.comparisons += 1
        return bytes.__lt__(self, other)

    __hash__ = bytes.__hash__


def test_setting_an_extended_attribute_does_not_look_at_the_others(tmp_path: Path) -> None:
    layer, _ = open_layer(LayerSpec("w", tmp_path, None, 1, 1), MemoryBlobStore(), ManualClock())
    handle = layer.create(layer.root, b"f", 0o644, 0, 0)
    layer.release(handle)
    names = [CountingName(b"user.%d" % number) for number in range(MANY)]
    CountingName.comparisons = 0
    for value in (b"first", b"second", None):
        for name in names:
            layer.set_xattr(handle.node, CountingName(name), value)
    layer.close()
    assert CountingName.comparisons < 20 * 3 * MANY
    assert not handle.node.xattrs


def test_a_restore_reads_each_node_a_few_times_and_not_once_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = filled(tmp_path)
    commit = layer.seal()
    parent = layer.resolve(b"d")
    assert isinstance(parent, DirNode)
    mtime_ns = layer.entries(parent)[7][1].mtime_ns
    for name, _ in layer.entries(parent):
        layer.unlink(parent, name)
    layer.rmdir(layer.root, b"d")
    layer.seal()
    counted = Counting(layer.reader, monkeypatch)
    layer.restore(commit)
    assert counted.count < FILES / 4
    found = layer.resolve(b"d")
    assert isinstance(found, DirNode)
    assert [(name, node.mtime_ns) for name, node in layer.entries(found)] == [
        (b"file-%05d" % number, mtime_ns) for number in range(FILES)
    ]
    layer.close()


def test_a_commit_reads_each_node_of_the_histories_a_few_times_and_not_once_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = filled(tmp_path)
    layer.seal()
    parent = layer.resolve(b"d")
    assert isinstance(parent, DirNode)
    for _, node in layer.entries(parent):
        layer.set_mode(node, 0o600, 0, 0)
    counted = Counting(layer.reader, monkeypatch)
    layer.seal()
    assert counted.count < FILES / 4
    assert [version.op for version in layer.history("d/file-00007")] == ["create", "mode"]
    layer.close()


def test_what_is_gone_through_quickly_is_what_is_decoded(tmp_path: Path) -> None:
    layer = filled(tmp_path)
    handle = layer.open(file_at(layer, "d/file-00001"))
    for number in range(40):
        layer.write(handle, 0, b"%d" % number)
        layer.flush(handle)
    layer.release(handle)
    root = read_root(layer.reader, layer.seal().oplog_id)
    values = [value for _, value in nodes.items(layer.reader, root.histories)]
    assert len(values) == FILES + 1
    for value in values:
        decoded = path_histories.decode_history(value)
        contents = [record.content for record in decoded.tail if record.content is not None]
        assert path_histories.contents_in(value) == (contents, decoded.head)
    layer.close()
