"""The usage of a tree, and the statvfs figures of a file system with a quota."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from chronicle.workspace.port import Usage
from chronicle.workspace.trees.tree import walk

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.port import Quota

__all__ = ["limited", "measure"]


def measure(reader: BlobReader, tree_id: BlobId) -> Usage:
    """Count the usage of a tree by reading all of its directories: for commits of format 1, which do not store it."""
    size = files = 0
    for path, entry in walk(reader, tree_id):
        if entry.link is None or entry.link == path:
            files += 1
            size += entry.content.size if entry.content is not None else 0
    return Usage(size, files)


def limited(figures: os.statvfs_result, quota: Quota, used: Usage) -> os.statvfs_result:
    """Return the figures of a file system of the quota's size, with no more free space than the real one has."""
    known = list(figures)
    if quota.bytes is not None:
        block = figures.f_frsize
        left = max(0, quota.bytes - used.bytes) // block
        # Free equals available, so that both sums of df agree, whatever is left on the disk.
        known[2] = quota.bytes // block
        known[3] = known[4] = min(left, figures.f_bavail)
    if quota.files is not None:
        left = max(0, quota.files - used.files)
        known[5] = quota.files
        known[6] = known[7] = min(left, figures.f_favail)
    return os.statvfs_result(known)
