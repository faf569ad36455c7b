"""The writable layer of a workspace: the engine behind the fuse and api presentations.

Each changing method checks like the kernel would, writes a record to the local log, and only then does what
`chronicle.workspace.layer_state` says; so what was answered survives the death of the process, and reading the log
back gives the same state. Errors of use are ``OSError`` with the errno that ext4 would give.

A layer belongs to one thread. Nothing in it waits for anything but the disk and the blob store.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import time
from collections import Counter
from typing import TYPE_CHECKING, BinaryIO, Final

from chronicle.blobs.ident import blob_id
from chronicle.clock import SystemClock
from chronicle.errors import InvalidInput, NotFound
from chronicle.workspace import content as contents
from chronicle.workspace import layer_records as records
from chronicle.workspace.layer_log import LayerLog, position, sync_directory
from chronicle.workspace.layer_node import DirNode, FileNode, Node
from chronicle.workspace.layer_records import Header, pack, pack_data
from chronicle.workspace.layer_seal import SealInput, put_seal, settle
from chronicle.workspace.layer_state import MILLION, RENAME_EXCHANGE, RENAME_NOREPLACE, LayerState
from chronicle.workspace.oplog import Gap, Operation, first_root, read_root, stored_operations
from chronicle.workspace.oplog import operations as stored_chain
from chronicle.workspace.port import Iteration, TreeRef
from chronicle.workspace.tree import EMPTY, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from chronicle.blobs.store import BlobReader, BlobStore
    from chronicle.clock import Clock
    from chronicle.ids import BlobId
    from chronicle.workspace.history import Record
    from chronicle.workspace.layer_files import LayerFiles

__all__ = ["Handle", "Layer", "encode_path", "iteration_of"]

NAME_MAX: Final = 255


class Handle:
    """An open file."""

    __slots__ = ("fresh", "node", "stale", "wrote")

    def __init__(self, node: FileNode, *, fresh: bool) -> None:
        self.node = node
        self.fresh = fresh
        """Whether opening it made or emptied the file. That alone is a version only if nothing is written until the
        release: a shell's ``echo x > file`` closes a copy of the descriptor before it writes."""
        self.wrote = False
        """Whether it wrote since its last flush."""
        self.stale = False
        """Whether the layer it was opened in was rolled back: it answers ESTALE from then on."""


class Layer(LayerState):
    """A layer, open. Made by `chronicle.workspace.layer_open.open_layer`.

    Args:
        directory: its directory on disk.
        blobs: the blob store.
        reader: reads from it, caching.
        files: its files.
        log: its log.
        header: the log's first record.
        start: the state to start from, before the log is read back.
        clock: gives the time.
    """

    def __init__(
        self,
        directory: Path,
        blobs: BlobStore,
        reader: BlobReader,
        files: LayerFiles,
        log: LayerLog,
        header: Header,
        start: TreeRef | None,
        clock: Clock,
    ) -> None:
        super().__init__(reader, files, start, header.owner, header.turn)
        self.directory = directory
        self._blobs = blobs
        self._log = log
        self._header = header
        self._base = header.base
        self._base_commit = read_root(reader, header.base.oplog_id) if header.base is not None else first_root(0)
        self.names.next_ino = max(self.names.next_ino, header.next_ino)
        self._next_seq = max(self._next_seq, header.next_seq)
        self._sealed_at = log.end
        """Where in the log the records after the last seal begin."""
        self._sealed_numbers: dict[bytes, int] = {}
        self._sealed_operations: tuple[BlobId, ...] = ()
        self._sealed_moves: list[bytes] = []
        """Where directories were renamed from and to between the base and the last seal."""
        self._handles: set[Handle] = set()
        self._lock_fd = -1
        self._placed = False
        """Whether the directories that the layer is in are known to survive the loss of power."""
        self._now: Callable[[], int] = (
            time.time_ns if isinstance(clock, SystemClock) else lambda: clock.now_ms() * MILLION
        )

    # -- what there is --------------------------------------------------------------------------------------------

    @property
    def root(self) -> DirNode:
        """The root directory."""
        return self.names.root

    @property
    def base(self) -> TreeRef:
        """The last tree that was adopted, or opened."""
        assert self._base is not None, "an opened layer has a base"
        return self._base

    @property
    def has_base(self) -> bool:
        """Whether it has a base; it gets one when it is opened."""
        return self._base is not None

    @property
    def uncommitted(self) -> bool:
        """Whether something was sealed and not adopted."""
        return self._sealed != self._base

    @property
    def reader(self) -> BlobReader:
        """Where trees, attributes and histories are read."""
        return self._reader

    @property
    def epoch(self) -> int:
        """The epoch it belongs to."""
        return self._header.epoch

    def node(self, ino: int) -> Node:
        """Return what has an inode number.

        Raises:
            OSError: ESTALE: nothing has it any more.
        """
        try:
            return self.names.by_ino[ino]
        except KeyError:
            raise OSError(errno.ESTALE, "nothing has this inode number") from None

    def lookup(self, parent: DirNode, name: bytes) -> Node | None:
        """Return what a name in a directory is."""
        try:
            return parent.children[name]
        except KeyError:
            return self.names.child(parent, name) if parent.tree != EMPTY else None

    def resolve(self, path: bytes) -> Node | None:
        """Return what is at a path, ``b""`` being the root; symlinks are not followed."""
        return self.names.resolve(path)

    def entries(self, directory: DirNode) -> list[tuple[bytes, Node]]:
        """Return a directory's entries by name."""
        return self.names.entries(directory)

    def forget(self, ino: int) -> None:
        """Let go of a node that nobody refers to by number any more, if it can be had again."""
        node = self.names.by_ino.get(ino)
        if node is None:
            return
        if node.nlink == 0:
            if not (isinstance(node, FileNode) and node.opens):
                del self.names.by_ino[ino]
        elif (
            isinstance(node, FileNode)
            and node.parent is not None
            and node.nlink == 1
            and not (node.dirty or node.opens or node.name in node.parent.changed)
        ):
            del self.names.by_ino[ino]
            del node.parent.children[node.name]

    def statfs(self) -> os.statvfs_result:
        """Return the figures of the file system that the layer is on."""
        return os.statvfs(self.directory)

    # -- making and removing names --------------------------------------------------------------------------------

    def create(self, parent: DirNode, name: bytes, mode: int, uid: int, gid: int) -> Handle:
        """Make a regular file and open it for reading and writing.

        Args:
            mode: permission bits.
        """
        self._check_new(parent, name)
        data, fd = self._files.create_data()
        ts_ns = self._now()
        ino = self.names.next_ino
        try:
            path = self.names.join(parent, name)
            self._log.append(pack((records.CREATE, ts_ns, path, ino, mode, uid, gid, data.number)))
        except OSError:
            os.close(fd)
            self._files.drop_data(data)
            raise
        node = self.do_create(parent, name, ino, mode, uid, gid, data, ts_ns)
        node.fd = fd
        node.opens = 1
        handle = Handle(node, fresh=True)
        self._handles.add(handle)
        return handle

    def make(self, parent: DirNode, name: bytes, mode: int, uid: int, gid: int, target: bytes | None = None) -> Node:
        """Make a directory, FIFO or socket, as ``mode`` says, or a symlink if there is a target.

        Raises:
            OSError: EPERM for devices: a workspace must mean the same on every node.
        """
        if stat.S_IFMT(mode) not in _MAKEABLE:
            raise OSError(errno.EPERM, "a workspace holds no devices")
        self._check_new(parent, name)
        ts_ns = self._now()
        ino = self.names.next_ino
        path = self.names.join(parent, name)
        self._log.append(pack((records.MAKE, ts_ns, path, ino, mode, uid, gid, target)))
        return self.do_make(parent, name, ino, mode, uid, gid, target, ts_ns)

    def unlink(self, parent: DirNode, name: bytes) -> None:
        """Remove a name that is no directory's."""
        node = self._existing(parent, name)
        if isinstance(node, DirNode):
            raise OSError(errno.EISDIR, "is a directory")
        self._remove(parent, name, node)

    def rmdir(self, parent: DirNode, name: bytes) -> None:
        """Remove an empty directory."""
        node = self._existing(parent, name)
        if not isinstance(node, DirNode):
            raise OSError(errno.ENOTDIR, "not a directory")
        if not self.names.is_empty(node):
            raise OSError(errno.ENOTEMPTY, "directory not empty")
        self._remove(parent, name, node)

    def _remove(self, parent: DirNode, name: bytes, node: Node) -> None:
        ts_ns = self._now()
        self._log.append(pack((records.REMOVE, ts_ns, self.names.join(parent, name))))
        self.do_remove(parent, name, node, ts_ns)

    def rename(self, old_dir: DirNode, old: bytes, new_dir: DirNode, new: bytes, flags: int = 0) -> None:
        """Move what has a name to another; the flags are the kernel's, see `RENAME_EXCHANGE` and `RENAME_NOREPLACE`."""
        node = self._existing(old_dir, old)
        target = self.lookup(new_dir, new)
        if flags & ~(RENAME_EXCHANGE | RENAME_NOREPLACE):
            raise OSError(errno.EINVAL, "unknown flags")
        if len(new) > NAME_MAX:
            raise OSError(errno.ENAMETOOLONG, "name too long")
        if isinstance(node, DirNode):
            self._check_not_inside(new_dir, node)
        if flags & RENAME_EXCHANGE:
            if target is None:
                raise FileNotFoundError(errno.ENOENT, "nothing to exchange with")
            if isinstance(target, DirNode):
                self._check_not_inside(old_dir, target)
        elif target is not None:
            if flags & RENAME_NOREPLACE:
                raise FileExistsError(errno.EEXIST, "exists")
            self._check_replaceable(node, target)
        if target is node:
            return
        self._settle(node)
        if flags & RENAME_EXCHANGE:
            assert target is not None
            self._settle(target)
        ts_ns = self._now()
        names = self.names
        self._log.append(pack((records.RENAME, ts_ns, names.join(old_dir, old), names.join(new_dir, new), flags)))
        self.do_rename(old_dir, old, new_dir, new, flags, ts_ns)

    def _check_not_inside(self, directory: DirNode | None, node: DirNode) -> None:
        while directory is not None:
            if directory is node:
                raise OSError(errno.EINVAL, "a directory cannot be moved into itself")
            directory = directory.parent

    def _check_replaceable(self, node: Node, target: Node) -> None:
        if isinstance(target, DirNode):
            if not isinstance(node, DirNode):
                raise IsADirectoryError(errno.EISDIR, "is a directory")
            if not self.names.is_empty(target):
                raise OSError(errno.ENOTEMPTY, "directory not empty")
        elif isinstance(node, DirNode):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory")

    def link(self, node: Node, parent: DirNode, name: bytes) -> None:
        """Give a file one more name."""
        if isinstance(node, DirNode):
            raise OSError(errno.EPERM, "a directory has one name")
        source = self.names.path_of(node)
        if source is None:
            raise FileNotFoundError(errno.ENOENT, "removed")
        self._check_new(parent, name)
        self._settle(node)
        ts_ns = self._now()
        self._log.append(pack((records.LINK, ts_ns, source, self.names.join(parent, name))))
        self.do_link(node, source, parent, name, ts_ns)

    def _check_new(self, parent: DirNode, name: bytes) -> None:
        if parent.nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the directory was removed")
        if len(name) > NAME_MAX:
            raise OSError(errno.ENAMETOOLONG, "name too long")
        if self.lookup(parent, name) is not None:
            raise FileExistsError(errno.EEXIST, "exists")

    def _existing(self, parent: DirNode, name: bytes) -> Node:
        node = self.lookup(parent, name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory")
        return node

    # -- attributes -----------------------------------------------------------------------------------------------

    def set_mode(self, node: Node, mode: int, uid: int, gid: int) -> None:
        """Set permission bits and owner. Makes no version if they are what they were."""
        ts_ns = self._now()
        if (stat.S_IMODE(node.mode), node.uid, node.gid) == (mode, uid, gid):
            node.ctime_ns = ts_ns
            return
        self._settle_written(node)
        path = self.names.path_of(node)
        if path is not None:
            self._log.append(pack((records.MODE, ts_ns, path, mode, uid, gid)))
        self.do_mode(node, mode, uid, gid, ts_ns)

    def set_times(self, node: Node, atime_ns: int, mtime_ns: int) -> None:
        """Set the times, epoch nanoseconds. Makes no version."""
        ts_ns = self._now()
        path = self.names.path_of(node)
        if path is not None:
            self._log.append(pack((records.TIMES, ts_ns, path, atime_ns, mtime_ns)))
        self.do_times(node, atime_ns, mtime_ns, ts_ns)

    def set_xattr(self, node: Node, name: bytes, value: bytes | None) -> None:
        """Set an extended attribute, or remove it.

        Raises:
            OSError: ENODATA: there is none to remove.
        """
        if value is None and all(known != name for known, _ in node.xattrs):
            raise OSError(errno.ENODATA, "no such attribute")
        self._settle_written(node)
        ts_ns = self._now()
        path = self.names.path_of(node)
        if path is not None:
            self._log.append(pack((records.XATTR, ts_ns, path, name, value)))
        self.do_xattr(node, name, value, ts_ns)

    # -- content --------------------------------------------------------------------------------------------------

    def open(self, node: FileNode, *, truncate: bool = False) -> Handle:
        """Open a file; its content is fetched if it is not on this node."""
        if truncate and node.length:
            self._empty(node)
        if node.fd < 0:
            node.fd = self._open_data(node)
        node.opens += 1
        handle = Handle(node, fresh=truncate)
        self._handles.add(handle)
        return handle

    def read(self, handle: Handle, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        if handle.stale:
            raise OSError(errno.ESTALE, "the workspace was rolled back")
        return os.pread(handle.node.fd, size, offset)

    def write(self, handle: Handle, offset: int, data: bytes) -> int:
        """Write; return how many bytes. Survives the death of the process from now on."""
        if handle.stale:
            raise OSError(errno.ESTALE, "the workspace was rolled back")
        node = handle.node
        if node.guarded:
            self._guard(node, node.fd, offset, len(data))
        written = os.pwrite(node.fd, data, offset)
        node.length = max(node.length, offset + written)
        node.mtime_ns = node.ctime_ns = self._now()
        node.unversioned = True
        handle.wrote = True
        return written

    def truncate(self, node: FileNode, size: int, handle: Handle | None = None) -> None:
        """Set a file's size. Without a handle it is a version of its own."""
        if handle is not None and handle.stale:
            raise OSError(errno.ESTALE, "the workspace was rolled back")
        if size == node.length:
            now = self._now()
            self.set_times(node, node.atime_ns, now)
            return
        if size == 0:
            self._empty(node)
        else:
            fd = node.fd if node.fd >= 0 else self._open_data(node)
            try:
                if node.guarded:
                    self._guard(node, fd, size, max(0, node.length - size))
                os.ftruncate(fd, size)
            finally:
                if node.fd < 0:
                    os.close(fd)
            node.length = size
        node.mtime_ns = node.ctime_ns = self._now()
        node.unversioned = True
        if handle is not None:
            handle.wrote = True
        else:
            self._settle(node)

    def flush(self, handle: Handle) -> None:
        """Make the version that a close makes, if something was written by this handle."""
        if handle.wrote:
            handle.wrote = handle.fresh = False
            if not handle.stale:
                self._settle(handle.node)

    def release(self, handle: Handle) -> None:
        """Close; what a mapping wrote after the last flush becomes a version."""
        self._handles.discard(handle)
        if handle.wrote or handle.fresh:
            handle.wrote = True
            self.flush(handle)
        node = handle.node
        node.opens -= 1
        if node.opens == 0:
            os.close(node.fd)
            node.fd = -1
            if node.nlink == 0 and not handle.stale:
                self._let_go(node)

    def fsync(self, node: FileNode | None) -> None:
        """Make everything that was logged, and a file's bytes if one is given, survive the loss of power."""
        if node is not None and node.fd >= 0:
            os.fdatasync(node.fd)
            if node.data is not None:
                for undo in node.data.undos:
                    undo.sync()
        self._files.sync_names()
        self._sync_log()

    def _sync_log(self) -> None:
        """Make what was logged survive the loss of power, the layer's own name the first time."""
        self._log.sync()
        if not self._placed:
            home = self.directory.parent
            sync_directory(home)
            sync_directory(home.parent)
            self._placed = True

    def _open_data(self, node: FileNode) -> int:
        if node.data is None:
            content = node.content
            assert content is not None
            node.data = self._files.cached(node.ino, content) or self._files.fetch(self._reader, node.ino, content)
        return self._files.open_data(node.data)

    def _empty(self, node: FileNode) -> None:
        """Give a file a new, empty data file; versions keep the old one."""
        data, fd = self._files.create_data()
        try:
            path = self.names.path_of(node)
            if path is not None:
                self._log.append(pack_data(self._now(), path, data, 0, 0))
        except OSError:
            os.close(fd)
            self._files.drop_data(data)
            raise
        self.do_data(node, data, None)
        node.length = 0
        if node.opens:
            os.close(node.fd)
            node.fd = fd
        else:
            os.close(fd)

    def _guard(self, node: FileNode, fd: int, offset: int, length: int) -> None:
        """Before a write: log that the file changes, and keep what a version needs of the range."""
        data = node.data
        assert data is not None
        held = data.pinned
        if held is not None:
            undo = self._files.create_undo(held.size)
            self._log.append(pack_data(self._now(), self.names.path_of(node), data, undo.number, held.size))
            self.do_data(node, data, undo)
        elif not node.dirty:
            path = self.names.path_of(node)
            if path is not None:
                self._log.append(pack_data(self._now(), path, data, 0, 0))
            self.do_data(node, data, None)
        data.preserve(fd, offset, length)

    def _version(self, node: FileNode) -> None:
        ts_ns = self._now()
        op = "write" if node.unversioned else "create"
        path = self.names.path_of(node)
        self._log.append(pack((records.VERSION, ts_ns, path, op, node.length, node.mtime_ns)))
        self.do_version(node, op, node.length, node.mtime_ns, ts_ns)

    def _settle(self, node: Node) -> None:
        """Make a version of a file that has none of what it is now."""
        if isinstance(node, FileNode) and node.parent is not None and (node.unversioned or not node.versioned):
            self._version(node)

    def _settle_written(self, node: Node) -> None:
        """Make a version of a file that has some, but none of what it is now."""
        if node.versioned:
            self._settle(node)

    # -- history --------------------------------------------------------------------------------------------------

    def history(self, path: str) -> Sequence[Iteration]:
        """Return a path's iterations; see `chronicle.workspace.port.Workspace.history`."""
        raw = encode_path(path)
        found = self._view().records(raw)
        if not found:
            raise NotFound(f"{path!r} never existed")
        return [iteration_of(record, self.content_id(record)) for record in found]

    def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path's content at an iteration; see `chronicle.workspace.port.Workspace.at`."""
        record = self.version(encode_path(path), iteration)
        if record is None or record.deleted:
            raise NotFound(f"{path!r} has no content at iteration {iteration}")
        return self.open_version(record)

    def version(self, path: bytes, number: int) -> Record | None:
        """Return one version of a path."""
        return self._view().find(path, number)

    def last_version(self, path: bytes) -> Record | None:
        """Return the newest version of a path, a deletion perhaps; None if it never existed."""
        return self._view().last(path)

    def has_history_below(self, path: bytes) -> bool:
        """Say whether anything below a path has versions."""
        return self._view().below(path)

    def names_with_history(self, path: bytes) -> list[bytes]:
        """Return the names in a directory that have versions, or below which something has."""
        return self._view().names(path)

    def operations(self) -> Iterator[Operation]:
        """Yield every operation there ever was, oldest first, those not yet sealed included."""
        yield from stored_chain(self._reader, self._sealed.oplog_id if self._sealed is not None else None)
        view = self._view()
        fresh = [(path, record) for path in self._records for record in view.settle(path)]
        for path, record in sorted(fresh, key=lambda item: item[1].seq):
            yield Operation(
                record.seq,
                record.timestamp_ms,
                record.op,
                record.turn,
                path,
                record.number,
                record.size,
                record.source,
            )

    def open_version(self, record: Record) -> BinaryIO:
        """Open the content of a version.

        Raises:
            NotFound: it is a directory, or something else without content.
        """
        if record.content is not None:
            return contents.open(self._reader, record.content)
        if record.target is not None:
            return io.BytesIO(record.target)
        if record.held is None:
            raise NotFound("a version of a directory has no content of its own")
        return self._files.open_version(record.held, self._reader)

    def content_id(self, record: Record) -> str:
        """Return the id in the tree of a version's content; empty for what has none."""
        if record.held is None or record.deleted:
            return iteration_of(record).hash
        if record.held.content is None:
            settle(_Discard(self._reader), self._files, record.held)
        assert record.held.content is not None
        return record.held.content.id

    # -- turns ----------------------------------------------------------------------------------------------------

    def begin_turn(self, turn: int) -> None:
        """Say which turn the changes from now on belong to."""
        if turn != self.turn:
            self._log.append(pack((records.TURN, turn)))
            self.do_turn(turn)

    @property
    def changed(self) -> bool:
        """Whether anything differs from the last seal."""
        names = self.names
        return bool(names.root.changed or names.root_changed or self._records)

    def seal(self) -> TreeRef:
        """Make the layer's content a tree; see `chronicle.workspace.port.Workspace.seal`.

        A workspace that never had a tree gets one.
        """
        for node in list(self.modified.values()):
            self._settle(node)
        if self._sealed is not None and not self.changed:
            return self._sealed
        sealed = put_seal(self._blobs, self._seal_input())
        clean = [(node.ino, node.data, content) for node, content in sealed.contents if node.data is not None]
        self._files.note_clean(clean)
        kept = {ino for ino, _, _ in clean}
        for ino in self.modified:
            if ino not in kept:
                self._files.forget_clean(ino)
        self._log.append(pack((records.SEALED, records.pack_ref(sealed.ref))))
        self._sync_log()
        self._sealed_at = self._log.end
        for directory, subtree, attrs in sealed.directories:
            for name in directory.changed:
                if directory.children.get(name, directory) is None:
                    del directory.children[name]
            directory.changed.clear()
            directory.tree, directory.attrs = subtree, attrs
        for node, content in sealed.contents:
            node.content, node.dirty = content, False
        self.names.root_changed = False
        self.names.links = sealed.commit.links
        self._sealed_moves += self._moves
        self._drop_versions()
        self.floors = {}
        self.gaps = []
        self._sealed, self._commit = sealed.ref, sealed.commit
        self._sealed_numbers.update(sealed.numbers)
        self._sealed_operations = sealed.commit.operations
        return sealed.ref

    def _seal_input(self) -> SealInput:
        return SealInput(
            names=self.names,
            files=self._files,
            view=self._view(),
            records=self._records,
            floors=self.floors,
            gaps=self.gaps,
            owner=self._owner,
            commit=self._commit,
            base=self._base,
            base_commit=self._base_commit,
            turn=self.turn,
            next_seq=self._next_seq,
            moved_seq=self._moved_seq,
            sealed_operations=self._sealed_operations,
        )

    def adopt(self, ref: TreeRef) -> None:
        """Make a sealed tree the base; see `chronicle.workspace.port.Workspace.adopt`.

        Raises:
            InvalidInput: it is not what was sealed last.
        """
        if ref == self._base:
            return
        if ref != self._sealed:
            raise InvalidInput(f"tree {ref.tree_id} is not the one sealed last; only that can be adopted")
        later = self._log.frames_since(self._sealed_at)
        self._base, self._base_commit = ref, self._commit
        self._sealed_numbers = {}
        self._sealed_operations = ()
        self._sealed_moves = []
        self._rotate(later, self._commit.next_seq, self._commit.turn)

    def rollback(self) -> None:
        """Give up everything since the base; see `chronicle.workspace.port.Workspace.rollback`.

        Open handles answer ESTALE from then on. What the kernel has cached is the caller's to drop.
        """
        names = self.names
        floors = dict(self.floors)
        view = self._view()
        for path in self._records:
            floors[path] = view.floor(path)
        for path, number in self._sealed_numbers.items():
            floors[path] = max(number, floors.get(path, 0))
        moves = Counter(self._sealed_moves + self._moves)
        gaps = self.gaps + [Gap(path, self._next_seq, count) for path, count in moves.items()]
        self._next_seq += 1
        self._abandon()
        self._start_at(self._base, names.next_ino)
        self.floors, self.gaps = floors, gaps
        self._sealed_numbers = {}
        self._sealed_operations = ()
        self._sealed_moves = []
        self._rotate([pack((records.FLOORS, floors, gaps))] if floors or gaps else [], self._next_seq, self.turn)

    def _abandon(self) -> None:
        """Cut off what is open, and let go of what was changed since the last seal."""
        for handle in self._handles:
            handle.stale = True
            if handle.node.nlink == 0:
                self.modified[handle.node.ino] = handle.node
        self._handles.clear()
        for node in self.modified.values():
            self._files.forget_clean(node.ino)
        changed = [node.data for node in self.modified.values() if node.data is not None]
        for data in (*self._retired, *changed):
            for held in data.versions:
                held.content = None  # its id may be known; the blob store does not have it
            self._files.drop_data(data)

    def _rotate(self, carried: list[bytes], next_seq: int, turn: int) -> None:
        """Put a new log in the place of the old one, in one step.

        Args:
            carried: the records that come after the header.
            next_seq: the counter before them.
            turn: the turn before them.
        """
        header = Header(
            workspace_id=self._header.workspace_id,
            epoch=self._header.epoch,
            base=self._base,
            turn=turn,
            next_ino=self.names.next_ino,
            next_seq=next_seq,
            next_number=self._files.next_number,
            owner=self._owner,
        )
        first = header.encode()
        old = self._log
        self._log = LayerLog.create(self.directory / "log", [first, *carried])
        self._sealed_at = position([first])
        old.close()
        self._header = header

    def resume(self, sealed_at: int, *, adopt: bool) -> None:
        """Take up what an earlier process sealed and did not live to see adopted. To be called after the log was read.

        Args:
            sealed_at: where in the log the records after the seal begin.
            adopt: whether it was committed.
        """
        assert self._sealed is not None
        self._sealed_at = sealed_at
        if adopt:
            self.adopt(self._sealed)
        elif self._sealed != self._base:
            self._sealed_operations = self._commit.operations
            view = self._view()
            for operation in stored_operations(self._reader, self._commit):
                self._sealed_numbers[operation.path] = operation.iteration
                if operation.source is not None and operation.op == "rename":
                    record = view.find(operation.path, operation.iteration)
                    if record is not None and record.kind is Kind.DIR:
                        self._sealed_moves += [operation.path, operation.source]

    def close(self) -> None:
        """Let go of the layer; it stays on disk as it is."""
        for handle in list(self._handles):
            self.release(handle)
        for node in self.modified.values():
            if node.data is not None:
                for undo in node.data.undos:
                    undo.close()
        for data in self._retired:
            for undo in data.undos:
                undo.close()
        self._log.close()
        self._files.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def keep_lock(self, fd: int) -> None:
        """Hold a lock's descriptor until `close`."""
        self._lock_fd = fd


class _Discard:
    """A buffer that keeps nothing, to learn an id."""

    def __init__(self, reader: BlobReader) -> None:
        self._reader = reader

    def get(self, identifier: BlobId) -> bytes:
        return self._reader.get(identifier)

    def add(self, data: bytes) -> BlobId:
        return blob_id(data)


_MAKEABLE: Final = (stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFSOCK)


def iteration_of(record: Record, content_id: str | None = None) -> Iteration:
    """Return a version as the port has it.

    Args:
        record: the version.
        content_id: its content's id, if the record itself does not have it.
    """
    if content_id is None:
        if record.content is not None:
            content_id = record.content.id
        else:
            content_id = blob_id(record.target) if record.target is not None else ""
    return Iteration(
        iteration=record.number,
        timestamp=record.timestamp_ms,
        size=record.size,
        hash="" if record.deleted else content_id,
        op=record.op,
        turn=record.turn,
        source=os.fsdecode(record.source) if record.source is not None else None,
    )


def encode_path(path: str) -> bytes:
    """Return a path of the port as bytes.

    Raises:
        InvalidInput: absolute, or with ``.`` or ``..`` in it.
    """
    raw = os.fsencode(path)
    if any(part in (b"", b".", b"..") for part in raw.split(b"/")) and raw:
        raise InvalidInput(f"{path!r} is not a path in a workspace: no leading slash, no '.' and no '..'")
    return raw
