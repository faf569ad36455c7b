"""Text of the changes of an agent's state and files, for ``diff`` and ``rewind``."""

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
    """Write a patch of a state, an operation a line.

    Args:
        most: the limit of operations; a last line counts the others.
    """
    for operation in patch[:most]:
        write_line(f"  {json_text(operation)}")
    if most is not None and len(patch) > most:
        write_line(f"  … and {len(patch) - most} more; --json has them all")


def write_files(changes: Iterable[Change]) -> None:
    """Write the changed files, one a line."""
    for change in changes:
        write_line(f"  {letter_of(change)} {one_line(path_of(change))}")
