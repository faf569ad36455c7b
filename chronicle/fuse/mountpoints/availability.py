"""The transports, and whether this machine and this user can mount FUSE file systems.

pyfuse3 is looked for and never imported here, so the check costs nothing where FUSE is not used.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Final, Literal

from chronicle.fuse.mountpoints import syscalls

__all__ = ["DEFAULT_TRANSPORT", "TRANSPORTS", "Transport", "available"]

Transport = Literal["raw", "pyfuse3"]
TRANSPORTS: Final[tuple[Transport, ...]] = ("raw", "pyfuse3")
"""How a mount server talks to the kernel: see `chronicle.fuse.transport.choice`."""
DEFAULT_TRANSPORT: Final[Transport] = "raw"
_DEVICE: Final = "/dev/fuse"


def available(transport: Transport = DEFAULT_TRANSPORT) -> str | None:
    """Return None if workspaces can be mounted here, else the reason and the remedy in a sentence or two."""
    if not sys.platform.startswith("linux"):
        return "FUSE workspaces need Linux."
    if transport == "pyfuse3" and importlib.util.find_spec("pyfuse3") is None:
        return "pyfuse3 is not there: install the extra `fuse` (needs libfuse3-dev, pkg-config, gcc)."
    try:
        device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return f"{_DEVICE} is not there: modprobe fuse, or give the container the device."
    except OSError as error:
        return f"{_DEVICE} cannot be opened ({error.strerror}): give this user or container access to it."
    try:
        if os.geteuid() == 0:
            return _try_mount(device)
    finally:
        os.close(device)
    helper = shutil.which("fusermount3")
    if helper is None:
        return "fusermount3 is not installed: apt-get install fuse3."
    if not Path(helper).stat().st_mode & stat.S_ISUID:
        return f"{helper} is not setuid root, so that only root can mount: chmod u+s {helper}."
    return None


def _try_mount(device: int) -> str | None:
    """Mount and unmount a probe: capabilities, seccomp and AppArmor can each forbid it, and only a mount shows it."""
    with tempfile.TemporaryDirectory(prefix="chronicle-probe-") as directory:
        options = f"fd={device},rootmode=40000,user_id={os.geteuid()},group_id={os.getegid()}"
        code = syscalls.mount(
            b"chronicle-probe", os.fsencode(directory), b"fuse", syscalls.MOUNT_FLAGS, options.encode()
        )
        if code != 0:
            reason = os.strerror(code)
            return f"mounting is refused here ({reason}): the container needs the capability SYS_ADMIN."
        syscalls.force_unmount(directory)
    return None
