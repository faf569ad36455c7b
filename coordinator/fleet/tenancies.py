"""Tenancies: which host has an agent's place on a node, so that activations that follow each other are kept apart.

An agent's workspace is mounted at the same path in each of its activations (`coordinator.fleet.workspace_paths`). A
process that an earlier activation left behind, which writes by path, would write into the files of a later one. So a
tenant is noted before anything is mounted, and the next one gets the place when every process of the one before has
ended.
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
from coordinator.fleet.process_marks import Mark, end_marked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Tenancies", "Tenant", "clear_place"]

_FORMAT: Final = 1
_NOTE_BYTES: Final = 4096
_POLL_S: Final = 0.02
_DEADLINE_S: Final = 20.0
"""For the lock of a tenant that was killed to be free."""

_log = structlog.stdlib.get_logger("coordinator.fleet.tenancies")


@dataclass(frozen=True, slots=True)
class Tenant:
    """The host that has a place."""

    host_id: str
    epoch: int
    """Of the lease under which its agent runs there."""
    agent: str
    """The agent's address."""
    home: str
    """`coordinator.home.Home.identity` of its home: a copy of a home has the notes of the original. Empty in notes of
    earlier versions."""


class Tenancies:
    """Who has which place on this node.

    A tenant's note is a file, locked for as long as the tenant's process lives, and removed when all that it started
    has ended. It need not survive a loss of power: no process does.

    Args:
        directory: where the notes are, in the node's part of the home.
        home: `coordinator.home.Home.identity` of the home.
    """

    def __init__(self, directory: Path, home: str) -> None:
        self._directory = directory
        self._home = home

    def take(self, place: Path, tenant: Tenant) -> int:
        """Have a place, once every process of the tenant before has ended: those that still run are killed.

        Returns:
            the descriptor by which it is had: not to be closed while the tenant lives.

        Raises:
            StaleEpoch: an activation of a newer epoch has it.
            Conflict: another agent has it.
            Unavailable: a process of the tenant before cannot be ended.
        """
        path = self._directory / place.name
        until = time.monotonic() + _DEADLINE_S
        while True:
            note = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                locked = _try_lock(note, path)
                before = _read(note)
                if before is not None:
                    if before.epoch > tenant.epoch and not locked:
                        raise StaleEpoch(tenant.epoch, before.epoch)
                    self._evict(before, tenant, place)
                if locked:
                    _write(note, tenant)
                    held, note = note, -1
                    return held
            finally:
                if note >= 0:
                    os.close(note)
            if time.monotonic() > until:
                raise Unavailable(f"the place {place} of {tenant.agent} is locked by another process of this node")
            time.sleep(_POLL_S)

    def _evict(self, before: Tenant, tenant: Tenant, place: Path) -> None:
        if before.agent != tenant.agent:
            raise Conflict(
                f"{before.agent} and {tenant.agent} have the same place {place}; fork one of them under another key"
            )
        if before.host_id != tenant.host_id:
            ended = end_marked(Mark(self._home, before.host_id))
            if ended:
                _log.info("ended_processes", host_id=before.host_id, agent_id=before.agent, count=ended)

    @contextlib.contextmanager
    def ending(self, place: Path, host_id: str) -> Iterator[Tenant | None]:
        """Have a place, to clear it, after its tenant and all that this started have ended; then note that it is free.

        Yields:
            its tenant, if it was that host's, and still is; ``None`` if it is to be left alone.
        """
        path = self._directory / place.name
        try:
            note = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            yield None
            return
        try:
            tenant = _read(note) if _try_lock(note, path) else None
            mine = tenant if tenant is not None and tenant.host_id == host_id else None
            yield mine
            if mine is not None:
                path.unlink()
        finally:
            os.close(note)


def clear_place(place: Path, host_id: str) -> None:
    """Make a place of which a new tenant has become fit to be mounted on.

    What was written to the directory while nothing was mounted on it is moved aside, as it belongs to no turn.

    Raises:
        OSError: it cannot be.
    """
    if mountinfo.is_mounted(place):  # by the activation before: the mount service sees to it
        return
    if place.is_symlink():  # the workspace was a plain directory
        place.unlink()
        return
    # Without permission it is shut (`chronicle.fuse.mountpoints.guard`), so nobody wrote to it.
    with contextlib.suppress(FileNotFoundError, PermissionError):
        if any(place.iterdir()):
            aside = place.with_name(f"{place.name}.left-{host_id}")
            place.rename(aside)
            _log.warning("files_left_below_mountpoint", place=str(place), moved_to=str(aside))


def _try_lock(note: int, path: Path) -> bool:
    """Lock a note, if nobody has and it was not removed meanwhile."""
    try:
        return try_lock(note) and os.path.samestat(os.fstat(note), path.stat())
    except FileNotFoundError:
        return False


def _read(note: int) -> Tenant | None:
    """Read who has a place; ``None`` if it is just being noted."""
    text = os.pread(note, _NOTE_BYTES, 0)
    try:
        found = json.loads(text)
        home = str(found.get("home", ""))
        return Tenant(str(found["host_id"]), int(found["epoch"]), str(found["agent"]), home)
    except (ValueError, KeyError, TypeError):
        return None


def _write(note: int, tenant: Tenant) -> None:
    text = json.dumps({"format": _FORMAT, **asdict(tenant)}).encode()
    os.pwrite(note, text, 0)
    os.ftruncate(note, len(text))
