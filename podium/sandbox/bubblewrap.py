"""The rung of bubblewrap: a command in namespaces of its own, which has a tree of files with what a policy names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from podium.sandbox.protected import PROTECTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from podium.sandbox.policy import Policy

__all__ = ["FILES_AT", "FILTER_AT", "bubblewrap", "wrapped"]

FILTER_AT: Final = 3
"""The descriptor at which it reads its filter of system calls."""
FILES_AT: Final = 100
"""The first of the descriptors at which it reads files of the system."""
_NAMESPACES: Final = ("user", "ipc", "pid", "uts")


def bubblewrap() -> str | None:
    """Return the path of the program; ``None`` where it is not installed."""
    return shutil.which("bwrap", path="/usr/bin:/usr/local/bin:/bin")


def wrapped(
    argv: Sequence[str], policy: Policy, *, system: Iterable[str], files: Iterable[str], tmp: str, cwd: str
) -> list[str]:
    """Return the command line that runs ``argv`` with the paths of a policy, at the places that they have outside.

    Args:
        system: directories that can be read too.
        files: files that can be read too. It has copies of them, since a mount takes ten times as long.
        tmp: a directory that is its ``/tmp``.
    """
    command = ["bwrap", "--die-with-parent", "--disable-userns", "--cap-drop", "ALL", "--seccomp", str(FILTER_AT)]
    command += [f"--unshare-{each}" for each in _NAMESPACES]
    command += ["--unshare-net"] if policy.network != "open" else []
    for path in system:
        if os.path.islink(path) and path.count("/") == 1:  # noqa: PTH114  /bin -> usr/bin
            command += ["--symlink", os.readlink(path), path]  # noqa: PTH115
        else:
            command += ["--ro-bind", path, path]
    for number, path in enumerate(files, FILES_AT):
        command += ["--perms", "0444", "--file", str(number), path]
    # Its /proc/sys is the kernel's, whose owner root is also in a namespace of users: core_pattern names a program.
    proc = ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]
    # Its /dev and /dev/shm are memory, which nothing else bounds.
    command += [*proc, "--dev", "/dev", "--size", str(policy.limits.memory_bytes), "--tmpfs", "/dev/shm"]  # noqa: S108
    command += ["--remount-ro", "/dev", "--bind", tmp, "/tmp"]  # noqa: S108
    binds = [(path, "--ro-bind") for path in policy.readable] + [(path, "--bind") for path in policy.writable]
    for bound, how in sorted(binds, key=lambda bind: len(bind[0].parts)):  # what is nested comes after
        command += [how, str(bound), str(bound)]
    for directory in policy.writable:
        command += _kept(directory)
    return [*command, "--remount-ro", "/", "--chdir", cwd, "--", *argv]


def _kept(directory: Path) -> Iterator[str]:
    """Yield what makes hooks and start files read-only where they are; a mount cannot be moved away, either."""
    if (git := directory / ".git").is_dir() and not git.is_symlink():
        yield from ("--bind", str(git), str(git))
    for name in PROTECTED:
        path = directory / name
        if path.exists() and not path.is_symlink():
            yield from ("--ro-bind", str(path), str(path))
