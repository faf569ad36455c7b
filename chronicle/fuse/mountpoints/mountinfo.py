"""The mounts of this machine, read from ``/proc/self/mountinfo``.

Nothing here touches a path *through* a mount: a mount whose server hangs would hang the caller too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

__all__ = [
    "KIND",
    "Mount",
    "fuse_mounts_under",
    "is_mounted",
    "is_served",
    "mountpoint_of",
    "mountpoints_below",
    "mounts_at",
    "real_path",
    "resolve_mountpoint",
    "source_of",
]

KIND: Final = "fuse.chronicle"
"""The file system type of Chronicle's mounts, by which they are recognised."""
_MOUNTINFO: Final = Path("/proc/self/mountinfo")
_ESCAPED: Final = frozenset(b" \t\n\\#")
"""Bytes of a path that mountinfo writes as three octal digits."""
_SERVED_OPTION: Final = "default_permissions"
"""Every server's mount has this option and no guard has it."""
_SYMLINKS: Final = 40
"""The kernel's limit of symlinks in one path: path_resolution(7)."""


class Mount(NamedTuple):
    """A line of mountinfo."""

    device: str
    """``major:minor``."""
    point: str
    kind: str
    source: str
    is_guard: bool
    """A guard of Chronicle, on top of which servers mount: `chronicle.fuse.mountpoints.guard`."""


def fuse_mounts_under(directory: Path) -> list[Path]:
    """Return Chronicle's mountpoints at or below a directory, in an order in which they can be unmounted."""
    prefix = real_path(directory)
    ours = dict.fromkeys(mount.point for mount in reversed(_mounts()) if mount.kind == KIND)
    return [Path(point) for point in ours if point == prefix or point.startswith(prefix + "/")]


def is_mounted(mountpoint: Path) -> bool:
    """Say whether a file system of any kind is mounted at exactly this path."""
    return bool(mounts_at(mountpoint))


def is_served(mountpoint: Path) -> bool:
    """Say whether more than a guard (`chronicle.fuse.mountpoints.guard`) is mounted at exactly this path."""
    return any(not mount.is_guard for mount in mounts_at(mountpoint))


def mountpoints_below(mountpoint: Path) -> list[Path]:
    """Return the mountpoints of file systems of any kind below a mountpoint."""
    prefix = os.fspath(mountpoint).rstrip("/") + "/"
    return [Path(point) for point in dict.fromkeys(mount.point for mount in _mounts()) if point.startswith(prefix)]


def resolve_mountpoint(path: Path) -> Path:
    """Return a mountpoint's path as the kernel has it: absolute, without symlinks, ``.`` and ``..``.

    The file system that is mounted there gets no request, so it may hang. The path need not exist.
    """
    ours = {mount.point for mount in _mounts() if mount.kind == KIND}
    here, links = Path("/"), 0
    rest = list(path.absolute().parts[:0:-1])
    while rest:
        name = rest.pop()
        if name == "..":
            here = here.parent
            continue
        there = here / name
        if links < _SYMLINKS and os.fspath(there) not in ours:
            with suppress(OSError):  # not a symlink
                target = there.readlink()
                links += 1
                here = here / target.anchor  # an absolute target starts at the root
                rest += [part for part in reversed(target.parts) if part != target.anchor]
                continue
        here = there
    return here


def mountpoint_of(path: Path) -> Path | None:
    """Return the mountpoint of the Chronicle mount that contains a path; ``None`` if there is none."""
    mount = _containing(path)
    return Path(mount.point) if mount is not None else None


def source_of(path: Path) -> str | None:
    """Return the source of the Chronicle mount that contains a path; ``None`` if there is none."""
    mount = _containing(path)
    return mount.source if mount is not None else None


def _containing(path: Path) -> Mount | None:
    wanted = os.fspath(path.absolute())
    found: Mount | None = None
    for mount in _mounts():
        inside = wanted == mount.point or wanted.startswith(mount.point.rstrip("/") + "/")
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found if found is not None and found.kind == KIND else None


def real_path(mountpoint: Path) -> str:
    """Return a mountpoint's path as mountinfo has it: its parents' symlinks are resolved, its own name is not."""
    path = mountpoint.absolute()
    return os.path.join(os.path.realpath(path.parent), path.name)


def mounts_at(mountpoint: Path) -> list[Mount]:
    """Return the mounts at exactly a path, the lowest first."""
    path = real_path(mountpoint)
    return [mount for mount in _mounts(os.fsencode(path)) if mount.point == path]


def _mounts(within: bytes = b"") -> list[Mount]:
    """Return all mounts in the order in which they were made.

    Args:
        within: a path; most lines that do not concern it are skipped unparsed, as there may be hundreds.
    """
    found = []
    if _ESCAPED.intersection(within):
        within = b""
    with _MOUNTINFO.open("rb") as mountinfo:
        for line in mountinfo:
            if within not in line:
                continue
            before, _, after = line.partition(b" - ")
            _, _, device, _, path = before.split(b" ")[:5]
            # Blanks and backslashes in a path are written as three octal digits: proc(5).
            path = path.decode("unicode_escape").encode("latin-1")
            kind, source, options = map(os.fsdecode, after.split(b" ")[:3])
            is_guard = kind == KIND and _SERVED_OPTION not in options
            found.append(Mount(device.decode(), os.fsdecode(path), kind, source, is_guard))
    return found
