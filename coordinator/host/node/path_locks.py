"""Locks of workspace paths on a machine: they isolate successive activations of an agent from each other.

An agent's workspace is mounted at the same path in each of its activations (`coordinator.host.node.workspace_paths`). A
leftover process of an earlier activation that writes by path would write into the files of a later one. So a host locks
the path before it mounts the workspace, and acquires the lock only after all processes of the previous owner have
exited.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import Conflict, StaleEpoch, Unavailable
from chronicle.fuse.mountpoints import mountinfo
from chronicle.system.locks import try_lock
from coordinator.host.node.process_marks import ProcessMark, end_marked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["PathLocks", "PathOwner", "clear_path"]

_FORMAT: Final = 1
_LOCK_FILE_BYTES: Final = 4096
_POLL_S: Final = 0.02
_DEADLINE_S: Final = 20.0
"""Timeout for the kernel to release the lock of a killed owner."""

_log = structlog.stdlib.get_logger("coordinator.host.node.path_locks")


@dataclass(frozen=True, slots=True)
class PathOwner:
    """The host that holds the lock of a workspace path."""

    host_id: str
    epoch: int
    """Epoch of the lease under which it runs its agent."""
    agent: str
    """The agent's address."""
    home: str
    """`coordinator.home.Home.identity` of its home: a copy of a home contains the lock files of the original."""


class PathLocks:
    """The lock files of a machine's workspace paths; all nodes on the machine have the same.

    A lock file names its owner. It is locked while the owner's process lives, and removed after all processes that the
    owner started have exited. It is not synced: after a loss of power no process of the owner exists.

    Args:
        directory: directory of the lock files, in the home.
        home: `coordinator.home.Home.identity` of the home.
    """

    def __init__(self, directory: Path, home: str) -> None:
        self._directory = directory
        self._home = home

    def acquire(self, path: Path, owner: PathOwner) -> int:
        """Lock a path. Remaining processes of the previous owner are killed first, and their exit is awaited.

        Returns:
            the descriptor that holds the lock; the owner must not close it.

        Raises:
            StaleEpoch: an activation of a newer epoch holds the lock.
            Conflict: another agent owns the path.
            Unavailable: a process of the previous owner cannot be killed.
        """
        lock_path = self._directory / path.name
        until = time.monotonic() + _DEADLINE_S
        while True:
            lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                locked = _try_lock(lock, lock_path)
                before = _read(lock)
                if before is not None:
                    if before.epoch > owner.epoch and not locked:
                        raise StaleEpoch(owner.epoch, before.epoch)
                    self._evict(before, owner, path)
                if locked:
                    _write(lock, owner)
                    held, lock = lock, -1
                    return held
            finally:
                if lock >= 0:
                    os.close(lock)
            if time.monotonic() > until:
                raise Unavailable(f"the workspace path {path} of {owner.agent} is locked by another process")
            time.sleep(_POLL_S)

    def _evict(self, before: PathOwner, owner: PathOwner, path: Path) -> None:
        """Kill the processes of the previous owner."""
        if before.agent != owner.agent:
            raise Conflict(
                f"{before.agent} and {owner.agent} have the same workspace path {path}; "
                "fork one of them under another key"
            )
        if before.host_id != owner.host_id:
            ended = end_marked(ProcessMark(self._home, before.host_id))
            if ended:
                _log.info("ended_processes", host_id=before.host_id, agent_id=before.agent, count=ended)

    def forget(self, path: Path) -> None:
        """Remove the lock file of a path; the caller holds the lock, and no process uses the path."""
        (self._directory / path.name).unlink(missing_ok=True)

    def owned_by(self, host_id: str) -> list[str]:
        """Return the names of the paths whose lock files name a host."""
        return [lock.name for lock in self._directory.iterdir() if _owner_of(lock) == host_id]

    @contextlib.contextmanager
    def releasing(self, path: Path, host_id: str) -> Iterator[PathOwner | None]:
        """Lock a path for its clean-up after the exit of the owner's processes; then remove the lock file.

        Yields:
            the owner, if it is that host and has released the lock; ``None`` if the path must be left alone.
        """
        lock_path = self._directory / path.name
        try:
            lock = os.open(lock_path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            yield None
            return
        try:
            owner = _read(lock) if _try_lock(lock, lock_path) else None
            released = owner if owner is not None and owner.host_id == host_id else None
            yield released
            if released is not None:
                lock_path.unlink()
        finally:
            os.close(lock)


def clear_path(path: Path, host_id: str) -> None:
    """Prepare a workspace path for a mount by its new owner.

    Files that were written to the path while no workspace was mounted are moved aside: they belong to no turn.

    Raises:
        OSError: the path cannot be cleared.
    """
    if mountinfo.is_mounted(path):  # by the previous activation: the mount service replaces it
        return
    if path.is_symlink():  # the workspace was a plain directory
        path.unlink()
        return
    # A guarded mountpoint has no permissions (`chronicle.fuse.mountpoints.guard`), so no file was written there.
    with contextlib.suppress(FileNotFoundError, PermissionError):
        if any(path.iterdir()):
            aside = path.with_name(f"{path.name}.left-{host_id}")
            path.rename(aside)
            _log.warning("files_left_below_mountpoint", path=str(path), moved_to=str(aside))


def _owner_of(lock_path: Path) -> str | None:
    try:
        lock = os.open(lock_path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        owner = _read(lock)
    finally:
        os.close(lock)
    return owner.host_id if owner is not None else None


def _try_lock(lock: int, path: Path) -> bool:
    """Lock a lock file; return ``False`` if it is locked, or was removed meanwhile."""
    try:
        return try_lock(lock) and os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _read(lock: int) -> PathOwner | None:
    """Read the owner; ``None`` if the file is not completely written."""
    text = os.pread(lock, _LOCK_FILE_BYTES, 0)
    try:
        found = json.loads(text)
        return PathOwner(str(found["host_id"]), int(found["epoch"]), str(found["agent"]), str(found["home"]))
    except (ValueError, KeyError, TypeError):
        return None


def _write(lock: int, owner: PathOwner) -> None:
    text = json.dumps({"format": _FORMAT, **asdict(owner)}).encode()
    os.pwrite(lock, text, 0)
    os.ftruncate(lock, len(text))
