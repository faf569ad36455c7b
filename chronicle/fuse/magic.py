"""``.chronicle``: history as files.

    .chronicle/query/<path>               JSON array of the path's versions, oldest first
    .chronicle/at/<iteration>/<path>      the path at that version
    .chronicle/turn/<n>/...               the whole tree at turn n; 0 is before the first one, and empty
    .chronicle/diff/<a>..<b>              what changed from turn a to turn b
    .chronicle/log                        every operation, a JSON line each

Everything is read-only and made when it is looked at. An entry is named by its key: the parts of its path, with what
follows ``query`` and ``at/<n>`` and ``turn/<n>`` in one part. Inode numbers are given to keys as they are met.

A path may have been a file at one time and a directory at another. Under ``query`` and ``at`` it is then what it was
last: a directory if anything below it has a history and it is not a file now.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from chronicle.fuse.inodes import MAGIC
from chronicle.workspace import content as contents
from chronicle.workspace import nodes, oplog, tree, treediff
from chronicle.workspace.layer_history import BeatingReader
from chronicle.workspace.layer_node import DirNode
from chronicle.workspace.tree import Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from _typeshed import WriteableBuffer

    from chronicle.blobs.store import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.layer import Layer
    from chronicle.workspace.oplog import Operation, OplogRoot
    from chronicle.workspace.port import TreeRef

__all__ = ["NAME", "Magic", "MagicEntry"]

NAME: Final = b".chronicle"
"""The directory's name, in the root only."""

Key = tuple[bytes, ...]
_TOP_MODE: Final = stat.S_IFDIR | 0o500
"""Old contents are readable here whatever the modes of their files were, so it is for the owner of the workspace."""
_DIR_MODE: Final = stat.S_IFDIR | 0o555
_FILE_MODE: Final = stat.S_IFREG | 0o444
_NUMBER: Final = re.compile(rb"0|[1-9][0-9]{0,18}")
_KEPT_BYTES: Final = 1024 * 1024
"""Of a text that is made while it is read. The kernel reads ahead 128 KiB."""
_TOP: Final = (b"at", b"diff", b"log", b"query", b"turn")


@dataclass(frozen=True, slots=True)
class MagicEntry:
    """One of these files or directories, as it is at the moment."""

    key: Key
    ino: int
    mode: int
    """As in ``st_mode``."""
    size: int
    mtime_ns: int
    live: bool = False
    """Whether what it holds changes, so that the kernel may not cache it."""
    target: bytes = b""
    """Of a symlink."""

    @property
    def nlink(self) -> int:
        """As in ``st_nlink``."""
        return 2 if stat.S_ISDIR(self.mode) else 1

    @property
    def uid(self) -> int:
        """It is this process's."""
        return os.geteuid()

    @property
    def gid(self) -> int:
        """It is this process's."""
        return os.getegid()

    @property
    def device(self) -> int:
        """None of these is one."""
        return 0

    @property
    def blocks(self) -> int:
        """What it would take on a disk."""
        return -(-self.size // 512)

    @property
    def atime_ns(self) -> int:
        """Nothing else is known of it."""
        return self.mtime_ns

    @property
    def ctime_ns(self) -> int:
        """Nothing else is known of it."""
        return self.mtime_ns


class Magic:
    """Looks up and reads ``.chronicle``.

    Args:
        layer: whose history it is.
    """

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._inodes: dict[Key, int] = {(): MAGIC}
        self._keys: dict[int, Key] = {MAGIC: ()}
        self._next = MAGIC + 1

    def forget(self, inode: int) -> None:
        """Let go of an inode number that the kernel has forgotten."""
        if inode != MAGIC:
            key = self._keys.pop(inode, None)
            if key is not None:
                del self._inodes[key]

    def root(self) -> MagicEntry:
        """Return ``.chronicle`` itself."""
        return self._directory(())

    def entry(self, inode: int) -> MagicEntry | None:
        """Return what has an inode number, None if it is not there any more."""
        key = self._keys.get(inode)
        return self._find(key) if key is not None else None

    def lookup(self, inode: int, name: bytes) -> MagicEntry | None:
        """Return what a name in a directory is."""
        key = self._keys.get(inode)
        return self._find(_below(key, name)) if key is not None else None

    def listing(self, inode: int, known: Container[int]) -> list[tuple[bytes, int]]:
        """Return the names in a directory, and what they are, as in ``st_mode``.

        Args:
            inode: the directory's.
            known: the inode numbers that the kernel knows.

        ``at`` and ``diff`` list nothing: what could be asked for there is endless.
        """
        key = self._keys[inode]
        match key:
            case ():
                names = list(_TOP)
            case (b"turn",):
                names = [b"%d" % turn for turn in range(self._last_turn() + 1)]
            case (b"turn", number, *path):
                names = self._names_in_turn(number, path[0] if path else b"")
            case (b"query", *path):
                names = self._names_with_history(path[0] if path else b"")
            case _:
                names = []
        found = []
        for name in names:
            entry = self._find(_below(key, name))
            if entry is not None:
                found.append((name, entry.mode))
                if entry.ino not in known:
                    self.forget(entry.ino)
        return found

    def open(self, entry: MagicEntry) -> BinaryIO:
        """Open a file for reading, as it is now.

        Raises:
            NotFound: it is gone.
        """
        match entry.key:
            case (b"log",):
                done = self._layer.operations()
                return cast("BinaryIO", _Text(lambda: _log_lines(done)))
            case (b"query", path):
                return io.BytesIO(self._query_text(path))
            case (b"diff", name):
                trees = self._turns_of(name)
                return cast("BinaryIO", _Text(lambda: self._diff(trees)))
            case (b"at", number, path):
                return self._layer.at(os.fsdecode(path), int(number))
            case (b"turn", number, path):
                found = self._in_turn(number, path)
                if found is not None and found[0].kind is not Kind.DIR:
                    content = found[0].content  # FIFOs, sockets and devices are shown as empty files: none may block
                    return io.BytesIO() if content is None else contents.open(self._layer.reader, content)
        raise IsADirectoryError(21, "is a directory")

    # -- what there is --------------------------------------------------------------------------------------------

    def _find(self, key: Key) -> MagicEntry | None:
        match key:
            case () | (b"query",) | (b"at",) | (b"turn",) | (b"diff",):
                return self._directory(key)
            case (b"log",):
                return self._file(key, 0, live=True)
            case (b"query", path):
                kind = self._kind(path)
                if kind is None or kind is Kind.DIR:
                    return self._directory(key) if kind is not None else None
                return self._file(key, len(self._query_text(path, hashed=False)), live=True)
            case (b"at", number, *path) if _NUMBER.fullmatch(number):
                return self._find_at(key, int(number), path[0] if path else b"")
            case (b"turn", number, *path) if _NUMBER.fullmatch(number):
                return self._find_in_turn(key, path[0] if path else b"")
            case (b"diff", name) if self._turns_of(name) is not None:
                return self._file(key, 0, live=True)  # its size is known when it was read
        return None

    def _find_at(self, key: Key, number: int, path: bytes) -> MagicEntry | None:
        if not path:
            return self._directory(key)
        record = self._layer.version(path, number)
        if record is None or record.kind is Kind.DIR or record.deleted:
            return self._directory(key) if self._layer.has_history_below(path) else None
        mtime_ns = record.timestamp_ms * 1_000_000
        if record.target is not None:
            return MagicEntry(key, self._inode(key), stat.S_IFLNK | 0o777, record.size, mtime_ns, target=record.target)
        return MagicEntry(key, self._inode(key), _FILE_MODE, record.size, mtime_ns)

    def _find_in_turn(self, key: Key, path: bytes) -> MagicEntry | None:
        found = self._in_turn(key[1], path)
        if found is None:
            return None
        entry, mtime_ns = found
        if entry.kind is Kind.DIR:
            return self._directory(key, mtime_ns)
        if entry.kind is Kind.SYMLINK:
            mode, size = stat.S_IFLNK | 0o777, len(entry.target)
        else:
            mode = stat.S_IFREG | (entry.mode & 0o555)
            size = entry.content.size if entry.content is not None else 0
        return MagicEntry(key, self._inode(key), mode, size, mtime_ns, target=entry.target)

    def _directory(self, key: Key, mtime_ns: int = 0) -> MagicEntry:
        mode = _DIR_MODE if key else _TOP_MODE
        return MagicEntry(key, self._inode(key), mode, 0, mtime_ns or self._layer.root.mtime_ns)

    def _file(self, key: Key, size: int, *, live: bool) -> MagicEntry:
        return MagicEntry(key, self._inode(key), _FILE_MODE, size, self._layer.root.mtime_ns, live=live)

    def _inode(self, key: Key) -> int:
        inode = self._inodes.get(key)
        if inode is None:
            inode = self._inodes[key] = self._next
            self._keys[inode] = key
            self._next += 1
        return inode

    # -- query and log --------------------------------------------------------------------------------------------

    def _kind(self, path: bytes) -> Kind | None:
        """Return what a path is, or was last; None if it never was anything."""
        now = self._layer.resolve(path)
        if now is not None:
            return Kind.DIR if isinstance(now, DirNode) else Kind.FILE
        if self._layer.has_history_below(path):
            return Kind.DIR
        last = self._layer.last_version(path)
        return last.kind if last is not None else None

    def _query_text(self, path: bytes, *, hashed: bool = True) -> bytes:
        rows = []
        for item in self._layer.history(os.fsdecode(path), hashed=hashed):
            row: dict[str, object] = {
                "iteration": item.iteration,
                "timestamp": item.timestamp,
                "size": item.size,
                "hash": item.hash,
                "op": item.op,
                "turn": item.turn,
            }
            if item.source is not None:
                row["source"] = item.source
            rows.append(row)
        return json.dumps(rows, indent=1).encode() + b"\n"

    def _names_with_history(self, path: bytes) -> list[bytes]:
        names = set(self._layer.names_with_history(path))
        directory = self._layer.resolve(path)
        if isinstance(directory, DirNode):
            names.update(name for name, _ in self._layer.entries(directory))
        return sorted(names)

    # -- turns ----------------------------------------------------------------------------------------------------

    def _last_turn(self) -> int:
        """Return the last turn that a tree was committed at; 0 if there was none."""
        return oplog.read_root(self._layer.reader, self._layer.base.oplog_id).committed_turn

    def _commit(self, turn: int) -> TreeRef | None:
        """Return the last tree that was committed at or before a turn; None if there was none."""
        if turn >= self._last_turn():
            return self._layer.base
        reader = self._layer.reader
        found = oplog.commit_at(reader, oplog.read_root(reader, self._layer.base.oplog_id).commits, turn)
        return found[1] if found is not None else None

    def _is_over(self, turn: int) -> bool:
        """Whether a turn was committed, or has changed nothing."""
        return turn <= max(self._last_turn(), self._layer.turn - 1)

    def _in_turn(self, number: bytes, path: bytes) -> tuple[Entry, int] | None:
        """Return what a path was after a turn, and its mtime, 0 if nobody knows."""
        if not self._is_over(int(number)):
            return None
        reader = self._layer.reader
        ref = self._commit(int(number))
        entry = tree.entry_at(reader, ref.tree_id if ref is not None else tree.EMPTY, path)
        if entry is None:
            return None
        return entry, _mtime_ns(reader, oplog.read_root(reader, ref.oplog_id), path) if ref is not None else 0

    def _names_in_turn(self, number: bytes, path: bytes) -> list[bytes]:
        found = self._in_turn(number, path)
        if found is None or found[0].subtree is None:
            return []
        return [name for name, _ in tree.list_dir(self._layer.reader, found[0].subtree)]

    def _turns_of(self, name: bytes) -> tuple[BlobId, BlobId] | None:
        """Return the trees that a name in ``diff`` compares; None if it is not one."""
        first, dots, second = name.partition(b"..")
        if not dots or not _NUMBER.fullmatch(first) or not _NUMBER.fullmatch(second):
            return None
        if not self._is_over(int(first)) or not self._is_over(int(second)):
            return None
        old, new = self._commit(int(first)), self._commit(int(second))
        return old.tree_id if old is not None else tree.EMPTY, new.tree_id if new is not None else tree.EMPTY

    def _diff(self, trees: tuple[BlobId, BlobId] | None) -> Iterator[bytes]:
        """Yield what changed, a line or a few at a time; files are read when it is their turn."""
        if trees is None:
            return
        reader = BeatingReader(self._layer.reader, self._layer.beat)
        yield from treediff.render(reader, treediff.changes(reader, *trees))


def _log_lines(done: Iterable[Operation]) -> Iterator[bytes]:
    for operation in done:
        line: dict[str, object] = {
            "seq": operation.seq,
            "timestamp": operation.timestamp_ms,
            "turn": operation.turn,
            "op": operation.op,
            "path": os.fsdecode(operation.path),
            "iteration": operation.iteration,
            "size": operation.size,
        }
        if operation.source is not None:
            line["source"] = os.fsdecode(operation.source)
        yield json.dumps(line).encode() + b"\n"


class _Text(io.RawIOBase):
    """A text that is made while it is read.

    Of what was read the last is kept, as the kernel may ask for pieces a little out of order.

    Who goes further back, or meets an error, has it made anew from its beginning.

    Args:
        make: makes it, in pieces; always the same.
    """

    def __init__(self, make: Callable[[], Iterator[bytes]]) -> None:
        super().__init__()
        self._make = make
        self._at = 0
        self._begin()

    def _begin(self) -> None:
        self._pieces = self._make()
        self._kept = bytearray()
        self._kept_at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position, from the beginning."""
        if whence != io.SEEK_SET:
            raise io.UnsupportedOperation("where it ends is not known")
        self._at = offset
        return offset

    def readinto(self, into: WriteableBuffer) -> int:
        """Read on; less than wanted only at the end."""
        target = memoryview(into).cast("B")
        if self._at < self._kept_at:
            self._begin()
        try:
            self._read_up_to(self._at + len(target))
        except BaseException:
            self._begin()  # a generator that has raised would say that the text ends there
            raise
        first = self._at - self._kept_at
        part = self._kept[first : first + len(target)]
        target[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _read_up_to(self, end: int) -> None:
        while self._kept_at + len(self._kept) < end:
            piece = next(self._pieces, None)
            if piece is None:
                return
            self._kept += piece
            old = min(self._at - self._kept_at, len(self._kept)) - _KEPT_BYTES
            if old >= _KEPT_BYTES:
                del self._kept[:old]
                self._kept_at += old


def _below(key: Key, name: bytes) -> Key:
    """Return the key of a name in the directory of a key: everything after the fixed parts is one path."""
    fixed = {b"query": 1, b"at": 2, b"turn": 2}.get(key[0], 2) if key else 0
    if len(key) > fixed:
        return (*key[:-1], key[-1] + b"/" + name)
    return (*key, name)


def _mtime_ns(reader: BlobReader, root: OplogRoot, path: bytes) -> int:
    """Return a path's modification time in a commit."""
    attr = root.root
    for name in path.split(b"/") if path else ():
        value = nodes.lookup(reader, attr.below, name)
        if value is None:
            return root.root.mtime_ns
        attr = oplog.decode_attr(value)
    return attr.mtime_ns
