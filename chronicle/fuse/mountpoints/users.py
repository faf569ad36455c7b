"""The users of a mount: processes that have a file in it open, and mounts below it.

Everything is read from ``/proc``, which knows the paths: the mount gets no request, so it may hang. Processes that this
user may not inspect are missing, and so are those that end during the scan.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.fuse.mountpoints.mountinfo import mountpoints_below

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["mounted_below", "users_of"]

_PROC: Final = Path("/proc")
_DELETED: Final = " (deleted)"
_MAPS_FIELDS: Final = 6
"""Of a line of ``/proc/PID/maps`` that has a path: proc(5)."""


def mounted_below(mountpoint: Path) -> list[str]:
    """Return the mounts below a mountpoint, a sentence for each.

    Args:
        mountpoint: as `chronicle.fuse.mountpoints.mountinfo.resolve_mountpoint` returns it.
    """
    return [f"something is mounted at {point}" for point in mountpoints_below(mountpoint)]


def users_of(mountpoint: Path) -> list[str]:
    """Return the processes that use a mount, a sentence for each: by an open file, working directory or mapping.

    The working directory of this process does not count: its use ends with the command.

    Args:
        mountpoint: as `chronicle.fuse.mountpoints.mountinfo.resolve_mountpoint` returns it.
    """
    found = []
    for process in sorted(int(name) for name in os.listdir(_PROC) if name.isdecimal()):
        use = next(_uses(_PROC / str(process), os.fspath(mountpoint), own=process == os.getpid()), None)
        if use is not None:
            found.append(f"{_name(process)} (process {process}) {use}")
    return found


def _uses(process: Path, point: str, *, own: bool) -> Iterator[str]:
    """Yield the ways in which a process uses a mount."""
    with suppress(OSError):  # it ended, or belongs to another user
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
    """Return the text of a link of ``/proc``; it is not followed."""
    with suppress(OSError):
        return os.readlink(link)
    return ""


def _inside(path: str, point: str) -> str | None:
    """Return a path relative to a mountpoint; ``None`` if it is outside."""
    path = path.removesuffix(_DELETED)
    if path == point:
        return point
    return path.removeprefix(point + "/") if path.startswith(point + "/") else None


def _name(process: int) -> str:
    with suppress(OSError):
        return (_PROC / str(process) / "comm").read_text(errors="backslashreplace").strip()
    return "a program"
