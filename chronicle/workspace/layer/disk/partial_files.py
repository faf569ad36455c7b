"""Partial data files: they hold the written ranges of a stored content.

A large file that is changed on a node that does not have its content gets a data file of its full size that is one
hole. Writes go there, and the written ranges are remembered, to the byte; all else is read from the blob store. So
nothing is fetched in order to write. The ranges are in the layer's log and never taken from the holes of the file: a
file system may have none, or create some.

Bytes behind the end of the content are in the data file; nothing is read behind the end of the file. Before a file that
became shorter than its content grows again, the rest of the content is recorded as written.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from chronicle.workspace.content.ranges import Ranges

if TYPE_CHECKING:
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.content.lazy_reader import LazyFile

__all__ = ["Partial", "read_padded"]


def read_padded(fd: int, offset: int, size: int) -> bytes:
    """Return ``size`` bytes of a file, with zeros behind its end."""
    data = os.pread(fd, size, offset)
    while len(data) < size and (more := os.pread(fd, size - len(data), offset + len(data))):
        data += more  # one call returns 2 GiB at most
    return data.ljust(size, b"\0")


class Partial:
    """The written ranges of a partial data file, and the content behind the others.

    Args:
        content: the stored content that the file began as.
        stored: reads that content.
    """

    __slots__ = ("_stored", "content", "written")

    def __init__(self, content: Content, stored: LazyFile) -> None:
        self.content = content
        self._stored = stored
        self.written = Ranges()
        """The ranges that the data file has, up to the content's size."""

    @property
    def is_whole(self) -> bool:
        """Whether the data file has the whole content."""
        return self.has(0, self.content.size)

    def has(self, start: int, end: int) -> bool:
        """Say whether the data file has all of a range."""
        stop, is_here = self.run(start)
        return is_here and end <= stop

    def run(self, offset: int) -> tuple[int, bool]:
        """Return where the run of bytes at an offset ends, and whether the run is in the data file."""
        size = self.content.size
        if offset >= size:
            return sys.maxsize, True
        stop, is_here = self.written.run(offset)
        if is_here:
            return (sys.maxsize if stop >= size else stop), True
        return min(stop, size), False

    def read(self, fd: int, offset: int, size: int, stored: LazyFile | None = None) -> bytes:
        """Return ``size`` bytes, with zeros behind the data file's end.

        Args:
            fd: the data file.
            offset: where.
            size: no more than the file, or the version of it, has from there on.
            stored: a reader of the content with read-ahead; by default only what is needed is fetched.

        Raises:
            NotFound, Corrupt, Unavailable: stored content could not be read.
        """
        parts = []
        at, end = offset, offset + size
        while at < end:
            stop, is_here = self.run(at)
            stop = min(stop, end)
            if is_here:
                parts.append(read_padded(fd, at, stop - at))
            else:
                parts.append((stored or self._stored).read(at, stop - at))
            at = stop
        return parts[0] if len(parts) == 1 else b"".join(parts)
