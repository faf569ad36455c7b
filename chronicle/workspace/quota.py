"""The statvfs figures of a file system with a quota."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chronicle.workspace.port import Quota, Usage

__all__ = ["limited"]


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
