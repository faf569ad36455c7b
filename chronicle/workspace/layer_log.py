"""A layer's local log: an append-only file of checked frames, the truth about what changed since the base.

A frame is ``length (4 bytes, little-endian) · crc32 of the payload (4 bytes) · payload``. The first frame is the
header. A frame is written with one ``write(2)``, so what was appended survives the death of the process; it survives
the loss of power once `LayerLog.sync` has returned. A crash can tear the last frames only: opening cuts the file
after the last sound one.

This module knows frames, not what is in them.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from typing import TYPE_CHECKING, Final

from chronicle.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["LayerLog", "position", "read_frames", "sync_directory", "write_frames"]

_HEAD: Final = struct.Struct("<II")
_BATCH_FRAMES: Final = 1000
MAX_PAYLOAD_BYTES: Final = 64 * 1024 * 1024
"""A longer length in a frame's head is taken for garbage."""


class LayerLog:
    """An open log, at its end.

    Args:
        path: the file; it must exist (see `LayerLog.create`) and end in a sound frame (see `LayerLog.open`).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._end = os.fstat(self._fd).st_size
        self._unsynced = False
        self._renamed = False

    @classmethod
    def create(cls, path: Path, payloads: Sequence[bytes]) -> LayerLog:
        """Put a new log in the place of whatever was there, atomically, and open it.

        After a loss of power before the next `sync` there may be the old log as it was, or none if there was none.

        Args:
            path: where; its directory must exist.
            payloads: the first frames: the header, then what carries over.
        """
        fresh = path.with_suffix(".new")
        replaces = path.exists()
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_frames(fd, payloads)
            if replaces:
                os.fdatasync(fd)
        finally:
            os.close(fd)
        fresh.rename(path)
        log = cls(path)
        log._unsynced = not replaces
        log._renamed = True
        return log

    @classmethod
    def open(cls, path: Path) -> tuple[LayerLog, list[bytes]]:
        """Open a log after an end of any kind.

        Returns:
            the log, and the payloads of its frames, the header first; a torn tail is cut off the file.

        Raises:
            Corrupt: not even the header is whole.
        """
        data = path.read_bytes()
        payloads, sound = read_frames(data)
        if not payloads:
            raise Corrupt(f"{path} has no whole header: it is not a layer's log, or was damaged")
        if sound < len(data):
            os.truncate(path, sound)
        return cls(path), payloads

    @property
    def end(self) -> int:
        """The file's length, bytes: where the next frame goes."""
        return self._end

    def append(self, payload: bytes) -> None:
        """Append one frame.

        Raises:
            OSError: it could not be written; the log is as it was before.
        """
        size = len(payload)
        frame = _HEAD.pack(size, zlib.crc32(payload)) + payload
        try:
            written = os.write(self._fd, frame)
        except OSError:
            os.ftruncate(self._fd, self._end)
            raise
        size += _HEAD.size
        if written != size:  # the disk is full: a part of a frame must not stay before the next one
            os.ftruncate(self._fd, self._end)
            raise OSError(errno.ENOSPC, "no space left for the layer's log")
        self._end += size
        self._unsynced = True

    def append_all(self, payloads: Sequence[bytes]) -> None:
        """Append frames that mean something each by itself: a crash may keep the first of them only.

        Raises:
            OSError: not all could be written; what comes next goes after the last one that was.
        """
        for start in range(0, len(payloads), _BATCH_FRAMES):
            part = payloads[start : start + _BATCH_FRAMES]
            try:
                write_frames(self._fd, part)
            except OSError:
                os.ftruncate(self._fd, self._end)
                raise
            self._end += position(part)
            self._unsynced = True

    def append_together(self, payloads: Sequence[bytes]) -> None:
        """Append frames that mean something together only. A crash may keep the first of them: they must tell.

        Raises:
            OSError: they could not be written; the log is as it was before.
        """
        try:
            for start in range(0, len(payloads), _BATCH_FRAMES):
                write_frames(self._fd, payloads[start : start + _BATCH_FRAMES])
        except OSError:
            self.cut(self._end)
            raise
        self._end += position(payloads)
        self._unsynced = True

    def cut(self, end: int) -> None:
        """Drop the frames from a position on."""
        os.ftruncate(self._fd, end)
        self._end = end
        self._unsynced = True

    def frames_since(self, position: int) -> list[bytes]:
        """Return the payloads of the frames from a position on that `end` gave."""
        with open(f"/proc/self/fd/{self._fd}", "rb") as file:
            file.seek(position)
            return read_frames(file.read())[0]

    def sync(self) -> None:
        """Make what was appended survive the loss of power. Free if nothing was appended since the last time."""
        if self._unsynced:
            os.fdatasync(self._fd)
            self._unsynced = False
        if self._renamed:
            sync_directory(self._path.parent)
            self._renamed = False

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def write_frames(fd: int, payloads: Sequence[bytes]) -> None:
    """Write frames at a descriptor's position."""
    data = b"".join(_HEAD.pack(len(payload), zlib.crc32(payload)) + payload for payload in payloads)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_frames(data: bytes) -> tuple[list[bytes], int]:
    """Return the payloads of the sound frames at the start of ``data``, and how many bytes those frames have."""
    payloads = []
    at = 0
    while at + _HEAD.size <= len(data):
        length, check = _HEAD.unpack_from(data, at)
        start = at + _HEAD.size
        payload = data[start : start + length]
        if length == 0:  # no frame is empty: a size that came to the disk before the bytes
            break
        if length > MAX_PAYLOAD_BYTES or len(payload) != length or zlib.crc32(payload) != check:
            break
        payloads.append(payload)
        at = start + length
    return payloads, at


def position(payloads: Sequence[bytes]) -> int:
    """Return where in a log the frame after these first ones begins."""
    return sum(map(len, payloads)) + len(payloads) * _HEAD.size


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive the loss of power."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
