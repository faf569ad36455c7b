"""The data file behind a file: opening or fetching it, and what must be logged and preserved before it changes.

That a file changes is logged before its first write after a version; what a version needs of the overwritten range
goes to an undo file first (`chronicle.workspace.layer.disk.data_file`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from chronicle.workspace.layer.disk import log_records as records
from chronicle.workspace.layer.disk.data_file import ChangedRanges
from chronicle.workspace.layer.disk.log_records import pack, pack_data

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.workspace.layer.disk.data_file import DataFile
    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.disk.log import LayerLog
    from chronicle.workspace.layer.state.apply import Applier
    from chronicle.workspace.layer.state.node import FileNode

__all__ = ["FileData"]

_COPY_SYNC_BYTES: Final = 4 * 1024 * 1024
"""Up to this size, a committed file is synced before its first change in place. Usually the system has written it long
ago, and syncing costs 0.2 ms here."""
_FETCHED_BYTES: Final = 1024 * 1024
"""Up to this size, stored content is fetched whole when it is changed: a few requests. A larger file gets a partial
data file, which holds only what is written."""


class FileData:
    """The data files of a layer's files.

    Args:
        applier: changes the state.
        files: the layer's files on disk.
        log: the layer's log.
        now: gives the time, epoch nanoseconds.
    """

    def __init__(self, applier: Applier, files: LayerFiles, log: LayerLog, now: Callable[[], int]) -> None:
        self._applier = applier
        self._state = applier.state
        self._files = files
        self._log = log
        self._now = now

    def find(self, node: FileNode) -> bool:
        """Say whether a file has a data file on this node, and attach that to it."""
        if node.data is None and node.content is not None:
            node.data = self._files.find_clean(node.ino, node.content)
        elif not node.dirty:
            self._files.warm.touch(node.ino)
        return node.data is not None

    def open(self, node: FileNode) -> int:
        """Open a file's data file for reading and writing; return the descriptor.

        Without one on this node, a small content is fetched, and a large one gets a partial data file.
        """
        if not self.find(node):
            content = node.content
            assert content is not None
            if content.size > _FETCHED_BYTES:
                node.data, fd = self._files.create_partial(content.size)
                self._applier.begin_part(node.data, content)
                node.sparse_blocks = None
                return fd
            node.data = self._files.fetch(self._state.reader, content)
            if node.ino not in self._state.names.renumbered:  # the next process knows it by another number
                self._files.index_clean([(node.ino, node.data, content)])
            node.note_holes(self._files.stat_data(node.data))
        assert node.data is not None
        return self._files.open_data(node.data)

    def guard(self, node: FileNode, fd: int, offset: int, length: int) -> None:
        """Before a write to a guarded file: log that it changes, and preserve what a version needs of the range.

        Args:
            node: the file.
            fd: its data file.
            offset: where the range begins.
            length: its bytes.

        Raises:
            OSError: it could not be logged or preserved; the range must not be written.
        """
        data = node.data
        assert data is not None
        names = self._state.names
        names.load_links(node)
        if data.pinned is not None:
            undo = self._files.create_undo(data.pinned_bytes)
            self._log.append(pack_data(self._now(), names.path_of(node), data, undo.number, undo.size))
            self._applier.begin_write(node, data, undo)
        elif not node.dirty:
            path = names.path_of(node)
            if path is not None:
                data.is_unsynced_copy = data.partial is not None or not self._sync_copy(data, fd, node.length)
                kind = records.PART if data.partial is not None else records.COPY if data.is_unsynced_copy else 0
                self._log.append(pack_data(self._now(), path, data, 0, kind))
            else:  # no record will tell that the file no longer holds its indexed content
                self._files.unindex(node.ino)
            self._applier.begin_write(node, data, None)
            if data.partial is None and node.content is not None and node.content.chunked:
                data.changes = ChangedRanges(node.content)
                node.guarded = True
        data.preserve(fd, offset, length)

    def _sync_copy(self, data: DataFile, fd: int, size: int) -> bool:
        """Sync a copy of stored content before it is changed in place, unless it is large; return whether it was.

        Otherwise a loss of power could leave less than what was committed. For a large file that would cost the size
        of the file, not of the change: its record then says that it is a copy, and the stored content counts until the
        file is synced.
        """
        if size > _COPY_SYNC_BYTES:
            return False
        os.fdatasync(fd)
        self._files.sync_name(data)
        data.synced = True
        return True

    def note_written(self, node: FileNode, start: int, end: int) -> None:
        """After a write to a partial data file: log that it has this range. Other data files need no record.

        Until then the range is read from the blob store, so a write whose record fails did not happen.
        """
        data = node.data
        if data is None or data.partial is None:
            return
        partial = data.partial
        end = min(end, partial.content.size)
        if start >= end or partial.has(start, end):
            return
        if node.nlink:  # the log of a removed file may not even name the data file
            self._log.append(pack((records.WRITTEN, data.number, start, end - start)))
        partial.written.add(start, end)
        data.is_unsynced_copy = True
        if partial.is_whole:
            data.partial = None

    def note_end(self, node: FileNode) -> None:
        """Before a file with a partial data file grows: log that stored content behind its end is gone."""
        if node.data is not None and node.data.partial is not None:
            self.note_written(node, node.length, node.data.partial.content.size)

    def note_synced(self, node: FileNode) -> None:
        """After a file's bytes and name were synced: log it, if replay needs to know.

        The record itself need not be synced at once.
        """
        self.note_end(node)  # from now on, which ranges are here must not depend on the file's size
        data = node.data
        if data is not None and data.is_unsynced_copy:
            self._log.append(pack((records.SYNCED, data.number)))
            data.is_unsynced_copy = False

    def empty(self, node: FileNode) -> None:
        """Truncate a file to nothing: it gets a new data file, and versions keep the old one."""
        names = self._state.names
        names.load_links(node)
        data, fd = self._files.create_data()
        try:
            path = names.path_of(node)
            if path is not None:
                self._log.append(pack_data(self._now(), path, data, 0, 0))
        except OSError:
            os.close(fd)
            self._files.drop_data(data)
            raise
        self._applier.begin_write(node, data, None)
        node.sparse_blocks = None
        self._state.usage.resize(node, 0)
        node.mtime_ns = node.ctime_ns = self._now()
        if node.opens:
            if node.fd >= 0:
                os.close(node.fd)
            node.fd = fd
        else:
            os.close(fd)
