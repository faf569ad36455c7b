"""Where a machine has what belongs to agents' processes: in its directory of the home, or in one of another user.

Two users keep two directories, and neither writes to the other's:

::

    PODIUM_RUN_DIR      of the user of podium node
        store.sock, models.sock         the group may connect
    PODIUM_HOSTS_DIR    of the user of Ray's processes
        run/hosts/HOST                  the group may connect
        logs, nodes, places             of that user alone

The group is that of the latter directory, and both users belong to it. Agents' code may put anything in the directory
of its user; so processes of the other one open no files there, and take for a host only what that user listens with.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.environment import variables
from podium.errors import HomeError

if TYPE_CHECKING:
    from coordinator.home.places import HomePlaces

__all__ = ["HostPlaces", "host_places"]


@dataclass(frozen=True, slots=True)
class HostPlaces:
    """The places of the hosts of a machine."""

    home: Path
    """The directory with ``nodes`` and ``places``."""
    run_dir: Path
    logs: Path
    group: int | None = None
    """The group of both users; ``None`` if they are one."""

    def user(self) -> int | None:
        """Return the user of the hosts; ``None`` if it is that of this process.

        Raises:
            PermissionError: hosts have the user of this process, and should not.
            FileNotFoundError: the manager of the node has not begun.
        """
        if self.group is None:
            return None
        found = self.run_dir.lstat()
        if found.st_uid == os.geteuid() or not stat.S_ISDIR(found.st_mode):
            raise PermissionError(
                f"{self.run_dir} belongs to the user {found.st_uid}, who has the credentials of the home: have Ray's "
                "processes run as another one, which makes that directory, or leave PODIUM_HOSTS_DIR out"
            )
        return found.st_uid


def host_places(home: HomePlaces, hosts_dir: Path | None) -> HostPlaces:
    """Return the places of the hosts beside a home's directory.

    Args:
        hosts_dir: their directory if they have another user than this process; see `coordinator.settings.Settings`.

    Raises:
        HomeError: it cannot be used.
    """
    if hosts_dir is None:
        return HostPlaces(home.path, home.run_dir, home.logs)
    said = f"PODIUM_HOSTS_DIR={hosts_dir}"
    if "PODIUM_RUN_DIR" not in variables():
        raise HomeError(
            f"{said} is for hosts of another user, who enters no directory of sockets below that of temporary files: "
            "give PODIUM_RUN_DIR, a directory that this user owns, below one that the other cannot write to"
        )
    for own in (home.path, home.run_dir):
        if own.is_relative_to(hosts_dir) or hosts_dir.is_relative_to(own):
            raise HomeError(f"{said} and {own}, of podium node, lie in one another: give each user its own directory")
    try:
        found = hosts_dir.lstat()
    except OSError as error:
        raise HomeError(
            f"{said} cannot be used ({error.strerror}): make it, for the user of Ray's processes"
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid == os.geteuid() != 0:
        raise HomeError(
            f"{said} is not a directory of another user: make it, for the user of Ray's processes, or leave the "
            "variable out if Ray's processes have this user"
        )
    if found.st_gid not in {os.getegid(), *os.getgroups()}:
        raise HomeError(
            f"{said} has the group {found.st_gid}, to which the user {os.geteuid()} does not belong: give it one that "
            "this user and that of Ray's processes have"
        )
    return HostPlaces(hosts_dir, hosts_dir / "run", hosts_dir / "logs", found.st_gid)
