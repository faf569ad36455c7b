"""Data files that hold a part of a stored content: what was written over it.

A large file that is changed on a node that does not have its content gets a data file of its full size with nothing in
it. What is written goes there, and the ranges that were written are remembered, to the byte; all else is read from the
blob store. So nothing is fetched in order to write. Which ranges count is in the layer's log, never taken from the
holes of the file: a file system may have none, or make some.

What lies behind the end of the content is in the data file; what lies behind the end of the file is not read. Before a
file that became shorter than its content grows again, the rest of the content is noted as written.
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
    """Return so many bytes of a file, with zeros behind its end."""
    data = os.pread(fd, size, offset)
    while len(data) < size and (more := os.pread(fd, size - len(data), offset + len(data))):
        data += more  # one call gives 2 GiB at most
    return data.ljust(size, b"\0")


class Partial:
    """Which bytes of a data file count, and where the others are.

    Args:
        content: the stored content that the file began as.
        stored: reads it.
    """

    __slots__ = ("_stored", "content", "written")

    def __init__(self, content: Content, stored: LazyFile) -> None:
        self.content = content
        self._stored = stored
        self.written = Ranges()
        """What the data file has of the content's range; nothing beyond the content's size."""

    @property
    def is_whole(self) -> bool:
        """Whether the data file has all of it."""
        return self.has(0, self.content.size)

    def has(self, start: int, end: int) -> bool:
        """Say whether the data file has all of a range."""
        stop, is_here = self.run(start)
        return is_here and end <= stop

    def run(self, offset: int) -> tuple[int, bool]:
        """Return up to which offset the same holds as for this one, and whether that is to be in the data file."""
        size = self.content.size
        if offset >= size:
            return sys.maxsize, True
        stop, is_here = self.written.run(offset)
        if is_here:
            return (sys.maxsize if stop >= size else stop), True
        return min(stop, size), False

    def read(self, fd: int, offset: int, size: int, stored: LazyFile | None = None) -> bytes:
        """Return so many bytes, with zeros where the data file ends.

        Args:
            fd: the data file.
            offset: where.
            size: no more than the file, or the version of it, has from there on.
            stored: a reader of the content that reads ahead; without one nothing is fetched but what is needed.

        Raises:
            NotFound, Corrupt, Unavailable: what is not in the data file could not be read.
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
