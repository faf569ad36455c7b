"""Open files of a layer: reading, writing, truncating, and the versions that closing adds.

Bytes are written in place into data files (`chronicle.workspace.layer.file_data`). Writes are not logged one by one: a
write survives the death of the process because it is in the data file.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from chronicle.system.fallocate import KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE, fallocate
from chronicle.workspace.content.lazy_reader import LazyFile
from chronicle.workspace.layer.state.handle import Handle
from chronicle.workspace.layer.state.node import FileNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from chronicle.workspace.content.content import Content
    from chronicle.workspace.content.lazy_reader import Chunks
    from chronicle.workspace.layer.attributes import Attributes
    from chronicle.workspace.layer.file_data import FileData
    from chronicle.workspace.layer.file_versions import FileVersions
    from chronicle.workspace.layer.state.apply import Applier
    from chronicle.workspace.layer.state.node import Node
    from chronicle.workspace.layer.warm_cache import WarmCache

__all__ = ["OpenFiles"]


class OpenFiles:
    """The open handles of a layer, and the calls on them.

    Args:
        applier: changes the state.
        chunks: reads stored contents.
        now: gives the time, epoch nanoseconds.
        data: prepares data files.
        versions: adds versions of written files.
        attributes: sets times.
        warm: the clean data files.
        handles: the open handles; shared with parts that only read it.
    """

    def __init__(
        self,
        applier: Applier,
        chunks: Chunks,
        now: Callable[[], int],
        data: FileData,
        versions: FileVersions,
        attributes: Attributes,
        warm: WarmCache,
        handles: set[Handle],
    ) -> None:
        self._applier = applier
        self._reader = applier.state.reader
        self._usage = applier.state.usage
        self._chunks = chunks
        self._now = now
        self._data = data
        self._versions = versions
        self._attributes = attributes
        self._warm = warm
        self._handles = handles

    def add(self, node: FileNode, fd: int) -> Handle:
        """Return the first handle of a file that was just created.

        Args:
            fd: its data file, open.
        """
        node.fd = fd
        node.opens = 1
        handle = Handle(node, fresh=True)
        self._handles.add(handle)
        return handle

    def open(self, node: FileNode, *, truncate: bool = False) -> Handle:
        """Open a file. Content that is not on this node is fetched when it is read, a small one when it is changed."""
        if truncate:
            if node.length:
                self._data.empty(node)
            else:
                self._attributes.set_times(node, node.atime_ns, self._now())
        if node.fd < 0 and self._data.find(node):
            node.fd = self._data.open(node)
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
        """Return the handle's reader of a stored content."""
        stored = handle.stored
        if stored is None or stored.content != content:
            if stored is not None:
                stored.close()
            stored = handle.stored = LazyFile(self._reader, self._chunks, content)
        return stored

    def write(self, handle: Handle, offset: int, data: bytes | memoryview) -> int:
        """Write, and return the number of bytes written. They survive the death of the process from now on."""
        if handle.stale:
            raise OSError(errno.ESTALE, "the workspace was rolled back")
        node = handle.node
        end = offset + len(data)
        if self._usage.quota is not None:
            self._usage.check_size(node, end)
        if node.fd < 0:
            node.fd = self._data.open(node)
        if node.guarded:
            self._data.guard(node, node.fd, offset, len(data))
        partial = node.data.partial if node.data is not None else None
        if partial is not None and end > node.length:
            self._data.note_end(node)
        written = os.pwrite(node.fd, data, offset)
        end = offset + written
        node.mtime_ns = node.ctime_ns = self._now()
        node.unversioned = True
        handle.wrote = True
        if partial is not None:
            self._note_written(node, offset, end)
        if end > node.length:
            if offset > node.length and node.sparse_blocks is None:
                node.sparse_blocks = 0
            self._usage.resize(node, end)
        return written

    def _note_written(self, node: FileNode, start: int, end: int) -> None:
        """Log a write to a partial data file; if that fails, the file is as long as before."""
        try:
            self._data.note_written(node, start, end)
        except OSError:
            if end > node.length:
                os.ftruncate(node.fd, node.length)
            raise

    def truncate(self, node: FileNode, size: int, handle: Handle | None = None) -> None:
        """Set a file's size. Without a handle this adds a version."""
        if handle is not None and handle.stale:
            raise OSError(errno.ESTALE, "the workspace was rolled back")
        if size == node.length:
            now = self._now()
            self._attributes.set_times(node, node.atime_ns, now)
            return
        if size == 0:
            self._data.empty(node)
        else:
            if self._usage.quota is not None:
                self._usage.check_size(node, size)
            fd = node.fd if node.fd >= 0 else self._data.open(node)
            try:
                if node.guarded:
                    self._data.guard(node, fd, size, max(0, node.length - size))
                if size > node.length:
                    self._data.note_end(node)
                os.ftruncate(fd, size)
                if size > node.length or node.sparse_blocks is not None:
                    node.sparse_blocks = os.fstat(fd).st_blocks
            finally:
                if node.opens:
                    node.fd = fd
                else:
                    os.close(fd)
            self._usage.resize(node, size)
        node.mtime_ns = node.ctime_ns = self._now()
        node.unversioned = True
        if handle is not None:
            handle.wrote = True
        else:
            self._versions.add_missing(node)

    def allocate(self, handle: Handle, mode: int, offset: int, length: int) -> None:
        """Reserve, zero or deallocate a range as fallocate(2) does. A call that changes no byte adds no version."""
        if handle.stale:
            raise OSError(errno.ESTALE, "the workspace was rolled back")
        node = handle.node
        if node.fd < 0:
            node.fd = self._data.open(node)
        end = offset + length
        grows = end > node.length and not mode & KEEP_SIZE
        changes = bool(mode & (PUNCH_HOLE | ZERO_RANGE)) and offset < node.length
        if grows and self._usage.quota is not None:
            self._usage.check_size(node, end)
        if node.guarded and (changes or grows):
            first = offset if changes else node.length
            self._data.guard(node, node.fd, first, max(0, min(end, node.length) - first))
        if grows:
            self._data.note_end(node)
        fallocate(node.fd, mode, offset, length)
        if node.sparse_blocks is None:
            node.sparse_blocks = 0
        if grows:
            self._usage.resize(node, end)
        if changes or grows:
            node.mtime_ns = node.ctime_ns = self._now()
            node.unversioned = True
            handle.wrote = True
        if changes:
            self._data.note_written(node, offset, end)

    def flush(self, handle: Handle) -> None:
        """Add a version if this handle wrote something since the last flush."""
        if handle.wrote:
            handle.wrote = handle.fresh = False
            if not handle.stale:
                self._versions.add_missing(handle.node)

    def release(self, handle: Handle) -> None:
        """Close a handle; what a mapping wrote after the last flush becomes a version."""
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
                if node.sparse_blocks is not None:
                    node.sparse_blocks = os.fstat(node.fd).st_blocks
                os.close(node.fd)
                node.fd = -1
            if handle.stale:
                return
            if node.nlink == 0:
                self._usage.close_unnamed(node)
                self._applier.drop_data(node)
            else:
                self._warm.closed(node)

    def reopen(self, node: FileNode) -> None:
        """Point the open handles of a file to the content that it has now."""
        if node.fd >= 0:
            os.close(node.fd)
            node.fd = -1
        for handle in self._handles:
            if handle.node is node and handle.stored is not None:
                handle.stored.close()
                handle.stored = None
        if node.opens and self._data.find(node):
            node.fd = self._data.open(node)

    def unnamed(self) -> list[FileNode]:
        """Return the open files that have no name any more."""
        return [handle.node for handle in self._handles if handle.node.nlink == 0]

    def paths_of(self, nodes: Iterable[Node]) -> tuple[bytes, ...]:
        """Return a path of each of some nodes that is an open file and has one."""
        path_of = self._applier.state.names.path_of
        paths = [path_of(node) for node in nodes if isinstance(node, FileNode) and node.opens]
        return tuple(path for path in paths if path is not None)

    def make_stale(self) -> None:
        """Make all handles answer ESTALE, and forget them."""
        for handle in self._handles:
            handle.stale = True
        self._handles.clear()

    def release_all(self) -> None:
        """Close all handles."""
        for handle in list(self._handles):
            self.release(handle)
