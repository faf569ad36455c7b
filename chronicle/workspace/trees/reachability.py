"""Computes the blobs that are reachable from trees, contents and maps: what garbage collection must keep.

Blobs are reached in roles: as a directory's node, as a node of a chunk list, as plain bytes. The roles are kept apart:
a file may have the bytes of a tree node, and reaching it as a file does not reach what the node refers to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.blobs.ident import RAW_ID_BYTES, from_raw
from chronicle.workspace.trees import nodes, tree

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.content.content import Content

__all__ = ["Reach"]


class Reach:
    """The set of blobs that trees, contents and maps refer to. Each node is read once, however often it is shared.

    Args:
        reader: reads the nodes. Plain content is not read.
    """

    def __init__(self, reader: BlobReader) -> None:
        self._reader = reader
        self._directories: set[BlobId] = set()
        self._lists: set[BlobId] = set()
        self._maps: set[BlobId] = set()
        self._plain: set[BlobId] = set()

    def __contains__(self, identifier: BlobId) -> bool:
        return (
            identifier in self._plain
            or identifier in self._directories
            or identifier in self._lists
            or identifier in self._maps
        )

    def ids(self) -> set[BlobId]:
        """Return all ids reached so far."""
        return self._plain | self._directories | self._lists | self._maps

    def add_blob(self, identifier: BlobId) -> None:
        """Add one blob of plain bytes."""
        self._plain.add(identifier)

    def add_map(self, root: BlobId | None) -> None:
        """Add the nodes of a map of `chronicle.workspace.trees.nodes`; the caller adds what its values refer to."""
        for _ in nodes.walk(self._reader, root, self._maps):
            pass

    def add_content(self, stored: Content) -> None:
        """Add the blobs of a file's content."""
        if not stored.chunked:
            self._plain.add(stored.id)
            return
        for _, node in nodes.walk(self._reader, stored.id, self._lists):
            if node.level == 0:
                self._plain.update(from_raw(value[-RAW_ID_BYTES:]) for value in node.values)

    def add_tree(self, tree_id: BlobId) -> None:
        """Add a tree: its directories and the contents of its files.

        Raises:
            NotFound, Corrupt, Unavailable: a node could not be read; the tree is added in part.
        """
        directories = [tree_id]
        while directories:
            for _, node in nodes.walk(self._reader, tree.map_root(directories.pop()), self._directories):
                if node.level > 0:
                    continue
                for value in node.values:
                    entry = tree.decode_entry(value)
                    if entry.subtree is not None:
                        directories.append(entry.subtree)
                    elif entry.content is not None:
                        self.add_content(entry.content)
