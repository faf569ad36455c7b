"""Scans a plain directory: finds its entries, and which of them changed since the last scan.

A file with the same inode, size, mode and times counts as unchanged. That is safe only if a change would change the
times: the kernel stamps files with a clock that ticks every few milliseconds, so a file that was changed within
`RACY_NS` before a scan is read again by the next one (git calls such entries racy).
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgpack

from chronicle.blobs.ident import from_raw, to_raw
from chronicle.errors import InvalidInput
from chronicle.workspace.content import content as contents
from chronicle.workspace.dir.walk import READ, Descent, KindChanged, join, names_in, open_directory, open_file, split
from chronicle.workspace.history.oplog import storable_ns
from chronicle.workspace.trees.tree import Entry, Kind, decode_entry, encode_entry

if TYPE_CHECKING:
    from chronicle.workspace.trees.nodes import NodeBuffer

__all__ = ["HIDDEN", "KINDS", "Index", "Seen", "decode_index", "encode_index", "scan"]

RACY_NS: Final = 100_000_000
_LOOKS: Final = 5
"""Attempts for a name whose kind changes each time."""
HIDDEN: Final = b".chronicle"
"""A name in the root that is never part of a workspace; see `chronicle.fuse.served.magic`."""
KINDS: Final = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFDIR: Kind.DIR,
    stat.S_IFLNK: Kind.SYMLINK,
    stat.S_IFIFO: Kind.FIFO,
    stat.S_IFSOCK: Kind.SOCKET,
    stat.S_IFCHR: Kind.CHAR,
    stat.S_IFBLK: Kind.BLOCK,
}
"""By the type in a mode."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An entry as a scan found it."""

    entry: Entry
    """As in a tree, but without a directory's subtree and without hard links."""
    host_ino: int
    """Its inode number in the host's file system; equal for the names of one file."""
    links: int
    mtime_ns: int
    ctime_ns: int
    racy: bool
    """Whether it may have changed since without a change of its times."""


Index = dict[bytes, Seen]
"""The entries of a directory, by path, parents before their content."""


def scan(
    root: bytes, known: Index, buffer: NodeBuffer, owner: tuple[int, int], now_ns: int, *, tolerant: bool = False
) -> Index:
    """Scan a directory; contents that are new, or may be, are added to the buffer.

    A file that changes meanwhile is found in one of its states, and one that disappears is skipped. Nothing outside of
    the directory is read, whatever replaces its entries.

    Args:
        root: the directory.
        known: the last scan.
        buffer: takes the contents.
        owner: user and group that a tree does not name.
        now_ns: the time, epoch nanoseconds.
        tolerant: unreadable entries are left out.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no directory.
        InvalidInput: an entry is another user's and unreadable. The message names it.
    """
    with Descent(root, READ) as walk:
        return _Scan(walk, known, buffer, owner, now_ns - RACY_NS, tolerant).run()


class _Scan:
    def __init__(
        self, walk: Descent, known: Index, buffer: NodeBuffer, owner: tuple[int, int], racy_since: int, tolerant: bool
    ) -> None:
        self._walk = walk
        self._known = known
        self._buffer = buffer
        self._owner = owner
        self._racy_since = racy_since
        self._tolerant = tolerant
        self._found: Index = {}
        self._stack = [b""]
        """Directories to descend into: each is found before its content."""

    def run(self) -> Index:
        again: set[bytes] = set()
        while self._stack:
            directory = self._stack.pop()
            try:
                fd = self._walk.go(directory)
                names = sorted(names_in(fd))
            except (FileNotFoundError, NotADirectoryError):
                self._found.pop(directory, None)
                if directory not in again:  # it may have been replaced
                    again.add(directory)
                    above, name = split(directory)
                    with suppress(FileNotFoundError, NotADirectoryError):
                        self._visit(self._walk.go(above), name, directory)
                continue
            except InvalidInput:
                if not self._tolerant:
                    raise
                continue
            for name in names:
                if directory or name != HIDDEN:
                    self._visit(fd, name, join(directory, name))
        return self._found

    def _visit(self, parent: int, name: bytes, path: bytes) -> None:
        """Add a path to the result."""
        try:
            seen = self._see(parent, name, path)
        except InvalidInput:
            if not self._tolerant:
                raise
            seen = None
        if seen is not None:
            self._found[path] = seen
            if seen.entry.kind is Kind.DIR:
                self._stack.append(path)

    def _see(self, parent: int, name: bytes, path: bytes) -> Seen | None:
        """Return the entry of a path; None if it is gone."""
        before = self._known.get(path)
        for _ in range(_LOOKS):
            try:
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                if before is not None and not before.racy and _unchanged(before, status, self._owner):
                    return before
                return self._read(parent, name, path, status)
            except FileNotFoundError:
                return None
            except (KindChanged, NotADirectoryError):
                continue
        return before if before is None or before.entry.kind is not Kind.DIR else None  # left to the next scan

    def _read(self, parent: int, name: bytes, path: bytes, status: os.stat_result) -> Seen:
        kind = KINDS[stat.S_IFMT(status.st_mode)]
        content = None
        target = b""
        xattrs: tuple[tuple[bytes, bytes], ...] = ()
        mode = stat.S_IMODE(status.st_mode)
        if kind is Kind.FILE:
            with open(open_file(name, parent, path), "rb") as file:
                status = os.fstat(file.fileno())  # of the file that is read
                mode = stat.S_IMODE(status.st_mode)
                content = contents.store_file(self._buffer, file)
                xattrs = _xattrs(file.fileno())
        elif kind is Kind.DIR:
            xattrs = self._directory_xattrs(parent, name, path)
        elif kind is Kind.SYMLINK:
            target = _target(parent, name)
            mode = 0o777
        uid, gid = self._owner
        entry = Entry(
            kind,
            mode,
            content=content,
            target=target,
            uid=None if status.st_uid == uid else status.st_uid,
            gid=None if status.st_gid == gid else status.st_gid,
            xattrs=xattrs,
            device=status.st_rdev if kind in {Kind.CHAR, Kind.BLOCK} else None,
        )
        racy = status.st_ctime_ns >= self._racy_since
        return Seen(entry, status.st_ino, status.st_nlink, storable_ns(status.st_mtime_ns), status.st_ctime_ns, racy)

    @staticmethod
    def _directory_xattrs(parent: int, name: bytes, path: bytes) -> tuple[tuple[bytes, bytes], ...]:
        fd, granted = open_directory(name, parent, path, READ)
        try:
            return _xattrs(fd)
        finally:
            if granted is not None:
                granted.put_back(fd)
            os.close(fd)


def _target(parent: int, name: bytes) -> bytes:
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise KindChanged from error
        raise


def _unchanged(before: Seen, status: os.stat_result, owner: tuple[int, int]) -> bool:
    entry = before.entry
    uid, gid = owner
    return (
        before.host_ino == status.st_ino
        and before.ctime_ns == status.st_ctime_ns
        and before.mtime_ns == status.st_mtime_ns
        and before.links == status.st_nlink
        and KINDS[stat.S_IFMT(status.st_mode)] is entry.kind
        and (entry.device is None or entry.device == status.st_rdev)
        and (entry.kind is Kind.SYMLINK or entry.mode == stat.S_IMODE(status.st_mode))
        and (entry.content is None or entry.content.size == status.st_size)
        and (uid if entry.uid is None else entry.uid) == status.st_uid
        and (gid if entry.gid is None else entry.gid) == status.st_gid
    )


def _xattrs(fd: int) -> tuple[tuple[bytes, bytes], ...]:
    try:
        names = [name for name in os.listxattr(fd) if name.startswith("user.")]
        return tuple(sorted((os.fsencode(name), os.getxattr(fd, name)) for name in names))
    except OSError:  # a file system without them, or the attribute went meanwhile
        return ()


def encode_index(index: Index) -> bytes:
    """Encode an index."""
    rows = []
    for path, seen in index.items():
        raw = _encode(seen.entry)
        rows.append((path, raw, seen.host_ino, seen.links, seen.mtime_ns, seen.ctime_ns, seen.racy))
    packed: bytes = msgpack.packb(rows)
    return packed


def decode_index(data: bytes) -> Index:
    """Decode an index."""
    rows = msgpack.unpackb(data, use_list=False)
    return {path: Seen(_decode(raw), *rest) for path, raw, *rest in rows}


_NO_SUBTREE: Final = from_raw(bytes(32))


def _encode(entry: Entry) -> bytes:
    return encode_entry(replace(entry, subtree=_NO_SUBTREE) if entry.kind is Kind.DIR else entry)


def _decode(raw: bytes) -> Entry:
    entry = decode_entry(raw)
    return replace(entry, subtree=None) if entry.kind is Kind.DIR else entry


assert to_raw(_NO_SUBTREE) == bytes(32)
