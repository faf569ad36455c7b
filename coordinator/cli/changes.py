"""Changes of an agent's state and files, as the commands that compare moments show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.cli_kit.changes import letter_of, path_of
from chronicle.cli_kit.terminal import json_text, one_line, write_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chronicle.canonical import JsonObject
    from chronicle.workspace.trees.tree_diff import Change

__all__ = ["write_files", "write_state"]


def write_state(patch: Sequence[JsonObject], most: int | None = None) -> None:
    """Write a patch, an operation a line.

    Args:
        most: how many operations to write; how many are left out is said in a last line.
    """
    for operation in patch[:most]:
        write_line(f"  {json_text(operation)}")
    if most is not None and len(patch) > most:
        write_line(f"  … and {len(patch) - most} more; --json has them all")


def write_files(changes: Iterable[Change]) -> None:
    """Write which files changed, one a line."""
    for change in changes:
        write_line(f"  {letter_of(change)} {one_line(path_of(change))}")
