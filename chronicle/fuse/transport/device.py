"""Mounting: from a mountpoint to a descriptor of ``/dev/fuse`` from which requests are read.

Root mounts by mount(2). Other users run ``fusermount3``, which is setuid root and passes the descriptor back; so does a
root that may not mount, as in a container without the capability.
"""

from __future__ import annotations

import array
import errno
import os
import socket
import subprocess
from typing import TYPE_CHECKING, Final

from chronicle.errors import Unavailable
from chronicle.fuse.mountpoints import syscalls
from chronicle.fuse.mountpoints.mountinfo import KIND
from chronicle.settings import environment_with

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["mount"]

_DEVICE: Final = "/dev/fuse"
_FUSERMOUNT: Final = "fusermount3"
_DEADLINE_S: Final = 30
_ESCAPES: Final = str.maketrans({",": "\\,", "\\": "\\\\"})
"""Escapes of fusermount3 for commas in an option."""


def mount(mountpoint: Path, source: str, *, allow_other: bool) -> int:
    """Mount and return the connection's descriptor. The kernel queues requests from now on.

    Args:
        mountpoint: an existing directory.
        source: the mount's device in ``df`` and mountinfo.
        allow_other: admit users other than the mounting one, subject to the files' modes.

    Raises:
        Unavailable: the kernel or ``fusermount3`` refused.
    """
    if os.geteuid() == 0:
        fd = _mount_as_root(mountpoint, source, allow_other=allow_other)
        if fd is not None:
            return fd
    return _run_fusermount(mountpoint, source, allow_other=allow_other)


def _mount_as_root(mountpoint: Path, source: str, *, allow_other: bool) -> int | None:
    """Mount by system call; None if this root lacks the permission."""
    try:
        fd = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"could not mount at {mountpoint}: {error}") from error
    # The mountpoint is not inspected: the guard that is mounted there answers nothing.
    options = f"fd={fd},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()},default_permissions"
    if allow_other:
        options += ",allow_other"
    code = syscalls.mount(
        source.encode(), os.fsencode(mountpoint), KIND.encode(), syscalls.MOUNT_FLAGS, options.encode()
    )
    if code == 0:
        return fd
    os.close(fd)
    if code in (errno.EPERM, errno.EACCES):
        return None
    raise Unavailable(f"could not mount at {mountpoint}: {os.strerror(code)}")


def _run_fusermount(mountpoint: Path, source: str, *, allow_other: bool) -> int:
    """Mount by fusermount3, and receive the descriptor over a socket."""
    options = [
        "rw",
        "nosuid",
        "nodev",
        "default_permissions",
        f"fsname={source.translate(_ESCAPES)}",
        "subtype=chronicle",
    ]
    if allow_other:
        options.append("allow_other")
    command = [_FUSERMOUNT, "-o", ",".join(options), "--", os.fspath(mountpoint)]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with ours, theirs:
        try:
            done = subprocess.run(
                command,
                env=environment_with("_FUSE_COMMFD", str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                capture_output=True,
                text=True,
                timeout=_DEADLINE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"could not mount at {mountpoint}: {error}; is fuse3 installed?") from error
        if done.returncode != 0:
            raise Unavailable(f"could not mount at {mountpoint}: {done.stderr.strip()}; is it a directory you own?")
        ours.settimeout(_DEADLINE_S)
        _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(array.array("i").itemsize))
    for _, kind, data in ancillary:
        if kind == socket.SCM_RIGHTS:
            fd = array.array("i", data)[0]
            os.set_inheritable(fd, False)
            return fd
    raise Unavailable(f"could not mount at {mountpoint}: {_FUSERMOUNT} sent no descriptor")
