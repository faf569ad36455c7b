"""Workspace paths: one short mount path for each agent, the same on every node.

::

    <base>/podium-<home id>/          mode 0700; the id is random, so the name cannot be guessed
        home                          the path of the home whose service has claimed the directory
        <agent>                       the agent's workspace while it is awake

``<agent>`` is derived from the agent's address. A path is 37 characters long with the base ``/tmp``: `#!` lines of
scripts (127 bytes on older kernels) and the paths of sockets (107) leave room for files of the workspace.

An agent's path outlives its activations; `coordinator.host.node.path_locks` isolates successive activations.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import stat
import time
from typing import TYPE_CHECKING, Final

from chronicle.system.locks import is_locked, try_lock, unlock
from coordinator.home import Home
from podium.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from podium.address import Address

__all__ = ["WorkspacePaths"]

_NAME_LENGTH: Final = 12
"""Characters of an agent's name: 60 bits of a hash."""
_OWNER: Final = "home"
_RETRIES: Final = 20
_POLL_S: Final = 0.02


class WorkspacePaths:
    """The workspace paths of a home's agents on this machine. The constructor does no I/O.

    Args:
        base: an absolute directory, the same on every node.
        home_id: the id of the home.
    """

    def __init__(self, base: Path, home_id: str) -> None:
        self._home_id = home_id
        self.directory = base / f"podium-{home_id}"

    def of(self, address: Address) -> Path:
        """Return an agent's path."""
        digest = base64.b32encode(hashlib.sha256(str(address).encode()).digest()).decode().lower()
        return self.directory / digest[:_NAME_LENGTH]

    def create(self) -> None:
        """Create the directory for this user only, if it does not exist.

        Raises:
            HomeError: it cannot be created, or belongs to another user.
        """
        try:
            with contextlib.suppress(FileExistsError):
                self.directory.mkdir(mode=0o700)
            found = self.directory.lstat()
        except OSError as error:
            raise HomeError(
                f"{self.directory}, where agents' workspaces are mounted, cannot be created ({error.strerror}); set "
                "PODIUM_WORKSPACES to another directory"
            ) from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise HomeError(
                f"{self.directory} belongs to another user or is accessible to others, and agents' workspaces are "
                "mounted there: remove it, or set PODIUM_WORKSPACES to another directory"
            )

    @contextlib.contextmanager
    def claimed(self, home: Path) -> Iterator[None]:
        """Claim the directory for a home's service while the context lasts; remove it at the end if it is empty.

        Args:
            home: the directory of the home.

        Raises:
            HomeError: the service of another home with the same id has claimed it; or as `create`.
        """
        held = self._lock(home)
        try:
            (self.directory / _OWNER).write_text(f"{home}\n", encoding="utf-8", errors="surrogateescape")
            yield
        finally:
            (self.directory / _OWNER).unlink(missing_ok=True)
            self.remove()
            unlock(held)  # closing would leave it to a child forked meanwhile
            os.close(held)

    def check(self, home: Path) -> None:
        """Check that no other home's service has claimed the directory.

        Raises:
            HomeError: another home's service has claimed it.
        """
        with contextlib.suppress(FileNotFoundError):
            held = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if is_locked(held):
                    self._refuse_other(home)
            finally:
                os.close(held)

    def remove(self) -> None:
        """Remove the directory if it is empty."""
        with contextlib.suppress(OSError):
            self.directory.rmdir()

    def _lock(self, home: Path) -> int:
        for _ in range(_RETRIES):
            self.create()
            with contextlib.suppress(FileNotFoundError):
                held = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    if not try_lock(held):
                        self._refuse_other(home)
                        time.sleep(_POLL_S)  # this home's last service is ending, or another process checks the claim
                    elif os.path.samestat(os.fstat(held), self.directory.lstat()):  # else it was removed meanwhile
                        return held
                except FileNotFoundError:
                    pass
                os.close(held)
        raise HomeError(f"{self.directory} is locked by another process; end it and try again")

    def _refuse_other(self, home: Path) -> None:
        """Raise an error if another home's service has claimed the directory."""
        try:
            other = (self.directory / _OWNER).read_text(encoding="utf-8", errors="surrogateescape").strip()
        except FileNotFoundError:  # its holder has just acquired the lock, or is about to release it
            return
        with contextlib.suppress(OSError):
            if home.samefile(other):  # another path of the same home
                return
        if other != str(home) and Home(home).is_shared:
            raise HomeError(
                f"{home} and {other} are directories of one home, and the service of the latter runs on this machine: "
                f"use that one (--home {other}), or end its service first (podium down --home {other})"
            )
        if other != str(home):
            raise HomeError(
                f"the homes {home} and {other} have the same id, because one is a copy of the other, and the service "
                f"of the latter is running: wait until it ends, or remove {home / 'id'}; this home then gets a new id, "
                "and its agents new workspace paths"
            )
