"""The writable layer of a workspace, the engine behind the fuse and api presentations.

`Layer` is a facade. It builds the parts of a layer around one log and one state, and lends their methods:

* `Entries`, `Attributes`, `OpenFiles` and `Durability` carry out requests;
* `HistoryReader` reads versions;
* `CommitCycle` seals, adopts, moves and rolls back, `Restorer` goes back to an earlier commit.

Each operation first checks, then reads what it needs of the blob store, then appends a record to the log, and only then
changes the state (`Applier`, which replay uses too). So an answered operation survives the death of the process.

A layer belongs to one thread. It waits for the disk and the blob store only.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from chronicle.clock import SystemClock
from chronicle.system.locks import unlock
from chronicle.workspace.content.lazy_reader import Chunks
from chronicle.workspace.layer.attributes import Attributes
from chronicle.workspace.layer.commit_cycle import CommitCycle
from chronicle.workspace.layer.durability import Durability
from chronicle.workspace.layer.entries import Entries
from chronicle.workspace.layer.file_data import FileData
from chronicle.workspace.layer.file_versions import FileVersions
from chronicle.workspace.layer.history_reader import HistoryReader
from chronicle.workspace.layer.open_files import OpenFiles
from chronicle.workspace.layer.replay import replay
from chronicle.workspace.layer.restore import Restorer
from chronicle.workspace.layer.state.apply import Applier
from chronicle.workspace.layer.state.handle import Handle
from chronicle.workspace.layer.state.layer_state import LayerState
from chronicle.workspace.layer.state.pending_history import NS_PER_MS
from chronicle.workspace.layer.warm_cache import WarmCache
from chronicle.workspace.quota import limited

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.clock import Clock
    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.disk.log import LayerLog
    from chronicle.workspace.layer.disk.log_records import Header
    from chronicle.workspace.layer.state.names import Names
    from chronicle.workspace.layer.state.node import DirNode, FileNode, Node
    from chronicle.workspace.layer.state.touched import Touched
    from chronicle.workspace.port import Iteration, Quota, TreeRef, Usage

__all__ = ["Handle", "Layer"]


class Layer:
    """A layer, open. Made by `chronicle.workspace.layer.opening.open_layer`.

    Args:
        directory: its directory on disk.
        blobs: the blob store.
        reader: reads from it, caching.
        files: its files.
        log: its log.
        header: the log's first record.
        start: the commit to start from, before the log is replayed.
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
        now: Callable[[], int]
        now = time.time_ns if isinstance(clock, SystemClock) else lambda: clock.now_ms() * NS_PER_MS
        self.directory = directory
        self.reader = reader
        """Reads blobs, caching."""
        self._files = files
        self._log = log
        self._chunks = Chunks.of_store(blobs)
        self._lock_fd = -1
        self._handles: set[Handle] = set()
        self._state = state = LayerState(reader, start, header.owner, header.turn)
        self._applier = applier = Applier(state, files, self._chunks)
        self._warm = warm = WarmCache(state, files, self._handles)
        versions = FileVersions(applier, log, now)
        data = FileData(applier, files, log, now)
        self._attributes = attributes = Attributes(applier, log, now, versions)
        self._open_files = opened = OpenFiles(
            applier, self._chunks, now, data, versions, attributes, warm, self._handles
        )
        self._entries = entries = Entries(applier, files, log, now, versions, opened)
        self._durability = durability = Durability(directory, state, files, log, data)
        self.histories = HistoryReader(state, files)
        """Reads versions of paths, and operations."""
        self.commits = commits = CommitCycle(state, blobs, files, log, header, durability, versions, opened, warm)
        self._restorer = Restorer(applier, files, log, now, opened)

        # The hot methods of the parts, bound: a request costs no further call. Each binding writes to the page of its
        # function, which a mount server shares with its prefork process until then; so the others are methods below.
        self.node = entries.node
        self.lookup = entries.lookup
        self.forget = entries.forget
        self.evict_surplus = entries.evict_surplus
        self.create = entries.create
        self.open = opened.open
        self.read = opened.read
        self.write = opened.write
        self.flush = opened.flush
        self.release = opened.release
        self.fsync = durability.fsync
        self.history_view = state.history.view
        self.begin_turn = commits.begin_turn
        self.seal = commits.seal
        self.adopt = commits.adopt
        self.rollback = commits.rollback
        self.trim = warm.trim

    # -- requests that are rare ---------------------------------------------------------------------------------

    def resolve(self, path: bytes) -> Node | None:
        """Return the node at a path, ``b""`` being the root; symlinks are not followed."""
        return self._entries.resolve(path)

    def entries(self, directory: DirNode) -> list[tuple[bytes, Node]]:
        """Return a directory's entries by name."""
        return self._entries.entries(directory)

    def dirents(self, directory: DirNode) -> list[tuple[bytes, int, int]]:
        """Return a directory's names with inode numbers and kinds as in ``st_mode``, loading no node."""
        return self._entries.dirents(directory)

    def make(self, parent: DirNode, name: bytes, mode: int, uid: int, gid: int, target: bytes | None = None) -> Node:
        """Create a directory, FIFO or socket, as ``mode`` says, or a symlink if there is a target."""
        return self._entries.make(parent, name, mode, uid, gid, target)

    def make_device(self, parent: DirNode, name: bytes, mode: int, uid: int, gid: int, device: int) -> Node:
        """Create a device node of the kind that ``mode`` says. The kernel checks the permission."""
        return self._entries.make_device(parent, name, mode, uid, gid, device)

    def unlink(self, parent: DirNode, name: bytes) -> None:
        """Remove a name of anything but a directory."""
        self._entries.unlink(parent, name)

    def rmdir(self, parent: DirNode, name: bytes) -> None:
        """Remove an empty directory."""
        self._entries.rmdir(parent, name)

    def rename(self, old_dir: DirNode, old: bytes, new_dir: DirNode, new: bytes, flags: int = 0) -> None:
        """Give an entry another name; the flags are `RENAME_EXCHANGE` and `RENAME_NOREPLACE`."""
        self._entries.rename(old_dir, old, new_dir, new, flags)

    def link(self, node: Node, parent: DirNode, name: bytes) -> None:
        """Give a file one more name."""
        self._entries.link(node, parent, name)

    def set_mode(self, node: Node, mode: int, uid: int, gid: int) -> None:
        """Set permission bits and owner. No version is added if they are as before."""
        self._attributes.set_mode(node, mode, uid, gid)

    def set_times(self, node: Node, atime_ns: int, mtime_ns: int) -> None:
        """Set the times, epoch nanoseconds. Adds no version."""
        self._attributes.set_times(node, atime_ns, mtime_ns)

    def set_xattr(self, node: Node, name: bytes, value: bytes | None) -> None:
        """Set an extended attribute, or remove it (``None``). Changes nothing if the value is as before."""
        self._attributes.set_xattr(node, name, value)

    def truncate(self, node: FileNode, size: int, handle: Handle | None = None) -> None:
        """Set a file's size. Without a handle this adds a version."""
        self._open_files.truncate(node, size, handle)

    def allocate(self, handle: Handle, mode: int, offset: int, length: int) -> None:
        """Reserve, zero or deallocate a range as fallocate(2) does. A call that changes no byte adds no version."""
        self._open_files.allocate(handle, mode, offset, length)

    def history(self, path: str, *, hashed: bool = True) -> Sequence[Iteration]:
        """Return a path's iterations; see `chronicle.workspace.port.Workspace.history`."""
        return self.histories.history(path, hashed=hashed)

    def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path's content at an iteration; see `chronicle.workspace.port.Workspace.at`."""
        return self.histories.at(path, iteration)

    # -- what it is -------------------------------------------------------------------------------------------------

    @property
    def root(self) -> DirNode:
        """The root directory."""
        return self._state.names.root

    @property
    def names(self) -> Names:
        """The nodes in memory. A rollback replaces them."""
        return self._state.names

    @property
    def owner(self) -> tuple[int, int]:
        """User and group of entries that store none."""
        return self._state.owner

    @property
    def base(self) -> TreeRef:
        """The last tree that was adopted, or opened."""
        base = self.commits.base
        assert base is not None, "an opened layer has a base"
        return base

    @property
    def unreported(self) -> TreeRef | None:
        """Content of older layers beyond the base; ``None`` once a turn has begun, as the opener knows of it then."""
        return self.commits.unreported

    @property
    def sealed(self) -> TreeRef | None:
        """The last sealed tree, which alone can be adopted; the base if there is none since."""
        return self._state.sealed

    @property
    def changed(self) -> bool:
        """Whether anything differs from the last seal."""
        return self._state.changed

    @property
    def epoch(self) -> int:
        """The epoch it belongs to."""
        return self.commits.epoch

    @property
    def turn(self) -> int:
        """The turn that changes belong to."""
        return self._state.history.turn

    @property
    def next_number(self) -> int:
        """The number of the next data or undo file; no file has a greater one."""
        return self._files.next_number

    @property
    def log_end(self) -> int:
        """The length of the log, bytes: grows with every operation that was logged, until the next commit."""
        return self._log.end

    @property
    def usage(self) -> Usage:
        """How much the working tree holds."""
        return self._state.usage.usage

    def statfs(self) -> os.statvfs_result:
        """Return the figures of the file system that the layer is on, or of the quota where that is tighter."""
        figures = os.statvfs(self.directory)
        return limited(figures, self.quota, self.usage) if self.quota is not None else figures

    # -- limits and options -----------------------------------------------------------------------------------------

    @property
    def quota(self) -> Quota | None:
        """How much it may hold; ``None`` refuses nothing."""
        return self._state.usage.quota

    @quota.setter
    def quota(self, quota: Quota | None) -> None:
        self._state.usage.quota = quota

    @property
    def warm_bytes(self) -> int | None:
        """Bytes of committed content that may be kept in data files; ``None`` keeps everything."""
        return self._warm.limit_bytes

    @warm_bytes.setter
    def warm_bytes(self, limit_bytes: int | None) -> None:
        self._warm.limit_bytes = limit_bytes

    @property
    def beat(self) -> Callable[[], None]:
        """Progress callback of long reads."""
        return self._state.history.beat

    @beat.setter
    def beat(self, beat: Callable[[], None]) -> None:
        self._state.history.beat = beat

    # -- its life ---------------------------------------------------------------------------------------------------

    def replay(self, payloads: Sequence[bytes], now_ns: int, *, is_sealed: bool) -> tuple[set[int], list[bytes]]:
        """Apply the records of the log; see `chronicle.workspace.layer.replay.replay`.

        Args:
            payloads: the records after the last seal, or after the header.
            now_ns: dates repairs, epoch nanoseconds.
            is_sealed: whether they come after a seal, whose turn goes on.
        """
        if is_sealed:
            self._state.history.set_turn(self._state.commit.turn)
        return replay(self._applier, self._files, payloads, now_ns)

    def log_repair(self, records: list[bytes]) -> None:
        """Log what the replay repaired; see `Durability.log_repair`."""
        self._durability.log_repair(records)

    def restore(self, then: TreeRef | None, path: bytes = b"") -> Touched:
        """Make a path, or everything, what it was in a commit, in one step; see `chronicle.workspace.layer.restore`.

        Open handles read what their file holds then. With a quota, nothing is changed if it would be exceeded.

        Args:
            then: the commit; ``None`` for the time before the first one.
            path: what to restore, ``b""`` for everything.

        Raises:
            NotFound, InvalidInput, OSError, Corrupt, Unavailable: as `chronicle.workspace.layer.restore.plan`.
        """
        return self._restorer.restore(self.seal().tree_id, then, path)

    def move_to(self, ref: TreeRef) -> Touched:
        """Make the content a tree that was sealed on top of the base; see `CommitCycle.move_to`."""
        return self.commits.move_to(ref)

    def own_lock(self, fd: int) -> None:
        """Own the descriptor of the workspace's lock until the layer is closed."""
        self._lock_fd = fd

    def close(self) -> None:
        """Sync and close the layer; on disk it stays as it is."""
        self._open_files.release_all()
        try:
            self._durability.sync_all()
            self.trim()
        finally:
            self.close_unsynced()

    def close_unsynced(self) -> None:
        """Close the layer's files and release its lock without syncing, as the death of the process would."""
        self._chunks.close()
        self._log.close()
        self._files.close()
        if self._lock_fd >= 0:
            unlock(self._lock_fd)  # closing leaves it to a child that was forked meanwhile
            os.close(self._lock_fd)
            self._lock_fd = -1
