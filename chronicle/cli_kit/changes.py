"""Changes of files, and what a collection of garbage did, as both commands show them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from chronicle.blobs.gc.collector import GcReport
    from chronicle.workspace.trees.tree_diff import Change

__all__ = ["LETTERS", "gc_summary", "letter_of", "path_of"]

LETTERS: Final = {"added": "A", "removed": "D", "changed": "M", "renamed": "R"}
"""By the kind of a change, as git has them."""


def letter_of(change: Change) -> str:
    """Return the letter that git gives to a change of this kind."""
    return LETTERS[change.what.value]


def path_of(change: Change) -> str:
    """Return the path of a change, ``old -> new`` for a rename; ``.`` is the root. Control characters are in it."""
    path = os.fsdecode(change.path) or "."
    return f"{os.fsdecode(change.old_path) or '.'} -> {path}" if change.old_path is not None else path


def gc_summary(report: GcReport) -> str:
    """Return the counts of a collection of garbage in a line."""
    return (
        f"{report.packs} packs, {report.size_bytes} bytes: "
        f"{report.condemned} condemned ({report.merged} of them merged), "
        f"{report.dropped} freed ({report.dropped_bytes - report.copied_bytes} bytes)"
    )
