"""Old contents that are not in the blob store yet.

The bytes of a file live in a *data file*, which is written in place. A version made when the file was closed refers to
what the data file held then. Nothing is copied at that moment; only when a block is overwritten afterwards, for the
first time since that version, what it held goes into the version's *undo file* first. So closing costs what was
written, appending to a file preserves nothing, and 4 KiB written into 1 GiB preserve 4 KiB. When a file is truncated
to nothing, it gets a new data file and its versions keep the old one as it is.

Version k of a data file is read as: for each block, the first undo file from k on that has it, else the data file.
"""

from __future__ import annotations

import io
import os
import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from chronicle.workspace.layer_log import read_frames, write_frames

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from chronicle.workspace.content import Content

__all__ = ["BLOCK_BYTES", "DataFile", "Held", "Undo", "VersionFile"]

BLOCK_BYTES: Final = 4096
"""What is preserved at least; the page size, since that is what the kernel sends us."""
_RUN_BYTES: Final = 1024 * 1024
"""How much is copied at once."""
_OFFSET: Final = struct.Struct("<Q")
_FRAME_HEAD_BYTES: Final = 8


class Undo:
    """What one version had where its data file was overwritten later. Survives the death of the process.

    Args:
        number: names its file.
        fd: that file, open for reading and appending; the undo owns it.
        size: the version's size, bytes.
    """

    __slots__ = ("_end", "_runs", "_starts", "fd", "number", "size")

    def __init__(self, number: int, fd: int, size: int) -> None:
        self.number = number
        self.fd = fd
        self.size = size
        self._starts: list[int] = []
        self._runs: list[tuple[int, int]] = []
        """Beside each start, in order: the end of a run of bytes that is kept, and where it is in the file."""
        self._end = 0
        self._recover()

    def _recover(self) -> None:
        """Read what an earlier process preserved; a torn tail was never followed by its overwriting."""
        length = os.fstat(self.fd).st_size
        if length == 0:
            return
        payloads, self._end = read_frames(os.pread(self.fd, length, 0))
        at = 0
        for payload in payloads:
            (start,) = _OFFSET.unpack_from(payload)
            at += _FRAME_HEAD_BYTES
            self._note(start, len(payload) - _OFFSET.size, at + _OFFSET.size)
            at += len(payload)
        if self._end < length:
            os.ftruncate(self.fd, self._end)

    def _note(self, start: int, length: int, position: int) -> None:
        index = bisect_right(self._starts, start)
        self._starts.insert(index, start)
        self._runs.insert(index, (start + length, position))

    def kept(self, offset: int) -> tuple[int, int | None]:
        """Return what is known of a place.

        Returns:
            up to which offset it holds, and where the byte is in the file; None if it is not kept.
        """
        index = bisect_right(self._starts, offset)
        if index:
            stop, position = self._runs[index - 1]
            if offset < stop:
                return stop, position + offset - self._starts[index - 1]
        return (self._starts[index] if index < len(self._starts) else self.size), None

    def preserve(self, data_fd: int, offset: int, length: int) -> None:
        """Keep what a range of the data file holds, as far as it is not kept yet; to be called before overwriting it.

        Raises:
            OSError: it could not be kept; nothing may be overwritten.
        """
        end = min(-(-(offset + length) // BLOCK_BYTES) * BLOCK_BYTES, self.size)
        at = offset // BLOCK_BYTES * BLOCK_BYTES
        while at < end:
            stop, position = self.kept(at)
            if position is None:
                stop = min(stop, end, at + _RUN_BYTES)
                held = os.pread(data_fd, stop - at, at).ljust(stop - at, b"\0")
                write_frames(self.fd, [_OFFSET.pack(at) + held])
                self._note(at, len(held), self._end + _FRAME_HEAD_BYTES + _OFFSET.size)
                self._end += _FRAME_HEAD_BYTES + _OFFSET.size + len(held)
            at = stop

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)


class DataFile:
    """The file on disk that holds a file's bytes, and the undo files of its versions, oldest first."""

    __slots__ = ("number", "pinned", "undos", "versions")

    def __init__(self, number: int) -> None:
        self.number = number
        """Names it on disk."""
        self.pinned: Held | None = None
        """The version that is just what it holds now, if one is."""
        self.versions = 0
        """How many versions refer to it that are not in the blob store."""
        self.undos: list[Undo] = []

    def pin(self, size: int) -> Held:
        """Return what it holds now, as a version of so many bytes."""
        held = self.pinned
        if held is None:
            held = self.pinned = Held(self, len(self.undos), size)
            self.versions += 1
        return held


class Held:
    """The content of a version that is in a data file and its undo files."""

    __slots__ = ("content", "data", "level", "size")

    def __init__(self, data: DataFile, level: int, size: int) -> None:
        self.data = data
        self.level = level
        """Where in `DataFile.undos` its own begin."""
        self.size = size
        self.content: Content | None = None
        """Its id, once somebody asked; the blob store need not have it."""


class VersionFile(io.RawIOBase):
    """A version of a data file, read-only and seekable.

    Args:
        fd: the data file; closed with this.
        size: the version's size, bytes.
        undos: the undo files from the version on, oldest first; they must stay open meanwhile.
    """

    def __init__(self, fd: int, size: int, undos: list[Undo]) -> None:
        super().__init__()
        self._fd = fd
        self._size = size
        self._undos = undos
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position."""
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        return self._at

    def readinto(self, into: WriteableBuffer) -> int:
        """Read on, up to where the bytes come from another file."""
        target = memoryview(into).cast("B")
        at = self._at
        end = min(at + len(target), self._size)
        if at >= end:
            return 0
        source, position = self._fd, at
        for undo in self._undos:
            if at >= undo.size:
                continue  # that version ended before; what was behind it was not preserved for it
            stop, kept = undo.kept(at)
            end = min(end, stop)
            if kept is not None:
                source, position = undo.fd, kept
                break
        part = os.pread(source, end - at, position)
        target[: len(part)] = part
        self._at += len(part)
        return len(part)

    def close(self) -> None:
        """Close the data file."""
        if not self.closed:
            os.close(self._fd)
        super().close()
