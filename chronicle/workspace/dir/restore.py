"""Restores a tree in a plain directory: for opening a workspace, rolling one back, and checking a commit out.

Only root can set owners and create devices. A checkout leaves them out, as tar does, and reports it (`LeftOut`). In a
workspace that would be a change that no turn made: there `check_rights` refuses before anything is changed.
"""

from __future__ import annotations

import os
import socket
import stat
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from chronicle.blobs.port import get_many
from chronicle.errors import Conflict, StorageRefused
from chronicle.workspace.content import content as contents
from chronicle.workspace.dir.scan import HIDDEN, KINDS, Index
from chronicle.workspace.dir.walk import WRITE, Descent, by_handle, join, names_in, remove, split
from chronicle.workspace.history import oplog
from chronicle.workspace.trees import nodes, tree
from chronicle.workspace.trees.tree import Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.history.oplog import Attr

__all__ = ["LeftOut", "check_rights", "restore"]

_TOGETHER: Final = 64
"""Small files in one batch: 4 MiB at most."""
_TEMPORARY: Final = b".chronicle-restoring"
"""The temporary name in the root under which a file is written; left behind by a crash only."""
_CAP_CHOWN: Final = 0
_CAP_MKNOD: Final = 27
"""See capabilities(7)."""
_NAMED: Final = 3
"""Paths that an error names at most."""


class LeftOut(NamedTuple):
    """A property that was not restored because only root could."""

    path: bytes
    """Of the entry."""
    what: str
    """``owner`` or ``device``; a file without its owner is restored otherwise."""
    detail: str
    """Which: ``1000:100`` is user and group, ``8:1`` major and minor number."""


def check_rights(reader: BlobReader, tree_id: BlobId, present: Index, owner: tuple[int, int]) -> None:
    """Check that this process may restore a tree, owners and devices included; changes nothing.

    Reads each entry of the tree, unless the process is root.

    Args:
        reader: reads the blobs.
        tree_id: the tree.
        present: the known entries of the directory.
        owner: user and group of entries that have none of their own.

    Raises:
        StorageRefused: it may not; the message names some of the entries.
        NotFound, Corrupt, Unavailable: a blob could not be read.
    """
    rights = _rights()
    gives, makes = rights >> _CAP_CHOWN & 1, rights >> _CAP_MKNOD & 1
    if gives and makes:
        return
    groups = {os.getegid(), *os.getgroups()}
    refused = []
    for path, entry in tree.walk(reader, tree_id):
        uid, gid = _owner_of(entry, owner)
        if (seen := present.get(path)) is not None and _is_there(seen.entry, entry):
            continue
        if entry.device is not None and not makes:
            refused.append(f"{os.fsdecode(path)} (a device)")
        elif not gives and not (uid == os.geteuid() and gid in groups):
            refused.append(f"{os.fsdecode(path)} (of user {uid}, group {gid})")
    if refused:
        more = f" and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
        raise StorageRefused(
            f"user {os.geteuid()} cannot restore the workspace in a plain directory: only root may restore "
            f"{', '.join(refused[:_NAMED])}{more}; mount it instead, or run as root. Nothing was changed"
        )


def restore(
    root: bytes,
    reader: BlobReader,
    tree_id: BlobId,
    attributes: Attr,
    present: Index,
    owner: tuple[int, int],
    report: Callable[[int, int], None] = lambda _size, _files: None,
    left_out: list[LeftOut] | None = None,
) -> None:
    """Restore a tree in a directory, with modification times; entries with the right content are left as they are.

    Args:
        root: an existing directory.
        reader: reads the blobs.
        tree_id: the tree.
        attributes: those of its root, which refer to all others.
        present: a scan of the directory from just before; an empty one is always right, and slower.
        owner: user and group of entries that have none of their own.
        report: called with the numbers of bytes and files that were written since its last call.
        left_out: collects what this process may not restore; without it that is an error. See `check_rights`.

    Raises:
        NotFound, Corrupt, Unavailable: a blob could not be read.
        StorageRefused: an owner or device that this process may not restore.
        InvalidInput: a directory is another user's and cannot be entered.
        Conflict: another process replaced an entry that was just restored.
        OSError: a file could not be written.
    """
    with Descent(root, WRITE) as walk:
        _Restore(walk, reader, present, owner, report, left_out).tree(tree_id, attributes.below)


class _Ready:
    """A reader that prefetches the contents of the next small files: they mostly lie side by side."""

    def __init__(self, reader: BlobReader) -> None:
        self._reader = reader
        self._blobs: Mapping[BlobId, bytes] = {}

    def fetch(self, wanted: list[BlobId]) -> None:
        """Prefetch these and drop those before."""
        self._blobs = get_many(self._reader, wanted) if wanted else {}

    def get(self, blob_id: BlobId) -> bytes:
        data = self._blobs.get(blob_id)
        return data if data is not None else self._reader.get(blob_id)


class _Restore:
    def __init__(
        self,
        walk: Descent,
        reader: BlobReader,
        present: Index,
        owner: tuple[int, int],
        report: Callable[[int, int], None],
        left_out: list[LeftOut] | None,
    ) -> None:
        self._walk = walk
        self._reader = reader
        self._ready = _Ready(reader)
        self._present = present
        self._owner = owner
        self._report = report
        self._left_out = left_out
        self._linked: dict[bytes, bytes] = {}
        """`Entry.link` of a hard-linked file -> the path at which it was restored."""

    def tree(self, tree_id: BlobId, attrs: BlobId | None) -> None:
        """Restore the content of the directory, and everything below."""
        finish: list[tuple[bytes, Entry, int | None]] = []
        stack = [(b"", tree_id, attrs)]
        while stack:
            path, subtree, below = stack.pop()
            wanted = dict(tree.list_dir(self._reader, subtree))
            times = dict(nodes.items(self._reader, below))
            for name in names_in(self._walk.go(path)):
                if name not in wanted and (path or name != HIDDEN):
                    remove(self._walk, join(path, name))
            for position, (name, entry) in enumerate(wanted.items()):
                if position % _TOGETHER == 0:
                    self._fetch(path, list(islice(wanted.items(), position, position + _TOGETHER)))
                child = join(path, name)
                attr = oplog.decode_attr(times[name]) if name in times else None
                if entry.subtree is not None:
                    self._make_directory(child)
                    stack.append((child, entry.subtree, attr.below if attr is not None else None))
                    finish.append((child, entry, attr.mtime_ns if attr is not None else None))
                else:
                    self._make(child, entry, attr.mtime_ns if attr is not None else None)
        for child, entry, mtime_ns in reversed(finish):  # after their content is complete
            self._finish(child, entry, mtime_ns)

    def _fetch(self, path: bytes, entries: list[tuple[bytes, Entry]]) -> None:
        """Prefetch the contents of the small files that will be written."""
        wanted: dict[BlobId, None] = {}
        for name, entry in entries:
            if entry.content is not None and not entry.content.chunked:
                seen = self._present.get(join(path, name))
                if seen is None or not _same_body(seen.entry, entry):
                    wanted[entry.content.id] = None
        self._ready.fetch(list(wanted))

    def _status(self, path: bytes) -> os.stat_result | None:
        directory, name = split(path)
        try:
            return os.stat(name, dir_fd=self._walk.go(directory), follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _make_directory(self, path: bytes) -> None:
        status = self._status(path)
        if status is None or not stat.S_ISDIR(status.st_mode):
            remove(self._walk, path)
            directory, name = split(path)
            os.mkdir(name, 0o700, dir_fd=self._walk.go(directory))  # its own mode is set last

    def _make(self, path: bytes, entry: Entry, mtime_ns: int | None) -> None:
        first = self._linked.get(entry.link) if entry.link is not None else None
        seen = self._present.get(path)
        if first is not None:
            self._link(first, path)
        elif (
            seen is None
            or seen.entry.kind is not entry.kind
            or not _same_body(seen.entry, entry)
            or (entry.link is None and seen.links > 1)  # another name of it may become a separate file
        ):
            try:
                self._put(path, entry)
            except PermissionError as error:
                if entry.device is None:
                    raise
                self._leave_out(path, "device", f"{os.major(entry.device)}:{os.minor(entry.device)}", error)
                return
        if entry.link is not None and first is None:
            self._linked[entry.link] = path
        self._finish(path, entry, mtime_ns)

    def _link(self, first: bytes, path: bytes) -> None:
        """Make a path a hard link of a restored file."""
        there, here = self._status(first), self._status(path)
        if there is None:
            raise _replaced(first)
        if here is not None and (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino):
            return
        remove(self._walk, path)
        (source, old), (directory, new) = split(first), split(path)
        source_fd = os.dup(self._walk.go(source))
        try:
            os.link(old, new, src_dir_fd=source_fd, dst_dir_fd=self._walk.go(directory), follow_symlinks=False)
        finally:
            os.close(source_fd)

    def _put(self, path: bytes, entry: Entry) -> None:
        """Replace a path by a new file."""
        remove(self._walk, _TEMPORARY)
        top = self._walk.top
        if entry.content is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(_TEMPORARY, flags, 0o600, dir_fd=top), "wb") as file:
                reader = self._reader if entry.content.chunked else self._ready
                contents.copy_to(reader, entry.content, file, lambda size: self._report(size, 0))
                self._report(0, 1)
        elif entry.kind is Kind.SYMLINK:
            os.symlink(entry.target, _TEMPORARY, dir_fd=top)
        elif entry.kind is Kind.FIFO:
            os.mkfifo(_TEMPORARY, dir_fd=top)
        elif entry.device is not None:
            kind = stat.S_IFCHR if entry.kind is Kind.CHAR else stat.S_IFBLK
            os.mknod(_TEMPORARY, kind, entry.device, dir_fd=top)
        else:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(os.fsencode(by_handle(top)) + b"/" + _TEMPORARY)
        status = self._status(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            remove(self._walk, path)
        directory, name = split(path)
        os.rename(_TEMPORARY, name, src_dir_fd=top, dst_dir_fd=self._walk.go(directory))

    def _leave_out(self, path: bytes, what: str, detail: str, error: PermissionError) -> None:
        if self._left_out is None:
            raise StorageRefused(
                f"{os.fsdecode(path)} in the workspace could not be given its {what} {detail} in a plain directory "
                f"({error.strerror}); mount the workspace instead, or run as root"
            ) from error
        self._left_out.append(LeftOut(path, what, detail))

    def _finish(self, path: bytes, entry: Entry, mtime_ns: int | None) -> None:
        """Set a file's owner, attributes, mode and time: of the file itself, not of a replacement under its name."""
        directory, name = split(path)
        parent = self._walk.go(directory)
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        try:
            status = os.fstat(handle)
            if KINDS[stat.S_IFMT(status.st_mode)] is not entry.kind:
                raise _replaced(path)
            uid, gid = _owner_of(entry, self._owner)
            mode = entry.mode
            if (status.st_uid, status.st_gid) != (uid, gid):
                try:
                    os.chown(name, uid, gid, dir_fd=parent, follow_symlinks=False)
                except PermissionError as error:
                    self._leave_out(path, "owner", f"{uid}:{gid}", error)
                    # Without its owner, setuid would run it as another user.
                    mode &= ~(stat.S_ISUID | (stat.S_ISGID if entry.kind is Kind.FILE else 0))
            if entry.kind is not Kind.SYMLINK:
                _set_xattrs(handle, dict(entry.xattrs))
                if stat.S_IMODE(os.fstat(handle).st_mode) != mode:
                    os.chmod(by_handle(handle), mode)
        finally:
            os.close(handle)
        if mtime_ns is not None and status.st_mtime_ns != mtime_ns:
            os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=parent, follow_symlinks=False)


def _replaced(path: bytes) -> Conflict:
    return Conflict(
        f"{os.fsdecode(path)} in the workspace was replaced while it was restored; end the processes that still write "
        "there, and open the workspace again"
    )


def _is_there(seen: Entry, entry: Entry) -> bool:
    """Whether an entry is left as it is, except for its mode and attributes."""
    is_same = seen.kind is entry.kind and _same_body(seen, entry)
    return is_same and (seen.uid, seen.gid) == (entry.uid, entry.gid)


def _same_body(one: Entry, other: Entry) -> bool:
    return one.content == other.content and one.target == other.target and one.device == other.device


def _rights() -> int:
    """Return the capabilities of this process: root may lack some, and others may have some."""
    for line in Path("/proc/self/status").read_bytes().splitlines():
        name, _, value = line.partition(b":")
        if name == b"CapEff":
            return int(value, 16)
    return 0


def _owner_of(entry: Entry, default: tuple[int, int]) -> tuple[int, int]:
    return default[0] if entry.uid is None else entry.uid, default[1] if entry.gid is None else entry.gid


def _set_xattrs(handle: int, wanted: dict[bytes, bytes]) -> None:
    full = by_handle(handle)
    try:
        present = {os.fsencode(name) for name in os.listxattr(full) if name.startswith("user.")}
        if present or wanted:  # changing them needs write permission
            os.chmod(full, stat.S_IMODE(os.fstat(handle).st_mode) | stat.S_IRUSR | stat.S_IWUSR)
        for name in present - wanted.keys():
            os.removexattr(full, name)
        for name, value in wanted.items():
            os.setxattr(full, name, value)
    except OSError:  # a file system without them
        if wanted:
            raise
