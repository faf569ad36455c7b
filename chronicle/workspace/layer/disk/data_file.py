"""Data files, and the contents of versions that are not in the blob store yet.

The bytes of a file live in a *data file*, which is written in place. A version that is made when the file is closed
refers to what the data file held then. Nothing is copied at that moment: only when a block is overwritten for the first
time since that version, its old bytes go into the version's *undo file* first (copy-on-write). So closing costs what
was written, appending to a file preserves nothing, and 4 KiB written into 1 GiB preserve 4 KiB. When a file is
truncated to nothing, it gets a new data file, and its versions keep the old one.

Version k of a data file is read as follows: each byte from the first undo file from k on that has it, else from the
data file; where that has only a part of a stored content (`chronicle.workspace.layer.disk.partial_files`), else from
that content. So version k differs from the next one only in what undo file k has, and behind the end of the shorter of
the two. A version keeps its length: where a loss of power left less in the data file, it ends with zeros, like a file
that was extended and not written.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from chronicle.workspace.content.ranges import Ranges
from chronicle.workspace.layer.disk.partial_files import read_padded
from chronicle.workspace.layer.disk.undo_file import BLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.workspace.content.content import Content
    from chronicle.workspace.layer.disk.partial_files import Partial
    from chronicle.workspace.layer.disk.undo_file import UndoFile

__all__ = ["ChangedRanges", "DataFile", "LocalContent"]

_MAX_RANGES: Final = 4096
"""Ranges that are remembered of a file that is changed all over: 0.5 MB of memory."""


class ChangedRanges:
    """Where a data file may differ from the stored content that it began as. Not kept on disk.

    Args:
        content: the stored content.
    """

    __slots__ = ("content", "ranges")

    def __init__(self, content: Content) -> None:
        self.content = content
        self.ranges = Ranges()
        """In bytes, as whole blocks, up to the content's size."""

    def note(self, offset: int, length: int) -> bool:
        """Add a range; return False if there are too many to be of use."""
        end = min(-(-(offset + length) // BLOCK_BYTES) * BLOCK_BYTES, self.content.size)
        start = offset // BLOCK_BYTES * BLOCK_BYTES
        if start < end:
            self.ranges.add(start, end)
        return len(self.ranges) <= _MAX_RANGES


class DataFile:
    """A data file with its versions and their undo files."""

    __slots__ = (
        "changes",
        "is_unsynced_copy",
        "levels",
        "lost_bytes",
        "number",
        "partial",
        "pinned",
        "synced",
        "undo",
        "undos",
        "versions",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        """Its name on disk, in hexadecimal."""
        self.changes: ChangedRanges | None = None
        """Where its oldest version differs from stored content; None if that is unknown."""
        self.pinned: LocalContent | None = None
        """The version that equals its present bytes, if there is one."""
        self.versions: list[LocalContent] = []
        """Its versions that are not in the blob store, oldest first."""
        self.undo: UndoFile | None = None
        """Takes overwritten blocks now; None before the first version."""
        self.undos: list[UndoFile] = []
        """Undo files that preserve something, `undo` included, oldest first."""
        self.levels = 0
        """The number of undo files so far."""
        self.is_unsynced_copy = False
        """Whether it began as a copy of stored content, or is partial, and no record says yet that it is synced."""
        self.synced = False
        """Whether it may have been synced since the last seal: until the log on disk says that it is removed, a loss of
        power would bring it back."""
        self.lost_bytes = 0
        """Length of a version whose end a loss of power may have removed; the zeros in its place are preserved too."""
        self.partial: Partial | None = None
        """Its written ranges if it is partial; None if it has all bytes."""

    def read(self, fd: int, offset: int, size: int) -> bytes:
        """Return ``size`` bytes, up to the length of the file or a version of it, with zeros for lost ones.

        Raises:
            NotFound, Corrupt, Unavailable: stored content could not be read.
        """
        if self.partial is not None:
            return self.partial.read(fd, offset, size)
        return read_padded(fd, offset, size)

    def pin(self, size: int) -> LocalContent:
        """Return its present bytes as a version of ``size`` bytes."""
        held = self.pinned
        if held is None or held.size != size:  # after a loss of power it may be shorter than its last version
            held = self.pinned = LocalContent(self, self.levels, size)
            self.versions.append(held)
        return held

    @property
    def pinned_bytes(self) -> int:
        """The number of its present bytes that versions need."""
        return max(self.pinned.size, self.lost_bytes) if self.pinned is not None else 0

    def unpin(self, undo: UndoFile | None) -> None:
        """Permit changes; what the pinned version needs goes to ``undo``."""
        self.pinned = None
        if undo is not None:
            undo.level = self.levels
            self.undo = undo
            self.levels += 1
            if not undo.is_empty:
                self.undos.append(undo)

    def differences(self, before: LocalContent, after: LocalContent) -> Iterator[tuple[int, int]]:
        """Yield where two consecutive versions differ, except behind the end of the shorter one."""
        for index in range(bisect_left(self.undos, before.level, key=attrgetter("level")), len(self.undos)):
            if self.undos[index].level >= after.level:
                return
            yield from self.undos[index].ranges

    def preserve(self, fd: int, offset: int, length: int) -> None:
        """Preserve what the last version needs of a range before it is overwritten; see `UndoFile.preserve`.

        Before the first version the old bytes are in the blob store; then the range is only recorded.
        """
        undo = self.undo
        if undo is None:
            if self.changes is not None and not self.changes.note(offset, length):
                self.changes = None
        elif offset < undo.size:
            empty = undo.is_empty
            try:
                undo.preserve(lambda at, size: self.read(fd, at, size), offset, length)
            finally:  # also if only a part could be preserved
                if empty and not undo.is_empty:
                    self.undos.append(undo)


class LocalContent:
    """The content of a version, in a data file and its undo files."""

    __slots__ = ("content", "data", "level", "size", "stored")

    def __init__(self, data: DataFile, level: int, size: int) -> None:
        self.data = data
        self.level = level
        """The number of undo files that the data file had before it."""
        self.size = size
        self.content: Content | None = None
        """Its reference, once it was hashed."""
        self.stored = False
        """Whether the blob store has it: the data file may have changed or been removed since."""
