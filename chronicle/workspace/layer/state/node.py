"""The inodes of a layer in memory: files, directories, symlinks, devices.

Nodes are plain data; `chronicle.workspace.layer.state.apply` changes them. There can be 100,000 of them, so they have
slots, and no field that they can do without.
"""

from __future__ import annotations

import os
import stat
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from chronicle.workspace.trees.tree import EMPTY, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.ids import BlobId
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.layer.disk.data_file import DataFile
    from chronicle.workspace.trees.tree import Entry

__all__ = ["DeviceNode", "DirNode", "FileNode", "LinkNode", "Node", "kind_bits", "kind_of", "loaded_names", "new_node"]

_KINDS = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFDIR: Kind.DIR,
    stat.S_IFLNK: Kind.SYMLINK,
    stat.S_IFIFO: Kind.FIFO,
    stat.S_IFSOCK: Kind.SOCKET,
    stat.S_IFCHR: Kind.CHAR,
    stat.S_IFBLK: Kind.BLOCK,
}

_PAGE_BYTES: Final = 4096
_KIND_BITS = {kind: bits for bits, kind in _KINDS.items()}
_NO_XATTRS: Final[Mapping[bytes, bytes]] = MappingProxyType({})


class Node:
    """An inode. This class itself stands for FIFOs and sockets."""

    device = 0
    """Device number, as in ``st_rdev``."""
    __slots__ = (
        "atime_ns",
        "ctime_ns",
        "gid",
        "ino",
        "links",
        "mode",
        "mtime_ns",
        "name",
        "nlink",
        "parent",
        "uid",
        "versioned",
        "xattrs",
    )

    def __init__(self, ino: int, mode: int, uid: int, gid: int, now_ns: int) -> None:
        self.ino = ino
        self.mode = mode
        """Kind and permission bits, as in ``st_mode``."""
        self.uid = uid
        self.gid = gid
        self.atime_ns = self.mtime_ns = self.ctime_ns = now_ns
        self.nlink = 1
        self.parent: DirNode | None = None
        """The directory of its first name; None for the root, and for a removed node."""
        self.name = b""
        self.links: list[tuple[DirNode, bytes]] | None = None
        """Its loaded names besides ``parent`` and ``name``."""
        self.versioned = False
        """Whether its path has a version of this node; otherwise its removal leaves no trace."""
        self.xattrs: Mapping[bytes, bytes] = _NO_XATTRS
        """Extended attributes; changed by `set_xattr`."""

    @property
    def size(self) -> int:
        """Bytes, as in ``st_size``."""
        return 0

    @property
    def blocks(self) -> int:
        """Disk usage in blocks of 512 bytes, as in ``st_blocks``."""
        return 0

    def set_xattr(self, name: bytes, value: bytes | None) -> None:
        """Set an extended attribute, or remove an existing one (``None``), in constant time."""
        attributes = self.xattrs
        if not isinstance(attributes, dict):
            attributes = self.xattrs = {}
        if value is None:
            del attributes[name]
        else:
            attributes[name] = value


class FileNode(Node):
    """A regular file.

    It is *clean* while its bytes are those of `content`, which the blob store has, and *dirty* after its first change.
    """

    __slots__ = ("content", "data", "dirty", "fd", "guarded", "length", "opens", "sparse_blocks", "unversioned")

    def __init__(self, ino: int, mode: int, uid: int, gid: int, now_ns: int) -> None:
        super().__init__(ino, mode, uid, gid, now_ns)
        self.content: Content | None = None
        """Its content at the last seal, if it had one."""
        self.data: DataFile | None = None
        """Its data file on this node; None if its bytes are only in the blob store."""
        self.fd = -1
        """Descriptor of the data file while the file is open; -1 without."""
        self.opens = 0
        self.length = 0
        self.dirty = False
        self.guarded = True
        """Whether the next write must log that the file becomes dirty, or preserve blocks; see `FileData.guard`."""
        self.unversioned = False
        """Whether it was written since its last version."""
        self.sparse_blocks: int | None = None
        """Blocks of 512 bytes of its data file when it was last closed; None if it has no holes."""

    @property
    def size(self) -> int:
        """Bytes, as in ``st_size``."""
        return self.length

    @property
    def blocks(self) -> int:
        """Disk usage in blocks of 512 bytes. Holes are known while a data file has the whole content."""
        if self.sparse_blocks is not None and self.data is not None and self.data.partial is None:
            return os.fstat(self.fd).st_blocks if self.fd >= 0 else self.sparse_blocks
        return -(-self.length // _PAGE_BYTES) * (_PAGE_BYTES // 512)

    def set_stored(self, content: Content) -> None:
        """Have the bytes of a content that the blob store has, and no data file."""
        self.content, self.data = content, None
        self.dirty = self.unversioned = False
        self.guarded = True
        self.sparse_blocks = None

    def note_holes(self, status: os.stat_result) -> None:
        """Record from the status of its data file whether that has holes."""
        self.sparse_blocks = status.st_blocks if status.st_blocks * 512 < status.st_size else None


class LinkNode(Node):
    """A symlink."""

    __slots__ = ("target",)

    def __init__(self, ino: int, mode: int, uid: int, gid: int, now_ns: int) -> None:
        super().__init__(ino, mode, uid, gid, now_ns)
        self.target = b""

    @property
    def size(self) -> int:
        """Length of its target, bytes."""
        return len(self.target)


class DeviceNode(Node):
    """A character or block device."""

    __slots__ = ("device",)

    def __init__(self, ino: int, mode: int, uid: int, gid: int, now_ns: int) -> None:
        super().__init__(ino, mode, uid, gid, now_ns)
        self.device = 0
        """Device number, as in ``st_rdev``."""


class DirNode(Node):
    """A directory: loaded and changed entries over its stored tree."""

    __slots__ = ("attrs", "changed", "children", "path_cache", "path_generation", "tree")

    def __init__(self, ino: int, mode: int, uid: int, gid: int, now_ns: int) -> None:
        super().__init__(ino, mode, uid, gid, now_ns)
        self.nlink = 2
        self.tree: BlobId = EMPTY
        """Its subtree at the last seal."""
        self.attrs: BlobId | None = None
        """Its map of attributes at the last seal."""
        self.children: dict[bytes, Node | None] = {}
        """Loaded and new names; None for a name of the last seal that was removed."""
        self.changed: set[bytes] = set()
        """Names that differ from the last seal, or below which something does."""
        self.path_cache = b""
        self.path_generation = -1


def kind_bits(kind: Kind) -> int:
    """Return a kind as in ``st_mode``."""
    return _KIND_BITS[kind]


def new_node(entry: Entry, ino: int, uid: int, gid: int, now_ns: int) -> Node:
    """Return a node of an entry's kind with its mode, attributes, target and device, without content and name."""
    node: Node
    mode = _KIND_BITS[entry.kind] | entry.mode
    if entry.content is not None:
        node = FileNode(ino, mode, uid, gid, now_ns)
    elif entry.kind is Kind.DIR:
        node = DirNode(ino, mode, uid, gid, now_ns)
    elif entry.kind is Kind.SYMLINK:
        node = symlink = LinkNode(ino, mode, uid, gid, now_ns)
        symlink.target = entry.target
    elif entry.device is not None:
        node = device = DeviceNode(ino, mode, uid, gid, now_ns)
        device.device = entry.device
    else:
        node = Node(ino, mode, uid, gid, now_ns)
    if entry.xattrs:
        node.xattrs = dict(entry.xattrs)
    return node


def kind_of(node: Node) -> Kind:
    """Return the kind of a node."""
    return _KINDS[stat.S_IFMT(node.mode)]


def loaded_names(node: Node) -> list[tuple[DirNode, bytes]]:
    """Return the loaded names of a node, each with its directory; none if it was removed."""
    names = [] if node.parent is None else [(node.parent, node.name)]
    return names + node.links if node.links else names
