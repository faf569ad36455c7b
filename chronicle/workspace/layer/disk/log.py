"""A layer's local log: an append-only file of checksummed frames, the truth about what changed since the base.

A frame is ``length (4 bytes, little-endian) · crc32 of the payload (4 bytes) · payload``. The first frame is the
header. A frame is written with one ``write(2)``, so what was appended survives the death of the process; it survives
the loss of power once `LayerLog.sync` has returned. A crash can tear the last frames only: opening cuts the file
after the last sound one.

This module knows frames, not records.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from chronicle.errors import Corrupt
from chronicle.system.atomic_files import replacing, sync_directory, write_all

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["LayerLog", "position", "read_frames", "write_frames"]

_HEAD: Final = struct.Struct("<II")
_BATCH_FRAMES: Final = 1000
_READ_BYTES: Final = 64 * 1024 * 1024
MAX_PAYLOAD_BYTES: Final = 64 * 1024 * 1024
"""A longer payload is not written."""


class LayerLog:
    """An open log, at its end. Made by `LayerLog.create` and `LayerLog.open`.

    Args:
        path: the file.
        fd: it, open for reading and appending.
        end: its length, bytes.
    """

    def __init__(self, path: Path, fd: int, end: int) -> None:
        self._path = path
        self._fd = fd
        self._end = end
        self._torn = False
        """Whether torn bytes may follow the end; they must be cut off before the next append."""
        self._unsynced = True
        self._renamed = True
        """Whether its name may not be on disk yet."""
        self._lost = False
        """Whether a sync failed: the kernel may have dropped dirty pages, and reports that only once."""

    @classmethod
    def create(cls, path: Path, payloads: Sequence[bytes]) -> LayerLog:
        """Create a log, atomically replacing an existing one, and open it.

        After a loss of power before the next `sync`, the old log may be there as it was, or none if there was none.

        Args:
            path: where; its directory must exist.
            payloads: the first frames, the header first.

        Raises:
            OSError: it could not be written; an existing log is as it was.
        """
        replaces = path.exists()
        log = cls(path, _replace(path, payloads, sync=replaces), position(payloads))
        log._unsynced = not replaces
        return log

    @classmethod
    def open(cls, path: Path) -> tuple[LayerLog, list[bytes]]:
        """Open a log, after a crash as after a clean close.

        Returns:
            the log, and the payloads of its frames, the header first; a torn tail is cut off the file.

        Raises:
            Corrupt: not even the header is whole.
        """
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        try:
            data = _read(fd, 0, os.fstat(fd).st_size)
            payloads, sound = read_frames(data)
            if not payloads:
                raise Corrupt(f"{path} has no whole header: it is not a layer's log, or was damaged")
            if sound < len(data):
                os.ftruncate(fd, sound)
        except BaseException:
            os.close(fd)
            raise
        return cls(path, fd, sound), payloads

    def replace(self, payloads: Sequence[bytes]) -> None:
        """Replace all frames, atomically.

        After a loss of power before the next `sync` the file may be as it was before.

        Args:
            payloads: the new frames, the header first.

        Raises:
            OSError: they could not be written; the log is as it was.
        """
        old = self._fd
        self._fd = _replace(self._path, payloads, sync=True)
        self._end = position(payloads)
        self._lost = self._unsynced = self._torn = False
        self._renamed = True
        with suppress(OSError):  # nothing reads it any more
            os.close(old)

    @property
    def end(self) -> int:
        """The file's length, bytes: where the next frame goes."""
        return self._end

    def append(self, payload: bytes) -> None:
        """Append one frame.

        Raises:
            OSError: it could not be written; the log is as it was before.
        """
        frame = _frame(payload)
        if self._torn:
            self._cut_torn()
        try:
            if os.write(self._fd, frame) != len(frame):
                raise OSError(errno.ENOSPC, "no space left for the layer's log")
        except OSError:  # a torn frame must not precede the next one
            self.cut(self._end)
            raise
        self._end += len(frame)
        self._unsynced = True

    def append_all(self, payloads: Sequence[bytes]) -> None:
        """Append independent frames: a crash may keep only the first ones.

        Raises:
            OSError: not all could be written; the next frame goes after the last one that was.
        """
        for start in range(0, len(payloads), _BATCH_FRAMES):
            self.append_together(payloads[start : start + _BATCH_FRAMES])

    def append_together(self, payloads: Sequence[bytes]) -> None:
        """Append frames that count together. A crash may keep only the first ones, so the first must tell their number.

        Raises:
            OSError: they could not be written; the log is as it was before.
        """
        if self._torn:
            self._cut_torn()
        try:
            for start in range(0, len(payloads), _BATCH_FRAMES):
                write_frames(self._fd, payloads[start : start + _BATCH_FRAMES])
        except OSError:
            self.cut(self._end)
            raise
        self._end += position(payloads)
        self._unsynced = True

    def cut(self, end: int) -> None:
        """Drop the frames from a position on; if the disk fails now, before the next append."""
        self._end = end
        self._torn = True
        self._unsynced = True
        with suppress(OSError):
            self._cut_torn()

    def _cut_torn(self) -> None:
        os.ftruncate(self._fd, self._end)
        self._torn = False

    def frames_since(self, position: int) -> list[bytes]:
        """Return the payloads of the frames from a position on that `end` gave.

        Raises:
            OSError: EIO: some are missing.
        """
        payloads, sound = read_frames(_read(self._fd, position, self._end))
        if position + sound != self._end:
            raise OSError(errno.EIO, f"{self._path} lost records: the disk failed")
        return payloads

    def sync(self) -> None:
        """Make what was appended survive the loss of power. Does nothing if nothing was appended since the last sync.

        Raises:
            OSError: it may not survive. The next call rewrites the whole log.
        """
        if self._lost:
            fd = _replace(self._path, self.frames_since(0), sync=True)
            os.close(self._fd)
            self._fd = fd
            self._lost = self._unsynced = self._torn = False
            self._renamed = True
        if self._unsynced:
            try:
                os.fdatasync(self._fd)
            except OSError:
                self._lost = True
                raise
            self._unsynced = False
        if self._renamed:
            sync_directory(self._path.parent)
            self._renamed = False

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def _replace(path: Path, payloads: Sequence[bytes], *, sync: bool) -> int:
    """Replace a log by a new file of frames, atomically; return its descriptor."""
    with ExitStack() as undo:
        with replacing(path, path.with_suffix(".new")) as fresh:
            fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
            undo.callback(os.close, fd)
            write_frames(fd, payloads)
            if sync:
                os.fdatasync(fd)
        undo.pop_all()
    return fd


def _read(fd: int, start: int, end: int) -> bytes:
    """Return the bytes of a file between two positions; fewer if it ends before."""
    parts = []
    while start < end and (part := os.pread(fd, min(_READ_BYTES, end - start), start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _frame(payload: bytes) -> bytes:
    """Return a payload as a frame.

    Raises:
        OSError: EFBIG: it is too long.
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise OSError(errno.EFBIG, f"a record of {len(payload)} bytes; a layer's log takes {MAX_PAYLOAD_BYTES}")
    return _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def write_frames(fd: int, payloads: Sequence[bytes]) -> None:
    """Write frames at a descriptor's position; nothing of them if one is too long."""
    write_all(fd, b"".join(map(_frame, payloads)))


def read_frames(data: bytes) -> tuple[list[bytes], int]:
    """Return the payloads of the sound frames at the start of ``data``, and how many bytes those frames have."""
    payloads = []
    at = 0
    while at + _HEAD.size <= len(data):
        length, check = _HEAD.unpack_from(data, at)
        start = at + _HEAD.size
        payload = data[start : start + length]
        if length == 0:  # no frame is empty: the file's size reached the disk before its bytes
            break
        if len(payload) != length or zlib.crc32(payload) != check:
            break
        payloads.append(payload)
        at = start + length
    return payloads, at


def position(payloads: Sequence[bytes]) -> int:
    """Return where in a log the frame after these first ones begins."""
    return sum(map(len, payloads)) + len(payloads) * _HEAD.size
