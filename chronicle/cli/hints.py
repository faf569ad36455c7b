"""The hints of ``chronicle``: the command line that mends what an error reports."""

from __future__ import annotations

from typing import Final

from chronicle import errors
from chronicle.cli_kit.hints import CHRONICLE_HINTS, HintTable

__all__ = ["HINTS"]

HINTS: Final = HintTable(
    {
        **CHRONICLE_HINTS,
        errors.Corrupt: "`chronicle verify` says what of {journal} can be read",
        errors.StoreDamaged: "`chronicle verify` says which commits are damaged",
        errors.StoreNotFound: "`chronicle mount` makes one",
        errors.StoreRemoved: "`chronicle unmount --force {mountpoint}` gives the mount up",
        errors.NotMounted: "name the store with --store",
        errors.NoCommit: "`chronicle log` lists its commits",
        errors.MountInUse: "`chronicle unmount --force {mountpoint}` unmounts it all the same",
        errors.MountUnreachable: "`chronicle unmount --force {mountpoint}` unmounts without it",
        errors.MountpointTaken: "`chronicle unmount {mountpoint}` does",
        errors.StoreInUse: "without --now, `chronicle gc` needs no unmount",
        errors.StoreShared: "`chronicle gc --dry-run` shows what no commit needs",
    }
)
