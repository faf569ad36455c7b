"""Who uses a mount: which processes have something in it open, and what is mounted below it.

All of it is read from ``/proc``: the system tells the paths by itself, and nothing is asked of the mount, which may
hang. Processes that this user may not look into are not seen; of those that end meanwhile nothing is said.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.fuse.mountpoints import mounts

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["mounted_below", "users_of"]

_PROC: Final = Path("/proc")
_DELETED: Final = " (deleted)"
_MAPS_FIELDS: Final = 6
"""Of a line of ``/proc/PID/maps`` that has a path: proc(5)."""


def mounted_below(mountpoint: Path) -> list[str]:
    """Return what is mounted below a mountpoint, a sentence each.

    Args:
        mountpoint: as `chronicle.fuse.mountpoints.mounts.resolved` gives it.
    """
    return [f"something is mounted at {point}" for point in mounts.points_below(mountpoint)]


def users_of(mountpoint: Path) -> list[str]:
    """Return which processes use a mount, a sentence each: by an open file or directory, their own directory, or a map.

    That this process is in it does not count: what it is about to do ends with it.

    Args:
        mountpoint: as `chronicle.fuse.mountpoints.mounts.resolved` gives it.
    """
    found = []
    for process in sorted(int(name) for name in os.listdir(_PROC) if name.isdecimal()):
        use = next(_uses(_PROC / str(process), os.fspath(mountpoint), own=process == os.getpid()), None)
        if use is not None:
            found.append(f"{_name(process)} (process {process}) {use}")
    return found


def _uses(process: Path, point: str, *, own: bool) -> Iterator[str]:
    """Yield in which ways a process uses a mount."""
    with suppress(OSError):  # it ended, or is not ours to look into
        for fd in os.listdir(process / "fd"):
            inside = _inside(_target(process / "fd" / fd), point)
            if inside is not None:
                yield f"has {inside} open"
    for link in () if own else ("cwd", "root"):
        inside = _inside(_target(process / link), point)
        if inside is not None:
            yield f"is in {inside}"
    with suppress(OSError), (process / "maps").open("rb") as maps:
        for line in maps:
            fields = line.split(maxsplit=_MAPS_FIELDS - 1)
            if len(fields) == _MAPS_FIELDS:
                inside = _inside(os.fsdecode(fields[-1].rstrip(b"\n")), point)
                if inside is not None:
                    yield f"has {inside} mapped into memory"


def _target(link: Path) -> str:
    """Return what a link of ``/proc`` says; reading it does not go where it leads."""
    with suppress(OSError):
        return os.readlink(link)
    return ""


def _inside(path: str, point: str) -> str | None:
    """Return a path relative to a mountpoint; ``None`` if it is not in it."""
    path = path.removesuffix(_DELETED)
    if path == point:
        return point
    return path.removeprefix(point + "/") if path.startswith(point + "/") else None


def _name(process: int) -> str:
    with suppress(OSError):
        return (_PROC / str(process) / "comm").read_text(errors="backslashreplace").strip()
    return "a program"
