"""Making a plain directory hold what a tree holds: for opening a workspace, rolling one back, and taking a tree out."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from itertools import islice
from typing import TYPE_CHECKING, Final

from chronicle.blobs.store import get_many
from chronicle.workspace import content as contents
from chronicle.workspace import nodes, oplog, tree
from chronicle.workspace.dir_scan import HIDDEN, Index
from chronicle.workspace.tree import Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chronicle.blobs.store import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.oplog import Attr

__all__ = ["restore"]

_TOGETHER: Final = 64
"""Small files whose contents are fetched at once: 4 MiB at most."""
_TEMPORARY: Final = b".chronicle-restoring"
"""A name in the root under which a file is written before it gets its own; left behind by a crash only."""


def restore(
    root: bytes,
    reader: BlobReader,
    tree_id: BlobId,
    attributes: Attr,
    present: Index,
    owner: tuple[int, int],
    report: Callable[[int, int], None] = lambda _size, _files: None,
) -> None:
    """Make a directory hold a tree, with its modification times; what holds the right content already is left alone.

    Args:
        root: an existing directory.
        reader: where blobs are read.
        tree_id: the tree.
        attributes: those of its root, with all below.
        present: what is in the directory, looked at just now; empty is always right, and slower.
        owner: user and group of what has none of its own in the tree.
        report: called with a number of bytes and of files whenever so much more was put.
    """
    _Restore(root, reader, present, owner, report).directory(b"", tree_id, attributes.below)


class _Ready:
    """A reader that has the contents of the next small files already: they mostly lie side by side."""

    def __init__(self, reader: BlobReader) -> None:
        self._reader = reader
        self._blobs: Mapping[BlobId, bytes] = {}

    def fetch(self, wanted: list[BlobId]) -> None:
        """Have these, and none of those before."""
        self._blobs = get_many(self._reader, wanted) if wanted else {}

    def get(self, blob_id: BlobId) -> bytes:
        data = self._blobs.get(blob_id)
        return data if data is not None else self._reader.get(blob_id)


class _Restore:
    def __init__(
        self,
        root: bytes,
        reader: BlobReader,
        present: Index,
        owner: tuple[int, int],
        report: Callable[[int, int], None],
    ) -> None:
        self._root = root
        self._reader = reader
        self._ready = _Ready(reader)
        self._present = present
        self._owner = owner
        self._report = report
        self._linked: dict[bytes, bytes] = {}
        """The first of a hard-linked file's names -> the path at which it was put."""

    def directory(self, top: bytes, tree_id: BlobId, attrs: BlobId | None) -> None:
        """Make what is in a directory, and everything below."""
        finish: list[tuple[bytes, Entry, int]] = []
        stack = [(top, tree_id, attrs)]
        while stack:
            path, subtree, below = stack.pop()
            wanted = dict(tree.list_dir(self._reader, subtree))
            times = dict(nodes.items(self._reader, below))
            full = os.path.join(self._root, path)
            for name in os.listdir(full):
                if name not in wanted and (path or name != HIDDEN):
                    _remove(os.path.join(full, name))
            for position, (name, entry) in enumerate(wanted.items()):
                if position % _TOGETHER == 0:
                    self._fetch(path, list(islice(wanted.items(), position, position + _TOGETHER)))
                child = path + b"/" + name if path else name
                attr = oplog.decode_attr(times[name]) if name in times else None
                if entry.subtree is not None:
                    self._make_directory(child)
                    stack.append((child, entry.subtree, attr.below if attr is not None else None))
                    finish.append((child, entry, attr.mtime_ns if attr is not None else 0))
                else:
                    self._make(child, entry, attr.mtime_ns if attr is not None else 0)
        for child, entry, mtime_ns in reversed(finish):  # when nothing is put into them any more
            self._finish(os.path.join(self._root, child), entry, mtime_ns)

    def _fetch(self, path: bytes, entries: list[tuple[bytes, Entry]]) -> None:
        """Fetch the contents of those small files that are to be put."""
        wanted: dict[BlobId, None] = {}
        for name, entry in entries:
            if entry.content is not None and not entry.content.chunked:
                seen = self._present.get(path + b"/" + name if path else name)
                if seen is None or not _same_body(seen.entry, entry):
                    wanted[entry.content.id] = None
        self._ready.fetch(list(wanted))

    def _make_directory(self, path: bytes) -> None:
        full = os.path.join(self._root, path)
        if not os.path.isdir(full) or os.path.islink(full):
            _remove(full)
            os.mkdir(full, 0o700)
        else:
            os.chmod(full, 0o700)  # its own mode comes last

    def _make(self, path: bytes, entry: Entry, mtime_ns: int) -> None:
        full = os.path.join(self._root, path)
        first = self._linked.get(entry.link) if entry.link is not None else None
        seen = self._present.get(path)
        if first is not None:
            if not (os.path.lexists(full) and os.path.samefile(full, first)):
                _remove(full)
                os.link(first, full, follow_symlinks=False)
        elif seen is None or seen.entry.kind is not entry.kind or not _same_body(seen.entry, entry):
            self._put(full, entry)
        elif entry.link is None and seen.links > 1:
            self._put(full, entry)  # another name of it may be about to become a file of its own
        if entry.link is not None and first is None:
            self._linked[entry.link] = full
        self._finish(full, entry, mtime_ns)

    def _put(self, full: bytes, entry: Entry) -> None:
        """Put a new file in the place of whatever is there."""
        temporary = os.path.join(self._root, _TEMPORARY)
        _remove(temporary)
        if entry.content is not None:
            with open(temporary, "xb") as file:
                reader = self._reader if entry.content.chunked else self._ready
                contents.copy_to(reader, entry.content, file, lambda size: self._report(size, 0))
                self._report(0, 1)
        elif entry.kind is Kind.SYMLINK:
            os.symlink(entry.target, temporary)
        elif entry.kind is Kind.FIFO:
            os.mkfifo(temporary)
        elif entry.device is not None:
            _make_device(full, temporary, entry.kind, entry.device)
        else:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(temporary)
        if os.path.isdir(full) and not os.path.islink(full):
            _remove(full)
        os.rename(temporary, full)

    def _finish(self, full: bytes, entry: Entry, mtime_ns: int) -> None:
        """Give a file its owner, attributes, mode and time."""
        uid = self._owner[0] if entry.uid is None else entry.uid
        gid = self._owner[1] if entry.gid is None else entry.gid
        status = os.lstat(full)
        if (status.st_uid, status.st_gid) != (uid, gid):
            os.chown(full, uid, gid, follow_symlinks=False)
        if entry.kind is not Kind.SYMLINK:
            _set_xattrs(full, dict(entry.xattrs))
            if stat.S_IMODE(os.lstat(full).st_mode) != entry.mode:
                os.chmod(full, entry.mode)
        if mtime_ns and status.st_mtime_ns != mtime_ns:
            os.utime(full, ns=(mtime_ns, mtime_ns), follow_symlinks=False)


def _same_body(one: Entry, other: Entry) -> bool:
    return one.content == other.content and one.target == other.target and one.device == other.device


def _make_device(full: bytes, temporary: bytes, kind: Kind, device: int) -> None:
    try:
        os.mknod(temporary, stat.S_IFCHR if kind is Kind.CHAR else stat.S_IFBLK, device)
    except PermissionError as error:
        message = "the workspace holds a device, which only root may make in a plain directory; mount it instead"
        raise PermissionError(error.errno, message, full) from error


def _set_xattrs(full: bytes, wanted: dict[bytes, bytes]) -> None:
    try:
        present = {os.fsencode(name) for name in os.listxattr(full) if name.startswith("user.")}
        for name in present - wanted.keys():
            os.removexattr(full, name)
        for name, value in wanted.items():
            os.setxattr(full, name, value)
    except OSError:  # a file system without them
        if wanted:
            raise


def _remove(full: bytes) -> None:
    """Remove whatever is at a path."""
    try:
        if os.path.isdir(full) and not os.path.islink(full):
            for directory, _, _ in os.walk(full):
                os.chmod(directory, 0o700)  # a directory that its owner may not write cannot be emptied
            shutil.rmtree(full)
        else:
            os.unlink(full)
    except FileNotFoundError:
        pass
