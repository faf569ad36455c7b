"""The tree of a workspace that has never been opened: an empty directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.blobs.buffer import BlobBuffer
from chronicle.workspace.history.oplog import add_root, first_root
from chronicle.workspace.port import TreeRef
from chronicle.workspace.trees.tree import EMPTY

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobStore

__all__ = ["put_first_tree"]


def put_first_tree(blobs: BlobStore, now_ns: int) -> TreeRef:
    """Store a tree without files, durably, and return it: the base of any number of new workspaces.

    Args:
        now_ns: the times of the directory, epoch nanoseconds.

    Raises:
        Unavailable: the blob store could not be reached.
    """
    buffer = BlobBuffer(blobs)
    oplog_id = add_root(buffer, first_root(now_ns))
    buffer.flush()
    return TreeRef(EMPTY, oplog_id)
