"""Builds a map from sorted items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from blake3 import blake3

from chronicle.blobs.ident import from_raw
from chronicle.workspace.trees.nodes.boundaries import Cutter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chronicle.ids import BlobId

__all__ = ["NodeBuffer", "build"]

_HELD_BYTES: Final = 4 * 1024 * 1024
"""Batch of new nodes that `build` adds to the buffer at once: nodes that lie side by side are read together."""


class NodeBuffer(Protocol):
    """The port for writing a map; `chronicle.blobs.buffer.BlobBuffer` implements it."""

    def get(self, blob_id: BlobId) -> bytes:
        """Return a blob's bytes, pending or stored."""

    def add(self, data: bytes) -> BlobId:
        """Add a blob and return its id."""


def build(buffer: NodeBuffer, pairs: Iterable[tuple[bytes, bytes]]) -> BlobId | None:
    """Return the root of the map of these items, ascending by key; the same as an `update` of the empty map.

    Memory is bounded if the buffer's is: nodes are added as they are finished.
    """
    work = _Build(buffer)
    for key, value in pairs:
        work.feed(0, key, value)
    return work.finish()


class _Build:
    """One `build`: an open node of each level, and the finished ones that are not in the buffer yet."""

    def __init__(self, buffer: NodeBuffer) -> None:
        self._buffer = buffer
        self._cutters: list[Cutter] = []
        self._counts: list[int] = []
        """How many nodes of each level are finished."""
        self._root: bytes | None = None
        """The raw id of the last finished node."""
        self._made: list[bytes] = []
        self._made_bytes = 0

    def feed(self, level: int, key: bytes, value: bytes) -> None:
        """Add the next item of a level."""
        if level == len(self._cutters):
            self._cutters.append(Cutter(level))
            self._counts.append(0)
        cutter = self._cutters[level]
        cutter.feed(key, value)
        if cutter.nodes:
            self._lift(level)

    def finish(self) -> BlobId | None:
        """End all levels and return the root."""
        level = 0
        while level < len(self._cutters):
            self._cutters[level].finish()
            if self._cutters[level].nodes:
                self._lift(level)
            if (
                self._counts[level] == 1
            ):  # the only node of its level is the root; the level above has nothing but its item
                break
            level += 1
        self._add()
        return from_raw(self._root) if self._root is not None else None

    def _lift(self, level: int) -> None:
        """Feed the finished nodes of a level to the level above."""
        cutter = self._cutters[level]
        finished, cutter.nodes = cutter.nodes, []
        for key, data in finished:
            self._made.append(data)
            self._made_bytes += len(data)
            if self._made_bytes > _HELD_BYTES:
                self._add()
            self._root = raw = blake3(data).digest()
            self._counts[level] += 1
            self.feed(level + 1, key, raw)

    def _add(self) -> None:
        for data in self._made:
            self._buffer.add(data)
        self._made, self._made_bytes = [], 0
