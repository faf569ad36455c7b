"""Seal, adopt, move and roll back: how the changes of a turn become a commit, or are given up.

The *base* is the last commit that was adopted; the *sealed* tree is the last one that was made of the layer's content.
Sealing moves the layer's reference point, adopting moves the base. Order of writes, each step durable before the next:

* seal: the blobs, the clean entries of the cache index, the ``SEALED`` record. Only then the state moves to the seal,
  and data files that only its versions needed are removed.
* adopt: a new log with the new base and the records after the seal replaces the old one.
* move to another commit on the base: changed inodes leave the cache index; a new log with the base and that commit as
  the last seal replaces the old one; then the state follows, which reads nothing.
* roll back: changed inodes leave the cache index; a new log with the old base replaces the old one; the state is reset;
  changed data files are removed when the new log is on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.blobs.port import drop_cached
from chronicle.blobs.readers import ProgressReader
from chronicle.errors import InvalidInput
from chronicle.system.heap import collect_and_trim
from chronicle.workspace.history.oplog import first_root, read_root, read_root_on
from chronicle.workspace.layer.disk import log_records as records
from chronicle.workspace.layer.disk.log import position
from chronicle.workspace.layer.disk.log_records import Header, pack
from chronicle.workspace.layer.sealing.seal import SealBase, put_seal
from chronicle.workspace.layer.state.issued_numbers import IssuedNumbers
from chronicle.workspace.layer.state.names import MAX_CLEAN_NODES, Names
from chronicle.workspace.layer.state.names_move import plan_move
from chronicle.workspace.layer.state.touched import Touched

if TYPE_CHECKING:
    from chronicle.blobs.buffer import Interleaving
    from chronicle.blobs.port import BlobStore
    from chronicle.workspace.history.oplog import Gap
    from chronicle.workspace.layer.disk.data_file import DataFile
    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.disk.log import LayerLog
    from chronicle.workspace.layer.durability import Durability
    from chronicle.workspace.layer.file_versions import FileVersions
    from chronicle.workspace.layer.open_files import OpenFiles
    from chronicle.workspace.layer.sealing.seal import Sealed
    from chronicle.workspace.layer.state.issued_numbers import ReservedNumbers
    from chronicle.workspace.layer.state.layer_state import LayerState
    from chronicle.workspace.layer.warm_cache import WarmCache
    from chronicle.workspace.port import TreeRef

__all__ = ["CommitCycle"]


class CommitCycle:
    """Moves a layer from base to base.

    Args:
        state: the layer's state.
        store: takes the blobs of a seal.
        files: the layer's files on disk.
        log: the layer's log, opened and not yet replayed.
        header: its first record.
        durability: syncs.
        versions: adds the versions of files that are open for writing at a seal.
        open_files: the open handles.
        warm: the clean data files.
    """

    def __init__(
        self,
        state: LayerState,
        store: BlobStore,
        files: LayerFiles,
        log: LayerLog,
        header: Header,
        durability: Durability,
        versions: FileVersions,
        open_files: OpenFiles,
        warm: WarmCache,
    ) -> None:
        self._state = state
        self._history = state.history
        self._store = store
        self._files = files
        self._log = log
        self._header = header
        self._durability = durability
        self._versions = versions
        self._open_files = open_files
        self._warm = warm
        self.base = header.base
        """The last tree that was adopted, or opened; ``None`` until a new layer is first sealed and adopted."""
        base = header.base
        self._base_commit = read_root(state.reader, base.oplog_id) if base is not None else first_root(0)
        self.unreported = header.recovered
        """Content of older layers beyond the base; ``None`` once a turn has begun, as the opener knows of it then."""
        state.names.next_ino = max(state.names.next_ino, header.next_ino)
        self._history.next_seq = max(self._history.next_seq, header.next_seq)
        self._sealed_at = log.end
        """Where in the log the records after the last seal begin."""
        self._issued = IssuedNumbers()
        """Numbers that were given out between the base and the last seal."""
        self._seq_after_seal = self._history.next_seq
        """The sequence number from which on the records after the last seal are numbered."""

    @property
    def epoch(self) -> int:
        """The epoch that the layer belongs to."""
        return self._header.epoch

    @property
    def has_uncommitted_seal(self) -> bool:
        """Whether something was sealed and not adopted."""
        return self._state.sealed != self.base

    @property
    def has_uncommitted_versions(self) -> bool:
        """Whether what was sealed and not adopted has versions, or had some that were rolled back."""
        return bool(self._issued.operations)

    # -- turns ------------------------------------------------------------------------------------------------------

    def begin_turn(self, turn: int) -> None:
        """Assign the changes from now on to a turn; the caller knows of what was recovered."""
        turn = max(turn, self._base_commit.committed_turn + 1)
        if turn != self._history.turn or self.unreported is not None:
            self._log.append(pack((records.TURN, turn)))
            self._history.set_turn(turn)
            self.unreported = None

    def leave_committed_turn(self) -> None:
        """Assign changes to the turn after the base's, unless a later one was begun."""
        after = self._base_commit.committed_turn + 1
        if self._history.turn < after:
            self._history.set_turn(after)

    # -- seal -------------------------------------------------------------------------------------------------------

    def seal(self, interleaving: Interleaving | None = None) -> TreeRef:
        """Make the layer's content a tree; see `chronicle.workspace.port.Workspace.seal`.

        A workspace that never had a tree gets one. What was sealed need not stay in memory; if it is much, it does not.

        Args:
            interleaving: serves other callers while this takes long. They may call what changes nothing, open files
                without truncating them, and release handles that wrote nothing.

        Raises:
            Unavailable: the store could not be reached, or took too long; the layer is unchanged.
            OSError: the disk failed; nothing was sealed.
        """
        changed = len(self._history.records)
        ref = self._seal(interleaving)
        if self._state.names.evict_clean() or changed > MAX_CLEAN_NODES:
            self._release_memory()
        return ref

    def _seal(self, interleaving: Interleaving | None) -> TreeRef:
        state = self._state
        for node in list(state.modified.values()):
            self._versions.add_missing(node)
            if node.dirty:
                state.names.mark_node_changed(node)  # so that every dirty file is committed; most are marked already
        is_of_this_turn = state.commit.turn == self._history.turn or not self.has_uncommitted_seal
        if state.sealed is not None and not state.changed and is_of_this_turn:
            return state.sealed
        base = SealBase(self.base, self._base_commit, self._issued.operations)
        sealed = put_seal(self._store, self._files, state, base, interleaving)
        self._index_clean(sealed)
        self._log_seal(sealed.ref)
        self._take(sealed)
        self._warm.trim()
        return sealed.ref

    def _index_clean(self, sealed: Sealed) -> None:
        """Enter the data files that the blob store now has into the cache index, and take the others out."""
        clean = [
            (node.ino, node.data, content)
            for node, content in sealed.tree.contents.items()
            if node.data is not None and node.data.partial is None and node.ino not in self._state.names.renumbered
        ]
        self._files.index_clean(clean)
        kept = {ino for ino, _, _ in clean}
        for ino in self._state.modified:
            if ino not in kept:
                self._files.unindex(ino)

    def _log_seal(self, ref: TreeRef) -> None:
        unsealed = self._log.end
        self._log.append(pack((records.SEALED, records.pack_ref(ref))))
        try:
            self._durability.sync_log()
        except BaseException:
            self._log.cut(unsealed)  # later records must not come after this seal
            raise
        self._sealed_at = self._log.end

    def _take(self, sealed: Sealed) -> None:
        """Make a durable seal the state's reference point, and remove the data files that only its versions needed."""
        state = self._state
        for directory, (subtree, attrs) in sealed.tree.directories.items():
            for name in directory.changed:
                if directory.children.get(name, directory) is None:
                    del directory.children[name]
            directory.changed.clear()
            directory.tree, directory.attrs = subtree, attrs
        for node, content in sealed.tree.contents.items():
            node.content, node.dirty = content, False
        state.names.root_changed = False
        state.names.links = sealed.commit.links
        self._issued.note_seal(sealed.numbers, sealed.commit.operations, self._history.moves)
        for data in state.retired:
            self._files.drop_data(data)
        for node in state.modified.values():
            if node.data is not None:
                self._files.drop_undos(node.data)
                node.data.synced = False
                node.guarded = True
        state.note_seal(sealed.ref, sealed.commit)
        for node in sealed.tree.contents:
            part = node.data
            if part is not None and part.partial is not None:  # the blob store has all that it stood for
                node.data, node.sparse_blocks = None, None
                self._open_files.reopen(node)
                self._files.drop_data(part)
        self._seq_after_seal = self._history.next_seq

    def _release_memory(self) -> None:
        """Return memory to the system after many files were sealed.

        Cached blobs go too: they were cached while memory was full, so they are spread over all of it, and a few small
        objects keep the memory around them. They are few and can be read again.
        """
        drop_cached(self._state.reader)
        collect_and_trim()

    # -- adopt ------------------------------------------------------------------------------------------------------

    def adopt(self, ref: TreeRef) -> None:
        """Make a sealed tree the base; see `chronicle.workspace.port.Workspace.adopt`.

        Raises:
            InvalidInput: it is not the last seal.
            OSError: the disk failed; the base is as it was.
        """
        state = self._state
        if ref == self.base:
            return
        if ref != state.sealed:
            raise InvalidInput(f"tree {ref.tree_id} is not the one sealed last; only that can be adopted")
        later = self._log.frames_since(self._sealed_at)
        sealed = len(self._issued)
        self._rotate(ref, later, state.names.next_ino, self._seq_after_seal, state.commit.turn)
        self._base_commit = state.commit
        if sealed > MAX_CLEAN_NODES:
            self._release_memory()
        self.leave_committed_turn()

    def resume(self, sealed_at: int, *, adopt: bool) -> None:
        """Take over a seal of an earlier process that did not live to adopt it. Called once, after the replay.

        Args:
            sealed_at: where in the log the records after the seal begin.
            adopt: whether it was committed.
        """
        state = self._state
        assert state.sealed is not None
        self._sealed_at = sealed_at
        if adopt:
            self.adopt(state.sealed)
        elif state.sealed != self.base:
            self._issued.read(state.reader, self._base_commit, state.commit)

    # -- roll back --------------------------------------------------------------------------------------------------

    def reserved_numbers(self) -> ReservedNumbers:
        """Return which numbers must not be given out again if everything since the base is rolled back."""
        return self._issued.reserved_numbers(self._history, self._base_commit, self._state.commit)

    def reserve_numbers(self, floors: dict[bytes, int], gaps: list[Gap]) -> None:
        """Never give out the version numbers that older layers gave out."""
        self._history.floors.update(floors)
        self._history.gaps.extend(gaps)

    def rollback(self) -> None:
        """Give up everything since the base; see `chronicle.workspace.port.Workspace.rollback`.

        Open handles answer ESTALE from then on. What the kernel has cached is the caller's to drop.

        Raises:
            OSError: the disk failed. Either nothing was given up, or all of it and that may not be on disk.
        """
        state, history = self._state, self._history
        floors, gaps, next_seq = self.reserved_numbers()
        names = Names(state.reader, self._base_commit, state.owner)
        names.next_ino = max(state.names.next_ino, names.next_ino)
        # In this order, for a crash or an error in between: what changed leaves the cache index while the log still
        # says that it did; nothing else changes before the new log is there; the files go when no log needs them.
        modified = state.modified | {node.ino: node for node in self._open_files.unnamed()}
        for ino in modified:
            self._files.unindex(ino)
        self._rotate(self.base, records.pack_floors(floors, gaps), names.next_ino, next_seq, history.turn)
        dropped = [*state.retired, *(node.data for node in modified.values() if node.data is not None)]
        self._open_files.make_stale()
        state.reset(self.base, self._base_commit, names)
        history.floors, history.gaps, history.next_seq = floors, gaps, next_seq
        self._drop_versions(dropped)
        self._durability.sync_log()

    # -- move -------------------------------------------------------------------------------------------------------

    def move_to(self, ref: TreeRef) -> Touched:
        """Make the content a tree that was sealed on top of the base; see `chronicle.workspace.port.Workspace.move_to`.

        Open handles go on: a file that is in the tree has its content, another one that of before, without a name. What
        the kernel has cached is the caller's to drop.

        Returns:
            what changed.

        Raises:
            NotFound, Corrupt, Unavailable: a blob of what differs could not be read. Nothing was changed.
            Conflict: it was sealed on top of another commit.
            OSError: the disk failed; nothing was changed.
        """
        state, history = self._state, self._history
        if ref == state.sealed and not state.changed:
            return Touched([], [])
        assert self.base is not None, "an opened layer has a base"
        reader = ProgressReader(state.reader, history.beat)
        target = self._base_commit if ref == self.base else read_root_on(reader, ref, self.base)
        if target.is_first:  # the first tree of an earlier epoch
            ref, target = self.base, self._base_commit
        move = plan_move(reader, state.names, state.commit, target)
        floors, gaps, next_seq = self._issued.reserved_numbers_at(reader, history, state.commit, target)
        issued = self._issued.at(reader, self._base_commit, state.commit, target)
        seal = [pack((records.SEALED, records.pack_ref(ref)))] if ref != self.base else []
        turn = [pack((records.TURN, history.turn))] if seal and history.turn != target.turn else []
        modified = state.modified | {node.ino: node for node in self._open_files.unnamed()}
        for ino in modified:  # in this order: as `rollback`
            self._files.unindex(ino)
        next_ino = max(state.names.next_ino, target.next_ino)
        self._rotate(self.base, [*seal, *turn, *records.pack_floors(floors, gaps)], next_ino, next_seq, history.turn)
        self._sealed_at = position([self._header.encode(), *seal])
        self._issued = issued
        files = move.changed_files()
        gone = move.apply()
        retired = state.retired
        state.move(ref, target, gone)
        history.floors, history.gaps, history.next_seq = floors, gaps, next_seq
        self._files.drop_clean([node.ino for node, _ in files if node.ino not in modified])
        for node in modified.values():
            if node.data is not None and not (node.nlink == 0 and node.opens):
                retired.append(node.data)
                node.data = None
        for node, content in files:
            node.set_stored(content)
            self._open_files.reopen(node)
        self._drop_versions(retired)
        return move.touched._replace(open_files=self._open_files.paths_of(node for node, _ in files))

    def _drop_versions(self, dropped: list[DataFile]) -> None:
        """Remove data files with discarded versions, once no loss of power can bring back the log that names them."""
        for data in dropped:
            for held in data.versions:
                held.content = None  # its id may be known, but the blob store does not have it
            self._files.drop_after_log_sync(data)

    # -- the log ----------------------------------------------------------------------------------------------------

    def _rotate(self, base: TreeRef | None, carried: list[bytes], next_ino: int, next_seq: int, turn: int) -> None:
        """Replace the log by one with another base, atomically.

        Args:
            base: the base that its header names.
            carried: the records after the header.
            next_ino: the next inode number before them.
            next_seq: the next sequence number before them.
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
            owner=self._state.owner,
            recovered=self.unreported,
        )
        first = header.encode()
        self._log.replace([first, *carried])
        self._sealed_at = position([first])
        self._header, self.base = header, base
        self._issued.clear()
        self._seq_after_seal = next_seq
