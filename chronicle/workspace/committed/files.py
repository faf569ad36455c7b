"""The files of a commit by path: the read operations of an open workspace, without opening one.

Nothing is locked or created on this machine; uncommitted changes are not visible. Safe to share between threads if the
reader is.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, BinaryIO

from chronicle.blobs.ident import blob_id
from chronicle.workspace.api.workspace import Status
from chronicle.workspace.committed.workspace import CommittedWorkspace
from chronicle.workspace.content import content
from chronicle.workspace.history.oplog import decode_attr, first_root, read_root
from chronicle.workspace.layer.history_reader import encode_path
from chronicle.workspace.paths import follow
from chronicle.workspace.trees import nodes, tree
from chronicle.workspace.trees.tree import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.workspace.history.oplog import Attr
    from chronicle.workspace.port import Iteration, TreeRef
    from chronicle.workspace.trees.tree import Entry

__all__ = ["CommittedFiles"]

Found = tuple["Entry", "Attr | None"]
"""An entry and its attributes."""


class CommittedFiles:
    """A commit's files. Errors of use are ``OSError`` with the errno that a file system gives.

    Args:
        reader: reads the blobs.
        ref: the commit; ``None`` for the empty state before the first one.

    Raises:
        NotFound, Corrupt, Unavailable, UnsupportedFormat: the commit cannot be read.
    """

    def __init__(self, reader: BlobReader, ref: TreeRef | None) -> None:
        self._reader = reader
        self._committed = CommittedWorkspace(reader, ref)
        root = read_root(reader, ref.oplog_id) if ref is not None else first_root(0)
        entry = tree.entry_at(reader, root.tree_id, b"")
        assert entry is not None
        self._root: Found = entry, root.root

    def status(self, path: str, *, follow_links: bool = True) -> Status:
        """Return the status of a path, ``""`` being the root."""
        return self._status(self._find(path, last=follow_links))

    def list(self, path: str = "") -> list[tuple[str, Status]]:
        """Return the entries of a directory, by name."""
        entry, attr = self._find(path)
        if entry.subtree is None:
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        known = dict(nodes.items(self._reader, attr.below if attr is not None else None))
        return [
            (os.fsdecode(name), self._status((below, decode_attr(known[name]) if name in known else None)))
            for name, below in tree.list_dir(self._reader, entry.subtree)
        ]

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading; its content is fetched as it is read."""
        return content.open(self._reader, self._content(path))

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return a range of a file's bytes, without an end the rest; only the chunks of the range are fetched."""
        found = self._content(path)
        return content.read(self._reader, found, start, None if end is None else max(0, end - start))

    def content_id(self, path: str) -> str | None:
        """Return the id of a path's content: equal content, equal id. ``None`` for an entry without content."""
        entry, _ = self._find(path)
        if entry.content is not None:
            return entry.content.id
        return entry.subtree or (blob_id(entry.target) if entry.target else None)

    def history(self, path: str) -> Sequence[Iteration]:
        """Return a path's versions up to the commit, oldest first; see `chronicle.workspace.port.Workspace.history`."""
        return self._committed.history(path)

    def _content(self, path: str) -> content.Content:
        entry, _ = self._find(path)
        if entry.content is not None:
            return entry.content
        if entry.kind is Kind.DIR:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        raise OSError(errno.ENXIO, f"a {entry.kind.value} cannot be opened here", path)

    def _find(self, path: str, *, last: bool = True) -> Found:
        found = follow(self._root, encode_path(path), self._child, _target, last=last)[1]
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory at that moment", path)
        return found

    def _child(self, found: Found, name: bytes) -> Found | None:
        entry, attr = found
        if entry.subtree is None:
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", os.fsdecode(name))
        child = tree.entry_at(self._reader, entry.subtree, name)
        if child is None:
            return None
        below = attr.below if attr is not None else None
        value = nodes.lookup(self._reader, below, name) if below is not None else None
        return child, decode_attr(value) if value is not None else None

    def _status(self, found: Found) -> Status:
        entry, attr = found
        size = entry.content.size if entry.content is not None else len(entry.target)
        return Status(
            entry.kind,
            entry.mode,
            size,
            attr.ino if attr is not None else 0,
            attr.links if attr is not None else 1,
            os.geteuid() if entry.uid is None else entry.uid,
            os.getegid() if entry.gid is None else entry.gid,
            attr.mtime_ns if attr is not None else 0,
            os.fsdecode(entry.target) if entry.target else None,
            entry.device or 0,
        )


def _target(found: Found) -> bytes | None:
    return found[0].target or None
