"""Looking at a plain directory: what is in it, and what of it changed since it was looked at last.

A file whose inode, size, mode and times are as they were is taken to hold what it held. That is safe only if the
times would have changed: the kernel stamps files with a clock that ticks every few milliseconds, so what was changed
within `RACY_NS` before it was looked at is read again the next time (git calls such entries racy).
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgpack

from chronicle.blobs.ident import from_raw, to_raw
from chronicle.workspace import content as contents
from chronicle.workspace.tree import Entry, Kind, decode_entry, encode_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.workspace.nodes import NodeBuffer

__all__ = ["HIDDEN", "Index", "Seen", "decode_index", "encode_index", "scan"]

RACY_NS: Final = 100_000_000
HIDDEN: Final = b".chronicle"
"""A name in the root that is never part of a workspace; see `chronicle.fuse.magic`."""
_KINDS: Final = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFDIR: Kind.DIR,
    stat.S_IFLNK: Kind.SYMLINK,
    stat.S_IFIFO: Kind.FIFO,
    stat.S_IFSOCK: Kind.SOCKET,
    stat.S_IFCHR: Kind.CHAR,
    stat.S_IFBLK: Kind.BLOCK,
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What a path was when it was looked at."""

    entry: Entry
    """As it is in a tree; a directory's without its subtree, hard links not said."""
    host_ino: int
    """Its inode number in the directory's file system; names with the same are one file."""
    links: int
    mtime_ns: int
    ctime_ns: int
    racy: bool
    """Whether it may have changed since without its times saying so."""


Index = dict[bytes, Seen]
"""Everything in a directory, by path; parents come before what is in them."""


def scan(root: bytes, known: Index, buffer: NodeBuffer, owner: tuple[int, int], now_ns: int) -> Index:
    """Look at everything in a directory; contents that are new or may be go to the buffer.

    Args:
        root: the directory.
        known: what was seen the last time.
        buffer: takes the contents.
        owner: user and group that a tree does not name.
        now_ns: the time, epoch nanoseconds.
    """
    found: Index = {}
    racy_since = now_ns - RACY_NS
    for path, status in _walk(root):
        kind = _KINDS[stat.S_IFMT(status.st_mode)]
        before = known.get(path)
        if before is not None and not before.racy and _unchanged(before, status, owner):
            found[path] = before
            continue
        entry = _entry(root, path, kind, status, before, buffer, owner)
        if entry is not None:
            racy = status.st_ctime_ns >= racy_since
            found[path] = Seen(entry, status.st_ino, status.st_nlink, status.st_mtime_ns, status.st_ctime_ns, racy)
    return found


def _walk(root: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """Yield what is below a directory, each directory before what is in it; what goes meanwhile is passed over."""
    stack = [b""]
    while stack:
        directory = stack.pop()
        try:
            names = sorted(os.listdir(os.path.join(root, directory) if directory else root))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in names:
            if not directory and name == HIDDEN:
                continue
            path = directory + b"/" + name if directory else name
            try:
                status = os.lstat(os.path.join(root, path))
            except FileNotFoundError:
                continue
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                stack.append(path)


def _unchanged(before: Seen, status: os.stat_result, owner: tuple[int, int]) -> bool:
    entry = before.entry
    uid, gid = owner
    return (
        before.host_ino == status.st_ino
        and before.ctime_ns == status.st_ctime_ns
        and before.mtime_ns == status.st_mtime_ns
        and before.links == status.st_nlink
        and _KINDS[stat.S_IFMT(status.st_mode)] is entry.kind
        and (entry.device is None or entry.device == status.st_rdev)
        and (entry.kind is Kind.SYMLINK or entry.mode == stat.S_IMODE(status.st_mode))
        and (entry.content is None or entry.content.size == status.st_size)
        and (uid if entry.uid is None else entry.uid) == status.st_uid
        and (gid if entry.gid is None else entry.gid) == status.st_gid
    )


def _entry(
    root: bytes,
    path: bytes,
    kind: Kind,
    status: os.stat_result,
    before: Seen | None,
    buffer: NodeBuffer,
    owner: tuple[int, int],
) -> Entry | None:
    """Return what a path is now; None if it is gone."""
    full = os.path.join(root, path)
    content = None
    target = b""
    mode = stat.S_IMODE(status.st_mode)
    try:
        if kind is Kind.FILE:
            with open(full, "rb") as file:
                content = contents.store_file(buffer, file)
        elif kind is Kind.SYMLINK:
            target = os.readlink(full)
            mode = 0o777
        xattrs = _xattrs(full) if kind in {Kind.FILE, Kind.DIR} else ()
    except FileNotFoundError:
        return None
    except PermissionError:
        # Not readable for its owner. What it held when it was readable is the best that can be said.
        if before is None or before.entry.kind is not kind:
            raise
        return replace(before.entry, mode=mode)
    return Entry(
        kind,
        mode,
        content=content,
        target=target,
        uid=None if status.st_uid == owner[0] else status.st_uid,
        gid=None if status.st_gid == owner[1] else status.st_gid,
        xattrs=xattrs,
        device=status.st_rdev if kind in {Kind.CHAR, Kind.BLOCK} else None,
    )


def _xattrs(full: bytes) -> tuple[tuple[bytes, bytes], ...]:
    try:
        names = [name for name in os.listxattr(full) if name.startswith("user.")]
        return tuple(sorted((os.fsencode(name), os.getxattr(full, name)) for name in names))
    except OSError:  # a file system without them, or the attribute went meanwhile
        return ()


def encode_index(index: Index) -> bytes:
    """Return an index as bytes."""
    rows = []
    for path, seen in index.items():
        raw = _encode(seen.entry)
        rows.append((path, raw, seen.host_ino, seen.links, seen.mtime_ns, seen.ctime_ns, seen.racy))
    packed: bytes = msgpack.packb(rows)
    return packed


def decode_index(data: bytes) -> Index:
    """Return the index that these bytes are."""
    rows = msgpack.unpackb(data, use_list=False)
    return {path: Seen(_decode(raw), *rest) for path, raw, *rest in rows}


_NO_SUBTREE: Final = from_raw(bytes(32))


def _encode(entry: Entry) -> bytes:
    return encode_entry(replace(entry, subtree=_NO_SUBTREE) if entry.kind is Kind.DIR else entry)


def _decode(raw: bytes) -> Entry:
    entry = decode_entry(raw)
    return replace(entry, subtree=None) if entry.kind is Kind.DIR else entry


assert to_raw(_NO_SUBTREE) == bytes(32)
