"""Places: where agents' workspaces are seen on a node, one short path for each agent, the same on every node.

::

    <base>/podium-<home id>/          mode 0700; not to be guessed, as the id is random
        home                          the path of the home whose service has it
        <agent>                       the agent's workspace while it is awake, else nothing

``<agent>`` is derived from the agent's address. A place is 37 characters long with the base ``/tmp``: `#!` lines of
scripts (127 bytes on older kernels) and the paths of sockets (107) leave room for what is in the workspace.

An agent's place outlives its activations; `coordinator.fleet.tenancies` keeps those apart that follow each other.
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
from podium.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from podium.address import Address

__all__ = ["Places"]

_NAME_LENGTH: Final = 12
"""Characters of an agent's name: 60 bits of a hash."""
_OWNER: Final = "home"
_RETRIES: Final = 20
_POLL_S: Final = 0.02


class Places:
    """The places of a home's agents on this machine. Making one of these touches nothing.

    Args:
        base: an absolute directory, the same on every node.
        home_id: the home's.
    """

    def __init__(self, base: Path, home_id: str) -> None:
        self._home_id = home_id
        self.directory = base / f"podium-{home_id}"

    def of(self, address: Address) -> Path:
        """Return an agent's place."""
        digest = base64.b32encode(hashlib.sha256(str(address).encode()).digest()).decode().lower()
        return self.directory / digest[:_NAME_LENGTH]

    def make(self) -> None:
        """Make the directory for this user only, if it is not there.

        Raises:
            HomeError: it cannot be made, or is someone else's.
        """
        try:
            with contextlib.suppress(FileExistsError):
                self.directory.mkdir(mode=0o700)
            found = self.directory.lstat()
        except OSError as error:
            raise HomeError(
                f"{self.directory}, where agents' workspaces are to be, cannot be made ({error.strerror}); let "
                "PODIUM_WORKSPACES name another directory"
            ) from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            raise HomeError(
                f"{self.directory} belongs to another user or can be entered by others, and agents' workspaces are to "
                "be there: remove it, or let PODIUM_WORKSPACES name another directory"
            )

    @contextlib.contextmanager
    def claimed(self, home: Path) -> Iterator[None]:
        """Have the directory for a home's service while the context lasts; remove it at the end if it is empty.

        Args:
            home: the directory of the home.

        Raises:
            HomeError: the service of another home with the same id has it; or as `make`.
        """
        held = self._lock(home)
        try:
            (self.directory / _OWNER).write_text(f"{home}\n", encoding="utf-8", errors="surrogateescape")
            yield
        finally:
            (self.directory / _OWNER).unlink(missing_ok=True)
            self.remove()
            unlock(held)  # closing leaves it to a child that was forked meanwhile
            os.close(held)

    def check(self, home: Path) -> None:
        """Check that no other home's service has the directory.

        Raises:
            HomeError: one has.
        """
        with contextlib.suppress(FileNotFoundError):
            held = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if is_locked(held):
                    self._refuse_other(home)
            finally:
                os.close(held)

    def remove(self) -> None:
        """Remove the directory if nothing is in it."""
        with contextlib.suppress(OSError):
            self.directory.rmdir()

    def _lock(self, home: Path) -> int:
        for _ in range(_RETRIES):
            self.make()
            with contextlib.suppress(FileNotFoundError):
                held = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    if not try_lock(held):
                        self._refuse_other(home)
                        time.sleep(_POLL_S)  # this home's last service is ending, or somebody looks
                    elif os.path.samestat(os.fstat(held), self.directory.lstat()):  # else it was removed meanwhile
                        return held
                except FileNotFoundError:
                    pass
                os.close(held)
        raise HomeError(f"{self.directory} is locked by another process; end it and try again")

    def _refuse_other(self, home: Path) -> None:
        """Raise an error if the holder of the directory is another home's service."""
        try:
            other = (self.directory / _OWNER).read_text(encoding="utf-8", errors="surrogateescape").strip()
        except FileNotFoundError:  # it has only just locked it, or is about to let go
            return
        with contextlib.suppress(OSError):
            if home.samefile(other):  # by whatever path it is named
                return
        if other != str(home):
            raise HomeError(
                f"the homes {home} and {other} have the same id, as one is a copy of the other, and the service of the "
                f"latter runs: wait for its end, or remove {home / 'id'}, which gives this home an id, and its agents' "
                "workspaces paths, of their own"
            )
