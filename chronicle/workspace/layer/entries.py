"""Names of a layer: looking up, creating, removing, renaming and linking entries.

Each changing method checks as the kernel would, reads what it needs of the blob store, appends a record to the log, and
only then applies it (`chronicle.workspace.layer.state.apply`). Errors of use are ``OSError`` with the errno of ext4.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from chronicle.system.heap import trim
from chronicle.workspace.layer.disk import log_records as records
from chronicle.workspace.layer.disk.log_records import pack
from chronicle.workspace.layer.state.apply import RENAME_EXCHANGE, RENAME_NOREPLACE
from chronicle.workspace.layer.state.node import DirNode
from chronicle.workspace.trees.tree import EMPTY, MAX_NAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.disk.log import LayerLog
    from chronicle.workspace.layer.file_versions import FileVersions
    from chronicle.workspace.layer.open_files import OpenFiles
    from chronicle.workspace.layer.state.apply import Applier
    from chronicle.workspace.layer.state.handle import Handle
    from chronicle.workspace.layer.state.node import Node

__all__ = ["Entries"]


class Entries:
    """The entries of directories.

    Args:
        applier: changes the state.
        files: the layer's files on disk.
        log: the layer's log.
        now: gives the time, epoch nanoseconds.
        versions: adds the version of a written file that comes before it gets another name.
        open_files: opens a file that was created.
    """

    def __init__(
        self,
        applier: Applier,
        files: LayerFiles,
        log: LayerLog,
        now: Callable[[], int],
        versions: FileVersions,
        open_files: OpenFiles,
    ) -> None:
        self._applier = applier
        self._state = applier.state
        self._files = files
        self._log = log
        self._now = now
        self._versions = versions
        self._open_files = open_files

    # -- looking up --------------------------------------------------------------------------------------------

    def node(self, ino: int) -> Node:
        """Return the node of an inode number.

        Raises:
            OSError: ESTALE: it is gone.
        """
        try:
            return self._state.names.by_ino[ino]
        except KeyError:
            node = self._state.names.node(ino)
        if node is None:
            raise OSError(errno.ESTALE, "nothing has this inode number")
        return node

    def lookup(self, parent: DirNode, name: bytes) -> Node | None:
        """Return the node at a name in a directory."""
        try:
            return parent.children[name]
        except KeyError:
            return self._state.names.child(parent, name) if parent.tree != EMPTY else None

    def resolve(self, path: bytes) -> Node | None:
        """Return the node at a path, ``b""`` being the root; symlinks are not followed."""
        return self._state.names.resolve(path)

    def entries(self, directory: DirNode) -> list[tuple[bytes, Node]]:
        """Return a directory's entries by name."""
        return self._state.names.entries(directory)

    def dirents(self, directory: DirNode) -> list[tuple[bytes, int, int]]:
        """Return a directory's names with inode numbers and kinds as in ``st_mode``, loading no node."""
        return self._state.names.dirents(directory)

    def forget(self, ino: int) -> None:
        """Evict a node that the kernel refers to no more, if it can be loaded again."""
        self._state.names.forget(ino)

    def evict_surplus(self) -> None:
        """Evict nodes that can be loaded again, if there are many. Only between operations, which hold nodes."""
        if self._state.names.evict_surplus():
            trim()

    # -- creating and removing --------------------------------------------------------------------------------

    def create(self, parent: DirNode, name: bytes, mode: int, uid: int, gid: int) -> Handle:
        """Create a regular file and open it for reading and writing.

        Args:
            mode: permission bits.
        """
        self._check_new(parent, name)
        self._state.usage.check_new_file()
        data, fd = self._files.create_data()
        ts_ns = self._now()
        ino = self._state.names.next_ino
        try:
            path = self._state.names.join(parent, name)
            self._log.append(pack((records.CREATE, ts_ns, path, ino, mode, uid, gid, data.number)))
        except OSError:
            os.close(fd)
            self._files.drop_data(data)
            raise
        node = self._applier.create(parent, name, ino, mode, uid, gid, data, ts_ns)
        return self._open_files.add(node, fd)

    def make(self, parent: DirNode, name: bytes, mode: int, uid: int, gid: int, target: bytes | None = None) -> Node:
        """Create a directory, FIFO or socket, as ``mode`` says, or a symlink if there is a target."""
        self._check_new(parent, name)
        self._state.usage.check_new_file()
        ts_ns = self._now()
        ino = self._state.names.next_ino
        path = self._state.names.join(parent, name)
        self._log.append(pack((records.MAKE, ts_ns, path, ino, mode, uid, gid, target)))
        return self._applier.make(parent, name, ino, mode, uid, gid, target, ts_ns)

    def make_device(self, parent: DirNode, name: bytes, mode: int, uid: int, gid: int, device: int) -> Node:
        """Create a device node of the kind that ``mode`` says. The kernel checks the permission.

        Args:
            device: its number, as in ``st_rdev``.
        """
        self._check_new(parent, name)
        self._state.usage.check_new_file()
        ts_ns = self._now()
        ino = self._state.names.next_ino
        path = self._state.names.join(parent, name)
        self._log.append(pack((records.DEVICE, ts_ns, path, ino, mode, uid, gid, device)))
        return self._applier.make_device(parent, name, ino, mode, uid, gid, device, ts_ns)

    def unlink(self, parent: DirNode, name: bytes) -> None:
        """Remove a name of anything but a directory."""
        node = self._existing(parent, name)
        if isinstance(node, DirNode):
            raise OSError(errno.EISDIR, "is a directory")
        self._remove(parent, name, node)

    def rmdir(self, parent: DirNode, name: bytes) -> None:
        """Remove an empty directory."""
        node = self._existing(parent, name)
        if not isinstance(node, DirNode):
            raise OSError(errno.ENOTDIR, "not a directory")
        if not self._state.names.is_empty(node):
            raise OSError(errno.ENOTEMPTY, "directory not empty")
        self._remove(parent, name, node)

    def _remove(self, parent: DirNode, name: bytes, node: Node) -> None:
        self._state.names.load_links(node)
        ts_ns = self._now()
        self._log.append(pack((records.REMOVE, ts_ns, self._state.names.join(parent, name))))
        self._applier.remove(parent, name, node, ts_ns)

    def rename(self, old_dir: DirNode, old: bytes, new_dir: DirNode, new: bytes, flags: int = 0) -> None:
        """Give an entry another name; the flags are `RENAME_EXCHANGE` and `RENAME_NOREPLACE`."""
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
        moving = self._applier.moving(old_dir, old, new_dir, new, flags)
        self._versions.add_missing(node)
        if flags & RENAME_EXCHANGE:
            assert target is not None
            self._versions.add_missing(target)
        ts_ns = self._now()
        names = self._state.names
        self._log.append(pack((records.RENAME, ts_ns, names.join(old_dir, old), names.join(new_dir, new), flags)))
        self._applier.rename(old_dir, old, new_dir, new, flags, ts_ns, moving)

    def _check_not_inside(self, directory: DirNode | None, node: DirNode) -> None:
        while directory is not None:
            if directory is node:
                raise OSError(errno.EINVAL, "a directory cannot be moved into itself")
            directory = directory.parent

    def _check_replaceable(self, node: Node, target: Node) -> None:
        if isinstance(target, DirNode):
            if not isinstance(node, DirNode):
                raise IsADirectoryError(errno.EISDIR, "is a directory")
            if not self._state.names.is_empty(target):
                raise OSError(errno.ENOTEMPTY, "directory not empty")
        elif isinstance(node, DirNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory")

    def link(self, node: Node, parent: DirNode, name: bytes) -> None:
        """Give a file one more name."""
        if isinstance(node, DirNode):
            raise OSError(errno.EPERM, "a directory has one name")
        source = self._state.names.path_of(node)
        if source is None:
            raise FileNotFoundError(errno.ENOENT, "removed")
        self._check_new(parent, name)
        self._state.names.load_links(node)
        self._versions.add_missing(node)
        ts_ns = self._now()
        self._log.append(pack((records.LINK, ts_ns, source, self._state.names.join(parent, name))))
        self._applier.link(node, source, parent, name, ts_ns)

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
