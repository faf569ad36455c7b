"""Reading a version from its data file and undo files."""

from __future__ import annotations

import errno
import io
import os
import sys
from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING

from chronicle.system.raw_file import RawFile
from chronicle.workspace.content.holes import extent

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.workspace.content.content import Content
    from chronicle.workspace.layer.disk.data_file import LocalContent

__all__ = ["VersionFile"]


class VersionFile(RawFile):
    """A version of a data file, read-only and seekable. It may be read while the data file is written.

    Args:
        fd: the data file, owned by this.
        held: the version.
        stored: opens the content in the blob store; called if the version was sealed meanwhile.
    """

    def __init__(self, fd: int, held: LocalContent, stored: Callable[[Content], io.BufferedIOBase]) -> None:
        super().__init__()
        self._fd = fd
        self._held = held
        self._stored = stored
        self._moved: io.BufferedIOBase | None = None

    def _size(self) -> int:
        return self._held.size

    def _read(self, size: int) -> bytes:
        """Return bytes from the position on, at most up to where they come from another file.

        Raises:
            OSError: ESTALE: the version was rolled back.
        """
        end = min(self._at + size, self._held.size)
        if self._at >= end:
            return b""
        return self._read_stored(end) if self._held.stored else self._read_held(end)

    def _read_held(self, end: int) -> bytes:
        undos = self._held.data.undos
        for index in range(bisect_left(undos, self._held.level, key=attrgetter("level")), len(undos)):
            stop, position = undos[index].locate(self._at)
            if position is not None:
                return undos[index].read(position, min(end, stop) - self._at)
            if stop > self._at:  # otherwise the offset is behind the end of that later, shorter version
                end = min(end, stop)
        return self._held.data.read(self._fd, self._at, end - self._at)

    def extent(self, offset: int) -> tuple[int, bool]:
        """Return where the extent that holds an offset ends, and whether it is a hole; see `sparse.extent`."""
        held = self._held
        end = held.size
        if held.stored or offset >= end:
            return sys.maxsize, False
        undos = held.data.undos
        for index in range(bisect_left(undos, held.level, key=attrgetter("level")), len(undos)):
            stop, position = undos[index].locate(offset)
            if position is not None:
                return min(end, stop), False
            if stop > offset:
                end = min(end, stop)
        if held.data.partial is not None:
            stop, is_here = held.data.partial.run(offset)
            end = min(end, stop)
            if not is_here:  # a hole of the data file that stands for stored bytes
                return end, False
        if offset >= os.fstat(self._fd).st_size:
            return end, True
        until, is_hole = extent(self._fd, offset)
        return min(end, until), is_hole

    def _read_stored(self, end: int) -> bytes:
        if self._moved is None:
            content = self._held.content
            if content is None:
                raise OSError(errno.ESTALE, "the version was rolled back")
            self._moved = self._stored(content)
        self._moved.seek(self._at)
        return self._moved.read(end - self._at)

    def close(self) -> None:
        """Close the data file."""
        if not self.closed:
            os.close(self._fd)
            if self._moved is not None:
                self._moved.close()
        super().close()
