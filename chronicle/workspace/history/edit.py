"""Edit: builds the commit after a workspace's last one in which one file is put or removed.

It is for workspaces that nobody has open. The cost does not depend on the size of the tree. Pure but for the buffer,
which the caller flushes. Symlinks are not followed.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from chronicle.errors import InvalidInput
from chronicle.workspace.history import attributes, link_map
from chronicle.workspace.history.commit_builder import CommitBuilder
from chronicle.workspace.history.oplog import Attr, decode_attr, first_root, read_root
from chronicle.workspace.history.path_histories import Record
from chronicle.workspace.history.view import HistoryView, floors_of
from chronicle.workspace.port import Usage
from chronicle.workspace.trees import nodes, tree
from chronicle.workspace.trees.tree import Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import BlobId
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.port import TreeRef
    from chronicle.workspace.trees.nodes import NodeBuffer

__all__ = ["Edited", "check_path", "put_file", "remove_file"]

_MILLION: Final = 1_000_000
_RESERVED: Final = b".chronicle"
"""The directory of history, which a workspace cannot have itself."""
_FILE_MODE: Final = 0o644
_DIRECTORY_MODE: Final = 0o755


@dataclass(frozen=True, slots=True)
class Edited:
    """The result of an edit."""

    ref: TreeRef | None
    """The new commit; the last one, if nothing had to change."""
    iteration: int
    """The version of the path that it made, or that the path has already."""
    size: int
    """Bytes of the file's content; 0 after a removal."""


def put_file(
    buffer: NodeBuffer,
    now: TreeRef | None,
    path: bytes,
    content: Content,
    turn: int,
    now_ms: int,
    given_up: Sequence[TreeRef] = (),
) -> Edited:
    """Add the commit that puts a file to the buffer.

    A file that is there keeps its mode, owner and attributes, and loses its other names: they keep the old content.
    Missing directories are made.

    Args:
        buffer: takes the new blobs; it has the content.
        now: the workspace's last commit; ``None`` for a workspace without any.
        path: relative to the root.
        content: what the file is to hold.
        turn: the turn of the new commit.
        now_ms: epoch milliseconds; dates the version.
        given_up: seals on top of ``now`` that were rolled back. Their numbers are not reused.

    Raises:
        InvalidInput: no file can have that path.
        OSError: ENOTDIR if a part of the path is no directory; EISDIR or EEXIST if something else than a file is there.
        NotFound, Corrupt, Unavailable: a part of the last commit could not be read.
    """
    check_path(path)
    edit = _Edit(buffer, now, path, turn, now_ms, given_up)
    old = edit.entry
    if old is not None and old.kind is not Kind.FILE:
        code = errno.EISDIR if old.kind is Kind.DIR else errno.EEXIST
        raise OSError(code, f"a {old.kind.value} is there", os.fsdecode(path))
    if old is not None and old.content == content:
        return Edited(now, edit.last_number, content.size)
    return edit.put(content)


def remove_file(
    buffer: NodeBuffer, now: TreeRef | None, path: bytes, turn: int, now_ms: int, given_up: Sequence[TreeRef] = ()
) -> Edited:
    """Add the commit that removes a file, a symlink or a special file to the buffer; see `put_file`.

    Raises:
        InvalidInput: no file can have that path.
        OSError: ENOENT if nothing is there, ENOTDIR if a part of the path is no directory, EISDIR for a directory.
        NotFound, Corrupt, Unavailable: a part of the last commit could not be read.
    """
    check_path(path)
    edit = _Edit(buffer, now, path, turn, now_ms, given_up)
    if edit.entry is None:
        raise FileNotFoundError(errno.ENOENT, "no such file", os.fsdecode(path))
    if edit.entry.kind is Kind.DIR:
        raise IsADirectoryError(errno.EISDIR, "is a directory", os.fsdecode(path))
    return edit.remove()


def check_path(path: bytes) -> None:
    """Check that a workspace can have a file at a path.

    Raises:
        InvalidInput: it cannot.
    """
    parts = path.split(b"/")
    for part in parts:
        tree.check_name(part)
    if parts[0] == _RESERVED:
        raise InvalidInput(f"{os.fsdecode(path)!r} cannot be written: {_RESERVED.decode()} shows the history of files")


class _Edit:
    """One edit: the entries and attributes on the way to a path, and the changes to them."""

    def __init__(
        self,
        buffer: NodeBuffer,
        now: TreeRef | None,
        path: bytes,
        turn: int,
        now_ms: int,
        given_up: Sequence[TreeRef],
    ) -> None:
        self._buffer = buffer
        self._now = now
        self._path = path
        self._turn = turn
        self._now_ms = now_ms
        self._last = read_root(buffer, now.oplog_id) if now is not None else first_root(now_ms * _MILLION)
        self._abandoned = [read_root(buffer, ref.oplog_id) for ref in given_up]
        roots = (self._last, *self._abandoned)
        self._next_ino = max(root.next_ino for root in roots)
        self._seq = max(root.next_seq for root in roots)
        self._entries: dict[bytes, Entry | None] = {}
        self._attrs: dict[bytes, Attr | None] = {}
        self._links: dict[int, list[bytes] | None] = {}
        self._records: dict[bytes, list[Record]] = {}
        self._root = self._last.root
        self._missing: list[bytes] = []
        """Directories above the path that do not exist, the outermost first."""
        self._known: dict[bytes, Attr] = {b"": self._last.root}
        self.entry = self._find()

    @property
    def last_number(self) -> int:
        """The number of the path's last version."""
        last = self._view().last(self._path)
        return last.number if last is not None else 0

    def put(self, content: Content) -> Edited:
        """Put the file."""
        old = self.entry
        usage = self._last.usage
        size, files = content.size, 1
        if old is None:
            self._make_directories()
            entry = Entry(Kind.FILE, _FILE_MODE, content=content)
            attr = Attr(self._new_ino(), self._now_ns, self._now_ns)
            self._touch_parent()
        else:
            assert old.content is not None
            before = self._known[self._path]
            entry = replace(old, content=content, link=None)
            attr = replace(before, mtime_ns=self._now_ns, ctime_ns=self._now_ns, links=1)
            if old.link is not None:
                self._take_name(old.link, before)
                attr = replace(attr, ino=self._new_ino())
            else:
                size, files = size - old.content.size, 0
        self._entries[self._path] = entry
        self._attrs[self._path] = attr
        op = "create" if old is None and not content.size else "write"
        self._record(self._path, op, Kind.FILE, content, entry.mode)
        return self._build(Usage(usage.bytes + size, usage.files + files + len(self._missing)), content.size)

    def remove(self) -> Edited:
        """Remove the entry."""
        old = self.entry
        assert old is not None
        usage = self._last.usage
        if old.link is not None:
            self._take_name(old.link, self._known[self._path])
        else:
            usage = Usage(usage.bytes - (old.content.size if old.content is not None else 0), usage.files - 1)
        self._entries[self._path] = None
        self._attrs[self._path] = None
        self._touch_parent()
        self._record(self._path, "delete", old.kind)
        return self._build(usage, 0)

    def _build(self, usage: Usage, size: int) -> Edited:
        tree_id = tree.update_tree(self._buffer, self._last.tree_id, self._entries)
        view = self._view()
        builder = CommitBuilder(self._buffer, view, self._last, self._now, self._last)
        for path in self._records:
            builder.add_versions(path, view.unstored(path))
        below = attributes.update(self._buffer, self._last.root.below, self._attrs)
        content = replace(
            self._last,
            turn=self._turn,
            tree_id=tree_id,
            root=replace(self._root, below=below),
            links=link_map.update(self._buffer, self._last.links, self._links),
            next_ino=self._next_ino,
            next_seq=self._seq,
            usage=usage,
        )
        ref, _ = builder.build(content)
        return Edited(ref, builder.last_numbers[self._path], size)

    # -- the way to the path --------------------------------------------------------------------------------------

    def _find(self) -> Entry | None:
        """Return the entry at the path; note the attributes on the way, and the missing directories."""
        at: BlobId | None = self._last.tree_id
        below = self._last.root.below
        entry: Entry | None = None
        parts = self._path.split(b"/")
        for depth, name in enumerate(parts, start=1):
            path = b"/".join(parts[:depth])
            stored = nodes.lookup(self._buffer, tree.map_root(at), name) if at is not None else None
            entry = tree.decode_entry(stored) if stored is not None else None
            if entry is None:
                at = below = None
                if depth < len(parts):
                    self._missing.append(path)
                continue
            value = nodes.lookup(self._buffer, below, name) if below is not None else None
            attr = decode_attr(value) if value is not None else Attr(self._new_ino(), self._now_ns, self._now_ns)
            self._known[path] = attr
            at, below = entry.subtree, attr.below
            if depth < len(parts) and entry.kind is not Kind.DIR:
                raise NotADirectoryError(errno.ENOTDIR, f"{os.fsdecode(path)} is no directory", os.fsdecode(self._path))
        return entry

    def _make_directories(self) -> None:
        for path in self._missing:
            self._entries[path] = Entry(Kind.DIR, _DIRECTORY_MODE)
            attr = Attr(self._new_ino(), self._now_ns, self._now_ns, links=2)
            self._touch(path.rpartition(b"/")[0], links=1)
            self._known[path] = self._attrs[path] = attr
            self._record(path, "mkdir", Kind.DIR, mode=_DIRECTORY_MODE)

    def _touch_parent(self) -> None:
        self._touch(self._path.rpartition(b"/")[0])

    def _touch(self, directory: bytes, links: int = 0) -> None:
        """Date a directory whose entries change, and add to its link count."""
        before = self._known[directory]
        attr = replace(before, mtime_ns=self._now_ns, ctime_ns=self._now_ns, links=before.links + links)
        self._known[directory] = attr
        if directory:
            self._attrs[directory] = attr
        else:
            self._root = attr

    def _take_name(self, link: bytes, attr: Attr) -> None:
        """Take the path from the names of a hard-linked file."""
        names = [name for name in link_map.paths(self._buffer, self._last.links, attr.ino) if name != self._path]
        for name in names:
            entry = tree.entry_at(self._buffer, self._last.tree_id, name)
            assert entry is not None, f"a name of {link!r} is gone"
            self._entries[name] = replace(entry, link=min(names) if len(names) > 1 else None)
            self._attrs[name] = replace(attr, links=len(names), ctime_ns=self._now_ns)
        self._links[attr.ino] = names if len(names) > 1 else None

    # -- small parts ----------------------------------------------------------------------------------------------

    @property
    def _now_ns(self) -> int:
        return self._now_ms * _MILLION

    def _new_ino(self) -> int:
        self._next_ino += 1
        return self._next_ino - 1

    def _record(
        self, path: bytes, op: str, kind: Kind, content: Content | None = None, mode: int | None = None
    ) -> None:
        self._records[path] = [Record(0, self._seq, self._now_ms, op, self._turn, kind, content, mode=mode)]
        self._seq += 1

    def _view(self) -> HistoryView:
        return HistoryView(
            self._buffer, self._last, self._records, floors_of(self._buffer, self._abandoned, self._records)
        )
