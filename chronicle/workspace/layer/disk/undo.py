"""Old contents that are not in the blob store yet.

The bytes of a file live in a *data file*, which is written in place. A version made when the file was closed refers to
what the data file held then. Nothing is copied at that moment; only when a block is overwritten afterwards, for the
first time since that version, what it held goes into the version's *undo file* first. So closing costs what was
written, appending to a file preserves nothing, and 4 KiB written into 1 GiB preserve 4 KiB. When a file is truncated
to nothing, it gets a new data file and its versions keep the old one as it is.

Version k of a data file is read as: for each byte, the first undo file from k on that has it, else the data file; where
that has only a part of a stored content (`chronicle.workspace.layer.disk.partial_files`), else that content. So it
differs from the version after it only in what undo file k has, and behind the end of the shorter of the two. A version
is as long as it was: where a loss of power left less in the data file, it has zeros, like a file that was extended and
not written.
"""

from __future__ import annotations

import errno
import io
import os
import struct
import sys
from bisect import bisect_left, bisect_right
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from chronicle.workspace.content.holes import extent
from chronicle.workspace.content.ranges import Ranges
from chronicle.workspace.layer.disk.log import read_frames, write_frames
from chronicle.workspace.layer.disk.partial_files import read_padded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _typeshed import WriteableBuffer

    from chronicle.workspace.content.content import Content
    from chronicle.workspace.layer.disk.partial_files import Partial

__all__ = ["BLOCK_BYTES", "Changes", "DataFile", "Held", "Undo", "VersionFile"]

BLOCK_BYTES: Final = 4096
"""What is preserved at least; the page size, since that is what the kernel sends us."""
_RUN_BYTES: Final = 1024 * 1024
"""How much is copied at once."""
_OFFSET: Final = struct.Struct("<Q")
_FRAME_HEAD_BYTES: Final = 8
_MOST_RANGES: Final = 4096
"""How many ranges are remembered of a file that is changed all over: 0.5 MB of memory."""


class Undo:
    """What one version had where its data file was overwritten later. Survives the death of the process.

    Its file is made when there is something to keep, and open only while it is written or read: a file that is
    overwritten and closed ten thousand times has ten thousand of these, and a process has fewer descriptors.

    Args:
        number: names its file.
        size: the version's size, bytes.
        open_file: opens the file of a number for reading and appending; makes it if it is told to.
    """

    __slots__ = ("_end", "_open_file", "_runs", "_starts", "_unsynced", "level", "number", "size")

    def __init__(self, number: int, size: int, open_file: Callable[[int, bool], int]) -> None:
        self.number = number
        self.size = size
        self.level = 0
        """How many others its data file had before it."""
        self._open_file = open_file
        self._starts: list[int] = []
        self._runs: list[tuple[int, int]] = []
        """Beside each start, in order: the end of a run of bytes that is kept, and where it is in the file."""
        self._end = 0
        self._unsynced = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing was kept yet."""
        return not self._starts

    @property
    def ranges(self) -> Iterator[tuple[int, int]]:
        """What is kept, as ranges ``(start, end)`` in bytes, in order."""
        return ((start, end) for start, (end, _) in zip(self._starts, self._runs, strict=True))

    def recover(self) -> None:
        """Read what an earlier process preserved; a torn tail was never followed by its overwriting."""
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
        return (self._starts[index] if index < len(self._starts) else max(self.size, offset)), None

    def preserve(self, read: Callable[[int, int], bytes], offset: int, length: int) -> None:
        """Keep what a range of the data file holds, as far as it is not kept yet; to be called before overwriting it.

        Args:
            read: reads the data file, at an offset so many bytes.
            offset: where the range begins.
            length: its bytes.

        Raises:
            OSError: it could not be kept; nothing may be overwritten.
        """
        end = min(-(-(offset + length) // BLOCK_BYTES) * BLOCK_BYTES, self.size)
        at = offset // BLOCK_BYTES * BLOCK_BYTES
        while at < end:
            stop, position = self.kept(at)
            if position is None:
                stop = min(stop, end, at + _RUN_BYTES)
                held = read(at, stop - at).ljust(stop - at, b"\0")
                with self._opened(make=self._end == 0) as fd:
                    try:
                        write_frames(fd, [_OFFSET.pack(at) + held])
                    except OSError:  # the disk is full: what was kept in part must not stay before what is kept next
                        os.ftruncate(fd, self._end)
                        raise
                self._note(at, len(held), self._end + _FRAME_HEAD_BYTES + _OFFSET.size)
                self._end += _FRAME_HEAD_BYTES + _OFFSET.size + len(held)
                self._unsynced = True
            at = stop

    def read(self, position: int, size: int) -> bytes:
        """Return bytes of the file, from a position that `kept` gave."""
        with self._opened() as fd:
            return os.pread(fd, size, position)

    def sync(self) -> None:
        """Make what is kept survive the loss of power."""
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


class Changes:
    """Where a data file may differ from a stored content that it was. Forgotten when the process ends.

    Args:
        content: what it was.
    """

    __slots__ = ("content", "ranges")

    def __init__(self, content: Content) -> None:
        self.content = content
        self.ranges = Ranges()
        """In bytes, as whole blocks; nothing beyond the content's size."""

    def note(self, offset: int, length: int) -> bool:
        """Add a range; return False if there are too many to be worth it."""
        end = min(-(-(offset + length) // BLOCK_BYTES) * BLOCK_BYTES, self.content.size)
        start = offset // BLOCK_BYTES * BLOCK_BYTES
        if start < end:
            self.ranges.add(start, end)
        return len(self.ranges) <= _MOST_RANGES


class DataFile:
    """The file on disk that holds a file's bytes, and what its versions had that are not in it any more."""

    __slots__ = (
        "changes",
        "copied",
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
        """Names it on disk."""
        self.changes: Changes | None = None
        """How its oldest version differs from what the blob store had before; None if that is not known."""
        self.pinned: Held | None = None
        """The version that is just what it holds now, if one is."""
        self.versions: list[Held] = []
        """Those that refer to it and are not in the blob store."""
        self.undo: Undo | None = None
        """Where what is overwritten goes now."""
        self.undos: list[Undo] = []
        """Those that kept something, `undo` included, oldest first."""
        self.levels = 0
        """How many there ever were."""
        self.copied = False
        """Whether it began as a copy of what the blob store has, or has a part of that, and the log says so but not yet
        that it is on disk."""
        self.synced = False
        """Whether it may have been synced since the last seal: as long as the log on disk does not say that it goes, a
        loss of power would bring it back."""
        self.lost_bytes = 0
        """How long a version is whose end it may not have: a loss of power left zeros of that, which are kept, too."""
        self.partial: Partial | None = None
        """Which part of a stored content it has; None if it has everything."""

    def read(self, fd: int, offset: int, size: int) -> bytes:
        """Return so many bytes that the file has, or a version of it: no more than there are, with zeros for lost ones.

        Raises:
            NotFound, Corrupt, Unavailable: what is in the blob store only could not be read.
        """
        if self.partial is not None:
            return self.partial.read(fd, offset, size)
        return read_padded(fd, offset, size)

    def pin(self, size: int) -> Held:
        """Return what it holds now, as a version of so many bytes."""
        held = self.pinned
        if held is None or held.size != size:  # after a loss of power it may not be as long as its last version
            held = self.pinned = Held(self, self.levels, size)
            self.versions.append(held)
        return held

    @property
    def pinned_bytes(self) -> int:
        """How much of it versions need as it is now; 0 if none does."""
        return max(self.pinned.size, self.lost_bytes) if self.pinned is not None else 0

    def unpin(self, undo: Undo | None) -> None:
        """Let what it holds change; what the pinned version needs goes to ``undo``."""
        self.pinned = None
        if undo is not None:
            undo.level = self.levels
            self.undo = undo
            self.levels += 1
            if not undo.is_empty:
                self.undos.append(undo)

    def differences(self, before: Held, after: Held) -> Iterator[tuple[int, int]]:
        """Yield where two versions differ, one right after the other, besides in what only the longer one has."""
        for index in range(bisect_left(self.undos, before.level, key=_level), len(self.undos)):
            if self.undos[index].level >= after.level:
                return
            yield from self.undos[index].ranges

    def preserve(self, fd: int, offset: int, length: int) -> None:
        """Keep what the last version had in a range that is about to be overwritten; see `Undo.preserve`.

        Before there is a version, what the range was is in the blob store: then it is only noted.
        """
        undo = self.undo
        if undo is None:
            if self.changes is not None and not self.changes.note(offset, length):
                self.changes = None
        elif offset < undo.size:
            empty = undo.is_empty
            try:
                undo.preserve(lambda at, size: self.read(fd, at, size), offset, length)
            finally:  # also if only a part could be kept
                if empty and not undo.is_empty:
                    self.undos.append(undo)


class Held:
    """The content of a version that is in a data file and its undo files."""

    __slots__ = ("content", "data", "level", "size", "stored")

    def __init__(self, data: DataFile, level: int, size: int) -> None:
        self.data = data
        self.level = level
        """How many undo files the data file had before."""
        self.size = size
        self.content: Content | None = None
        """Its id, once somebody asked."""
        self.stored = False
        """Whether the blob store has it: the data file may have changed since, or be gone."""


class VersionFile(io.RawIOBase):
    """A version of a data file, read-only and seekable. It may be read while the data file is written.

    Args:
        fd: the data file; closed with this.
        held: the version.
        stored: opens it in the blob store; called if it has gone there meanwhile.
    """

    def __init__(self, fd: int, held: Held, stored: Callable[[Content], io.BufferedIOBase]) -> None:
        super().__init__()
        self._fd = fd
        self._held = held
        self._stored = stored
        self._moved: io.BufferedIOBase | None = None
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
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._held.size}[whence] + offset
        return self._at

    def readinto(self, into: WriteableBuffer) -> int:
        """Read on, up to where the bytes come from another file.

        Raises:
            OSError: ESTALE: the version was rolled back.
        """
        target = memoryview(into).cast("B")
        end = min(self._at + len(target), self._held.size)
        if self._at >= end:
            return 0
        part = self._read_stored(end) if self._held.stored else self._read_held(end)
        target[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _read_held(self, end: int) -> bytes:
        undos = self._held.data.undos
        for index in range(bisect_left(undos, self._held.level, key=_level), len(undos)):
            stop, position = undos[index].kept(self._at)
            if position is not None:
                return undos[index].read(position, min(end, stop) - self._at)
            if stop > self._at:  # else it is behind the end of that later, shorter version
                end = min(end, stop)
        return self._held.data.read(self._fd, self._at, end - self._at)

    def extent(self, offset: int) -> tuple[int, bool]:
        """Return where the extent that holds an offset ends, and whether it is a hole; see `sparse.extent`."""
        held = self._held
        end = held.size
        if held.stored or offset >= end:
            return sys.maxsize, False
        undos = held.data.undos
        for index in range(bisect_left(undos, held.level, key=_level), len(undos)):
            stop, position = undos[index].kept(offset)
            if position is not None:
                return min(end, stop), False
            if stop > offset:
                end = min(end, stop)
        if held.data.partial is not None:
            stop, is_here = held.data.partial.run(offset)
            end = min(end, stop)
            if not is_here:  # a hole, and yet no zeros
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


def _level(undo: Undo) -> int:
    return undo.level
