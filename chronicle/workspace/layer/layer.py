"""The writable layer of a workspace, the engine behind the fuse and api presentations.

`Layer` is a facade. It builds the parts of a layer around one log and one state, and lends their methods:

* `Entries`, `Attributes`, `OpenFiles` and `Durability` carry out requests;
* `HistoryReader` reads versions;
* `CommitCycle` seals, adopts and rolls back, `Restorer` goes back to an earlier commit.

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

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.clock import Clock
    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.disk.log import LayerLog
    from chronicle.workspace.layer.disk.log_records import Header
    from chronicle.workspace.layer.restore import Touched
    from chronicle.workspace.layer.state.names import Names
    from chronicle.workspace.layer.state.node import DirNode
    from chronicle.workspace.port import Quota, TreeRef, Usage

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
        attributes = Attributes(applier, log, now, versions)
        self._open_files = opened = OpenFiles(
            applier, self._chunks, now, data, versions, attributes, warm, self._handles
        )
        entries = Entries(applier, files, log, now, versions, opened)
        self._durability = durability = Durability(directory, state, files, log, data)
        histories = HistoryReader(state, files)
        self.commits = commits = CommitCycle(state, blobs, files, log, header, durability, versions, opened, warm)
        self._restorer = Restorer(applier, files, log, now, opened)

        # The parts' own methods, bound: a request costs no further call.
        self.node = entries.node
        self.lookup = entries.lookup
        self.resolve = entries.resolve
        self.entries = entries.entries
        self.dirents = entries.dirents
        self.forget = entries.forget
        self.evict_surplus = entries.evict_surplus
        self.create = entries.create
        self.make = entries.make
        self.make_device = entries.make_device
        self.unlink = entries.unlink
        self.rmdir = entries.rmdir
        self.rename = entries.rename
        self.link = entries.link
        self.set_mode = attributes.set_mode
        self.set_times = attributes.set_times
        self.set_xattr = attributes.set_xattr
        self.open = opened.open
        self.read = opened.read
        self.write = opened.write
        self.truncate = opened.truncate
        self.allocate = opened.allocate
        self.flush = opened.flush
        self.release = opened.release
        self.fsync = durability.fsync
        self.history_view = state.history.view
        self.history = histories.history
        self.iterations = histories.iterations
        self.at = histories.at
        self.version = histories.version
        self.last_version = histories.last_version
        self.kinds_of = histories.kinds_of
        self.has_short_history = histories.has_short_history
        self.had_entries = histories.had_entries
        self.names_with_history = histories.names_with_history
        self.operations = histories.operations
        self.open_version = histories.open_version
        self.content_id = histories.content_id
        self.begin_turn = commits.begin_turn
        self.seal = commits.seal
        self.adopt = commits.adopt
        self.rollback = commits.rollback
        self.trim = warm.trim

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
        """What older layers held beyond the base, until a turn is begun: then whoever opened the layer knows of it."""
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

    # -- what it is told --------------------------------------------------------------------------------------------

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
