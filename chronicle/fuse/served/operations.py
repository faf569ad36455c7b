"""The operations of a workspace: from a mount's calls to a layer's methods, and back.

This is translation only: inode numbers and handles to nodes. `chronicle.workspace.layer.layer` executes the operations,
and `chronicle.fuse.served.magic` is ``.chronicle``. How requests arrive is a transport's business
(`chronicle.fuse.served.filesystem`).

A mounted workspace changes through the kernel only, so the kernel may cache names, attributes and pages for any time.
It may cache nothing of what changes in ``.chronicle``.
"""

from __future__ import annotations

import errno
import os
import stat
from copy import copy
from typing import TYPE_CHECKING, BinaryIO, Final

from chronicle.fuse.served.directories import OpenDirectories, directory_node
from chronicle.fuse.served.filesystem import DIRECT_IO, KEEP_CACHE, NO_FLUSH
from chronicle.fuse.served.inodes import MAGIC, UNCACHED, LookupCounts
from chronicle.fuse.served.magic import NAME, Magic, MagicEntry
from chronicle.fuse.served.privileges import drop_privileges, may_change_mode
from chronicle.workspace.history.oplog import ROOT_INO
from chronicle.workspace.layer.state.node import DirNode, FileNode, LinkNode, Node
from chronicle.workspace.trees.tree import MAX_NAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from chronicle.fuse.deadlines import ParkingPolicy
    from chronicle.fuse.served.filesystem import Attributes, Caller, Changes
    from chronicle.workspace.layer.layer import Handle, Layer

__all__ = ["ChronicleOperations"]

_CACHE_S: Final = 86_400
"""How long the kernel may cache names and attributes. A day: later it requests them again, which is cheap."""
_MADE_BYTES: Final = 32 * 1024
"""The limit of one read of a text that is generated while it is read, since other requests wait: some 200 lines."""
_NAMESPACES: Final = (b"user.", b"trusted.", b"security.")
_XATTR_CREATE: Final = 1
_XATTR_REPLACE: Final = 2


class _OpenHistoryFile:
    """An open file of ``.chronicle``."""

    __slots__ = ("file", "inode", "live")

    def __init__(self, inode: int, file: BinaryIO, *, live: bool) -> None:
        self.inode = inode
        self.file = file
        self.live = live


class ChronicleOperations:
    """A layer as a `chronicle.fuse.served.filesystem.FileSystem`.

    Args:
        layer: the layer; its thread is the one that runs the operations.
        parking: decides which requests are parked, if its blob store is beyond a network.
    """

    cache_s = _CACHE_S
    uncached_from = UNCACHED

    def __init__(self, layer: Layer, parking: ParkingPolicy | None = None) -> None:
        self._layer = layer
        self.parking = parking
        self._magic = Magic(layer)
        self._lookups = LookupCounts(self._forgotten)
        self._counts = self._lookups.counts
        layer.names.referenced = self._lookups
        self._handles: dict[int, Handle] = {}
        self._directories = OpenDirectories(layer, self._magic, self._lookups)
        self._history_files: dict[int, _OpenHistoryFile] = {}
        self._next_handle = 1
        self.notify_attributes: Callable[[int], None] = lambda _: None

    def known_inodes(self) -> list[int]:
        """Return the inode numbers of which the kernel may have cached pages or names."""
        return self._lookups.known()

    # -- names ----------------------------------------------------------------------------------------------------

    def lookup(self, parent: int, name: bytes, pid: int = 0) -> Attributes | None:
        """Return the attributes of a name."""
        if parent >= MAGIC or (parent == ROOT_INO and name == NAME):
            found = self._magic.lookup(parent, name, pid) if parent >= MAGIC else self._magic.root()
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "no such name")
            self._lookups.count(found.ino)
            return found
        self._layer.evict_surplus()
        node = self._layer.lookup(directory_node(self._layer, parent), name)
        if node is None:
            if len(name) > MAX_NAME_BYTES:
                raise OSError(errno.ENAMETOOLONG, "name too long")
            return None
        return self._count_lookup(node)

    def forget(self, forgotten: Iterable[tuple[int, int]]) -> None:
        """Subtract the lookups that the kernel has forgotten."""
        self._lookups.forget(forgotten)

    def _forgotten(self, inode: int) -> None:
        if inode >= MAGIC:
            self._magic.forget(inode)
        elif inode != ROOT_INO:
            self._layer.forget(inode)

    def create(self, parent: int, name: bytes, mode: int, uid: int, gid: int) -> tuple[Attributes, int, int]:
        """Make a regular file and open it."""
        directory = self._writable_directory(parent, name)
        if directory.mode & stat.S_ISGID:
            gid = directory.gid
        handle = self._layer.create(directory, name, mode, uid, gid)
        number = self._next_handle
        self._next_handle = number + 1
        self._handles[number] = handle
        return self._count_lookup(handle.node), number, KEEP_CACHE

    def make(self, parent: int, name: bytes, mode: int, uid: int, gid: int, device: int = 0) -> Attributes:
        """Make the file, directory, FIFO, socket or device of ``mode``."""
        directory = self._writable_directory(parent, name)
        if directory.mode & stat.S_ISGID:  # its group is inherited, and by directories the bit as well: inode(7)
            gid = directory.gid
            if stat.S_ISDIR(mode):
                mode |= stat.S_ISGID
        layer = self._layer
        if stat.S_ISREG(mode):
            handle = layer.create(directory, name, stat.S_IMODE(mode), uid, gid)
            layer.release(handle)
            return self._count_lookup(handle.node)
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            return self._count_lookup(layer.make_device(directory, name, mode, uid, gid, device))
        return self._count_lookup(layer.make(directory, name, mode, uid, gid))

    def symlink(self, parent: int, name: bytes, target: bytes, uid: int, gid: int) -> Attributes:
        """Make a symlink."""
        directory = self._writable_directory(parent, name)
        if directory.mode & stat.S_ISGID:
            gid = directory.gid
        return self._count_lookup(self._layer.make(directory, name, stat.S_IFLNK | 0o777, uid, gid, target))

    def link(self, inode: int, parent: int, name: bytes) -> Attributes:
        """Add a name to a file."""
        directory = self._writable_directory(parent, name)
        if inode >= MAGIC:
            raise OSError(errno.EXDEV, "history is not part of the workspace")
        node = self._layer.node(inode)
        self._layer.link(node, directory, name)
        return self._count_lookup(node)

    def unlink(self, parent: int, name: bytes) -> None:
        """Remove a name of anything but a directory."""
        self._layer.unlink(self._writable_directory(parent, name), name)

    def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty directory."""
        self._layer.rmdir(self._writable_directory(parent, name), name)

    def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int) -> None:
        """Move a name."""
        directory = self._writable_directory(parent, name)
        self._layer.rename(directory, name, self._writable_directory(new_parent, new_name), new_name, flags)

    def _writable_directory(self, parent: int, name: bytes) -> DirNode:
        """Return the directory in which a name is to be changed."""
        if parent >= MAGIC or (parent == ROOT_INO and name == NAME):
            raise OSError(errno.EROFS, "history cannot be changed")
        return directory_node(self._layer, parent)

    def _file(self, inode: int) -> FileNode:
        node = self._layer.node(inode)
        if not isinstance(node, FileNode):
            raise OSError(errno.EISDIR if isinstance(node, DirNode) else errno.EINVAL, "not a regular file")
        return node

    def _count_lookup(self, node: Node) -> Node:
        """Count a lookup of a node that a reply shows, and return the node."""
        counts = self._counts
        counts[node.ino] = counts.get(node.ino, 0) + 1
        return node

    # -- attributes -----------------------------------------------------------------------------------------------

    def getattr(self, inode: int) -> Attributes:
        """Return attributes."""
        if inode >= MAGIC:
            return self._magic_entry(inode)
        self._layer.evict_surplus()
        node = self._layer.node(inode)
        if inode == ROOT_INO and not node.ctime_ns:
            return self._dated(node)
        return node

    def _dated(self, root: Node) -> Node:
        """Return the root with times, for a workspace in which no change has set any.

        They are the time at which the workspace was first opened on this node, when its lock file was made.
        """
        dated = copy(root)
        dated.mtime_ns = dated.ctime_ns = dated.atime_ns = (self._layer.directory.parent / "lock").stat().st_mtime_ns
        return dated

    def setattr(self, inode: int, changes: Changes, handle: int | None) -> Attributes:
        """Set attributes."""
        if inode >= MAGIC:
            raise OSError(errno.EROFS, "history cannot be changed")
        layer = self._layer
        layer.evict_surplus()
        node = layer.node(inode)
        if changes.size is not None:
            layer.truncate(self._file(inode), changes.size, self._handles.get(handle) if handle is not None else None)
        mode, uid, gid = changes.mode, changes.uid, changes.gid
        if mode is not None or changes.sets_owner:
            layer.set_mode(
                node,
                stat.S_IMODE(node.mode) if mode is None else mode,
                node.uid if uid is None else uid,
                node.gid if gid is None else gid,
            )
        if changes.kill_privileges or (mode is None and changes.sets_owner and may_change_mode(changes.caller, node)):
            drop_privileges(self._layer, node, changes.caller)
        if changes.atime_ns is not None or changes.mtime_ns is not None:
            atime_ns = node.atime_ns if changes.atime_ns is None else changes.atime_ns
            layer.set_times(node, atime_ns, node.mtime_ns if changes.mtime_ns is None else changes.mtime_ns)
        return node

    def readlink(self, inode: int) -> bytes:
        """Return a symlink's target."""
        if inode >= MAGIC:
            return self._magic_entry(inode).target
        node = self._layer.node(inode)
        if not isinstance(node, LinkNode):
            raise OSError(errno.EINVAL, "not a symlink")
        return node.target

    def statfs(self) -> os.statvfs_result:
        """Return the statistics of the layer's file system."""
        return self._layer.statfs()

    def getxattr(self, inode: int, name: bytes) -> bytes | None:
        """Return an extended attribute."""
        if inode < MAGIC:
            value = self._layer.node(inode).xattrs.get(name)
            if value is None:
                _check_namespace(name)
            return value
        return None

    def listxattr(self, inode: int) -> list[bytes]:
        """Return the names of the extended attributes."""
        return sorted(self._layer.node(inode).xattrs) if inode < MAGIC else []

    def setxattr(self, inode: int, name: bytes, value: bytes, flags: int) -> None:
        """Set an extended attribute."""
        if inode >= MAGIC:
            raise OSError(errno.EROFS, "history cannot be changed")
        _check_namespace(name)
        node = self._layer.node(inode)
        if flags:
            known = name in node.xattrs
            if known and flags & _XATTR_CREATE:
                raise FileExistsError(errno.EEXIST, "set already")
            if not known and flags & _XATTR_REPLACE:
                raise OSError(errno.ENODATA, "no such attribute")
        self._layer.set_xattr(node, name, value)

    def removexattr(self, inode: int, name: bytes) -> None:
        """Remove an extended attribute."""
        if inode >= MAGIC:
            raise OSError(errno.EROFS, "history cannot be changed")
        _check_namespace(name)
        self._layer.set_xattr(self._layer.node(inode), name, None)

    # -- files ----------------------------------------------------------------------------------------------------

    def open(self, inode: int, flags: int, *, kill_privileges: Caller | None, pid: int = 0) -> tuple[int, int]:
        """Open a file."""
        if inode >= MAGIC:
            self._magic.forget_wanted_file(pid)
            return self._open_magic(inode, flags)
        self._layer.evict_surplus()
        node = self._file(inode)
        truncate = bool(flags & os.O_TRUNC)
        handle = self._layer.open(node, truncate=truncate)
        if truncate and drop_privileges(self._layer, node, kill_privileges):
            self.notify_attributes(inode)
        number = self._next_handle
        self._next_handle = number + 1
        self._handles[number] = handle
        return number, KEEP_CACHE if flags & os.O_ACCMODE else KEEP_CACHE | NO_FLUSH

    def _open_magic(self, inode: int, flags: int) -> tuple[int, int]:
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            raise OSError(errno.EROFS, "history cannot be changed")
        entry = self._magic_entry(inode)
        number = self._next_handle
        self._next_handle = number + 1
        self._history_files[number] = _OpenHistoryFile(inode, self._magic.open(entry), live=entry.live)
        return number, NO_FLUSH | (DIRECT_IO if entry.live else KEEP_CACHE if entry.lasting else 0)

    def read(self, handle: int, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        opened = self._handles.get(handle)
        if opened is not None:
            return self._layer.read(opened, offset, size)
        reading = self._history_files[handle]
        reading.file.seek(offset)
        return reading.file.read(min(size, _MADE_BYTES) if reading.live else size)

    def write(
        self,
        handle: int,
        offset: int,
        data: bytes | memoryview,
        *,
        kill_privileges: Caller | None,
        report_partial: bool = True,
    ) -> int:
        """Write; return how many bytes."""
        opened = self._handles[handle]
        written = self._layer.write(opened, offset, data)
        try:
            while written < len(data):
                written += self._layer.write(opened, offset + written, data[written:])
        except OSError:  # the disk is full: the partial write stands, and the next write reports it
            if report_partial:
                raise
        node = opened.node
        if (kill_privileges or node.xattrs) and drop_privileges(self._layer, node, kill_privileges):
            self.notify_attributes(node.ino)
        return written

    def allocate(self, handle: int, mode: int, offset: int, length: int) -> None:
        """Reserve, zero or deallocate a range."""
        self._layer.allocate(self._handles[handle], mode, offset, length)

    def wrote(self, handle: int) -> bool:
        """Say whether closing may make a version."""
        opened = self._handles.get(handle)
        return opened is not None and (opened.wrote or opened.fresh)

    def flush(self, handle: int) -> None:
        """Make the version of a close."""
        opened = self._handles.get(handle)
        if opened is not None:
            self._layer.flush(opened)

    def release(self, handle: int) -> None:
        """Close."""
        opened = self._handles.pop(handle, None)
        if opened is not None:
            self._layer.release(opened)
        else:
            self._history_files.pop(handle).file.close()

    def fsync(self, handle: int) -> None:
        """Make a file's bytes and names durable."""
        opened = self._handles.get(handle)
        if opened is not None:
            self._layer.fsync(opened.node)

    # -- directories ----------------------------------------------------------------------------------------------

    def opendir(self, inode: int, flags: int = os.O_DIRECTORY, pid: int = 0) -> int:
        """Open a directory."""
        return self._directories.opendir(inode, flags, pid)

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attributes, int]]:
        """Yield entries from an offset on."""
        return self._directories.readdir(handle, start)

    def list_names(self, handle: int, start: int) -> Iterator[tuple[bytes, int, int, int]]:
        """Yield entries from an offset on, without attributes."""
        return self._directories.list_names(handle, start)

    def releasedir(self, handle: int) -> None:
        """Close a directory."""
        self._directories.releasedir(handle)

    def fsyncdir(self, handle: int) -> None:  # noqa: ARG002 - the log holds all names
        """Make names durable."""
        self._layer.fsync(None)

    def _magic_entry(self, inode: int) -> MagicEntry:
        entry = self._magic.entry(inode)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "it is not there any more")
        return entry


def _check_namespace(name: bytes) -> None:
    """Refuse unknown kinds of extended attributes; the kernel would have to check access control lists."""
    if not name.startswith(_NAMESPACES):
        raise OSError(errno.EOPNOTSUPP, "no such kind of extended attributes")
