"""The dir presentation: a workspace in a plain directory, versioned per turn by scanning it.

For machines without FUSE. The directory holds all files; a scan at the end of a turn finds the changes
(`chronicle.workspace.dir.scan`). Trees, histories and ids are those of the other presentations. Not possible are
versions within a turn and the revocation of handles: after a rollback, handles that a process still has open refer to
files that are no longer in the directory, or have the content from before the turn.

Beside the directory are the manifest of the last scan and the record of its ownership
(`chronicle.workspace.dir.manifest`). If the manifest is lost or damaged, the directory is scanned again in full: only
the numbers of versions that were rolled back are lost with it.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, BinaryIO

from chronicle.blobs.buffer import BlobBuffer, PassingBuffer
from chronicle.blobs.readers import CachingReader
from chronicle.clock import SystemClock
from chronicle.errors import Conflict, Corrupt, InvalidInput, OverQuota, StaleEpoch
from chronicle.workspace.dir.manifest import Manifest, Ownership, committed_index, make_durably
from chronicle.workspace.dir.restore import check_rights, restore
from chronicle.workspace.dir.scan import HIDDEN, Index, scan
from chronicle.workspace.dir.seal import DirState, commit_scan, known_inos, usage_of
from chronicle.workspace.history.oplog import OplogRoot, first_root, read_root, read_root_on
from chronicle.workspace.history.path_histories import decode_history
from chronicle.workspace.history.view import HistoryView
from chronicle.workspace.layer.history_reader import iterations_of, open_at
from chronicle.workspace.layer.workspace_home import lock_workspace, unlock_workspace, workspace_home
from chronicle.workspace.port import Opened, Quota
from chronicle.workspace.trees import nodes, tree
from chronicle.workspace.trees.tree import EMPTY, Kind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.clock import Clock
    from chronicle.ids import BlobId
    from chronicle.workspace.port import Iteration, LayerSpec, TreeRef

__all__ = ["DirWorkspace", "open_dir_workspace"]

_log = logging.getLogger(__name__)


def open_dir_workspace(
    spec: LayerSpec, blobs: BlobStore, root: Path, clock: Clock, *, shown_at: Path | None = None
) -> Opened:
    """Open a workspace as a plain directory.

    Args:
        spec: which workspace, from which base, under which epoch.
        blobs: the blob store.
        root: the directory; created if missing. One that is not empty must be the workspace's own.
        clock: gives the time.
        shown_at: the value of `Workspace.root`, such as a symlink to ``root`` that the caller creates; else ``root``.

    Raises:
        InvalidInput: the workspace's id is malformed, or ``root`` has other content.
        StaleEpoch: a newer epoch has opened it.
        Conflict: another process has the workspace open.
        Corrupt: the manifest of an older version cannot be read.
        UnsupportedFormat: it was written by a newer version.
        Unavailable: the blob store could not be reached.
    """
    home = workspace_home(spec)
    make_durably(home)
    lock = lock_workspace(home)
    try:
        return _open(spec, blobs, root, clock, home, lock, shown_at)
    except BaseException:
        unlock_workspace(lock)
        raise


def _open(
    spec: LayerSpec, blobs: BlobStore, root: Path, clock: Clock, home: Path, lock: int, shown_at: Path | None
) -> Opened:
    where = os.fsencode(root.absolute())
    ownership = Ownership.load(home)
    manifest = _load_manifest(home, ownership is not None)
    lacks_index = False
    if manifest is None:
        if ownership is None:
            _check_empty(root)
            manifest = Manifest(where, spec.epoch, spec.base, spec.base, complete=spec.base is None)
        else:
            manifest = Manifest(ownership.root, ownership.epoch, spec.base, spec.base, ownership.complete)
            lacks_index = ownership.complete
    if manifest.epoch > spec.epoch:
        raise StaleEpoch(spec.epoch, manifest.epoch)
    if manifest.root != where:
        if manifest.complete and os.path.isdir(manifest.root):
            _check_empty(root)
            root.parent.mkdir(parents=True, exist_ok=True)
            if root.exists():
                root.rmdir()
            os.rename(manifest.root, where)
        manifest.root = where
    if not os.path.isdir(where):  # not a removal of all files: the directory was lost
        manifest.complete = lacks_index = False
    root.mkdir(parents=True, exist_ok=True)
    workspace = DirWorkspace(root, blobs, manifest, home, lock, spec.turn, clock)
    recovered = workspace.resume(spec, lacks_index=lacks_index)
    workspace.quota = spec.quota
    workspace.shown_at = shown_at
    return Opened(workspace, recovered)


def _load_manifest(home: Path, is_owned: bool) -> Manifest | None:
    """Return the manifest; None if there is none, or it is damaged and the ownership is recorded."""
    try:
        return Manifest.load(home)
    except Corrupt as error:
        if not is_owned:
            raise Corrupt(
                f"{error}, and the ownership of the directory is not recorded; "
                f"move its content away and remove {home}: it is then restored from the last commit"
            ) from error
        _log.info("%s: the directory is scanned in full", error)
        return None


def _check_empty(root: Path) -> None:
    if root.is_dir():
        crowded = any(name != HIDDEN for name in os.listdir(os.fsencode(root)))
    else:
        crowded = root.exists() or root.is_symlink()
    if crowded:
        raise InvalidInput(f"{root} has content that is not this workspace's; name an empty directory")


class DirWorkspace:
    """A `chronicle.workspace.port.Workspace` that is a plain directory. Made by `open_dir_workspace`."""

    def __init__(
        self, root: Path, blobs: BlobStore, manifest: Manifest, home: Path, lock: int, turn: int, clock: Clock
    ) -> None:
        self._root = root
        self._blobs = blobs
        self._reader = CachingReader(blobs)
        self._manifest = manifest
        self._home = home
        self._lock = lock
        self._turn = turn
        self._clock = clock
        self.quota: Quota | None = None
        """Its limits at each seal."""
        self.shown_at: Path | None = None
        """The value of `root`, if it is not the directory itself."""
        self._owner = os.geteuid(), os.getegid()
        self._set_sealed(manifest.sealed)

    def _set_sealed(self, sealed: TreeRef | None) -> None:
        """Set the last seal."""
        self._manifest.sealed = sealed
        self._commit = self._load(sealed)
        self._inos = known_inos(self._reader, self._commit)

    def _load(self, ref: TreeRef | None) -> OplogRoot:
        return read_root(self._reader, ref.oplog_id) if ref is not None else first_root(self._now_ns())

    def _now_ns(self) -> int:
        return time.time_ns() if isinstance(self._clock, SystemClock) else self._clock.now_ms() * 1_000_000

    def resume(self, spec: LayerSpec, *, lacks_index: bool) -> TreeRef | None:
        """Continue under an epoch, from a base; return the uncommitted content, durable, if it has to be replaced.

        The content of a commit of a turn that is to begin again is uncommitted, too: the journal has lost it. Every
        opening returns it again until a turn is begun.

        Args:
            spec: which epoch and base.
            lacks_index: the directory is complete, but its manifest was lost; all differences from the base count as
                changes since.
        """
        manifest = self._manifest
        if lacks_index:
            manifest.index = committed_index(self._reader, self._commit)
        if manifest.complete:
            if manifest.sealed == spec.base:
                manifest.base = spec.base  # it was committed, but its process died before `adopt`
            known = manifest.base == spec.base or (spec.base is None and self._is_first())
            if manifest.epoch != spec.epoch or not known:
                own, is_ahead = manifest.base, self._commit.committed_turn >= spec.turn
                self._turn = 0  # its content was written in the turn after the base's
                sealed = self.seal()
                self._turn = spec.turn
                content = spec.base.tree_id if spec.base is not None else EMPTY
                if (sealed != own or is_ahead) and sealed.tree_id != content:
                    manifest.recovered = sealed
                if sealed != spec.base:
                    self._keep_floors_since(manifest.base)
                    manifest.base = spec.base
                    self._restore(spec.base)
        else:
            manifest.index = {}
            self._keep_floors_since(manifest.base)
            manifest.base = spec.base
            self._restore(spec.base)
        manifest.epoch = spec.epoch
        if manifest.base is None:
            self.adopt(self._commit_found({}))  # the empty tree: files that exist already are not committed
        manifest.save(self._home)
        Ownership(manifest.root, manifest.epoch, manifest.complete).save(self._home)
        return manifest.recovered

    def _is_first(self) -> bool:
        """Whether the base is the empty tree that a new workspace starts with."""
        base = self._load(self._manifest.base)
        return base.previous is None and base.tree_id == EMPTY

    # -- the port -------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The directory, or a symlink to it."""
        return self.shown_at or self._root

    @property
    def base(self) -> TreeRef:
        """The last adopted (or opened) tree."""
        assert self._manifest.base is not None, "an opened workspace has a base"
        return self._manifest.base

    def begin_turn(self, turn: int) -> None:
        """Set the turn that changes belong to from now on, and acknowledge what was recovered."""
        self._turn = turn
        if self._manifest.recovered is not None:
            self._manifest.recovered = None
            self._manifest.save(self._home)

    def seal(self) -> TreeRef:
        """Scan the directory and store it as a tree; see `chronicle.workspace.port.Workspace.seal`.

        Costs a stat of every file, and reading those that changed.

        Raises:
            OverQuota: its usage exceeds the quota. The directory is unchanged, and its content is durable.
            InvalidInput: an entry is another user's and cannot be read, or the directory is gone.
        """
        manifest = self._manifest
        buffer = BlobBuffer(self._blobs)
        try:
            found = scan(manifest.root, manifest.index, buffer, self._owner, time.time_ns())
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InvalidInput(f"the workspace's directory {self._root} is gone; a rollback restores it") from error
        if manifest.sealed is not None and _same(found, manifest.index) and not self._is_of_another_turn():
            manifest.index = found
            self._check_quota(manifest.sealed)
            return manifest.sealed
        ref = self._commit_found(found, buffer)
        self._check_quota(ref)
        return ref

    def _next_turn(self) -> int:
        """Return the turn that changes belong to."""
        return max(self._turn, self._load(self._manifest.base).committed_turn + 1)

    def _is_of_another_turn(self) -> bool:
        """Whether the last seal was not committed, and would now belong to another turn than the one it has."""
        return self._manifest.sealed != self._manifest.base and self._commit.turn != self._next_turn()

    def _commit_found(self, found: Index, buffer: BlobBuffer | None = None) -> TreeRef:
        """Store the result of a scan as a commit, durably.

        Args:
            found: the result.
            buffer: has its contents.
        """
        manifest = self._manifest
        buffer = buffer if buffer is not None else BlobBuffer(self._blobs)
        state = DirState(
            index=manifest.index,
            inos=self._inos,
            commit=self._commit,
            base=manifest.base,
            base_commit=self._load(manifest.base),
            floors=manifest.floors,
            turn=self._next_turn(),
            now_ns=self._now_ns(),
        )
        ref, commit, inos = commit_scan(buffer, state, found)
        buffer.flush()
        manifest.index, manifest.sealed, manifest.floors = found, ref, {}
        self._commit, self._inos = commit, inos
        manifest.save(self._home)
        return ref

    def _check_quota(self, ref: TreeRef) -> None:
        if self.quota is None:
            return
        base = self._load(self._manifest.base)
        reason = self.quota.exceeded(usage_of(self._manifest.index), base.usage) or self._too_large(base.tree_id)
        if reason is not None:
            raise OverQuota(reason, ref)

    def _too_large(self, base: BlobId) -> str | None:
        """Return a message about a file above the limit that has grown; ``None`` without any."""
        assert self.quota is not None
        limit = self.quota.file_bytes
        if limit is None:
            return None
        for path, seen in self._manifest.index.items():
            content = seen.entry.content
            if content is not None and content.size > limit:
                was = tree.entry_at(self._reader, base, path)
                if was is None or was.content is None or was.content.size < content.size:
                    return f"{os.fsdecode(path)} has {content.size} bytes and a file may have {limit}"
        return None

    def adopt(self, ref: TreeRef) -> None:
        """Make a sealed tree the base; see `chronicle.workspace.port.Workspace.adopt`.

        Raises:
            InvalidInput: it is not the last seal.
        """
        if ref == self._manifest.base:
            return
        if ref != self._manifest.sealed:
            raise InvalidInput(f"tree {ref.tree_id} is not the one sealed last; only that can be adopted")
        self._manifest.base = ref
        self._manifest.save(self._home)

    def rollback(self) -> None:
        """Restore the base in the directory; see `chronicle.workspace.port.Workspace.rollback`."""
        self._keep_floors_since(self._manifest.base)
        self._restore(self._manifest.base)

    def move_to(self, ref: TreeRef) -> None:
        """Put a sealed tree in the directory; see `chronicle.workspace.port.Workspace.move_to`.

        Files that differ are replaced: handles of them keep the old content.
        """
        if read_root_on(self._reader, ref, self.base).is_first:  # perhaps that of an earlier epoch
            ref = self.base
        self._keep_floors_since(self._manifest.base)
        self._restore(ref)

    def history(self, path: str) -> Sequence[Iteration]:
        """Return a path's iterations up to the last seal; see `chronicle.workspace.port.Workspace.history`."""
        return iterations_of(self._view(), path)

    def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path's content at an iteration; see `chronicle.workspace.port.Workspace.at`."""
        return open_at(self._reader, self._view(), path, iteration)

    def close(self) -> None:
        """Release the directory; it stays as it is."""
        if self._lock >= 0:
            unlock_workspace(self._lock)
            self._lock = -1

    # -- internals ------------------------------------------------------------------------------------------------

    def _view(self) -> HistoryView:
        return HistoryView(self._reader, self._commit, {}, self._manifest.floors)

    def _keep_floors_since(self, base: TreeRef | None) -> None:
        """Keep as floors the numbers of versions that were sealed since the base, and those that a first tree has."""
        floors, commit = self._manifest.floors, self._load(base)
        known = commit.histories if not commit.is_first else None
        for path, _, history in nodes.diff(self._reader, known, self._commit.histories):
            if history is not None:
                floors[path] = max(decode_history(history).last, floors.get(path, 0))

    def _restore(self, ref: TreeRef | None) -> None:
        """Restore a commit in the directory and make it the last seal."""
        manifest = self._manifest
        commit = self._load(ref)
        check_rights(self._reader, commit.tree_id, manifest.index, self._owner)
        self._root.mkdir(parents=True, exist_ok=True)
        manifest.complete = False
        manifest.save(self._home)
        Ownership(manifest.root, manifest.epoch, complete=False).save(self._home)
        try:
            present = scan(
                manifest.root, manifest.index, PassingBuffer(self._blobs), self._owner, time.time_ns(), tolerant=True
            )
            restore(manifest.root, self._reader, commit.tree_id, commit.root, present, self._owner)
            manifest.index = scan(manifest.root, {}, PassingBuffer(self._blobs), self._owner, time.time_ns())
        except (FileNotFoundError, NotADirectoryError, FileExistsError, IsADirectoryError) as error:
            raise Conflict(
                f"{self._root} was replaced while it was restored ({error}); end the processes that still write there, "
                "and open the workspace again"
            ) from error
        manifest.complete = True
        self._set_sealed(ref)
        manifest.save(self._home)
        Ownership(manifest.root, manifest.epoch, complete=True).save(self._home)


def _same(one: Index, other: Index) -> bool:
    """Whether two scans have the same result, times included."""
    return one.keys() == other.keys() and all(
        seen.entry == other[path].entry and (seen.entry.kind is Kind.DIR or seen.mtime_ns == other[path].mtime_ns)
        for path, seen in one.items()
    )
