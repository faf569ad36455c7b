"""The usage of a tree, counted by reading all of its directories: what commits must say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.workspace.port import Usage
from chronicle.workspace.trees.tree import walk

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId


def measure(reader: BlobReader, tree_id: BlobId) -> Usage:
    """Count the bytes and the files of a tree; a file of several names once."""
    size = files = 0
    for path, entry in walk(reader, tree_id):
        if entry.link is None or entry.link == path:
            files += 1
            size += entry.content.size if entry.content is not None else 0
    return Usage(size, files)
