"""The times of a layer's files: a change time says when something changed, and is the same after reopening."""

from __future__ import annotations

import os
from pathlib import Path

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.workspace.layer.layer import Layer
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import FileNode
from chronicle.workspace.port import LayerSpec, TreeRef

LONG_AGO = 10**18


class Place:
    """Where a layer is opened again and again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.blobs = MemoryBlobStore()
        self.clock = ManualClock()

    def open(self, base: TreeRef | None = None) -> Layer:
        layer, _ = open_layer(LayerSpec("w", self.directory, base, 1, 1), self.blobs, self.clock)
        return layer

    def now_ns(self) -> int:
        return self.clock.now_ms() * 1_000_000


def times_of(layer: Layer) -> tuple[int, int]:
    node = layer.resolve(b"f")
    assert isinstance(node, FileNode)
    return node.mtime_ns, node.ctime_ns


def copied(place: Place, layer: Layer) -> int:
    """Write a file as ``cp -a`` does, setting its times before it is closed; return when that was."""
    handle = layer.create(layer.root, b"f", 0o644, os.geteuid(), os.getegid())
    layer.write(handle, 0, b"text")
    place.clock.advance(1)
    set_ns = place.now_ns()
    layer.set_times(handle.node, LONG_AGO, LONG_AGO)
    place.clock.advance(1)
    layer.flush(handle)
    layer.release(handle)
    return set_ns


def test_closing_after_times_were_set_keeps_the_change_time(tmp_path: Path) -> None:
    place = Place(tmp_path)
    layer = place.open()
    set_ns = copied(place, layer)
    assert times_of(layer) == (LONG_AGO, set_ns)
    layer.close()
    layer = place.open()
    assert times_of(layer) == (LONG_AGO, set_ns)
    layer.adopt(layer.seal())
    base = layer.base
    layer.close()
    layer = place.open(base)
    assert times_of(layer) == (LONG_AGO, set_ns)
    layer.close()


def test_the_change_time_of_a_write_is_the_same_after_reopening(tmp_path: Path) -> None:
    place = Place(tmp_path)
    layer = place.open()
    copied(place, layer)
    node = layer.resolve(b"f")
    assert isinstance(node, FileNode)
    handle = layer.open(node)
    place.clock.advance(1)
    layer.write(handle, 0, b"other")
    written = place.now_ns(), place.now_ns()
    place.clock.advance(1)
    layer.flush(handle)
    layer.release(handle)
    assert times_of(layer) == written
    layer.close()
    layer = place.open()
    assert times_of(layer) == written
    layer.close()


def test_a_change_time_is_not_in_the_future_because_the_modification_time_is(tmp_path: Path) -> None:
    place = Place(tmp_path)
    layer = place.open()
    handle = layer.create(layer.root, b"f", 0o644, os.geteuid(), os.getegid())
    layer.write(handle, 0, b"text")
    layer.set_times(handle.node, LONG_AGO * 4, LONG_AGO * 4)
    layer.flush(handle)
    layer.release(handle)
    assert times_of(layer) == (LONG_AGO * 4, place.now_ns())
    layer.close()
    layer = place.open()
    assert times_of(layer) == (LONG_AGO * 4, place.now_ns())
    layer.close()
