"""What two trees changed of the one that both go back to, path by path, and where they are in each other's way.

Pure but for reading blobs, and reads only what differs. Nothing is merged here: this is what whoever merges needs to
know. A path's *entry* is what it is in itself; of a directory that is its mode, owner and attributes, for what is in it
has paths of its own. Renames are not followed: one is a removal and an addition. Which names are one file is a part of
their entries (`Entry.link`); who merges brings that into its one form again.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from chronicle.workspace.trees import tree
from chronicle.workspace.trees.tree import EMPTY, Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId

__all__ = ["Divergence", "Side", "three_way"]


class Side(enum.Enum):
    """Who changed a path."""

    OURS = "ours"
    THEIRS = "theirs"
    BOTH = "both"
    """And to the same."""
    CONFLICT = "conflict"
    """Both changed it, and not to the same; or the one has something where the other has no directory any more."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A path that a side changed."""

    path: bytes
    """``b""`` is the root."""
    side: Side
    base: Entry | None
    """What it was; ``None`` where nothing was. Directories are without their subtree."""
    ours: Entry | None
    theirs: Entry | None

    @property
    def merged(self) -> Entry | None:
        """What it is when both sides' changes are made.

        Raises:
            ValueError: it is a conflict.
        """
        if self.side is Side.CONFLICT:
            raise ValueError(f"{self.path!r} is in conflict")
        return self.theirs if self.side is Side.THEIRS else self.ours


def three_way(reader: BlobReader, base: BlobId, ours: BlobId, theirs: BlobId) -> list[Divergence]:
    """Return the paths that either side changed, by the bytes of their names, each directory before what is in it.

    If there is no conflict, making all changes (`Divergence.merged`) gives a tree. A conflict is told at each path that
    it is about:

    * both sides changed the path, and not to the same: edited twice, edited and removed, made twice, another mode;
    * a side put something at the path, and the other has no directory there to hold it: it removed it, or put something
      else in its place.
    """
    here = dict(_changes(reader, base, ours))
    there = dict(_changes(reader, base, theirs))
    blocked_by_ours, blocked_by_theirs = _closed(here), _closed(there)
    found = []
    for path in sorted(here.keys() | there.keys(), key=lambda path: path.split(b"/")):
        in_ours, in_theirs = here.get(path), there.get(path)
        if in_ours is None:
            assert in_theirs is not None
            was, now = in_theirs
            clash = now is not None and _is_below(path, blocked_by_ours)
            found.append(Divergence(path, Side.CONFLICT if clash else Side.THEIRS, was, was, now))
        elif in_theirs is None:
            was, now = in_ours
            clash = now is not None and _is_below(path, blocked_by_theirs)
            found.append(Divergence(path, Side.CONFLICT if clash else Side.OURS, was, now, was))
        else:
            was, one, other = *in_ours, in_theirs[1]
            found.append(Divergence(path, Side.BOTH if one == other else Side.CONFLICT, was, one, other))
    return found


Changed = tuple[Entry | None, Entry | None]
"""What a path was, and what it is."""


def _changes(reader: BlobReader, old: BlobId, new: BlobId) -> Iterator[tuple[bytes, Changed]]:
    for path, was, now in tree.diff_trees(reader, old, new):
        yield path, (_bare(was), _bare(now))


def _bare(entry: Entry | None) -> Entry | None:
    """An entry by itself: of a directory, without what is in it."""
    return replace(entry, subtree=EMPTY) if entry is not None and entry.kind is Kind.DIR else entry


def _closed(changes: dict[bytes, Changed]) -> set[bytes]:
    """Return the paths at which a side has made something else of what may have been a directory."""
    return {path for path, (_, now) in changes.items() if now is None or now.kind is not Kind.DIR}


def _is_below(path: bytes, closed: set[bytes]) -> bool:
    """Say whether a directory that a path is in is closed."""
    while path:
        path = path.rpartition(b"/")[0]
        if path and path in closed:
            return True
    return False
