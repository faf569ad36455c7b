"""Text of the changes between two moments, for ``diff`` and ``restore``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.cli_kit.changes import letter_of, path_of
from chronicle.workspace.trees.tree_diff import render

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.workspace.trees.tree_diff import Change

__all__ = ["Stat", "names", "stat"]


def names(changes: Iterable[Change]) -> Iterator[str]:
    """Yield a line for each change: its kind, and the path."""
    for change in changes:
        yield f"{letter_of(change)}  {path_of(change)}"


class Stat:
    """Counts of changed lines.

    Attributes:
        rows: each change with its added and removed lines; ``None`` for a file that is not compared line by line.
    """

    def __init__(self, rows: list[tuple[Change, int | None, int | None]]) -> None:
        self.rows = rows

    @property
    def added(self) -> int:
        """Added lines of all files."""
        return sum(added or 0 for _, added, _ in self.rows)

    @property
    def removed(self) -> int:
        """Removed lines of all files."""
        return sum(removed or 0 for _, _, removed in self.rows)

    def lines(self) -> Iterator[str]:
        """Yield a line for each change, and a line of totals."""
        for change, added, removed in self.rows:
            if added is None:
                old, new = _size(change.old), _size(change.new)
                how = f"{old} -> {new} bytes"
            else:
                how = f"+{added} -{removed}"
            yield f"{letter_of(change)}  {how:>20}  {path_of(change)}"
        yield f"{len(self.rows)} changed, {self.added} lines added, {self.removed} removed"


def stat(reader: BlobReader, changes: Sequence[Change]) -> Stat:
    """Count added and removed lines. Reads the changed files, one after the other."""
    rows: list[tuple[Change, int | None, int | None]] = []
    for change in changes:
        added = removed = 0
        inside = compared = False
        for line in render(reader, [change]):
            if line.startswith(b"@@ "):
                inside = compared = True
            elif inside:
                added += line.startswith(b"+")
                removed += line.startswith(b"-")
        whole = compared or _size(change.old) == _size(change.new) == 0 or _same(change)
        rows.append((change, added if whole else None, removed if whole else None))
    return Stat(rows)


def _same(change: Change) -> bool:
    """Return whether only metadata differs."""
    return change.old is not None and change.new is not None and change.old.content == change.new.content


def _size(entry: object) -> int:
    content = getattr(entry, "content", None)
    return content.size if content is not None else 0
