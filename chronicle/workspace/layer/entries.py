"""The entries of a layer: looking up, making, removing and renaming them, and their attributes.

Each changing method checks as the kernel would, reads what it needs of the blob store, appends a record to the log, and
only then does what `chronicle.workspace.layer.state` says. Errors of use are ``OSError`` with the errno of ext4.
"""

from __future__ import annotations

import errno
import os
import stat

from chronicle.system.heap import give_back
from chronicle.workspace.layer.disk import log_records as records
from chronicle.workspace.layer.disk.log_records import pack
from chronicle.workspace.layer.file_bytes import ContentLayer, Handle
from chronicle.workspace.layer.node import DirNode, Node
from chronicle.workspace.layer.state import RENAME_EXCHANGE, RENAME_NOREPLACE
from chronicle.workspace.quota import limited
from chronicle.workspace.trees.tree import EMPTY, MAX_NAME_BYTES

__all__ = ["EntryLayer"]


class EntryLayer(ContentLayer):
    """A layer with what is done to its names and attributes."""

    # -- what there is --------------------------------------------------------------------------------------------

    @property
    def root(self) -> DirNode:
        """The root directory."""
        return self.names.root

    def node(self, ino: int) -> Node:
        """Return what has an inode number.

        Raises:
            OSError: ESTALE: nothing has it any more.
        """
        try:
            return self.names.by_ino[ino]
        except KeyError:
            node = self.names.node(ino)
        if node is None:
            raise OSError(errno.ESTALE, "nothing has this inode number")
        return node

    def lookup(self, parent: DirNode, name: bytes) -> Node | None:
        """Return what a name in a directory is."""
        try:
            return parent.children[name]
        except KeyError:
            return self.names.child(parent, name) if parent.tree != EMPTY else None

    def resolve(self, path: bytes) -> Node | None:
        """Return what is at a path, ``b""`` being the root; symlinks are not followed."""
        return self.names.resolve(path)

    def entries(self, directory: DirNode) -> list[tuple[bytes, Node]]:
        """Return a directory's entries by name."""
        return self.names.entries(directory)

    def listed(self, directory: DirNode) -> list[tuple[bytes, int, int]]:
        """Return what a directory holds by name, with inode numbers and kinds as in ``st_mode``, loading nothing."""
        return self.names.listed(directory)

    def forget(self, ino: int) -> None:
        """Let go of a node that nobody refers to by number any more, if it can be had again."""
        self.names.forget(ino)

    def shed(self) -> None:
        """Let go of what can be had again, if that is much. Between operations only: nodes are made anew by it."""
        if self.names.shed():
            give_back()

    def statfs(self) -> os.statvfs_result:
        """Return the figures of the file system that the layer is on, or of the quota where that is tighter."""
        figures = os.statvfs(self.directory)
        return limited(figures, self.quota, self.usage) if self.quota is not None else figures

    # -- making and removing names --------------------------------------------------------------------------------

    def create(self, parent: DirNode, name: bytes, mode: int, uid: int, gid: int) -> Handle:
        """Make a regular file and open it for reading and writing.

        Args:
            mode: permission bits.
        """
        self._check_new(parent, name)
        self._check_inodes()
        data, fd = self._files.create_data()
        ts_ns = self._now()
        ino = self.names.next_ino
        try:
            path = self.names.join(parent, name)
            self._log.append(pack((records.CREATE, ts_ns, path, ino, mode, uid, gid, data.number)))
        except OSError:
            os.close(fd)
            self._files.drop_data(data)
            raise
        node = self.do_create(parent, name, ino, mode, uid, gid, data, ts_ns)
        node.fd = fd
        node.opens = 1
        handle = Handle(node, fresh=True)
        self._handles.add(handle)
        return handle

    def make(self, parent: DirNode, name: bytes, mode: int, uid: int, gid: int, target: bytes | None = None) -> Node:
        """Make a directory, FIFO or socket, as ``mode`` says, or a symlink if there is a target."""
        self._check_new(parent, name)
        self._check_inodes()
        ts_ns = self._now()
        ino = self.names.next_ino
        path = self.names.join(parent, name)
        self._log.append(pack((records.MAKE, ts_ns, path, ino, mode, uid, gid, target)))
        return self.do_make(parent, name, ino, mode, uid, gid, target, ts_ns)

    def make_device(self, parent: DirNode, name: bytes, mode: int, uid: int, gid: int, device: int) -> Node:
        """Make a device's node, of the kind that ``mode`` says. Who may is for the kernel to check.

        Args:
            device: its number, as in ``st_rdev``.
        """
        self._check_new(parent, name)
        self._check_inodes()
        ts_ns = self._now()
        ino = self.names.next_ino
        path = self.names.join(parent, name)
        self._log.append(pack((records.DEVICE, ts_ns, path, ino, mode, uid, gid, device)))
        return self.do_make_device(parent, name, ino, mode, uid, gid, device, ts_ns)

    def unlink(self, parent: DirNode, name: bytes) -> None:
        """Remove a name that is no directory's."""
        node = self._existing(parent, name)
        if isinstance(node, DirNode):
            raise OSError(errno.EISDIR, "is a directory")
        self._remove(parent, name, node)

    def rmdir(self, parent: DirNode, name: bytes) -> None:
        """Remove an empty directory."""
        node = self._existing(parent, name)
        if not isinstance(node, DirNode):
            raise OSError(errno.ENOTDIR, "not a directory")
        if not self.names.is_empty(node):
            raise OSError(errno.ENOTEMPTY, "directory not empty")
        self._remove(parent, name, node)

    def _remove(self, parent: DirNode, name: bytes, node: Node) -> None:
        self.names.load_links(node)
        ts_ns = self._now()
        self._log.append(pack((records.REMOVE, ts_ns, self.names.join(parent, name))))
        self.do_remove(parent, name, node, ts_ns)

    def rename(self, old_dir: DirNode, old: bytes, new_dir: DirNode, new: bytes, flags: int = 0) -> None:
        """Move what has a name to another; the flags are the kernel's, see `RENAME_EXCHANGE` and `RENAME_NOREPLACE`."""
        node = self._existing(old_dir, old)
        target = self.lookup(new_dir, new)
        if flags & ~(RENAME_EXCHANGE | RENAME_NOREPLACE):
            raise OSError(errno.EINVAL, "unknown flags")
        if target is node and not flags & RENAME_NOREPLACE:
            return
        if len(new) > MAX_NAME_BYTES:
            raise OSError(errno.ENAMETOOLONG, "name too long")
        if isinstance(node, DirNode):
            self._check_not_inside(new_dir, node)
        if flags & RENAME_EXCHANGE:
            if target is None:
                raise FileNotFoundError(errno.ENOENT, "nothing to exchange with")
            if isinstance(target, DirNode):
                self._check_not_inside(old_dir, target)
        elif target is not None:
            if flags & RENAME_NOREPLACE:
                raise FileExistsError(errno.EEXIST, "exists")
            self._check_replaceable(node, target)
        moving = self.moving(old_dir, old, new_dir, new, flags)
        self._settle(node)
        if flags & RENAME_EXCHANGE:
            assert target is not None
            self._settle(target)
        ts_ns = self._now()
        names = self.names
        self._log.append(pack((records.RENAME, ts_ns, names.join(old_dir, old), names.join(new_dir, new), flags)))
        self.do_rename(old_dir, old, new_dir, new, flags, ts_ns, moving)

    def _check_not_inside(self, directory: DirNode | None, node: DirNode) -> None:
        while directory is not None:
            if directory is node:
                raise OSError(errno.EINVAL, "a directory cannot be moved into itself")
            directory = directory.parent

    def _check_replaceable(self, node: Node, target: Node) -> None:
        if isinstance(target, DirNode):
            if not isinstance(node, DirNode):
                raise IsADirectoryError(errno.EISDIR, "is a directory")
            if not self.names.is_empty(target):
                raise OSError(errno.ENOTEMPTY, "directory not empty")
        elif isinstance(node, DirNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory")

    def link(self, node: Node, parent: DirNode, name: bytes) -> None:
        """Give a file one more name."""
        if isinstance(node, DirNode):
            raise OSError(errno.EPERM, "a directory has one name")
        source = self.names.path_of(node)
        if source is None:
            raise FileNotFoundError(errno.ENOENT, "removed")
        self._check_new(parent, name)
        self.names.load_links(node)
        self._settle(node)
        ts_ns = self._now()
        self._log.append(pack((records.LINK, ts_ns, source, self.names.join(parent, name))))
        self.do_link(node, source, parent, name, ts_ns)

    def _check_new(self, parent: DirNode, name: bytes) -> None:
        if parent.nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the directory was removed")
        if len(name) > MAX_NAME_BYTES:
            raise OSError(errno.ENAMETOOLONG, "name too long")
        if self.lookup(parent, name) is not None:
            raise FileExistsError(errno.EEXIST, "exists")

    def _existing(self, parent: DirNode, name: bytes) -> Node:
        node = self.lookup(parent, name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory")
        return node

    # -- attributes -----------------------------------------------------------------------------------------------

    def set_mode(self, node: Node, mode: int, uid: int, gid: int) -> None:
        """Set permission bits and owner. Makes no version if they are what they were."""
        ts_ns = self._now()
        if (stat.S_IMODE(node.mode), node.uid, node.gid) == (mode, uid, gid):
            node.ctime_ns = ts_ns
            return
        self.names.load_links(node)
        self._settle_written(node)
        path = self.names.path_of(node)
        if path is not None:
            self._log.append(pack((records.MODE, ts_ns, path, mode, uid, gid)))
        self.do_mode(node, mode, uid, gid, ts_ns)

    def set_xattr(self, node: Node, name: bytes, value: bytes | None) -> None:
        """Set an extended attribute, or remove it. Nothing is changed if it is what it was.

        Raises:
            OSError: ENODATA: there is none to remove.
        """
        if value is None and name not in node.xattrs:
            raise OSError(errno.ENODATA, "no such attribute")
        if value is not None and node.xattrs.get(name) == value:
            return
        self.names.load_links(node)
        self._settle_written(node)
        ts_ns = self._now()
        path = self.names.path_of(node)
        if path is not None:
            self._log.append(pack((records.XATTR, ts_ns, path, name, value)))
        self.do_xattr(node, name, value, ts_ns)
