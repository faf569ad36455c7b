"""``.chronicle``: history as files.

    .chronicle/query/<path>               JSON array of the path's versions, oldest first
    .chronicle/at/<iteration>/<path>      the path at that version
    .chronicle/turn/<n>/...               the whole tree at turn n; 0 is before the first one, and empty
    .chronicle/diff/<a>..<b>              the changes from turn a to turn b
    .chronicle/log                        every operation, a JSON line each

Everything is read-only and generated on access. An entry's key is the parts of its path, with everything after
``query``, ``at/<n>`` and ``turn/<n>`` in one part.

A path may have been a file at one time and a directory at another, and history is addressed by path. So one key may
have two entries: a directory, which leads to what was below the path, and a file, which is its own history or version.
The kernel knows one of them by the name: the directory. A program that opens that directory for reading without
O_DIRECTORY wants the file. It gets ESTALE, upon which the kernel looks all names up once more, in the same system call
(``do_filp_open`` in fs/namei.c); this time the last one is the file.

Entries get inode numbers when they are first looked up. Those that never change have a range of their own, as the
kernel may cache them: trees of turns that are over, and directories that lead to old content.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from chronicle.blobs.readers import ProgressReader
from chronicle.fuse.served.inodes import MAGIC, UNCACHED
from chronicle.fuse.served.magic_text import GeneratedText, log_lines, query_pieces
from chronicle.fuse.served.magic_turns import TurnTrees
from chronicle.workspace.content import content as contents
from chronicle.workspace.history.path_histories import DIRECTORY, OTHER
from chronicle.workspace.layer.state.node import DirNode
from chronicle.workspace.trees import tree_diff
from chronicle.workspace.trees.tree import Kind

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from chronicle.ids import BlobId
    from chronicle.workspace.layer.layer import Layer

__all__ = ["NAME", "Magic", "MagicEntry"]

NAME: Final = b".chronicle"
"""The directory's name, in the root only."""

Key = tuple[bytes, ...]
EntryId = tuple[Key, bool, bool]
"""A key, whether it is the directory of that key, and whether the kernel may cache it."""
_ROOT: Final[EntryId] = ((), True, True)
_TOP_MODE: Final = stat.S_IFDIR | 0o500
"""Old contents are readable here whatever the modes of their files were: only the owner of the workspace may enter."""
_DIR_MODE: Final = stat.S_IFDIR | 0o555
_FILE_MODE: Final = stat.S_IFREG | 0o444
_LINK_MODE: Final = stat.S_IFLNK | 0o777
_NUMBER: Final = re.compile(rb"0|[1-9][0-9]{0,18}")
_TOP: Final = (b"at", b"diff", b"log", b"query", b"turn")
_SIZED_VERSIONS: Final = 64
"""The size of a longer history, or of one that follows renamed directories, is shown as 0."""
_IN_TURN: Final = 3
"""Parts of the key of a path in the tree of a turn."""
_MAX_WANTED: Final = 64
"""The limit of processes that are remembered between the refusal of a directory and the lookup of the file."""


@dataclass(frozen=True, slots=True)
class MagicEntry:
    """The current state of one of these files or directories."""

    key: Key
    ino: int
    mode: int
    """As in ``st_mode``."""
    size: int
    mtime_ns: int
    live: bool = False
    """Whether its content changes, so that the kernel may not cache it."""
    lasting: bool = False
    """Whether it never changes, so that the kernel may cache all of it."""
    target: bytes = b""
    """Of a symlink."""

    @property
    def nlink(self) -> int:
        """As in ``st_nlink``."""
        return 2 if stat.S_ISDIR(self.mode) else 1

    @property
    def uid(self) -> int:
        """This process's."""
        return os.geteuid()

    @property
    def gid(self) -> int:
        """This process's."""
        return os.getegid()

    @property
    def device(self) -> int:
        """Always 0: none of these is a device."""
        return 0

    @property
    def blocks(self) -> int:
        """The disk space that its size would take."""
        return -(-self.size // 512)

    @property
    def atime_ns(self) -> int:
        """The same as `mtime_ns`."""
        return self.mtime_ns

    @property
    def ctime_ns(self) -> int:
        """The same as `mtime_ns`."""
        return self.mtime_ns


class Magic:
    """Looks up and reads ``.chronicle``.

    Args:
        layer: of the workspace.
    """

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._turns = TurnTrees(layer)
        self._inode_of: dict[EntryId, int] = {_ROOT: MAGIC}
        self._id_of: dict[int, EntryId] = {MAGIC: _ROOT}
        self._next_uncached = UNCACHED
        self._next_lasting = MAGIC + 1
        self._file_wanted_by: dict[int, Key] = {}
        """By process, the key of which it wants the file and not the directory."""

    def forget(self, inode: int) -> None:
        """Drop an inode number that the kernel has forgotten."""
        if inode != MAGIC:
            entry_id = self._id_of.pop(inode, None)
            if entry_id is not None:
                del self._inode_of[entry_id]

    def root(self) -> MagicEntry:
        """Return ``.chronicle`` itself."""
        return self._directory((), lasting=True)

    def entry(self, inode: int) -> MagicEntry | None:
        """Return the entry of an inode number; None if it is gone."""
        entry_id = self._id_of.get(inode)
        if entry_id is None:
            return None
        key, is_directory, _ = entry_id
        if key and key[0] == b"turn" and len(key) == _IN_TURN:
            return self._find_in_turn(key)
        return self._find_directory(key) if is_directory else self._find_file(key)

    def lookup(self, inode: int, name: bytes, pid: int = 0) -> MagicEntry | None:
        """Return the entry of a name in a directory.

        Args:
            inode: the directory's.
            name: in it.
            pid: the calling process.
        """
        entry_id = self._id_of.get(inode)
        if entry_id is None:
            return None
        key = _child_key(entry_id[0], name)
        if self._file_wanted_by and self._file_wanted_by.get(pid) == key:
            return self._find_file(key)
        if key[0] == b"turn" and len(key) == _IN_TURN:
            return self._find_in_turn(key)
        return self._find_directory(key) or self._find_file(key)

    def wants_file(self, inode: int, pid: int) -> bool:
        """Say whether a process that opens a directory for reading means the file of the same name; then it gets that.

        This ends when the process opens the file, or another one.
        """
        key = self._id_of[inode][0]
        if self._find_file(key) is None:
            return False
        if len(self._file_wanted_by) >= _MAX_WANTED:
            del self._file_wanted_by[next(iter(self._file_wanted_by))]
        self._file_wanted_by[pid] = key
        return True

    def forget_wanted_file(self, pid: int) -> None:
        """Record that a process has opened the file that it wanted."""
        self._file_wanted_by.pop(pid, None)

    def listing(self, inode: int, known: Container[int]) -> list[tuple[bytes, int]]:
        """Return the names in a directory, and their kinds, as in ``st_mode``.

        Args:
            inode: the directory's.
            known: the inode numbers that the kernel knows.

        ``at`` and ``diff`` list nothing: their possible names are endless.
        """
        key = self._id_of[inode][0]
        match key:
            case (b"turn",):
                return [(b"%d" % turn, stat.S_IFDIR) for turn in range(self._turns.last() + 1)]
            case (b"turn", number, *path):
                entries = self._turns.listing(int(number), path[0] if path else b"")
                return [(name, _shown_kind(kind)) for name, kind in entries]
            case ():
                names = list(_TOP)
            case (b"query", *path):
                names = self._names_with_history(path[0] if path else b"")
            case _:
                names = []
        found = []
        for name in names:
            entry = self.lookup(inode, name)
            if entry is not None:
                found.append((name, entry.mode))
                if entry.ino not in known:
                    self.forget(entry.ino)
        return found

    def open(self, entry: MagicEntry) -> BinaryIO:
        """Open a file's current content for reading.

        Raises:
            NotFound: it is gone.
        """
        if stat.S_ISDIR(entry.mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        match entry.key:
            case (b"log",):
                done = self._layer.histories.operations()
                return cast("BinaryIO", GeneratedText(lambda: log_lines(done)))
            case (b"query", path):
                history = self._layer.histories.iterations(path)
                return cast("BinaryIO", GeneratedText(lambda: query_pieces(history)))
            case (b"diff", name):
                trees = self._compared_trees(name)
                return cast("BinaryIO", GeneratedText(lambda: self._diff(trees)))
            case (b"at", number, path):
                return self._layer.at(os.fsdecode(path), int(number))
            case (b"turn", number, path):
                found = self._turns.find(int(number), path)
                if found is not None:
                    content = found.entry.content  # FIFOs, sockets and devices are empty files: none may block
                    return io.BytesIO() if content is None else contents.open(self._layer.reader, content)
        raise FileNotFoundError(errno.ENOENT, "it is gone")

    # -- directories ----------------------------------------------------------------------------------------------

    def _find_directory(self, key: Key) -> MagicEntry | None:
        """Return the directory of a key."""
        match key:
            case () | (b"query",) | (b"at",) | (b"turn",) | (b"diff",):
                return self._directory(key, lasting=True)
            case (b"query", path):
                return self._query_directory(key, path)
            case (b"at", number) if _NUMBER.fullmatch(number):
                return self._directory(key, lasting=True)
            case (b"at", number, path) if _NUMBER.fullmatch(number):
                return self._directory_at(key, int(number), path)
            case (b"turn", *_):
                return self._find_in_turn(key)
        return None

    def _query_directory(self, key: Key, path: bytes) -> MagicEntry | None:
        """Return the directory of a path that is one, or was one as far as ``query`` is concerned."""
        view = self._layer.history_view()
        kinds = view.kinds(path)
        if kinds & DIRECTORY and view.had_entries(path):
            return self._directory(key, lasting=True)
        if kinds == DIRECTORY or isinstance(self._layer.resolve(path), DirNode):
            return self._directory(key)
        return None

    def _directory_at(self, key: Key, number: int, path: bytes) -> MagicEntry | None:
        """Return the directory that a path was at a version, or that leads to old content below it."""
        view = self._layer.history_view()
        if not view.kinds(path) & DIRECTORY:
            return None
        record = view.find(path, number)
        leads = view.had_entries(path)
        if record is not None and record.kind is Kind.DIR and not record.deleted:
            mode = _DIR_MODE if record.mode is None else stat.S_IFDIR | record.mode | 0o500
            return self._directory(key, mode, record.timestamp_ms * 1_000_000, lasting=leads)
        # A number that is not allocated yet may become a version with a mode.
        return self._directory(key, lasting=record is not None) if leads else None

    def _directory(
        self, key: Key, mode: int = _DIR_MODE, mtime_ns: int | None = None, *, lasting: bool = False
    ) -> MagicEntry:
        if not key:
            mode = _TOP_MODE
        ino = self._inode(key, is_directory=True, lasting=lasting)
        return MagicEntry(key, ino, mode, 0, self._time(mtime_ns), lasting=lasting)

    def _time(self, mtime_ns: int | None) -> int:
        return self._layer.root.mtime_ns if mtime_ns is None else mtime_ns

    # -- files ----------------------------------------------------------------------------------------------------

    def _find_file(self, key: Key) -> MagicEntry | None:
        """Return the file or symlink of a key."""
        match key:
            case (b"log",):
                return self._live(key, 0)
            case (b"query", path) if self._layer.history_view().kinds(path) & OTHER:
                return self._live(key, self._query_size(path))
            case (b"at", number, path) if _NUMBER.fullmatch(number):
                return self._file_at(key, int(number), path)
            case (b"diff", name) if self._compared_trees(name) is not None:
                return self._live(key, 0)  # its size is known only when it was read
        return None

    def _file_at(self, key: Key, number: int, path: bytes) -> MagicEntry | None:
        view = self._layer.history_view()
        record = view.find(path, number)
        if record is None or record.deleted or record.kind is Kind.DIR:
            return None
        ino, mtime_ns = self._inode(key, is_directory=False), record.timestamp_ms * 1_000_000
        if record.target is not None and not (view.kinds(path) & DIRECTORY and view.had_entries(path)):
            return MagicEntry(key, ino, _LINK_MODE, record.size, mtime_ns, target=record.target)
        # A symlink that is reached by opening it only is shown as a file with its target.
        mode = _FILE_MODE if record.mode is None or record.target is not None else stat.S_IFREG | record.mode | 0o400
        return MagicEntry(key, ino, mode, record.size, mtime_ns)

    def _find_in_turn(self, key: Key) -> MagicEntry | None:
        """Return the entry of a path after a turn: a directory or a file, as it was one thing at that time."""
        if not _NUMBER.fullmatch(key[1]):
            return None
        found = self._turns.find(int(key[1]), key[2] if len(key) == _IN_TURN else b"")
        if found is None:
            return None
        entry = found.entry
        if entry.kind is Kind.DIR:
            return self._directory(key, _DIR_MODE, found.mtime_ns, lasting=True)
        if entry.kind is Kind.SYMLINK:
            mode, size = _LINK_MODE, len(entry.target)
        else:
            mode = stat.S_IFREG | (entry.mode & 0o555)
            size = entry.content.size if entry.content is not None else 0
        ino = self._inode(key, is_directory=False, lasting=True)
        return MagicEntry(key, ino, mode, size, self._time(found.mtime_ns), target=entry.target, lasting=True)

    def _live(self, key: Key, size: int) -> MagicEntry:
        ino = self._inode(key, is_directory=False)
        return MagicEntry(key, ino, _FILE_MODE, size, self._layer.root.mtime_ns, live=True)

    def _inode(self, key: Key, *, is_directory: bool, lasting: bool = False) -> int:
        entry_id = key, is_directory, lasting
        inode = self._inode_of.get(entry_id)
        if inode is None:
            if lasting:
                inode = self._next_lasting
                self._next_lasting += 1
            else:
                inode = self._next_uncached
                self._next_uncached += 1
            self._inode_of[entry_id] = inode
            self._id_of[inode] = entry_id
        return inode

    # -- query and diff -------------------------------------------------------------------------------------------

    def _query_size(self, path: bytes) -> int:
        if not self._layer.history_view().is_short(path, _SIZED_VERSIONS):
            return 0
        return sum(map(len, query_pieces(self._layer.histories.iterations(path, hashed=False))))

    def _names_with_history(self, path: bytes) -> list[bytes]:
        names = set(self._layer.history_view().names(path))
        directory = self._layer.resolve(path)
        if isinstance(directory, DirNode):
            names.update(name for name, _, _ in self._layer.dirents(directory))
        return sorted(names)

    def _compared_trees(self, name: bytes) -> tuple[BlobId, BlobId] | None:
        """Return the trees that a name in ``diff`` compares; None if it is not one."""
        first, dots, second = name.partition(b"..")
        if not dots or not _NUMBER.fullmatch(first) or not _NUMBER.fullmatch(second):
            return None
        turns = self._turns
        if not turns.is_over(int(first)) or not turns.is_over(int(second)):
            return None
        return turns.tree_id(int(first)), turns.tree_id(int(second))

    def _diff(self, trees: tuple[BlobId, BlobId] | None) -> Iterator[bytes]:
        """Yield the changes, a line or a few at a time; files are read when it is their turn."""
        if trees is None:
            return
        reader = ProgressReader(self._layer.reader, self._layer.beat)
        yield from tree_diff.render(reader, tree_diff.changes(reader, *trees))


def _shown_kind(kind: Kind) -> int:
    """Return the kind of a turn's entry, as in ``st_mode``."""
    return stat.S_IFDIR if kind is Kind.DIR else stat.S_IFLNK if kind is Kind.SYMLINK else stat.S_IFREG


def _child_key(key: Key, name: bytes) -> Key:
    """Return the key of a name in a directory: everything after the fixed parts is one path."""
    fixed = {b"query": 1, b"at": 2, b"turn": 2}.get(key[0], 2) if key else 0
    if len(key) > fixed:
        return (*key[:-1], key[-1] + b"/" + name)
    return (*key, name)
