"""Open directories of a mount: their entries, with and without attributes."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from chronicle.fuse.served.inodes import MAGIC
from chronicle.workspace.layer.state.node import DirNode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.fuse.served.filesystem import Attributes
    from chronicle.fuse.served.inodes import LookupCounts
    from chronicle.fuse.served.magic import Magic, MagicEntry
    from chronicle.workspace.layer.layer import Layer

__all__ = ["OpenDirectories", "directory_node"]

_LOADED_TOGETHER: Final = 1000
"""Directories with up to so many entries are loaded at once when they are listed. Of larger ones only the entries that
are listed with attributes are; the kernel requests those while it sees that they are used."""
_NO_INODE: Final = 0xFFFFFFFF
"""Of entries of ``.chronicle`` listed without attributes: only looked-up ones have inode numbers."""


class _OpenDirectory:
    """An open directory: its entries when it was opened, or rewound.

    Offsets are positions in it, so they stay valid while the directory changes: removed entries are skipped, new
    entries are seen after a rewind, as POSIX allows.
    """

    __slots__ = ("entries", "inode", "magic")

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.entries: list[tuple[bytes, int, int]] = []
        self.magic: list[tuple[bytes, int]] = []


class OpenDirectories:
    """The open directories of a mount, by handle.

    Args:
        layer: of the workspace.
        magic: its ``.chronicle``.
        lookups: the kernel's lookup counts.
    """

    def __init__(self, layer: Layer, magic: Magic, lookups: LookupCounts) -> None:
        self._layer = layer
        self._magic = magic
        self._lookups = lookups
        self._counts = lookups.counts
        self._open: dict[int, _OpenDirectory] = {}
        self._next_handle = 1

    def _node(self, inode: int) -> DirNode:
        return directory_node(self._layer, inode)

    def opendir(self, inode: int, flags: int = os.O_DIRECTORY, pid: int = 0) -> int:
        """Open a directory."""
        if inode < MAGIC:
            self._node(inode)
        elif not flags & os.O_DIRECTORY and self._magic.wants_file(inode, pid):
            raise OSError(errno.ESTALE, "the caller wants the file of this name")
        number = self._next_handle
        self._next_handle = number + 1
        self._open[number] = _OpenDirectory(inode)
        return number

    def readdir(self, handle: int, start: int) -> Iterator[tuple[bytes, Attributes, int]]:
        """Yield entries from an offset on."""
        listing = self._open[handle]
        if listing.inode >= MAGIC:
            yield from self._list_magic(listing, start)
            return
        self._layer.evict_surplus()
        directory = self._node(listing.inode)
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
        listing = self._open[handle]
        if listing.inode >= MAGIC:
            if start == 0:
                listing.magic = self._magic.listing(listing.inode, self._counts)
            for position in range(start, len(listing.magic)):
                known, mode = listing.magic[position]
                yield known, _NO_INODE, mode, position + 1
            return
        directory = self._node(listing.inode)
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
            except KeyError:  # not loaded, so unchanged
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
        """Drop an inode number that the kernel was not given after all: it would never say that it forgets it."""
        if entry.ino not in self._counts:
            self._magic.forget(entry.ino)

    def releasedir(self, handle: int) -> None:
        """Close a directory."""
        del self._open[handle]


def directory_node(layer: Layer, inode: int) -> DirNode:
    """Return the node of a directory.

    Raises:
        NotADirectoryError: it is none.
    """
    node = layer.node(inode)
    if not isinstance(node, DirNode):
        raise NotADirectoryError(errno.ENOTDIR, "not a directory")
    return node
