"""The bytes of a layer's files: opening, reading, writing, and the versions that closing makes.

Bytes are written in place into data files; what versions need of what is overwritten is kept first
(`chronicle.workspace.layer.disk.undo`). That a file changes is logged before it does, once until its next version.
"""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING, Final

from chronicle.clock import SystemClock
from chronicle.system.atomic_files import sync_directory
from chronicle.system.fallocate import KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE, fallocate
from chronicle.workspace.content.lazy_reader import Chunks, LazyFile
from chronicle.workspace.layer.disk import log_records as records
from chronicle.workspace.layer.disk.log_records import pack, pack_data
from chronicle.workspace.layer.disk.undo import Changes
from chronicle.workspace.layer.node import FileNode, Node
from chronicle.workspace.layer.state import MILLION, LayerState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.clock import Clock
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.disk.log import LayerLog
    from chronicle.workspace.layer.disk.log_records import Header
    from chronicle.workspace.layer.disk.undo import DataFile
    from chronicle.workspace.port import Quota, TreeRef, Usage

__all__ = ["ContentLayer", "Handle"]

_COPY_SYNC_BYTES: Final = 4 * 1024 * 1024
"""Up to this size, a committed file is synced before it is changed in place the first time. Usually the system has
written it long ago, and syncing costs 0.2 ms here."""
_FETCHED_BYTES: Final = 1024 * 1024
"""Up to this size, content that is not on this node is fetched when it is changed: that is a few requests at most, and
then it is here. Of a larger one only what is written is here."""


class Handle:
    """An open file."""

    __slots__ = ("fresh", "node", "stale", "stored", "wrote")

    def __init__(self, node: FileNode, *, fresh: bool) -> None:
        self.node = node
        self.fresh = fresh
        """Whether opening it made or emptied the file. That alone is a version only if nothing is written until the
        release: a shell's ``echo x > file`` closes a copy of the descriptor before it writes."""
        self.wrote = False
        """Whether it wrote since its last flush."""
        self.stale = False
        """Whether the layer it was opened in was rolled back: it answers ESTALE from then on."""
        self.stored: LazyFile | None = None
        """Reads what is not on this node, once something was read."""


class ContentLayer(LayerState):
    """A layer's state with its log, and what is done to the bytes of files.

    Args:
        directory: the layer's directory on disk.
        blobs: the blob store.
        reader: reads from it, caching.
        files: the layer's files.
        log: its log.
        header: the log's first record.
        start: the state to start from, before the log is read back.
        clock: gives the time.
    """

    def __init__(
        self,
        directory: Path,
        blobs: BlobStore,
        reader: BlobReader,
        files: LayerFiles,
        log: LayerLog,
        header: Header,
        start: TreeRef | None,
        clock: Clock,
    ) -> None:
        super().__init__(reader, Chunks.of_store(blobs), files, start, header.owner, header.turn)
        self.directory = directory
        self._blobs = blobs
        self._log = log
        self._handles: set[Handle] = set()
        self.quota: Quota | None = None
        """How much it may hold; nothing is refused without."""
        self.warm_bytes: int | None = None
        """How much of what the blob store has is kept in data files, bytes; everything without. See `warm`."""
        self._placed = False
        """Whether the directories that the layer is in are known to survive the loss of power."""
        self._now: Callable[[], int] = (
            time.time_ns if isinstance(clock, SystemClock) else lambda: clock.now_ms() * MILLION
        )

    @property
    def logged(self) -> int:
        """How much was logged, bytes: whether something was, between two looks with no commit in between."""
        return self._log.end

    def open(self, node: FileNode, *, truncate: bool = False) -> Handle:
        """Open a file. Content that is not on this node is fetched as it is read; a small one when it is changed."""
        if truncate:
            if node.length:
                self._empty(node)
            else:
                self.set_times(node, node.atime_ns, self._now())
        if node.fd < 0 and self._is_here(node):
            node.fd = self._open_data(node)
        node.opens += 1
        handle = Handle(node, fresh=truncate)
        self._handles.add(handle)
        return handle

    def read(self, handle: Handle, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        if handle.stale:
            raise OSError(errno.ESTALE, "the workspace was rolled back")
        node = handle.node
        if node.fd < 0:
            assert node.content is not None
            return self._stored(handle, node.content).read(offset, size)
        partial = node.data.partial if node.data is not None else None
        if partial is None:
            return os.pread(node.fd, size, offset)
        size = min(size, node.length - offset)
        return partial.read(node.fd, offset, size, self._stored(handle, partial.content))

    def _stored(self, handle: Handle, content: Content) -> LazyFile:
        """Return what reads a content for a handle."""
        stored = handle.stored
        if stored is None or stored.content != content:
            if stored is not None:
                stored.close()
            stored = handle.stored = LazyFile(self._reader, self._chunks, content)
        return stored

    def write(self, handle: Handle, offset: int, data: bytes | memoryview) -> int:
        """Write; return how many bytes. Survives the death of the process from now on."""
        if handle.stale:
            raise OSError(errno.ESTALE, "the workspace was rolled back")
        node = handle.node
        if self.quota is not None:
            self._check_size(node, offset + len(data))
        if node.fd < 0:
            node.fd = self._open_data(node)
        if node.guarded:
            self._guard(node, node.fd, offset, len(data))
        if offset + len(data) > node.length:
            self._note_end(node)
        written = os.pwrite(node.fd, data, offset)
        node.mtime_ns = node.ctime_ns = self._now()
        node.unversioned = True
        handle.wrote = True
        try:
            self._note_written(node, offset, offset + written)
        except OSError:
            if offset + written > node.length:  # it was not written, so it has not made the file longer either
                os.ftruncate(node.fd, node.length)
            raise
        if offset + written > node.length:
            if offset > node.length and node.sparse is None:
                node.sparse = 0
            self.resize(node, offset + written)
        return written

    def truncate(self, node: FileNode, size: int, handle: Handle | None = None) -> None:
        """Set a file's size. Without a handle it is a version of its own."""
        if handle is not None and handle.stale:
            raise OSError(errno.ESTALE, "the workspace was rolled back")
        if size == node.length:
            now = self._now()
            self.set_times(node, node.atime_ns, now)
            return
        if size == 0:
            self._empty(node)
        else:
            if self.quota is not None:
                self._check_size(node, size)
            fd = node.fd if node.fd >= 0 else self._open_data(node)
            try:
                if node.guarded:
                    self._guard(node, fd, size, max(0, node.length - size))
                if size > node.length:
                    self._note_end(node)
                os.ftruncate(fd, size)
                if size > node.length or node.sparse is not None:
                    node.sparse = os.fstat(fd).st_blocks
            finally:
                if node.opens:
                    node.fd = fd
                else:
                    os.close(fd)
            self.resize(node, size)
        node.mtime_ns = node.ctime_ns = self._now()
        node.unversioned = True
        if handle is not None:
            handle.wrote = True
        else:
            self._settle(node)

    def allocate(self, handle: Handle, mode: int, offset: int, length: int) -> None:
        """Reserve, zero or give back a range, as fallocate(2) says; what changes no byte makes no version."""
        if handle.stale:
            raise OSError(errno.ESTALE, "the workspace was rolled back")
        node = handle.node
        if node.fd < 0:
            node.fd = self._open_data(node)
        end = offset + length
        grows = end > node.length and not mode & KEEP_SIZE
        changes = bool(mode & (PUNCH_HOLE | ZERO_RANGE)) and offset < node.length
        if grows and self.quota is not None:
            self._check_size(node, end)
        if node.guarded and (changes or grows):
            first = offset if changes else node.length
            self._guard(node, node.fd, first, max(0, min(end, node.length) - first))
        if grows:
            self._note_end(node)
        fallocate(node.fd, mode, offset, length)
        if node.sparse is None:
            node.sparse = 0
        if grows:
            self.resize(node, end)
        if changes or grows:
            node.mtime_ns = node.ctime_ns = self._now()
            node.unversioned = True
            handle.wrote = True
        if changes:
            self._note_written(node, offset, end)

    def set_times(self, node: Node, atime_ns: int, mtime_ns: int) -> None:
        """Set the times, epoch nanoseconds. Makes no version."""
        self.names.load_links(node)
        ts_ns = self._now()
        path = self.names.path_of(node)
        if path is not None:
            self._log.append(pack((records.TIMES, ts_ns, path, atime_ns, mtime_ns)))
        self.do_times(node, atime_ns, mtime_ns, ts_ns)

    def flush(self, handle: Handle) -> None:
        """Make the version that a close makes, if something was written by this handle."""
        if handle.wrote:
            handle.wrote = handle.fresh = False
            if not handle.stale:
                self._settle(handle.node)

    def release(self, handle: Handle) -> None:
        """Close; what a mapping wrote after the last flush becomes a version."""
        self._handles.discard(handle)
        if handle.stored is not None:
            handle.stored.close()
        if handle.wrote or handle.fresh:
            handle.wrote = True
            self.flush(handle)
        node = handle.node
        node.opens -= 1
        if node.opens == 0:
            if node.fd >= 0:
                if node.sparse is not None:
                    node.sparse = os.fstat(node.fd).st_blocks
                os.close(node.fd)
                node.fd = -1
            if node.nlink == 0 and not handle.stale:
                self._unnamed_bytes -= node.length
                self._let_go(node)
            elif self.warm_bytes is not None and self._files.warm.taken_bytes > self.warm_bytes and not handle.stale:
                self._drop_large(node, self.warm_bytes)

    def fsync(self, node: FileNode | None) -> None:
        """Make everything that was logged, and a file's bytes if one is given, survive the loss of power."""
        if node is not None and node.fd >= 0:
            os.fdatasync(node.fd)
            data = node.data
            if data is not None:
                data.synced = True
                for undo in data.undos:
                    undo.sync()
        self._files.sync_names()
        if node is not None and node.fd >= 0:
            self._note_synced(node)
        self._sync_log()

    def _note_synced(self, node: FileNode) -> None:
        """Log that a file's bytes are on disk, its name included, if the log is to say so.

        The record may get there before it is synced.
        """
        self._note_end(node)  # what a partial file holds from now on must not depend on its size
        data = node.data
        if data is not None and data.copied:
            self._log.append(pack((records.SYNCED, data.number)))
            data.copied = False

    def _sync_log(self) -> None:
        """Make what was logged survive the loss of power, the layer's own name the first time."""
        self._log.sync()
        self._files.log_synced()
        if not self._placed:
            home = self.directory.parent
            sync_directory(home)
            sync_directory(home.parent)
            self._placed = True

    def _is_here(self, node: FileNode) -> bool:
        """Whether a file's bytes are in a data file on this node; if so, it is known from now on."""
        if node.data is None and node.content is not None:
            node.data = self._files.cached(node.ino, node.content)
        elif not node.dirty:
            self._files.warm.touch(node.ino)
        return node.data is not None

    def _read_anew(self, node: FileNode) -> None:
        """Let the handles of a file read and write what it holds now."""
        if node.fd >= 0:
            os.close(node.fd)
            node.fd = -1
        for handle in self._handles:
            if handle.node is node and handle.stored is not None:
                handle.stored.close()
                handle.stored = None
        if node.opens and self._is_here(node):
            node.fd = self._open_data(node)

    def _open_data(self, node: FileNode) -> int:
        """Open a file's data file.

        If none is on this node, a small content is fetched, and a large one gets a data file that has nothing of it.
        """
        if not self._is_here(node):
            content = node.content
            assert content is not None
            if content.size > _FETCHED_BYTES:
                node.data, fd = self._files.create_part(content.size)
                self.do_part(node.data, content)
                node.sparse = None
                return fd
            node.data = self._files.fetch(self._reader, node.ino, content)
            node.note_holes(self._files.stat_data(node.data))
        assert node.data is not None
        return self._files.open_data(node.data)

    def _note_written(self, node: FileNode, start: int, end: int) -> None:
        """After a write: if the data file has a part of a stored content only, log that it has this range.

        Before, the range is not read from the data file; so a write that was not noted was not made.
        """
        data = node.data
        if data is None or data.partial is None:
            return
        partial = data.partial
        end = min(end, partial.content.size)
        if start >= end or partial.has(start, end):
            return
        if node.nlink:  # else the log need not know, and perhaps does not know the data file
            self._log.append(pack((records.WRITTEN, data.number, start, end - start)))
        partial.written.add(start, end)
        data.copied = True
        if partial.is_whole:
            data.partial = None

    def _note_end(self, node: FileNode) -> None:
        """Before a file grows: log that what it had of a stored content behind its end is gone."""
        if node.data is not None and node.data.partial is not None:
            self._note_written(node, node.length, node.data.partial.content.size)

    def _drop_large(self, node: FileNode, limit_bytes: int) -> None:
        """After a large file was closed that was committed while it was open: let go of its data file."""
        if self._files.warm.is_large(node.ino, limit_bytes):
            self.drop_warm([node.ino])

    def drop_warm(self, inodes: list[int]) -> None:
        """Let go of the data files of clean files that nothing has open; of others nothing.

        A file that was changed in place and removed since may have an entry yet, and versions that need its data file.
        """
        needed = {data.number for data in self._retired}
        dropped = []
        for ino in inodes:
            known = self._files.warm.get(ino)
            if known is None or known[0] in needed:
                continue
            node = self.names.by_ino.get(ino)
            if isinstance(node, FileNode):
                if node.dirty or node.opens or ino in self.modified:
                    continue
                node.data, node.sparse = None, None
            dropped.append(ino)
        self._files.drop_clean(dropped)

    def _drop_part(self, node: FileNode) -> None:
        """Let go of a partial data file: the blob store has all that it stood for."""
        data = node.data
        assert data is not None
        node.data, node.sparse = None, None
        self._read_anew(node)
        self._files.drop_data(data)

    def _empty(self, node: FileNode) -> None:
        """Give a file a new, empty data file; versions keep the old one."""
        self.names.load_links(node)
        data, fd = self._files.create_data()
        try:
            path = self.names.path_of(node)
            if path is not None:
                self._log.append(pack_data(self._now(), path, data, 0, 0))
        except OSError:
            os.close(fd)
            self._files.drop_data(data)
            raise
        self.do_data(node, data, None)
        node.sparse = None
        self.resize(node, 0)
        node.mtime_ns = node.ctime_ns = self._now()
        if node.opens:
            if node.fd >= 0:
                os.close(node.fd)
            node.fd = fd
        else:
            os.close(fd)

    def _check_size(self, node: FileNode, size: int) -> None:
        """Refuse that a file gets more bytes than the quota allows."""
        quota = self.quota
        if quota is None or size <= node.length:
            return
        if quota.file_bytes is not None and size > quota.file_bytes:
            raise OSError(errno.EFBIG, f"a file of this workspace may have {quota.file_bytes} bytes")
        if quota.bytes is not None and self.usage.bytes + self._unnamed_bytes + size - node.length > quota.bytes:
            raise OSError(errno.EDQUOT, f"the workspace may hold {quota.bytes} bytes")

    def check_quota(self, after: Usage, largest: int) -> None:
        """Refuse what would leave the workspace with more than it may hold and more than it holds.

        Args:
            largest: bytes of the largest file that would be put.
        """
        quota = self.quota
        if quota is None:
            return
        if quota.file_bytes is not None and largest > quota.file_bytes:
            raise OSError(errno.EFBIG, f"a file of this workspace may have {quota.file_bytes} bytes, not {largest}")
        reason = quota.exceeded(after, self.usage)
        if reason is not None:
            raise OSError(errno.EDQUOT, f"the workspace would be over its quota: {reason}")

    def _check_inodes(self) -> None:
        """Refuse one more file, directory or the like if the quota does not allow it."""
        quota = self.quota
        if quota is not None and quota.files is not None and self.usage.files >= quota.files:
            raise OSError(errno.EDQUOT, f"the workspace may hold {quota.files} files and directories")

    def _guard(self, node: FileNode, fd: int, offset: int, length: int) -> None:
        """Before a write: log that the file changes, and keep what a version needs of the range."""
        data = node.data
        assert data is not None
        self.names.load_links(node)
        if data.pinned is not None:
            undo = self._files.create_undo(data.pinned_bytes)
            self._log.append(pack_data(self._now(), self.names.path_of(node), data, undo.number, undo.size))
            self.do_data(node, data, undo)
        elif not node.dirty:
            path = self.names.path_of(node)
            if path is not None:
                data.copied = data.partial is not None or not self._keep_copy(data, fd, node.length)
                kind = records.PART if data.partial is not None else records.COPY if data.copied else 0
                self._log.append(pack_data(self._now(), path, data, 0, kind))
            else:  # the log will not tell that this is not the number's content any more, if it is wanted again
                self._files.forget_clean(node.ino)
            self.do_data(node, data, None)
            if data.partial is None and node.content is not None and node.content.chunked:
                data.changes = Changes(node.content)
                node.guarded = True
        data.preserve(fd, offset, length)

    def _keep_copy(self, data: DataFile, fd: int, size: int) -> bool:
        """Make a copy of stored content survive the loss of power before it is changed in place.

        Else a loss of power could leave less than what was committed. Of a large file that would cost the file, not the
        change: the log then says that it is a copy, and the stored content counts until the file is synced.
        """
        if size > _COPY_SYNC_BYTES:
            return False
        os.fdatasync(fd)
        self._files.sync_name(data)
        data.synced = True
        return True

    def _version(self, node: FileNode) -> None:
        self.names.load_links(node)
        ts_ns = self._now()
        op = "write" if node.unversioned else "create"
        path = self.names.path_of(node)
        self._log.append(pack((records.VERSION, ts_ns, path, op, node.length, node.mtime_ns)))
        self.do_version(node, op, node.length, node.mtime_ns, ts_ns)

    def _settle(self, node: Node) -> None:
        """Make a version of a file that has none of what it is now."""
        if isinstance(node, FileNode) and node.parent is not None and (node.unversioned or not node.versioned):
            self._version(node)

    def _settle_written(self, node: Node) -> None:
        """Make a version of a file that has some, but none of what it is now."""
        if node.versioned:
            self._settle(node)
