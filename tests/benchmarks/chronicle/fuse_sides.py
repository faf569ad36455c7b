"""The sides that mounts are compared on: the native file system, the minimal loopback, Chronicle.

``pinned``: server and client share one CPU, as an agent and its mount server do; ``free``: the kernel places them. A
request costs about seven times more when it wakes another CPU, so the two are not comparable with each other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.errors import Unavailable
from chronicle.fuse.mountpoints import mounts
from chronicle.fuse.mountpoints.availability import DEFAULT_TRANSPORT, Transport
from chronicle.fuse.server.client import list_mounts, open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.workspace.port import Opened, TreeRef
    from tests.benchmarks.__main__ import Row

__all__ = [
    "PLACEMENTS",
    "Side",
    "blobs_of",
    "loopback",
    "mounted",
    "open_workspace",
    "pid_of",
    "place",
    "row",
    "running_zygote",
]

ALL_CPUS: Final = os.sched_getaffinity(0)
PLACEMENTS: Final = {"pinned": {min(ALL_CPUS)}, "free": ALL_CPUS}


@dataclass(frozen=True, slots=True)
class Side:
    """One of what is compared."""

    name: str
    root: Path
    server: int | None
    """The process that answers; ``None`` for the kernel itself."""


@contextmanager
def loopback(source: Path, mountpoint: Path) -> Iterator[Side]:
    """Serve a mirror of a directory."""
    source.mkdir(exist_ok=True)
    mountpoint.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "tests.benchmarks.chronicle.loopback", str(source), str(mountpoint)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield Side("loopback", mountpoint, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            mounts.unmount(mountpoint)


@contextmanager
def running_zygote(directory: Path, transport: Transport = DEFAULT_TRANSPORT) -> Iterator[Path]:
    """Start a zygote and end it."""
    socket = directory / "run" / "zygote.sock"
    launcher.start(socket, directory / "mounts", directory / "log", os.getpid(), transport=transport)
    try:
        yield socket
    finally:
        with suppress(Unavailable):
            launcher.shut_down(socket)
        mounts.unmount_all_under(directory)


def open_workspace(socket: Path, directory: Path, name: str, base: TreeRef | None = None) -> Opened:
    """Mount a workspace, from a tree or from what its layer has."""
    spec = LayerSpec(name, directory / "layers", base, 1, 1)
    return open_fuse_workspace(socket, spec, blobs_of(directory), directory / "mounts" / name)


def mounted(socket: Path, opened: Opened) -> Side:
    """Return the side of a mounted workspace."""
    root = str(opened.workspace.root)
    (mount,) = [mount for mount in list_mounts(socket) if mount["mountpoint"] == root]
    return Side("chronicle", opened.workspace.root, pid_of(mount))


def blobs_of(directory: Path) -> str:
    """Return the address of the run's blob store."""
    return f"file://{directory}/blobs"


def place(sides: list[Side], cpus: set[int]) -> None:
    """Put this process and the servers on CPUs."""
    for pid in (0, *(side.server for side in sides if side.server is not None)):
        os.sched_setaffinity(pid, cpus)


def pid_of(mount: dict[str, object]) -> int:
    """Return the process id of a mount's server."""
    pid = mount["pid"]
    assert isinstance(pid, int)
    return pid


def row(name: str, value: float, unit: str, target: str, floor: str) -> Row:
    """Return one line of the table."""
    return {"name": name, "value": value, "unit": unit, "target": target, "floor": floor}
