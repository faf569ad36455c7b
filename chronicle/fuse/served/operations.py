"""The operations of a workspace: from a mount's calls to a layer's methods, and back.

Here is only translation: inode numbers and handles to nodes. What an operation does is in
`chronicle.workspace.layer.layer`; ``.chronicle`` is `chronicle.fuse.served.magic`; how the kernel asks is a transport's
business (`chronicle.fuse.served.filesystem`).

Nothing but the kernel changes a workspace while it is mounted, so the kernel may keep names, attributes and pages as
long as it likes. What is in ``.chronicle`` it may not keep at all.
"""

from __future__ import annotations

import errno
import os
import stat
from copy import copy
from typing import TYPE_CHECKING, BinaryIO, Final

from chronicle.fuse.served.filesystem import DIRECT_IO, KEEP_CACHE, NO_FLUSH
from chronicle.fuse.served.inodes import MAGIC, UNCACHED, LookupCounts
from chronicle.fuse.served.magic import NAME, Magic, MagicEntry
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
"""How long the kernel may keep names and attributes. A day: what is kept longer is asked for again, which is cheap."""
_LOADED_TOGETHER: Final = 1000
"""Directories with up to so many entries are loaded at once when they are listed; of larger ones only what is shown
with attributes, which the kernel asks for while it sees that they are wanted."""
_MADE_BYTES: Final = 32 * 1024
"""Of a text that is made while it is read, one read makes no more, since others wait meanwhile: some 200 lines."""
_CAPABILITIES: Final = b"security.capability"
_NO_INODE: Final = 0xFFFFFFFF
"""Of what is listed without attributes in ``.chronicle``, where numbers are for what the kernel knows."""
_NAMESPACES: Final = (b"user.", b"trusted.", b"security.")
_XATTR_CREATE: Final = 1
_XATTR_REPLACE: Final = 2


class _OpenDirectory:
    """An open directory: its entries as they were when it was opened, or rewound.

    Offsets are positions in it, so they stay what they are while the directory changes: entries that go are passed
    over, entries that come are seen after a rewind, as POSIX allows.
    """

    __slots__ = ("entries", "inode", "magic")

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.entries: list[tuple[bytes, int, int]] = []
        self.magic: list[tuple[bytes, int]] = []


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
        layer: what it serves; its thread is the one that runs the operations.
        parking: how requests wait for its blob store, if that is beyond a network.
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
        self._open_directories: dict[int, _OpenDirectory] = {}
        self._history_files: dict[int, _OpenHistoryFile] = {}
        self._next_handle = 1
        self.notify_attributes: Callable[[int], None] = lambda _: None

    def known_inodes(self) -> list[int]:
        """Return the inode numbers that the kernel may have pages or names cached of."""
        return self._lookups.known()

    # -- names ----------------------------------------------------------------------------------------------------

    def lookup(self, parent: int, name: bytes, pid: int = 0) -> Attributes | None:
        """Return what a name is."""
        if parent >= MAGIC or (parent == ROOT_INO and name == NAME):
            found = self._magic.lookup(parent, name, pid) if parent >= MAGIC else self._magic.root()
            if found is None:
                raise FileNotFoundError(errno.ENOENT, "nothing has this name")
            self._lookups.count(found.ino)
            return found
        self._layer.evict_surplus()
        node = self._layer.lookup(self._directory(parent), name)
        if node is None:
            if len(name) > MAX_NAME_BYTES:
                raise OSError(errno.ENAMETOOLONG, "name too long")
            return None
        return self._count_lookup(node)

    def forget(self, forgotten: Iterable[tuple[int, int]]) -> None:
        """Take off what the kernel has forgotten."""
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
        """Make the file, directory, FIFO, socket or device that ``mode`` says."""
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
        """Give a file one more name."""
        directory = self._writable_directory(parent, name)
        if inode >= MAGIC:
            raise OSError(errno.EXDEV, "history is not part of the workspace")
        node = self._layer.node(inode)
        self._layer.link(node, directory, name)
        return self._count_lookup(node)

    def unlink(self, parent: int, name: bytes) -> None:
        """Remove a name that is no directory's."""
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
        return self._directory(parent)

    def _directory(self, inode: int) -> DirNode:
        node = self._layer.node(inode)
        if not isinstance(node, DirNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory")
        return node

    def _file(self, inode: int) -> FileNode:
        node = self._layer.node(inode)
        if not isinstance(node, FileNode):
            raise OSError(errno.EISDIR if isinstance(node, DirNode) else errno.EINVAL, "not a regular file")
        return node

    def _count_lookup(self, node: Node) -> Node:
        """Return a node for a reply that makes the kernel know it once more."""
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
        """Return the root of a workspace in which nothing was ever changed with a time: it has none of its own yet.

        It is the one at which the workspace was first opened on this node; its lock file was made then.
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
        if changes.kill_privileges or (mode is None and changes.sets_owner and _may_change(changes.caller, node)):
            self._drop_privileges(node, changes.caller)
        if changes.atime_ns is not None or changes.mtime_ns is not None:
            atime_ns = node.atime_ns if changes.atime_ns is None else changes.atime_ns
            layer.set_times(node, atime_ns, node.mtime_ns if changes.mtime_ns is None else changes.mtime_ns)
        return node

    def _drop_privileges(self, node: Node, caller: Caller | None) -> bool:
        """Do what a write does to a program that others may run with rights of its owner; say if the mode changed.

        Args:
            node: what is changed.
            caller: who changes it, if set-user-id goes as well; and set-group-id, if its group may run it or the caller
                is not of its group.
        """
        if isinstance(node, DirNode):
            return False
        layer = self._layer
        if _CAPABILITIES in node.xattrs:
            layer.set_xattr(node, _CAPABILITIES, None)
        if caller is None or not node.mode & (stat.S_ISUID | stat.S_ISGID):
            return False
        dropped = stat.S_ISUID
        if node.mode & stat.S_ISGID and (node.mode & stat.S_IXGRP or not _is_of_group(caller, node.gid)):
            dropped |= stat.S_ISGID
        if not node.mode & dropped:
            return False
        layer.set_mode(node, stat.S_IMODE(node.mode) & ~dropped, node.uid, node.gid)
        return True

    def readlink(self, inode: int) -> bytes:
        """Return a symlink's target."""
        if inode >= MAGIC:
            return self._magic_entry(inode).target
        node = self._layer.node(inode)
        if not isinstance(node, LinkNode):
            raise OSError(errno.EINVAL, "not a symlink")
        return node.target

    def statfs(self) -> os.statvfs_result:
        """Return the figures of the file system that the layer is on."""
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
        if truncate and self._drop_privileges(node, kill_privileges):
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
        except OSError:  # the disk is full: what was written stands, and the next write hears of it
            if report_partial:
                raise
        node = opened.node
        if (kill_privileges or node.xattrs) and self._drop_privileges(node, kill_privileges):
            self.notify_attributes(node.ino)
        return written

    def allocate(self, handle: int, mode: int, offset: int, length: int) -> None:
        """Reserve, zero or give back a range."""
        self._layer.allocate(self._handles[handle], mode, offset, length)

    def wrote(self, handle: int) -> bool:
        """Say whether closing may make a version."""
        opened = self._handles.get(handle)
        return opened is not None and (opened.wrote or opened.fresh)

    def flush(self, handle: int) -> None:
        """Make the version that a close makes."""
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
        """Make a file's bytes and names survive the loss of power."""
        opened = self._handles.get(handle)
        if opened is not None:
            self._layer.fsync(opened.node)

    # -- directories ----------------------------------------------------------------------------------------------

    def opendir(self, inode: int, flags: int = os.O_DIRECTORY, pid: int = 0) -> int:
        """Open a directory."""
        if inode < MAGIC:
            self._directory(inode)
        elif not flags & os.O_DIRECTORY and self._magic.wants_file(inode, pid):
            raise OSError(errno.ESTALE, "the file of this name is meant")
        number = self._next_handle
        self._next_handle = number + 1
        self._open_directories[number] = _OpenDirectory(inode)
        return number

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attributes, int]]:
        """Yield entries from an offset on."""
        listing = self._open_directories[handle]
        if listing.inode >= MAGIC:
            yield from self._list_magic(listing, start)
            return
        self._layer.evict_surplus()
        directory = self._directory(listing.inode)
        if start == 0:
            listing.entries = self._layer.dirents(directory)
            if len(listing.entries) <= _LOADED_TOGETHER:
                self._layer.entries(directory)
            yield b".", directory, 1
        if start <= 1:
            yield b"..", directory.parent or directory, 2
        counts = self._counts
        entries = listing.entries
        for position in range(max(0, start - 2), len(entries)):
            name = entries[position][0]
            node = self._layer.lookup(directory, name)
            if node is not None:
                yield name, node, position + 3
                counts[node.ino] = counts.get(node.ino, 0) + 1

    def list_names(self, handle: int, start: int) -> Iterator[tuple[bytes, int, int, int]]:
        """Yield entries from an offset on, without attributes."""
        listing = self._open_directories[handle]
        if listing.inode >= MAGIC:
            if start == 0:
                listing.magic = self._magic.listing(listing.inode, self._counts)
            for position in range(start, len(listing.magic)):
                known, mode = listing.magic[position]
                yield known, _NO_INODE, mode, position + 1
            return
        directory = self._directory(listing.inode)
        if start == 0:
            listing.entries = self._layer.dirents(directory)
            yield b".", directory.ino, directory.mode, 1
        if start <= 1:
            yield b"..", (directory.parent or directory).ino, directory.mode, 2
        children, entries = directory.children, listing.entries
        for position in range(max(0, start - 2), len(entries)):
            name, ino, kind = entries[position]
            try:
                node = children[name]
            except KeyError:  # not loaded, so it is what it was
                yield name, ino, kind, position + 3
            else:
                if node is not None:
                    yield name, node.ino, node.mode, position + 3

    def _list_magic(self, listing: _OpenDirectory, start: int) -> Iterator[tuple[bytes, Attributes, int]]:
        if start == 0:
            listing.magic = self._magic.listing(listing.inode, self._counts)
        for position in range(start, len(listing.magic)):
            name = listing.magic[position][0]
            entry = self._magic.lookup(listing.inode, name)
            if entry is None:
                continue
            try:
                yield name, entry, position + 1
                self._lookups.count(entry.ino)
            finally:
                self._forget_unknown(entry)

    def _forget_unknown(self, entry: MagicEntry) -> None:
        """Forget an inode number that the kernel was not given after all: it would never say that it forgets it."""
        if entry.ino not in self._counts:
            self._magic.forget(entry.ino)

    def releasedir(self, handle: int) -> None:
        """Close a directory."""
        del self._open_directories[handle]

    def fsyncdir(self, handle: int) -> None:  # noqa: ARG002 - the log holds all names
        """Make names survive the loss of power."""
        self._layer.fsync(None)

    def _magic_entry(self, inode: int) -> MagicEntry:
        entry = self._magic.entry(inode)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "it is not there any more")
        return entry


def _check_namespace(name: bytes) -> None:
    """Refuse extended attributes of a kind that there is not; access control lists the kernel would have to check."""
    if not name.startswith(_NAMESPACES):
        raise OSError(errno.EOPNOTSUPP, "no such kind of extended attributes")


def _may_change(caller: Caller | None, node: Node) -> bool:
    """Say whether someone may change a mode. Before a write nothing is set, too; what goes then goes with the write."""
    return caller is not None and caller[0] in {0, node.uid}


def _is_of_group(caller: Caller, gid: int) -> bool:
    """Say whether someone who is not root is in a group; not, if that cannot be found out."""
    uid, primary, pid = caller
    if uid == 0 or primary == gid:
        return True
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            groups = next(line for line in status if line.startswith(b"Groups:"))
    except (OSError, StopIteration):
        return False
    return str(gid).encode() in groups.split()
