"""The writable layer of a workspace: the engine behind the fuse and api presentations.

It is built up in steps, each in a module of its own: `LayerState` (what operations do), `ContentLayer` (the bytes of
files), `EntryLayer` (names and attributes), `HistoryLayer` (reading old versions), and here what ends a turn: sealing,
adopting, rolling back. What was answered is in the local log, so it survives the death of the process.

A layer belongs to one thread. Nothing in it waits for anything but the disk and the blob store.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from chronicle.blobs.port import drop_cached
from chronicle.errors import InvalidInput
from chronicle.system.heap import give_back_all
from chronicle.system.locks import unlock
from chronicle.workspace.history.oplog import Gap, first_root, read_root, stored_operations
from chronicle.workspace.history.path_histories import path_history
from chronicle.workspace.layer.disk import log_records as records
from chronicle.workspace.layer.disk.log import LayerLog, position
from chronicle.workspace.layer.disk.log_records import Header, pack
from chronicle.workspace.layer.disk.replay import redo
from chronicle.workspace.layer.file_bytes import Handle
from chronicle.workspace.layer.history_reads import HistoryLayer
from chronicle.workspace.layer.names import KEPT_NODES, Names
from chronicle.workspace.layer.node import FileNode
from chronicle.workspace.layer.restore import plan
from chronicle.workspace.layer.seal import SealInput, put_seal
from chronicle.workspace.port import Usage
from chronicle.workspace.trees import nodes
from chronicle.workspace.trees.tree import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.blobs.buffer import Meanwhile
    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.clock import Clock
    from chronicle.ids import BlobId
    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.disk.undo import DataFile
    from chronicle.workspace.layer.restore import Touched
    from chronicle.workspace.port import TreeRef

__all__ = ["Handle", "Layer"]


class Layer(HistoryLayer):
    """A layer, open. Made by `chronicle.workspace.layer.opening.open_layer`.

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
        super().__init__(directory, blobs, reader, files, log, header, start, clock)
        self._header = header
        self._base = header.base
        self.unheard = header.recovered
        """What older layers held beyond the base, as long as it is not known that whoever opened this one was told."""
        self._base_commit = read_root(reader, header.base.oplog_id) if header.base is not None else first_root(0)
        self.names.next_ino = max(self.names.next_ino, header.next_ino)
        self._next_seq = max(self._next_seq, header.next_seq)
        self._sealed_at = log.end
        """Where in the log the records after the last seal begin."""
        self._sealed_numbers: dict[bytes, int] = {}
        """By path, the last numbers given out between the base and the last seal."""
        self._sealed_operations: tuple[BlobId, ...] = ()
        """The blobs of what was done between them."""
        self._sealed_moves: list[bytes] = []
        """Where directories were renamed from and to between them."""
        self._lock_fd = -1

    @property
    def base(self) -> TreeRef:
        """The last tree that was adopted, or opened."""
        assert self._base is not None, "an opened layer has a base"
        return self._base

    @property
    def sealed(self) -> TreeRef | None:
        """The last sealed tree, which alone can be adopted; the base if there is none since."""
        return self._sealed

    @property
    def has_base(self) -> bool:
        """Whether it has a base; it gets one when it is opened."""
        return self._base is not None

    @property
    def uncommitted(self) -> bool:
        """Whether something was sealed and not adopted."""
        return self._sealed != self._base

    @property
    def made_versions(self) -> bool:
        """Whether what was sealed and not adopted has versions, or had some that were undone."""
        return bool(self._sealed_operations)

    @property
    def epoch(self) -> int:
        """The epoch it belongs to."""
        return self._header.epoch

    @property
    def next_number(self) -> int:
        """What its next data or undo file is called; no file has a greater number."""
        return self._files.next_number

    def begin_turn(self, turn: int) -> None:
        """Say which turn the changes from now on belong to, and that what was recovered was heard of."""
        turn = max(turn, self._base_commit.committed_turn + 1)
        if turn != self.turn or self.unheard is not None:
            self._log.append(pack((records.TURN, turn)))
            self.do_turn(turn)
            self.unheard = None

    @property
    def changed(self) -> bool:
        """Whether anything differs from the last seal."""
        names = self.names
        return bool(names.root.changed or names.root_changed or self._records)

    def seal(self, meanwhile: Meanwhile | None = None) -> TreeRef:
        """Make the layer's content a tree; see `chronicle.workspace.port.Workspace.seal`.

        A workspace that never had a tree gets one. What is sealed need not stay in memory, and does not if it is much.

        Args:
            meanwhile: lets others look at the layer while this takes long. They may call what changes nothing, open
                files without truncating them, and release handles that wrote nothing.
        """
        changed = len(self._records)
        ref = self._seal(meanwhile)
        if self.names.shed_all() or changed > KEPT_NODES:
            self._give_back()
        return ref

    def _give_back(self) -> None:
        """Return memory to the system after many files were sealed.

        Cached blobs go too. They were cached while memory was full, so they are spread over all of it, and a few small
        objects keep the memory around them. They are few and can be read again.
        """
        drop_cached(self._reader)
        give_back_all()

    def _seal(self, meanwhile: Meanwhile | None) -> TreeRef:
        for node in list(self.modified.values()):
            self._settle(node)
            if node.dirty:
                self.names.mark_node(node)  # so that whatever is dirty is committed; mostly it is marked already
        is_of_this_turn = self._commit.turn == self.turn or not self.uncommitted
        if self._sealed is not None and not self.changed and is_of_this_turn:
            return self._sealed
        sealed = put_seal(self._blobs, self._seal_input(), meanwhile)
        clean = [
            (node.ino, node.data, content)
            for node, content in sealed.contents
            if node.data is not None and node.data.partial is None
        ]
        self._files.note_clean(clean)
        kept = {ino for ino, _, _ in clean}
        for ino in self.modified:
            if ino not in kept:
                self._files.forget_clean(ino)
        unsealed = self._log.end
        self._log.append(pack((records.SEALED, records.pack_ref(sealed.ref))))
        try:
            self._sync_log()
        except BaseException:
            self._log.cut(unsealed)  # what is logged from now on does not come after this seal
            raise
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
        for node, _ in sealed.contents:
            if node.data is not None and node.data.partial is not None:
                self._drop_part(node)
        self.floors = {}
        self.gaps = []
        self._sealed, self._commit = sealed.ref, sealed.commit
        self._grown_bytes = self._grown_files = 0
        self._sealed_numbers.update(sealed.numbers)
        self._sealed_operations = sealed.commit.operations
        self.trim()
        return sealed.ref

    def trim(self) -> None:
        """Remove data files that the blob store has too, as far as there are more than are to be kept.

        Those of files that are open or differ from what is stored stay.
        """
        if self.warm_bytes is None or self._files.warm.taken_bytes <= self.warm_bytes:
            return
        busy = {*self.modified, *(handle.node.ino for handle in self._handles)}
        self.drop_warm(self._files.warm.surplus(self.warm_bytes, busy))

    def _seal_input(self) -> SealInput:
        return SealInput(
            names=self.names,
            files=self._files,
            view=self._new_view(),
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
            grown=Usage(self._grown_bytes, self._grown_files),
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
        sealed = len(self._sealed_numbers)
        self._rotate(ref, later, self.names.next_ino, self._commit.next_seq, self._commit.turn)
        self._base_commit = self._commit
        if sealed > KEPT_NODES:
            self._give_back()
        self.leave_committed_turn()

    def leave_committed_turn(self) -> None:
        """Let changes belong to the turn after the base's, if nobody has said yet to which later one they do."""
        after = self._base_commit.committed_turn + 1
        if self.turn < after:
            self.do_turn(after)

    def restore(self, then: TreeRef | None, path: bytes = b"") -> Touched:
        """Make a path, or everything, what it was in a commit, in one step; see `chronicle.workspace.layer.restore`.

        Whoever has a file open reads what it holds now. With a quota, nothing is changed if it would be over it.

        Args:
            then: the commit; ``None`` for the time before the first one.
            path: what to restore, ``b""`` for everything.

        Raises:
            NotFound, InvalidInput, OSError, Corrupt, Unavailable: as `chronicle.workspace.layer.restore.plan`.
        """
        planned = plan(self, then, path, self._now())
        if planned.records:
            for node in planned.changed:  # while it may still fail; of what is not in the index nothing is believed
                self._files.forget_clean(node.ino)
            self._log.append_together([pack((records.TOGETHER, len(planned.records))), *planned.records])
            redo(self, self._files, planned.records)
            for node in planned.changed:
                if isinstance(node, FileNode):
                    self._read_anew(node)
        return planned.touched

    def numbers_given(self) -> tuple[dict[bytes, int], list[Gap], int]:
        """Return which numbers of versions are not to be given out again if everything since the base is given up.

        Returns:
            floors by path, gaps, and the next sequence number.
        """
        floors = dict(self.floors)
        view = self._view()
        for path in self._records:
            floors[path] = view.floor(path)
        for path, number in self._sealed_numbers.items():
            floors[path] = max(number, floors.get(path, 0))
        moves = Counter(self._sealed_moves + self._moves)
        # Those of the commit may have come with what was sealed since the base.
        gaps = [*self._commit.gaps[len(self._base_commit.gaps) :], *self.gaps]
        gaps += [Gap(path, self._next_seq, count) for path, count in moves.items()]
        return floors, gaps, max(self._next_seq + 1, self._base_commit.next_seq)

    def rollback(self) -> None:
        """Give up everything since the base; see `chronicle.workspace.port.Workspace.rollback`.

        Open handles answer ESTALE from then on. What the kernel has cached is the caller's to drop.

        Raises:
            OSError: the disk failed. Either nothing was given up, or all of it and that may not be on disk.
        """
        floors, gaps, next_seq = self.numbers_given()
        names = Names(self._reader, self._base_commit, self._owner)
        names.next_ino = max(self.names.next_ino, names.next_ino)
        # In this order, for a crash or an error in between: what changed is taken out of the cache index while the log
        # still says that it did; nothing else changes before the new log is there; the files go when no log needs them.
        for ino in {*self.modified, *(handle.node.ino for handle in self._handles if handle.node.nlink == 0)}:
            self._files.forget_clean(ino)
        self._rotate(self._base, records.pack_floors(floors, gaps), names.next_ino, next_seq, self.turn)
        changed = self._cut_off()
        self._start_at(self._base, self._base_commit, names)
        self.floors, self.gaps, self._next_seq = floors, gaps, next_seq
        for data in changed:
            for held in data.versions:
                held.content = None  # its id may be known; the blob store does not have it
            self._files.drop_when_synced(data)  # the old log, which a loss of power could bring back, needs them
        self._sync_log()

    def _cut_off(self) -> list[DataFile]:
        """Let handles fail from now on, and return the data files that hold what was changed since the last seal."""
        for handle in self._handles:
            handle.stale = True
            if handle.node.nlink == 0:
                self.modified[handle.node.ino] = handle.node
        self._handles.clear()
        changed = [node.data for node in self.modified.values() if node.data is not None]
        return self._retired + changed

    def _rotate(self, base: TreeRef | None, carried: list[bytes], next_ino: int, next_seq: int, turn: int) -> None:
        """Put a new log with another base in the place of the old one, in one step.

        Args:
            base: what it says that the layer stands on.
            carried: the records that come after the header.
            next_ino: the next inode number before them.
            next_seq: the counter before them.
            turn: the turn before them.

        Raises:
            OSError: it could not be written. Nothing has changed, on disk or in memory.
        """
        header = Header(
            workspace_id=self._header.workspace_id,
            epoch=self._header.epoch,
            base=base,
            turn=turn,
            next_ino=next_ino,
            next_seq=next_seq,
            next_number=self._files.next_number,
            owner=self._owner,
            recovered=self.unheard,
        )
        first = header.encode()
        old = self._log
        self._log = LayerLog.create(self.directory / "log", [first, *carried])
        self._sealed_at = position([first])
        self._header, self._base = header, base
        self._sealed_numbers = {}
        self._sealed_operations = ()
        self._sealed_moves = []
        with suppress(OSError):  # nobody reads it any more
            old.close()

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
            # Not from the operations alone: what was rolled back before the seal is in the histories only.
            reader, histories = self._reader, self._commit.histories
            for path, _, _ in nodes.diff(reader, self._base_commit.histories, histories):
                known = path_history(reader, histories, path)
                if known is not None:
                    self._sealed_numbers[path] = known.last
            view = self._view()
            for operation in stored_operations(reader, self._commit):
                if operation.source is not None and operation.op == "rename":
                    record = view.find(operation.path, operation.iteration)
                    if record is not None and record.kind is Kind.DIR:
                        self._sealed_moves += [operation.path, operation.source]

    def close(self) -> None:
        """Let go of the layer; it stays on disk as it is, and survives the loss of power from now on."""
        for handle in list(self._handles):
            self.release(handle)
        try:
            self._sync_all()
            self.trim()
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Let go of the layer's files and of its lock; it stays on disk as the death of the process would leave it."""
        self._chunks.close()
        self._log.close()
        self._files.close()
        if self._lock_fd >= 0:
            unlock(self._lock_fd)  # closing leaves it to a child that was forked meanwhile
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _sync_all(self) -> None:
        """Make everything that was changed since the last seal survive the loss of power, as unmounting a disk does."""
        changed = [(node, node.data) for node in self.modified.values() if node.data is not None]
        for _, data in changed:
            self._files.sync_data(data)
        self._files.sync_names()
        for node, _ in changed:
            self._note_synced(node)
        self._sync_log()

    def note_mended(self, records_: list[bytes]) -> None:
        """Log what was done about a loss of power, so that it is done again whenever the log is read back."""
        self._log.append_all(records_)
        self._files.sync_names()
        self._sync_log()

    def keep_lock(self, fd: int) -> None:
        """Hold a lock's descriptor until `close`."""
        self._lock_fd = fd
