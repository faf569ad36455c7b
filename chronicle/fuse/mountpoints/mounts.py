"""Mounts of this machine: whether FUSE can be used here, what is mounted, and how to get rid of it.

Nothing here touches a path *through* a mount: a mount whose server hangs would make us hang with it. What is mounted is
read from ``/proc/self/mountinfo``. No pyfuse3 is imported, so that asking costs nothing where FUSE is not used.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import importlib.util
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple

from chronicle.errors import Conflict, InvalidInput, Unavailable
from chronicle.fuse.mountpoints import guard as below

__all__ = [
    "DEFAULT_TRANSPORT",
    "KIND",
    "MOUNT_FLAGS",
    "TRANSPORTS",
    "Transport",
    "abort",
    "available",
    "check_mountpoint",
    "claim",
    "detach",
    "fuse_mounts_under",
    "guard",
    "is_guarded",
    "is_mounted",
    "is_served",
    "make_mountpoint",
    "mount_call",
    "point_of",
    "points_below",
    "resolved",
    "source_of",
    "unmount",
    "unmount_all_under",
]

KIND: Final = "fuse.chronicle"
"""The file system type of our mounts, by which they are recognised."""
Transport = Literal["raw", "pyfuse3"]
TRANSPORTS: Final[tuple[Transport, ...]] = ("raw", "pyfuse3")
"""The ways in which a mount's requests come: see `chronicle.fuse.transport.choice`."""
DEFAULT_TRANSPORT: Final[Transport] = "raw"
_DEVICE: Final = "/dev/fuse"
_MOUNTINFO: Final = Path("/proc/self/mountinfo")
_WRITTEN_OTHERWISE: Final = frozenset(b" \t\n\\#")
"""Bytes of a path that are three octal digits there."""
_CONNECTIONS: Final = Path("/sys/fs/fuse/connections")
"""A directory for each FUSE connection, named by the minor device number; its files belong to who mounted."""
# The numbers are those of linux/mount.h and of umount2(2).
_MS_NOSUID: Final = 2
_MS_NODEV: Final = 4
MOUNT_FLAGS: Final = _MS_NOSUID | _MS_NODEV
"""Of all our mounts: what a workspace contains gives nobody rights."""
_MNT_FORCE: Final = 1
_MNT_DETACH: Final = 2
_UMOUNT_NOFOLLOW: Final = 8
_FUSERMOUNT_DEADLINE_S: Final = 10
_CLAIM: Final = "\0chronicle-mountpoint-"
"""The beginning of an abstract socket's name: unix(7). There is no file, and who dies lets go of it."""
_SYMLINKS: Final = 40
"""How many the system follows in a path: path_resolution(7)."""

_SERVED_OPTION: Final = "default_permissions"
"""What all mounts of servers have and a guard has not, by which it is recognised."""

_libc: Final = ctypes.CDLL(None, use_errno=True)
# Found now and not when they are needed: mount servers then need no memory of their own for it.
_libc_mount: Final = _libc.mount
_libc_umount2: Final = _libc.umount2


def available(transport: Transport = DEFAULT_TRANSPORT) -> str | None:
    """Return None if workspaces can be mounted here, else a sentence or two on why not and how to mend it."""
    if not sys.platform.startswith("linux"):
        return "FUSE workspaces need Linux."
    if transport == "pyfuse3" and importlib.util.find_spec("pyfuse3") is None:
        return "pyfuse3 is not there: pip install 'podium[fuse]' (needs libfuse3-dev, pkg-config, gcc)."
    try:
        device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return f"{_DEVICE} is not there: modprobe fuse, or give the container the device."
    except OSError as error:
        return f"{_DEVICE} cannot be opened ({error.strerror}): give this user or container access to it."
    try:
        if os.geteuid() == 0:
            return _probe(device)
    finally:
        os.close(device)
    helper = shutil.which("fusermount3")
    if helper is None:
        return "fusermount3 is not installed: apt-get install fuse3."
    if not Path(helper).stat().st_mode & stat.S_ISUID:
        return f"{helper} is not setuid root, so that only root can mount: chmod u+s {helper}."
    return None


def _probe(device: int) -> str | None:
    """Mount for a moment: capabilities, seccomp and AppArmor each can forbid it, and only trying tells."""
    with tempfile.TemporaryDirectory(prefix="chronicle-probe-") as directory:
        options = f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()}"
        code = mount_call(b"chronicle-probe", os.fsencode(directory), b"fuse", MOUNT_FLAGS, options.encode())
        if code != 0:
            reason = os.strerror(code)
            return f"mounting is refused here ({reason}): the container needs the capability SYS_ADMIN."
        _umount2(directory)
    return None


def fuse_mounts_under(directory: Path) -> list[Path]:
    """Return the mountpoints of Chronicle at or below a directory, innermost last mounted first."""
    prefix = _real(directory)
    ours = dict.fromkeys(mount.point for mount in reversed(_mounts()) if mount.kind == KIND)
    return [Path(point) for point in ours if point == prefix or point.startswith(prefix + "/")]


def is_mounted(mountpoint: Path) -> bool:
    """Say whether a file system of any kind is mounted at exactly this path."""
    return bool(_mounts_at(mountpoint))


def is_served(mountpoint: Path) -> bool:
    """Say whether more than a guard (`chronicle.fuse.mountpoints.guard`) is mounted at exactly this path."""
    return any(not mount.is_guard for mount in _mounts_at(mountpoint))


def is_guarded(mountpoint: Path) -> bool:
    """Say whether root's guard is mounted at exactly this path, and nothing over it."""
    return [mount.is_guard for mount in _mounts_at(mountpoint)] == [True]


def guard(mountpoint: Path, source: str) -> None:
    """See to it that writes to a path fail when no server is mounted there; see `chronicle.fuse.mountpoints.guard`.

    Nothing to do if it is guarded. `unmount` takes the guard away.

    Args:
        mountpoint: a directory on which nothing is mounted, but for a guard.
        source: what the system shows as the mount's device.

    Raises:
        Unavailable: the kernel refused.
    """
    if os.geteuid() != 0:
        below.shut(mountpoint)
    elif not is_mounted(mountpoint):
        try:
            device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable(f"could not mount at {mountpoint}: {error}") from error
        try:
            options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
            code = mount_call(source.encode(), os.fsencode(mountpoint), KIND.encode(), MOUNT_FLAGS, options.encode())
        finally:
            os.close(device)  # from here on whoever asks anything gets ENOTCONN
        if code != 0:
            raise Unavailable(f"could not mount at {mountpoint}: {os.strerror(code)}")


def claim(mountpoint: Path) -> socket.socket:
    """Have a mountpoint, so that nobody else mounts there or takes away what is mounted, whatever the store.

    Whoever mounts has it from before the first look to after the last unmounting. A file lock would not do: what is
    below a mount cannot be reached to be locked. It keeps apart what is in one network namespace, and any user of the
    machine can have any.

    Returns:
        what holds it until it is closed, or the process ends.

    Raises:
        Conflict: another process has it.
    """
    namespace = Path("/proc/self/ns/mnt").stat().st_ino  # elsewhere the path is another directory
    name = hashlib.sha256(f"{namespace}:".encode() + os.fsencode(_real(mountpoint))).hexdigest()
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        held.bind(_CLAIM + name)
    except OSError as error:
        held.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise Conflict(
            f"another process has mounted something at {mountpoint}, or is mounting or unmounting it; unmount that "
            "first, or name another directory"
        ) from None
    return held


def make_mountpoint(mountpoint: Path) -> None:
    """Make a directory fit to be mounted on, if it is not there.

    Raises:
        InvalidInput: it cannot be made, or is not an empty directory (what is in it would be hidden).
    """
    try:
        mountpoint.mkdir(parents=True, exist_ok=True)
        below.reopen(mountpoint)  # everything was killed before it could be mounted on
        with os.scandir(mountpoint) as entries:
            crowded = next(entries, None) is not None
    except OSError as error:
        raise InvalidInput(
            f"{mountpoint} cannot be a mountpoint: {error.strerror}; name a directory of your own"
        ) from error
    if crowded:
        raise InvalidInput(f"{mountpoint} is not empty, and a mount would hide what is in it; name an empty directory")


def check_mountpoint(mountpoint: Path) -> None:
    """Check that something can be mounted at a path, and make nothing.

    Raises:
        InvalidInput: it is no empty directory and none can be made there.
        Conflict: something is mounted there.
    """
    if is_mounted(mountpoint):
        raise Conflict(
            f"something is mounted at {mountpoint} already; unmount it first: chronicle unmount {mountpoint}"
        )
    try:
        there = mountpoint.absolute()
        while not there.exists() and not there.is_symlink():
            there = there.parent
        if not there.is_dir():
            raise InvalidInput(
                f"{there} is not a directory, and so {mountpoint} cannot be a mountpoint; name another one"
            )
        if there != mountpoint.absolute():
            if not os.access(there, os.W_OK | os.X_OK):
                raise InvalidInput(f"{mountpoint} cannot be made: you may not write to {there}; name another directory")
            return
    except OSError as error:
        raise InvalidInput(f"{mountpoint} cannot be a mountpoint: {error.strerror}; name another directory") from error
    make_mountpoint(mountpoint)


def unmount(mountpoint: Path) -> None:
    """Unmount all of Chronicle's at once, whatever still uses it; nothing to do if nothing is mounted there.

    The directory is afterwards as it was before it was mounted on.

    Raises:
        Unavailable: it is still mounted; the message says why.
    """
    _unmount(mountpoint, guards=True)
    if os.geteuid() != 0 and not is_mounted(mountpoint):
        below.reopen(mountpoint)


def detach(mountpoint: Path) -> None:
    """Unmount what servers mounted, as `unmount` does, and let the directory below stay guarded."""
    _unmount(mountpoint, guards=False)


def _unmount(mountpoint: Path, *, guards: bool) -> None:
    """Unmount Chronicle's mounts from the top.

    The connection to the server is aborted first: requests that wait for it fail, so that this never waits for a
    server that hangs. Root does both with one call. Others write to the connection's control file, which is theirs;
    where the control file system is not mounted (in most containers) they cannot, and the connection ends with its
    server.
    """
    path = os.fspath(mountpoint)
    for mount in reversed(_mounts_at(mountpoint)):
        if mount.kind != KIND or (mount.is_guard and not guards):
            return
        if os.geteuid() == 0:
            code = _umount2(path)
            if code not in (0, errno.EINVAL, errno.ENOENT):  # EINVAL: someone else has unmounted it
                raise Unavailable(f"could not unmount {path}: {os.strerror(code)}")
        else:
            abort(mountpoint)
            _have_unmounted(mountpoint)


def _have_unmounted(mountpoint: Path) -> None:
    """Have fusermount3 detach a mount."""
    path = os.fspath(mountpoint)
    command = ["fusermount3", "-u", "-z", "-q", path]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FUSERMOUNT_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"could not unmount {path}: {error}; try: {' '.join(command)}") from error
    if done.returncode != 0 and is_mounted(mountpoint):
        reason = done.stderr.strip() or "only who mounted it, and root, can"
        raise Unavailable(f"could not unmount {path}: {reason}; try: {' '.join(command)}")


def unmount_all_under(directory: Path) -> list[Path]:
    """Unmount what earlier runs left mounted below a directory, and return where."""
    stale = fuse_mounts_under(directory)
    for mountpoint in stale:
        unmount(mountpoint)
    return stale


def points_below(mountpoint: Path) -> list[Path]:
    """Return where file systems of any kind are mounted below a mountpoint."""
    prefix = os.fspath(mountpoint).rstrip("/") + "/"
    return [Path(point) for point in dict.fromkeys(mount.point for mount in _mounts()) if point.startswith(prefix)]


def resolved(path: Path) -> Path:
    """Return the path of a mountpoint as the system has it: absolute, and without symlinks, ``.`` and ``..``.

    What is mounted there is not asked for anything, and need not answer. It need not be there either.
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
            with suppress(OSError):  # it is no symlink
                target = there.readlink()
                links += 1
                here = here / target.anchor  # from the beginning, if it has one
                rest += [part for part in reversed(target.parts) if part != target.anchor]
                continue
        here = there
    return here


def point_of(path: Path) -> Path | None:
    """Return the mountpoint of the Chronicle mount that a path is in; ``None`` if it is in none."""
    mount = _around(path)
    return Path(mount.point) if mount is not None else None


def source_of(path: Path) -> str | None:
    """Return the source of the Chronicle mount that a path is in; ``None`` if it is in none."""
    mount = _around(path)
    return mount.source if mount is not None else None


def _around(path: Path) -> _Mount | None:
    """Return the Chronicle mount that a path is in; ``None`` if it is in none."""
    wanted = os.fspath(path.absolute())
    found: _Mount | None = None
    for mount in _mounts():
        inside = wanted == mount.point or wanted.startswith(mount.point.rstrip("/") + "/")
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    return found if found is not None and found.kind == KIND else None


class _Mount(NamedTuple):
    """A line of mountinfo."""

    device: str
    """``major:minor``."""
    point: str
    kind: str
    source: str
    is_guard: bool
    """One of ours, for the servers' to be mounted over: `chronicle.fuse.mountpoints.guard`."""


def _real(mountpoint: Path) -> str:
    """Return a mountpoint's path as mountinfo has it, through no symlink; it is itself not looked at."""
    path = mountpoint.absolute()
    return os.path.join(os.path.realpath(path.parent), path.name)


def _mounts_at(mountpoint: Path) -> list[_Mount]:
    """Return what is mounted at exactly a path, the lowest first."""
    path = _real(mountpoint)
    return [mount for mount in _mounts(os.fsencode(path)) if mount.point == path]


def _mounts(within: bytes = b"") -> list[_Mount]:
    """Return what is mounted, in the order in which it was.

    Args:
        within: a path, to leave out most of what has nothing to do with it: there may be hundreds of mounts.
    """
    found = []
    if _WRITTEN_OTHERWISE.intersection(within):
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
            found.append(_Mount(device.decode(), os.fsdecode(path), kind, source, is_guard))
    return found


def abort(mountpoint: Path) -> None:
    """Abort the connection of the FUSE file system that was mounted last at a path: all that waits for it fails.

    Done by its control file; where that file system is not mounted, root unmounts by force, and others cannot.
    A guard has none.
    """
    path = os.fspath(mountpoint.absolute())
    for mount in _mounts_at(mountpoint)[-1:]:
        if mount.kind.startswith("fuse") and not mount.is_guard:
            try:
                (_CONNECTIONS / mount.device.partition(":")[2] / "abort").write_bytes(b"1")
            except OSError:
                if os.geteuid() == 0:
                    _umount2(path)


def _umount2(path: str) -> int:
    """Abort the connection and detach the mount; return 0 or the errno."""
    return (
        0 if _libc_umount2(os.fsencode(path), _MNT_FORCE | _MNT_DETACH | _UMOUNT_NOFOLLOW) == 0 else ctypes.get_errno()
    )


def mount_call(source: bytes, mountpoint: bytes, kind: bytes, flags: int, options: bytes) -> int:
    """Do mount(2); return 0 or the errno."""
    return 0 if _libc_mount(source, mountpoint, kind, flags, options) == 0 else ctypes.get_errno()
