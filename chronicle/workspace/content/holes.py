"""Sparse files: reads them without reading the holes, writes them without filling the holes.

The system's information about holes is a free hint: a file system without holes reports everything as data. It is
queried extent by extent while the file is read, so concurrent writes are included or not, as with any other file that
changes under a reader.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, runtime_checkable

from chronicle.workspace.content.chunking import MAX_CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Extents", "SparseReader", "extent", "write_sparsely"]

_HOLE_BYTES: Final = MAX_CHUNK_BYTES
"""A shorter hole is read: skipping it would not save a chunk."""
_BLOCK_BYTES: Final = 4096
"""The smallest hole of usual file systems."""


@runtime_checkable
class Extents(Protocol):
    """A raw file that knows its holes."""

    def extent(self, offset: int) -> tuple[int, bool]:
        """Return where the extent that holds an offset ends, and whether it is a hole; see `extent`."""


def extent(fd: int, offset: int) -> tuple[int, bool]:
    """Return where the extent that holds an offset ends, and whether it is a hole.

    The descriptor's position is kept. Without information, as behind the end of the file, everything is data.
    """
    try:
        before = os.lseek(fd, 0, os.SEEK_CUR)
        try:
            data = os.lseek(fd, offset, os.SEEK_DATA)
            return (data, True) if data > offset else (os.lseek(fd, offset, os.SEEK_HOLE), False)
        finally:
            os.lseek(fd, before, os.SEEK_SET)
    except OSError as error:
        if error.errno == errno.ENXIO:  # no data from there on
            size = os.fstat(fd).st_size
            if size > offset:
                return size, True
        return sys.maxsize, False


class SparseReader:
    """Reads the rest of a file in order, with long holes as counts of zeros.

    Args:
        fileobj: a file; holes are detected if it is a plain one, or its raw file is an `Extents`.
    """

    def __init__(self, fileobj: BinaryIO) -> None:
        self._file = fileobj
        self._extent = _extents_of(fileobj)
        self._at = 0
        self._data_until = 0 if self._extent is not None else sys.maxsize
        """End of the extent of data at the position."""
        if self._extent is not None:
            self._at = fileobj.tell()

    def seek(self, offset: int) -> None:
        """Continue at an offset."""
        self._file.seek(offset)
        if self._extent is not None:
            self._at, self._data_until = offset, 0

    def read(self, size: int) -> bytes | int:
        """Return at most so many next bytes, or the count of zeros that are next; ``b""`` at the end."""
        if self._extent is None:
            return self._file.read(size)
        while self._data_until < self._at + size:
            start = max(self._at, self._data_until)
            end, is_hole = self._extent(start)
            if is_hole and end - start >= _HOLE_BYTES:
                if start > self._at:
                    break  # first the data before it
                self._file.seek(end)
                self._at = end
                return end - start
            self._data_until = max(end, start + 1)  # a hole may have been punched just now
        data = self._file.read(min(size, self._data_until - self._at))
        self._at += len(data)
        return data


def _extents_of(fileobj: BinaryIO) -> Callable[[int], tuple[int, bool]] | None:
    """Return a function that tells the extents of a file; ``None`` if nothing can."""
    raw = getattr(fileobj, "raw", fileobj)
    if isinstance(raw, Extents):
        return raw.extent
    if isinstance(raw, io.FileIO) and raw.seekable():
        fd = raw.fileno()
        return lambda offset: extent(fd, offset)
    return None


def write_sparsely(file: BinaryIO, data: bytes) -> None:
    """Write at a file's position, at its end, and leave out blocks of zeros at both ends of the data.

    The caller must truncate the file to its size at the end: a trailing hole does not extend it.
    """
    if any(data[:_BLOCK_BYTES]) and any(data[-_BLOCK_BYTES:]):
        file.write(data)
        return
    start = file.tell()
    first = (start + len(data) - len(data.lstrip(b"\0"))) // _BLOCK_BYTES * _BLOCK_BYTES
    end = -(-(start + len(data.rstrip(b"\0"))) // _BLOCK_BYTES) * _BLOCK_BYTES
    part = data[max(0, first - start) : max(0, end - start)]
    if part:
        file.seek(max(start, first))
        file.write(part)
    file.seek(start + len(data))
