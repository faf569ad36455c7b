"""Layers as tests see them from inside: by path, read as a whole, and abandoned as a process does that is killed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.workspace.layer.state.node import DirNode, FileNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.workspace.layer.layer import Layer
    from chronicle.workspace.layer.state.node import Node


def directory_at(layer: Layer, path: str) -> DirNode:
    node = layer.resolve(path.encode())
    assert isinstance(node, DirNode)
    return node


def file_at(layer: Layer, path: str) -> FileNode:
    node = layer.resolve(path.encode())
    assert isinstance(node, FileNode)
    return node


def place(layer: Layer, path: str) -> tuple[DirNode, bytes]:
    """Return the directory of a path, and its last name."""
    directory, _, name = path.rpartition("/")
    return directory_at(layer, directory), name.encode()


def read(layer: Layer, node: FileNode) -> bytes:
    """Return a file's bytes, by a handle of its own."""
    handle = layer.open(node)
    try:
        return layer.read(handle, 0, 1 << 30)
    finally:
        layer.release(handle)


def walk(layer: Layer) -> Iterator[tuple[str, Node]]:
    """Yield everything there is, by path, a directory before what is in it."""
    stack = [("", layer.root)]
    while stack:
        prefix, directory = stack.pop()
        for name, node in layer.entries(directory):
            path = prefix + name.decode()
            yield path, node
            if isinstance(node, DirNode):
                stack.append((path + "/", node))


def contents(layer: Layer) -> dict[str, bytes | None]:
    """Return files with their bytes, and None for directories; `World.contents` is to be the same."""
    found: dict[str, bytes | None] = {}
    for path, node in walk(layer):
        if isinstance(node, FileNode):
            found[path] = read(layer, node)
            assert len(found[path] or b"") == node.size
        else:
            assert isinstance(node, DirNode)
            found[path] = None
    return found


def abandon(layer: Layer) -> None:
    """Let go of a layer as kill -9 does: nothing more is written."""
    for fd in {handle.node.fd for handle in layer._handles} - {-1}:
        os.close(fd)
    layer._log.close()
    layer._files.close()
    os.close(layer._lock_fd)


def copy_of(blobs: MemoryBlobStore) -> MemoryBlobStore:
    """Return a store with the same blobs."""
    copied = MemoryBlobStore()
    copied._blobs.update(blobs._blobs)
    return copied
