"""The files of a layer on disk: data files, undo files, and which of them hold what the blob store has too.

    <layer>/data/<n>        a file's bytes, written in place
    <layer>/versions/<n>    an undo file (`chronicle.workspace.layer.disk.data_file`)
    <layer>/cache           which data files are clean, and of what content

The cache index is a log of its own. An entry is written after its data file is complete, and revoked by the record in
the layer's log that comes before a change; the layer's log wins. The index is valid for one boot of the machine: data
files are not synced when they are fetched, so after a loss of power none counts as clean.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

import msgpack

from chronicle.blobs.ident import from_raw, to_raw
from chronicle.errors import Corrupt
from chronicle.system.boot import boot_id
from chronicle.workspace.content import content as contents
from chronicle.workspace.layer.disk.data_file import DataFile
from chronicle.workspace.layer.disk.log import LayerLog
from chronicle.workspace.layer.disk.undo_file import UndoFile
from chronicle.workspace.layer.disk.version_file import VersionFile
from chronicle.workspace.layer.disk.warm_files import WarmFiles

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.layer.disk.data_file import LocalContent

__all__ = ["LayerFiles"]

_CACHE_SLACK: Final = 1000
"""Outdated entries of the cache index at which opening rewrites it."""
_MAY_BE_SPARSE_BYTES: Final = 1024 * 1024
"""From this size on, the disk usage of a file is looked up: it may be sparse."""
_COPY_BYTES: Final = 1024 * 1024
_PART_BYTES: Final = 4096
"""Read-ahead of a version that is only partly on this node."""


class LayerFiles:
    """The data files, undo files and cache index of one layer directory.

    Args:
        directory: the layer's directory; missing subdirectories are created.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in ("data", "versions"):
            (directory / name).mkdir(exist_ok=True)
        self._fresh_names = True
        """Whether names of files may not be on disk, including those of an earlier process."""
        self._synced_below = 0
        """The names of data files with smaller numbers are on disk."""
        self.next_number = 1
        """The next file's number; never used twice in a layer directory."""
        self._unneeded: list[DataFile] = []
        """Data files to remove after the next sync of the log."""
        self.warm = WarmFiles()
        """The clean data files: the blob store has their content too."""
        self._cache: LayerLog | None = None
        with contextlib.ExitStack() as undo:
            self._data_fd = os.open(directory / "data", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            undo.callback(os.close, self._data_fd)
            self._undo_fd = os.open(directory / "versions", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            undo.callback(os.close, self._undo_fd)
            self._cache = self._open_cache()
            undo.pop_all()
        self.power_lost = self._cache is None
        """Whether the machine may have lost power since the layer was used: unsynced bytes and names may be missing."""

    def close(self) -> None:
        """Close its own descriptors."""
        os.close(self._data_fd)
        os.close(self._undo_fd)
        if self._cache is not None:
            self._cache.close()

    # -- data files -----------------------------------------------------------------------------------------------

    def create_data(self) -> tuple[DataFile, int]:
        """Create an empty data file; return it and a descriptor for reading and writing."""
        number = self.next_number
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd = os.open(b"%x" % number, flags, 0o600, dir_fd=self._data_fd)
        self.next_number = number + 1
        self._fresh_names = True
        return DataFile(number), fd

    def create_partial(self, size: int) -> tuple[DataFile, int]:
        """Create a data file that is one hole of a size, in bytes; return it and a descriptor."""
        self._cache_log()  # it names this boot; without it a crash of the process would look like a loss of power
        data, fd = self.create_data()
        try:
            os.ftruncate(fd, size)
        except OSError:
            os.close(fd)
            self.drop_data(data)
            raise
        return data, fd

    def open_data(self, data: DataFile) -> int:
        """Open a data file for reading and writing."""
        return os.open(b"%x" % data.number, os.O_RDWR | os.O_CLOEXEC, dir_fd=self._data_fd)

    def stat_data(self, data: DataFile) -> os.stat_result:
        """Return a data file's status."""
        return os.stat(b"%x" % data.number, dir_fd=self._data_fd)

    def sync_data(self, data: DataFile) -> None:
        """Make a data file's bytes and undo files survive the loss of power."""
        fd = self.open_data(data)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)
        for undo in data.undos:
            undo.sync()

    def extend_data(self, data: DataFile, size: int) -> None:
        """Extend a data file to the length that it had, with a hole for the lost bytes."""
        fd = self.open_data(data)
        try:
            os.ftruncate(fd, size)
        finally:
            os.close(fd)

    def recreate_data(self, data: DataFile) -> None:
        """Create an empty data file if the name did not survive a loss of power."""
        os.close(os.open(b"%x" % data.number, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self._data_fd))
        self._fresh_names = True

    def drop_data(self, data: DataFile) -> None:
        """Remove a data file and its undo files. What an error leaves is removed at the next opening."""
        self.drop_undos(data)
        with contextlib.suppress(OSError):
            os.unlink(b"%x" % data.number, dir_fd=self._data_fd)

    def drop_unneeded(self, data: DataFile) -> None:
        """Remove a data file that the log needs no more; one that was synced only after the next sync of the log."""
        if data.synced:
            self._unneeded.append(data)
        else:
            self.drop_data(data)

    def drop_after_log_sync(self, data: DataFile) -> None:
        """Remove a data file and its undo files after the next sync of the log."""
        self._unneeded.append(data)

    def after_log_sync(self) -> None:
        """Remove the data files that waited for a sync of the log. Called after each."""
        for data in self._unneeded:
            self.drop_data(data)
        self._unneeded.clear()

    def sync_names(self) -> None:
        """Make the names of new data and undo files survive the loss of power."""
        if self._fresh_names:
            os.fsync(self._data_fd)
            os.fsync(self._undo_fd)
            self._fresh_names = False
            self._synced_below = self.next_number

    def sync_name(self, data: DataFile) -> None:
        """Make the name of one data file survive the loss of power."""
        if data.number >= self._synced_below:
            self.sync_names()

    def remove_orphans(self, kept: Container[int]) -> None:
        """Remove files that neither ``kept`` nor the cache index names: a crash left them."""
        clean = {number for _, (number, _) in self.warm.items()}
        for fd in (self._data_fd, self._undo_fd):
            for name in os.listdir(fd):
                number = int(name, 16)
                self.next_number = max(self.next_number, number + 1)
                if number not in kept and number not in clean:
                    os.unlink(name, dir_fd=fd)

    # -- old versions ---------------------------------------------------------------------------------------------

    def create_undo(self, size: int) -> UndoFile:
        """Return an empty undo file for a version of so many bytes."""
        number = self.next_number
        self.next_number = number + 1
        return self.undo(number, size)

    def undo(self, number: int, size: int) -> UndoFile:
        """Return an undo file by number, which an earlier process may have written."""
        return UndoFile(number, size, self._open_undo)

    def undo_is_kept(self, number: int) -> bool:
        """Say whether an undo file exists: it is created with its first block."""
        try:
            os.stat(b"%x" % number, dir_fd=self._undo_fd)
        except FileNotFoundError:
            return False
        return True

    def _open_undo(self, number: int, make: bool) -> int:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC
        if make:
            self._fresh_names = True
            flags |= os.O_CREAT
        return os.open(b"%x" % number, flags, 0o600, dir_fd=self._undo_fd)

    def drop_undos(self, data: DataFile) -> None:
        """Remove the undo files of a data file, whose versions are in the blob store or rolled back."""
        for held in data.versions:
            held.stored = True
        for undo in data.undos:
            with contextlib.suppress(OSError):
                os.unlink(b"%x" % undo.number, dir_fd=self._undo_fd)
        data.versions, data.undos = [], []
        data.pinned = data.undo = data.changes = None
        data.lost_bytes = 0

    def read_small(self, held: LocalContent) -> bytes | None:
        """Return a version's bytes if it is small and none was overwritten; otherwise None."""
        undos = held.data.undos
        if held.size > contents.WHOLE_BYTES or held.stored or held.data.partial is not None:
            return None
        if undos and undos[-1].level >= held.level:
            return None
        if held.size == 0:
            return b""
        fd = os.open(b"%x" % held.data.number, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._data_fd)
        try:
            return held.data.read(fd, 0, held.size)
        finally:
            os.close(fd)

    def open_version(self, held: LocalContent, reader: BlobReader) -> BinaryIO:
        """Open a version for reading. It stays readable while its data file is written, sealed and removed."""
        fd = os.open(b"%x" % held.data.number, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._data_fd)
        stored = lambda content: cast("io.BufferedIOBase", contents.open(reader, content))  # noqa: E731
        together = _COPY_BYTES if held.data.partial is None else _PART_BYTES
        return cast("BinaryIO", io.BufferedReader(VersionFile(fd, held, stored), together))

    # -- clean content --------------------------------------------------------------------------------------------

    def find_clean(self, ino: int, content: Content) -> DataFile | None:
        """Return the clean data file of an inode if it holds this content."""
        known = self.warm.get(ino)
        if known is None or known[1] != content:
            return None
        self.warm.touch(ino)
        data = DataFile(known[0])
        try:
            size = self.stat_data(data).st_size
        except FileNotFoundError:
            return None
        return data if size == content.size else None

    def fetch(self, reader: BlobReader, content: Content) -> DataFile:
        """Fetch content from the blob store into a new data file, not indexed; a failure leaves none."""
        data, fd = self.create_data()
        try:
            with open(fd, "wb") as file:
                contents.copy_to(reader, content, file)
        except BaseException:
            self.drop_data(data)
            raise
        return data

    def index_clean(self, entries: Iterable[tuple[int, DataFile, Content]]) -> None:
        """Enter clean data files into the cache index."""
        frames = []
        for ino, data, content in entries:
            frames.append(_frame_clean(ino, data.number, content))
            self._put_warm(ino, data.number, content)
        self._cache_log().append_all(frames)
        if len(frames) > 1:
            self.warm.pack()

    def unindex(self, ino: int) -> None:
        """Remove an inode from the cache index: its data file changes, or is removed."""
        if self.warm.get(ino) is not None:
            self._cache_log().append(msgpack.packb((ino,)))
            self.warm.pop(ino)

    def drop_clean(self, inodes: Sequence[int]) -> None:
        """Remove clean data files of closed files: they are read from the blob store from now on.

        The files are removed first: an entry without a file is ignored, a file without an entry would leak.
        """
        for ino in inodes:
            known = self.warm.get(ino)
            if known is not None:
                self.drop_data(DataFile(known[0]))
                self.warm.pop(ino)
        with contextlib.suppress(OSError):  # the index then names missing files, which is harmless
            self._cache_log().append_all([msgpack.packb((ino,)) for ino in inodes])

    def _put_warm(self, ino: int, number: int, content: Content) -> None:
        on_disk = None
        if content.size >= _MAY_BE_SPARSE_BYTES:
            with contextlib.suppress(FileNotFoundError):
                on_disk = self.stat_data(DataFile(number)).st_blocks * 512
        self.warm.put(ino, number, content, on_disk)

    def mark_recovered(self) -> None:
        """Mark crash recovery done for this boot."""
        self._cache_log()
        self.power_lost = False

    def _cache_log(self) -> LayerLog:
        if self._cache is None:
            live = [_frame_clean(ino, number, content) for ino, (number, content) in self.warm.items()]
            self._cache = LayerLog.create(self._directory / "cache", [boot_id().encode(), *live])
        return self._cache

    def _open_cache(self) -> LayerLog | None:
        """Read the cache index; None if it is of another boot, or unreadable."""
        path = self._directory / "cache"
        boot = boot_id().encode()
        try:
            log, frames = LayerLog.open(path)
        except (FileNotFoundError, Corrupt):
            return None
        if frames[0] == boot:
            for frame in frames[1:]:
                fields = msgpack.unpackb(frame, use_list=False)
                if len(fields) == 1:
                    self.warm.pop(fields[0])
                else:
                    ino, number, size, raw = fields
                    content = contents.Content(from_raw(raw), size, chunked=size > contents.WHOLE_BYTES)
                    self._put_warm(ino, number, content)
                    self.next_number = max(self.next_number, number + 1)
            if len(frames) <= 2 * len(self.warm) + _CACHE_SLACK:
                return log
        log.close()
        return self._cache_log() if frames[0] == boot else None


def _frame_clean(ino: int, number: int, content: Content) -> bytes:
    """Return an entry of the cache index."""
    packed: bytes = msgpack.packb((ino, number, content.size, to_raw(content.id)))
    return packed
