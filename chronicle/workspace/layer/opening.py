"""Opening a workspace's layer, in whatever state an earlier process left it.

On disk, under ``LayerSpec.layers``::

    <workspace_id>/lock            locked by the process that has a layer of the workspace open
    <workspace_id>/<epoch>/log     the local log; without it the directory is not a layer
    <workspace_id>/<epoch>/...     see `chronicle.workspace.layer.disk.files`

A layer of the same epoch is continued: its server died, the turn did not. A layer of an older epoch is fenced off. If
it holds anything that was not committed, that is sealed first and reported; then the layer is rolled back and becomes
the new epoch's layer by a rename, since the contents that it has fetched stay valid. A tree that was committed in a
turn that is to begin again is reported, too: the journal has lost it. Where the disk is too full to seal it, it is
removed if `LayerSpec.gives_up_when_full` is set: it may be what fills the disk, and agents must go on. Otherwise the
workspace cannot be opened until there is space.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.blobs.readers import CachingReader
from chronicle.errors import Corrupt, NotFound, StaleEpoch, StorageRefused
from chronicle.settings import read_settings
from chronicle.workspace.history.oplog import ROOT_INO, read_root
from chronicle.workspace.history.path_histories import last_numbers
from chronicle.workspace.layer.disk.files import LayerFiles
from chronicle.workspace.layer.disk.log import LayerLog, position
from chronicle.workspace.layer.disk.log_records import TURN, Header, code_of, count_complete, last_sealed, pack_floors
from chronicle.workspace.layer.layer import Layer
from chronicle.workspace.layer.state.issued_numbers import gaps_on
from chronicle.workspace.layer.state.pending_history import NS_PER_MS
from chronicle.workspace.layer.workspace_home import lock_workspace, unlock_workspace, workspace_home
from chronicle.workspace.trees.tree import EMPTY

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.clock import Clock
    from chronicle.settings import Settings
    from chronicle.workspace.history.oplog import Gap, OplogRoot
    from chronicle.workspace.port import LayerSpec, TreeRef

__all__ = ["open_layer"]

_FULL_BYTES: Final = 16 * 1024 * 1024
"""A disk with less free space counts as full: a seal may fail before the last byte is used."""
_log: Final = logging.getLogger(__name__)


def open_layer(
    spec: LayerSpec, blobs: BlobStore, clock: Clock, settings: Settings | None = None
) -> tuple[Layer, TreeRef | None]:
    """Open a workspace's layer.

    The caller has fenced off the server of an older epoch. This process holds the workspace's lock until the layer is
    closed.

    Args:
        spec: which workspace, tree and epoch.
        blobs: the blob store.
        clock: for the times of operations.
        settings: how much committed content stays in data files (`chronicle.workspace.layer.disk.warm_files`); by
            default those of the environment.

    Returns:
        the layer, and what an older epoch's layer held beyond the base (durable in the blob store) or None. Every
        opening returns it again until a turn is begun (`CommitCycle.begin_turn`).

    Raises:
        InvalidInput: the workspace's id or a setting is invalid.
        StaleEpoch: a newer epoch has a layer here.
        Conflict: another process has a layer of this workspace open.
        Corrupt: a layer cannot be replayed. It is left as it is.
        UnsupportedFormat: a layer was written by a newer version.
        Unavailable: the blob store could not be reached.
    """
    home = workspace_home(spec)
    warm_bytes = (read_settings() if settings is None else settings).warm_bytes(is_far=blobs.is_far)
    home.mkdir(parents=True, exist_ok=True)
    lock = lock_workspace(home)
    try:
        layer, recovered = _open(home, spec, blobs, clock)
    except BaseException:
        unlock_workspace(lock)
        raise
    layer.own_lock(lock)
    if layer.commits.base is None:
        try:
            layer.adopt(layer.seal())
        except BaseException:
            layer.close_unsynced()
            raise
    layer.quota = spec.quota
    layer.warm_bytes = warm_bytes
    layer.trim()
    return layer, recovered


def _open(home: Path, spec: LayerSpec, blobs: BlobStore, clock: Clock) -> tuple[Layer, TreeRef | None]:
    """Continue the layer of this epoch, or begin it."""
    epochs = sorted(int(path.name) for path in home.iterdir() if path.name.isdecimal())
    if epochs and epochs[-1] > spec.epoch:
        raise StaleEpoch(spec.epoch, epochs[-1])
    recovered: TreeRef | None = None
    issued = _IssuedNumbers({}, [], ROOT_INO + 1, 1, 1)
    warm: Path | None = None
    for epoch in epochs:
        directory = home / str(epoch)
        if not (directory / "log").exists():
            shutil.rmtree(directory)
        elif epoch == spec.epoch:
            layer = _reopen(directory, spec.base, blobs, clock)
            if layer.epoch == spec.epoch and _has_base(layer, spec.base):
                return layer, layer.commits.unreported
            # Its base is not the wanted one: it missed a commit, or the commit was undone. Or it is an older epoch's
            # layer whose directory was renamed, and nothing else yet.
            found, kept = _recover(layer, spec, issued)
            recovered, warm = found or recovered, directory if kept else None
        else:
            layer = _reopen(directory, spec.base, blobs, clock)
            found, kept = _recover(layer, spec, issued)
            recovered = found or recovered
            if warm is not None:
                shutil.rmtree(warm)
            warm = directory if kept else None
    return _begin(home, warm, spec, blobs, clock, issued, recovered), recovered


def _reopen(directory: Path, base: TreeRef | None, blobs: BlobStore, clock: Clock) -> Layer:
    """Open and replay an existing layer."""
    undo = ExitStack()
    try:
        log, payloads = LayerLog.open(directory / "log")
        undo.callback(log.close)
        header = Header.decode(payloads[0])
        count = count_complete(payloads)
        if count < len(payloads):  # a crash tore a group of records that count together
            payloads = payloads[:count]
            log.cut(position(payloads))
        first, sealed = last_sealed(payloads)
        files = LayerFiles(directory)
        undo.callback(files.close)
        files.next_number = max(files.next_number, header.next_number)
        layer = Layer(directory, blobs, CachingReader(blobs), files, log, header, sealed or header.base, clock)
        undo.pop_all()
        undo.callback(layer.close_unsynced)
        if layer.commits.unreported is not None and any(code_of(payload) == TURN for payload in payloads):
            layer.commits.unreported = None
        used, repairs = layer.replay(payloads[first:], clock.now_ms() * NS_PER_MS, is_sealed=sealed is not None)
        files.next_number = max(files.next_number, *(number + 1 for number in used), 1)
        if sealed is not None:
            layer.commits.resume(position(payloads[:first]), adopt=sealed == base)
        layer.commits.leave_committed_turn()
        has_orphans = len(payloads) > 1 or files.power_lost  # after a boot no data file counts as clean
        if repairs:  # before the crash recovery of this boot is marked done
            layer.log_repair(repairs)
        files.mark_recovered()
        if has_orphans:
            files.remove_orphans(used)
    except BaseException as error:
        undo.close()
        if isinstance(error, Corrupt):
            raise Corrupt(f"{directory} cannot be read back: {error}") from error
        raise
    return layer


def _has_base(layer: Layer, base: TreeRef | None) -> bool:
    """Say whether a layer has the wanted base."""
    if base is None:
        return _is_first(layer)
    return layer.commits.base == base


def _is_first(layer: Layer) -> bool:
    """Say whether a layer's base is the empty first tree of a workspace."""
    return layer.commits.base is None or _first_tree(layer) is not None


def _is_ahead(layer: Layer, spec: LayerSpec) -> bool:
    """Say whether a layer's base is the commit of a turn that is to begin again, because the journal has lost it."""
    base = layer.commits.base
    if base is None or base == spec.base:
        return False
    try:
        return read_root(layer.reader, base.oplog_id).committed_turn >= spec.turn
    except NotFound:  # another node has collected what its branch does not reach any more
        return False


def _first_tree(layer: Layer) -> OplogRoot | None:
    """Return a layer's base if it is the empty first tree of a workspace; ``None`` for no base, and for a commit."""
    base = layer.commits.base
    root = read_root(layer.reader, base.oplog_id) if base is not None and base.tree_id == EMPTY else None
    return root if root is not None and root.is_first else None


@dataclass(slots=True)
class _IssuedNumbers:
    """Numbers that layers of older epochs gave out; they must not be reused."""

    floors: dict[bytes, int]
    gaps: list[Gap]
    next_ino: int
    next_seq: int
    next_number: int


def _is_disk_full(error: BaseException, directory: Path) -> bool:
    """Say whether an error is due to a full disk or quota, so that removing a directory there frees space."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError) or cause.errno not in (errno.ENOSPC, errno.EDQUOT):
        return False
    free = os.statvfs(directory)
    return cause.errno == errno.EDQUOT or free.f_bavail * free.f_frsize < _FULL_BYTES


def _recover(layer: Layer, spec: LayerSpec, issued: _IssuedNumbers) -> tuple[TreeRef | None, bool]:
    """Seal what a layer holds beyond the base, and close it.

    On disk it stays as it is until the new epoch's log replaces its own: if that fails, it is recovered again. What
    cannot be sealed because the disk is full is removed, if the workspace allows it (`LayerSpec.gives_up_when_full`).

    Returns:
        what was sealed, or what was recovered before and is not reported yet; and whether the layer still exists.
    """
    recovered, kept = layer.commits.unreported, True
    base, directory = spec.base, layer.directory
    try:
        if layer.changed or layer.commits.has_uncommitted_seal:
            try:
                sealed = layer.seal()
            except (StorageRefused, OSError) as error:
                if not (spec.gives_up_when_full and _is_disk_full(error, directory)):
                    raise
                _log.warning("the disk is full; what was not committed in %s is given up: %s", directory, error)
                kept = False
            else:
                # Versions that were rolled back count, too: only the seal has their numbers.
                if (
                    base is None
                    or sealed.tree_id != base.tree_id
                    or (sealed != base and layer.commits.has_uncommitted_versions)
                ):
                    recovered = sealed
        if recovered is None and _is_ahead(layer, spec):
            recovered = layer.commits.base
        floors, gaps, next_seq = layer.commits.reserved_numbers()
        if (first := _first_tree(layer)) is not None:  # no commit has its numbers
            floors = last_numbers(layer.reader, first.histories) | floors
            gaps = [*first.gaps, *gaps]
        issued.next_ino = max(issued.next_ino, layer.names.next_ino)
        issued.next_number = max(issued.next_number, layer.next_number)
    finally:
        layer.close_unsynced()
    for path, number in floors.items():
        issued.floors[path] = max(number, issued.floors.get(path, 0))
    issued.gaps.extend(gaps)
    issued.next_seq = max(issued.next_seq, next_seq)
    if not kept:
        (directory / "log").unlink()  # first: without it the rest is no layer, should this process be killed in between
        shutil.rmtree(directory)
    return recovered, kept


def _begin(
    home: Path,
    warm: Path | None,
    spec: LayerSpec,
    blobs: BlobStore,
    clock: Clock,
    issued: _IssuedNumbers,
    recovered: TreeRef | None,
) -> Layer:
    """Create the layer of a new epoch, from an old one's directory if there is one."""
    directory = home / str(spec.epoch)
    owner = os.geteuid(), os.getegid()
    if warm is not None:
        log, payloads = LayerLog.open(warm / "log")
        log.close()
        owner = Header.decode(payloads[0]).owner
        if warm != directory:
            warm.rename(directory)
    else:
        directory.mkdir()
    with ExitStack() as undo:
        files = LayerFiles(directory)
        undo.callback(files.close)
        files.next_number = max(files.next_number, issued.next_number)
        gaps = _gaps_on(spec.base, blobs, issued.gaps)
        next_seq = max([issued.next_seq, *(gap.seq + 1 for gap in gaps)])
        header = Header(
            spec.workspace_id,
            spec.epoch,
            spec.base,
            spec.turn,
            issued.next_ino,
            next_seq,
            files.next_number,
            owner,
            recovered,
        )
        log = LayerLog.create(directory / "log", [header.encode(), *pack_floors(issued.floors, gaps)])
        undo.callback(log.close)
        layer = Layer(directory, blobs, CachingReader(blobs), files, log, header, spec.base, clock)
        undo.pop_all()
    layer.commits.reserve_numbers(issued.floors, gaps)
    layer.commits.leave_committed_turn()
    with suppress(OSError):  # the layer exists, and the recovery must be reported; orphans go at the next opening
        files.remove_orphans(())
    return layer


def _gaps_on(base: TreeRef | None, blobs: BlobReader, gaps: list[Gap]) -> list[Gap]:
    """Return the gaps of layers on other commits as gaps on this one; see `gaps_on`."""
    if base is None or not gaps:
        return gaps
    return gaps_on(read_root(blobs, base.oplog_id), gaps)
