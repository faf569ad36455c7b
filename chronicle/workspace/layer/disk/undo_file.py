"""Undo files: what a version needs of its data file before it is overwritten."""

from __future__ import annotations

import os
import struct
from bisect import bisect_right
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from chronicle.workspace.layer.disk.log import read_frames, write_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["BLOCK_BYTES", "UndoFile"]

BLOCK_BYTES: Final = 4096
"""The unit of what is preserved: the page size, which is the unit of the kernel's writes."""
_RUN_BYTES: Final = 1024 * 1024
"""Copied at once."""
_OFFSET: Final = struct.Struct("<Q")
_FRAME_HEAD_BYTES: Final = 8


class UndoFile:
    """The bytes of one version that were overwritten in its data file later. Survives the death of the process.

    The file is created with its first block, and open only while it is written or read: a file that is overwritten and
    closed ten thousand times has ten thousand undo files, and a process has fewer descriptors.

    Args:
        number: names its file.
        size: the version's size, bytes.
        open_file: opens the file of a number for reading and appending; the flag says whether to create it.
    """

    __slots__ = ("_end", "_open_file", "_runs", "_starts", "_unsynced", "level", "number", "size")

    def __init__(self, number: int, size: int, open_file: Callable[[int, bool], int]) -> None:
        self.number = number
        self.size = size
        self.level = 0
        """The number of undo files that its data file had before."""
        self._open_file = open_file
        self._starts: list[int] = []
        self._runs: list[tuple[int, int]] = []
        """For each start, in order: the end of the run of preserved bytes, and its position in the file."""
        self._end = 0
        self._unsynced = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing was preserved yet."""
        return not self._starts

    @property
    def ranges(self) -> Iterator[tuple[int, int]]:
        """The preserved ranges ``(start, end)`` in bytes, in order."""
        return ((start, end) for start, (end, _) in zip(self._starts, self._runs, strict=True))

    def recover(self) -> None:
        """Read the file of an earlier process. A torn tail is cut off: its block was not overwritten yet."""
        with self._opened(make=True) as fd:
            length = os.fstat(fd).st_size
            payloads, self._end = read_frames(os.pread(fd, length, 0))
            at = 0
            for payload in payloads:
                (start,) = _OFFSET.unpack_from(payload)
                at += _FRAME_HEAD_BYTES
                self._note(start, len(payload) - _OFFSET.size, at + _OFFSET.size)
                at += len(payload)
            if self._end < length:
                os.ftruncate(fd, self._end)
        self._unsynced = True

    def locate(self, offset: int) -> tuple[int, int | None]:
        """Find the preserved byte of an offset.

        Returns:
            where the run that holds the offset ends, and the byte's position in the file; None if it is not preserved.
        """
        index = bisect_right(self._starts, offset)
        if index:
            stop, position = self._runs[index - 1]
            if offset < stop:
                return stop, position + offset - self._starts[index - 1]
        return (self._starts[index] if index < len(self._starts) else max(self.size, offset)), None

    def preserve(self, read: Callable[[int, int], bytes], offset: int, length: int) -> None:
        """Preserve a range of the data file, where it is not preserved yet; called before it is overwritten.

        Args:
            read: reads the data file, given offset and size.
            offset: where the range begins.
            length: its bytes.

        Raises:
            OSError: it could not be preserved; the range must not be overwritten.
        """
        end = min(-(-(offset + length) // BLOCK_BYTES) * BLOCK_BYTES, self.size)
        at = offset // BLOCK_BYTES * BLOCK_BYTES
        while at < end:
            stop, position = self.locate(at)
            if position is None:
                stop = min(stop, end, at + _RUN_BYTES)
                held = read(at, stop - at).ljust(stop - at, b"\0")
                with self._opened(make=self._end == 0) as fd:
                    try:
                        write_frames(fd, [_OFFSET.pack(at) + held])
                    except OSError:  # the disk is full: a torn frame must not precede the next one
                        os.ftruncate(fd, self._end)
                        raise
                self._note(at, len(held), self._end + _FRAME_HEAD_BYTES + _OFFSET.size)
                self._end += _FRAME_HEAD_BYTES + _OFFSET.size + len(held)
                self._unsynced = True
            at = stop

    def read(self, position: int, size: int) -> bytes:
        """Return bytes of the file, from a position that `locate` returned."""
        with self._opened() as fd:
            return os.pread(fd, size, position)

    def sync(self) -> None:
        """Make the file survive the loss of power."""
        if self._unsynced:
            with self._opened() as fd:
                os.fdatasync(fd)
            self._unsynced = False

    @contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[int]:
        fd = self._open_file(self.number, make)
        try:
            yield fd
        finally:
            os.close(fd)

    def _note(self, start: int, length: int, position: int) -> None:
        index = bisect_right(self._starts, start)
        self._starts.insert(index, start)
        self._runs.insert(index, (start + length, position))
