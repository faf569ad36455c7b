"""The FUSE operations of a workspace: from the kernel's requests to a layer's methods, and back.

Here is only translation: inode numbers and handles to nodes, nodes to ``stat``, errors to errnos. What an operation
does is in `chronicle.workspace.layer`; ``.chronicle`` is `chronicle.fuse.magic`. The mount has ``default_permissions``,
so the kernel has checked modes, owners and sticky bits before it asks.

Every operation runs inside `_operation`: an error that is an answer becomes its errno, anything else is a bug, which is
logged with its trace and answered with EIO. No operation suspends: they are coroutines only because pyfuse3 wants it.

Nothing but the kernel changes a workspace while it is mounted, so the kernel may keep names, attributes and pages as
long as it likes. What is in ``.chronicle`` it may not keep at all.
"""

# ruff: noqa: ARG002 - pyfuse3 says what an operation is given

from __future__ import annotations

import errno
import functools
import logging
import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, Final, ParamSpec, TypeVar

import pyfuse3
from pyfuse3 import EntryAttributes, FileInfo, FUSEError

from chronicle.fuse.errnos import errno_of
from chronicle.fuse.inodes import MAGIC, Inodes
from chronicle.fuse.magic import NAME, Magic, MagicEntry
from chronicle.workspace.layer_node import DeviceNode, DirNode, FileNode, LinkNode, Node
from chronicle.workspace.oplog import ROOT_INO
from chronicle.workspace.tree import MAX_NAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from chronicle.workspace.layer import Handle, Layer

__all__ = ["ChronicleOperations"]

log = logging.getLogger(__name__)

_KEEP_S: Final = 86_400.0
"""How long the kernel may keep names and attributes. A day: what is kept longer is asked for again, which is cheap."""
_BLOCK_BYTES: Final = 512
"""The unit of st_blocks: stat(2)."""
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _operation(method: Callable[_P, _R]) -> Callable[_P, Coroutine[Any, Any, _R]]:
    """Make an operation of a method: a coroutine that raises nothing but ``FUSEError``."""

    @functools.wraps(method)
    async def operation(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(*args, **kwargs)
        except FUSEError:
            raise
        except Exception as error:
            code = errno_of(error)
            if code is None:
                log.exception("operation %s failed", method.__name__)
                code = errno.EIO
            elif not isinstance(error, OSError):
                log.warning("operation %s failed: %s", method.__name__, error)
            raise FUSEError(code) from None

    return operation


class _Listing:
    """An open directory: its entries as they were when it was opened, or rewound.

    Offsets are positions in it, so they stay what they are while the directory changes: entries that go are passed
    over, entries that come are seen after a rewind, as POSIX allows.
    """

    __slots__ = ("entries", "inode")

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.entries: list[tuple[bytes, Node]] | list[tuple[bytes, MagicEntry]] = []


class _Reading:
    """An open file of ``.chronicle``."""

    __slots__ = ("file", "inode")

    def __init__(self, inode: int, file: BinaryIO) -> None:
        self.inode = inode
        self.file = file


class ChronicleOperations(pyfuse3.Operations):
    """Serves a layer.

    Args:
        layer: what it serves; its thread is the one that runs the operations.
    """

    supports_dot_lookup = False
    enable_writeback_cache = False  # acknowledged writes would be lost with the process
    enable_acl = False

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self._layer = layer
        self._magic = Magic(layer)
        self._inodes = Inodes(self._forgotten)
        self._counts = self._inodes.counts
        self._handles: dict[int, Handle] = {}
        self._listings: dict[int, _Listing] = {}
        self._readings: dict[int, _Reading] = {}
        self._next_handle = 1
        self._absent = EntryAttributes()
        self._absent.st_ino = 0
        self._absent.entry_timeout = _KEEP_S

    def known_inodes(self) -> list[int]:
        """Return the inode numbers that the kernel may have pages or names cached of."""
        return self._inodes.known()

    # -- names ----------------------------------------------------------------------------------------------------

    @_operation
    def lookup(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> EntryAttributes:
        if parent_inode >= MAGIC or (parent_inode == ROOT_INO and name == NAME):
            found = self._magic.lookup(parent_inode, name) if parent_inode >= MAGIC else self._magic.root()
            if found is None:
                raise FUSEError(errno.ENOENT)
            self._inodes.count(found.inode)
            return _magic_attributes(found)
        node = self._layer.lookup(self._directory(parent_inode), name)
        if node is None:
            if len(name) > MAX_NAME_BYTES:
                raise FUSEError(errno.ENAMETOOLONG)
            return self._absent
        return self._counted(node)

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        self._inodes.forget(inode_list)

    def _forgotten(self, inode: int) -> None:
        if inode >= MAGIC:
            self._magic.forget(inode)
        elif inode != ROOT_INO:
            self._layer.forget(inode)

    @_operation
    def create(
        self,
        parent_inode: int,
        name: bytes,
        mode: int,
        flags: int,
        ctx: pyfuse3.RequestContext,
    ) -> tuple[FileInfo, EntryAttributes]:
        parent = self._place(parent_inode, name)
        gid = parent.gid if parent.mode & stat.S_ISGID else ctx.gid
        handle = self._layer.create(parent, name, mode & 0o7777, ctx.uid, gid)
        number = self._next_handle
        self._next_handle = number + 1
        self._handles[number] = handle
        return FileInfo(fh=number, keep_cache=True), self._counted(handle.node)

    @_operation
    def mknod(
        self,
        parent_inode: int,
        name: bytes,
        mode: int,
        rdev: int,
        ctx: pyfuse3.RequestContext,
    ) -> EntryAttributes:
        if stat.S_ISREG(mode):
            parent = self._place(parent_inode, name)
            gid = parent.gid if parent.mode & stat.S_ISGID else ctx.gid
            handle = self._layer.create(parent, name, mode & 0o7777, ctx.uid, gid)
            self._layer.release(handle)
            return self._counted(handle.node)
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            parent = self._place(parent_inode, name)
            gid = parent.gid if parent.mode & stat.S_ISGID else ctx.gid
            return self._counted(self._layer.make_device(parent, name, mode, ctx.uid, gid, rdev))
        return self._make(parent_inode, name, mode, ctx)

    @_operation
    def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: pyfuse3.RequestContext) -> EntryAttributes:
        return self._make(parent_inode, name, stat.S_IFDIR | (mode & 0o7777), ctx)

    @_operation
    def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: pyfuse3.RequestContext) -> EntryAttributes:
        return self._make(parent_inode, name, stat.S_IFLNK | 0o777, ctx, target)

    def _make(
        self, parent_inode: int, name: bytes, mode: int, ctx: pyfuse3.RequestContext, target: bytes | None = None
    ) -> EntryAttributes:
        parent = self._place(parent_inode, name)
        gid = ctx.gid
        if parent.mode & stat.S_ISGID:  # its group is inherited, and by directories the bit as well: inode(7)
            gid = parent.gid
            if stat.S_ISDIR(mode):
                mode |= stat.S_ISGID
        return self._counted(self._layer.make(parent, name, mode, ctx.uid, gid, target))

    @_operation
    def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: pyfuse3.RequestContext) -> EntryAttributes:
        parent = self._place(new_parent_inode, new_name)
        if inode >= MAGIC:
            raise FUSEError(errno.EXDEV)
        node = self._layer.node(inode)
        self._layer.link(node, parent, new_name)
        return self._counted(node)

    @_operation
    def unlink(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        self._layer.unlink(self._place(parent_inode, name), name)

    @_operation
    def rmdir(self, parent_inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        self._layer.rmdir(self._place(parent_inode, name), name)

    @_operation
    def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: pyfuse3.RequestContext,
    ) -> None:
        old = self._place(parent_inode_old, name_old)
        self._layer.rename(old, name_old, self._place(parent_inode_new, name_new), name_new, flags)

    def _place(self, parent_inode: int, name: bytes) -> DirNode:
        """Return the directory in which a name is to be changed."""
        if parent_inode >= MAGIC or (parent_inode == ROOT_INO and name == NAME):
            raise FUSEError(errno.EROFS)
        return self._directory(parent_inode)

    def _directory(self, inode: int) -> DirNode:
        node = self._layer.node(inode)
        if not isinstance(node, DirNode):
            raise FUSEError(errno.ENOTDIR)
        return node

    def _file(self, inode: int) -> FileNode:
        node = self._layer.node(inode)
        if not isinstance(node, FileNode):
            raise FUSEError(errno.EISDIR if isinstance(node, DirNode) else errno.EINVAL)
        return node

    # -- attributes -----------------------------------------------------------------------------------------------

    @_operation
    def getattr(self, inode: int, ctx: pyfuse3.RequestContext) -> EntryAttributes:
        if inode >= MAGIC:
            return _magic_attributes(self._magic_entry(inode))
        return _attributes(self._layer.node(inode))

    @_operation
    def setattr(
        self,
        inode: int,
        attr: EntryAttributes,
        fields: pyfuse3.SetattrFields,
        fh: int | None,
        ctx: pyfuse3.RequestContext,
    ) -> EntryAttributes:
        if inode >= MAGIC:
            raise FUSEError(errno.EROFS)
        layer = self._layer
        node = layer.node(inode)
        if fields.update_size:
            layer.truncate(self._file(inode), attr.st_size, self._handles.get(fh) if fh is not None else None)
        if fields.update_mode or fields.update_uid or fields.update_gid:
            mode = attr.st_mode if fields.update_mode else node.mode
            uid = attr.st_uid if fields.update_uid else node.uid
            gid = attr.st_gid if fields.update_gid else node.gid
            layer.set_mode(node, mode & 0o7777, uid, gid)
        if fields.update_atime or fields.update_mtime:
            atime_ns = attr.st_atime_ns if fields.update_atime else node.atime_ns
            mtime_ns = attr.st_mtime_ns if fields.update_mtime else node.mtime_ns
            layer.set_times(node, atime_ns, mtime_ns)
        return _attributes(node)

    @_operation
    def readlink(self, inode: int, ctx: pyfuse3.RequestContext) -> bytes:
        if inode >= MAGIC:
            return self._magic_entry(inode).target
        node = self._layer.node(inode)
        if not isinstance(node, LinkNode):
            raise FUSEError(errno.EINVAL)
        return node.target

    @_operation
    def statfs(self, ctx: pyfuse3.RequestContext) -> pyfuse3.StatvfsData:
        figures = self._layer.statfs()
        reply = pyfuse3.StatvfsData()
        for name in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"):
            setattr(reply, name, getattr(figures, name))
        reply.f_namemax = MAX_NAME_BYTES
        return reply

    @_operation
    def getxattr(self, inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> bytes:
        if inode < MAGIC:
            for known, value in self._layer.node(inode).xattrs:
                if known == name:
                    return value
            if name.startswith(b"system."):
                raise FUSEError(errno.EOPNOTSUPP)
        raise FUSEError(pyfuse3.ENOATTR)

    @_operation
    def listxattr(self, inode: int, ctx: pyfuse3.RequestContext) -> list[bytes]:
        return [name for name, _ in self._layer.node(inode).xattrs] if inode < MAGIC else []

    @_operation
    def setxattr(self, inode: int, name: bytes, value: bytes, ctx: pyfuse3.RequestContext) -> None:
        if inode >= MAGIC:
            raise FUSEError(errno.EROFS)
        if name.startswith(b"system."):  # access control lists: the kernel would have to check them
            raise FUSEError(errno.EOPNOTSUPP)
        self._layer.set_xattr(self._layer.node(inode), name, value)

    @_operation
    def removexattr(self, inode: int, name: bytes, ctx: pyfuse3.RequestContext) -> None:
        if inode >= MAGIC:
            raise FUSEError(errno.EROFS)
        self._layer.set_xattr(self._layer.node(inode), name, None)

    # -- files ----------------------------------------------------------------------------------------------------

    @_operation
    def open(self, inode: int, flags: int, ctx: pyfuse3.RequestContext) -> FileInfo:
        if inode >= MAGIC:
            return self._open_magic(inode, flags)
        handle = self._layer.open(self._file(inode), truncate=bool(flags & os.O_TRUNC))
        number = self._next_handle
        self._next_handle = number + 1
        self._handles[number] = handle
        return FileInfo(fh=number, keep_cache=True)

    @_operation
    def read(self, fh: int, off: int, size: int) -> bytes:
        handle = self._handles.get(fh)
        if handle is not None:
            return self._layer.read(handle, off, size)
        file = self._readings[fh].file
        file.seek(off)
        return file.read(size)

    @_operation
    def write(self, fh: int, off: int, buf: bytes) -> int:
        written = self._layer.write(self._handles[fh], off, buf)
        while written < len(buf):  # the kernel takes a short write for an error of ours
            written += self._layer.write(self._handles[fh], off + written, buf[written:])
        return written

    @_operation
    def flush(self, fh: int) -> None:
        handle = self._handles.get(fh)
        if handle is not None:
            self._layer.flush(handle)

    @_operation
    def release(self, fh: int) -> None:
        handle = self._handles.pop(fh, None)
        if handle is not None:
            self._layer.release(handle)
        else:
            self._readings.pop(fh).file.close()

    @_operation
    def fsync(self, fh: int, datasync: bool) -> None:
        handle = self._handles.get(fh)
        if handle is not None:
            self._layer.fsync(handle.node)

    # -- directories ----------------------------------------------------------------------------------------------

    @_operation
    def opendir(self, inode: int, ctx: pyfuse3.RequestContext) -> int:
        if inode < MAGIC:
            self._directory(inode)
        number = self._next_handle
        self._next_handle = number + 1
        self._listings[number] = _Listing(inode)
        return number

    @_operation
    def readdir(self, fh: int, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        listing = self._listings[fh]
        if listing.inode >= MAGIC:
            self._list_magic(listing, start_id, token)
            return
        directory = self._directory(listing.inode)
        if start_id == 0:
            listing.entries = self._layer.entries(directory)
        reply = pyfuse3.readdir_reply
        if start_id == 0 and not reply(token, b".", _attributes(directory), 1):
            return
        if start_id <= 1 and not reply(token, b"..", _attributes(directory.parent or directory), 2):
            return
        children = directory.children
        counts = self._counts
        entries = listing.entries
        for position in range(max(0, start_id - 2), len(entries)):
            name, node = entries[position]
            if children.get(name) is not node:
                found = self._layer.lookup(directory, name)
                if found is None:
                    continue
                node = found
            if not reply(token, name, _attributes(node), position + 3):
                return
            counts[node.ino] = counts.get(node.ino, 0) + 1

    def _list_magic(self, listing: _Listing, start_id: int, token: pyfuse3.ReaddirToken) -> None:
        if start_id == 0:
            listing.entries = self._magic.listing(listing.inode)
        for position in range(start_id, len(listing.entries)):
            name, entry = listing.entries[position]
            assert isinstance(entry, MagicEntry)
            if not pyfuse3.readdir_reply(token, name, _magic_attributes(entry), position + 1):
                return
            self._inodes.count(entry.inode)

    @_operation
    def releasedir(self, fh: int) -> None:
        del self._listings[fh]

    @_operation
    def fsyncdir(self, fh: int, datasync: bool) -> None:
        self._layer.fsync(None)

    # -- replies --------------------------------------------------------------------------------------------------

    def _counted(self, node: Node) -> EntryAttributes:
        """Return a node's attributes for a reply that makes the kernel know it once more."""
        counts = self._counts
        counts[node.ino] = counts.get(node.ino, 0) + 1
        return _attributes(node)

    def _open_magic(self, inode: int, flags: int) -> FileInfo:
        if flags & os.O_ACCMODE != os.O_RDONLY or flags & os.O_TRUNC:
            raise FUSEError(errno.EROFS)
        entry = self._magic_entry(inode)
        number = self._next_handle
        self._next_handle = number + 1
        self._readings[number] = _Reading(inode, self._magic.open(entry))
        return FileInfo(fh=number, direct_io=entry.live, keep_cache=False)

    def _magic_entry(self, inode: int) -> MagicEntry:
        entry = self._magic.entry(inode)
        if entry is None:
            raise FUSEError(errno.ENOENT)
        return entry


def _attributes(node: Node) -> EntryAttributes:
    """Return a node's attributes, to be kept by the kernel."""
    entry = EntryAttributes()
    entry.st_ino = node.ino
    entry.st_mode = node.mode
    entry.st_nlink = node.nlink
    entry.st_uid = node.uid
    entry.st_gid = node.gid
    if isinstance(node, DeviceNode):
        entry.st_rdev = node.device
    size = node.size
    entry.st_size = size
    entry.st_blocks = (size + _BLOCK_BYTES - 1) // _BLOCK_BYTES
    entry.st_atime_ns = node.atime_ns
    entry.st_mtime_ns = node.mtime_ns
    entry.st_ctime_ns = node.ctime_ns
    entry.entry_timeout = _KEEP_S
    entry.attr_timeout = _KEEP_S
    return entry


def _magic_attributes(magic: MagicEntry) -> EntryAttributes:
    """Return the attributes of something in ``.chronicle``, not to be kept."""
    entry = EntryAttributes()
    entry.st_ino = magic.inode
    entry.st_mode = magic.mode
    entry.st_nlink = 2 if stat.S_ISDIR(magic.mode) else 1
    entry.st_uid = os.geteuid()
    entry.st_gid = os.getegid()
    entry.st_size = magic.size
    entry.st_blocks = (magic.size + _BLOCK_BYTES - 1) // _BLOCK_BYTES
    entry.st_atime_ns = entry.st_mtime_ns = entry.st_ctime_ns = magic.mtime_ns
    entry.entry_timeout = 0
    entry.attr_timeout = 0
    return entry
