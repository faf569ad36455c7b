"""Chronicle's mount against the minimal loopback on the same driver, and against the native file system, in one run.

Each figure is the median of several rounds; a round takes the sides in turn, so that a busy moment hits all of them.
``pinned``: server and client share one CPU, as an agent and its mount server do; ``free``: the kernel places them. A
request costs about seven times more when it wakes another CPU, so the two are not comparable with each other.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.errors import Unavailable
from chronicle.fuse import mounts, zygote
from chronicle.fuse.client import list_mounts, open_fuse_workspace
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chronicle.workspace.port import Opened
    from tests.benchmarks.__main__ import Row

__all__ = ["run"]

ROUNDS: Final = 7
FILES: Final = 300
"""Operations of a kind in one round."""
MANY: Final = 200
"""Mounts at once."""
ALL_CPUS: Final = os.sched_getaffinity(0)


@dataclass(frozen=True, slots=True)
class Side:
    """One of what is compared."""

    name: str
    root: Path
    server: int | None
    """The process that answers; ``None`` for the kernel itself."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure of Chronicle is held against."""

    peer: str
    ratio: str


def create(root: Path) -> None:
    """Create, write 4 KiB, close."""
    data = b"x" * 4096
    for number in range(FILES):
        fd = os.open(f"{root}/{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, data)
        os.close(fd)


def read(root: Path) -> None:
    """Open, read 4 KiB, close."""
    for number in range(FILES):
        fd = os.open(f"{root}/{number}", os.O_RDONLY)
        os.read(fd, 8192)
        os.close(fd)


def append(root: Path) -> None:
    """Append 100 bytes to one open file."""
    data = b"x" * 100
    fd = os.open(f"{root}/0", os.O_WRONLY | os.O_APPEND)
    for _number in range(FILES):
        os.write(fd, data)
    os.close(fd)


def rename(root: Path) -> None:
    """Rename, within the directory."""
    for number in range(FILES):
        os.rename(f"{root}/{number}", f"{root}/r{number}")  # noqa: PTH104 - pathlib would be measured


def listing(root: Path) -> None:
    """List the directory, kinds and sizes included."""
    assert len(os.listdir(root)) >= FILES  # noqa: PTH208 - pathlib would be measured


def unlink(root: Path) -> None:
    """Unlink."""
    for number in range(FILES):
        os.unlink(f"{root}/r{number}")  # noqa: PTH108 - pathlib would be measured


def stat(root: Path) -> None:
    """Look names up that the kernel has not seen yet."""
    for number in range(FILES):
        os.stat(f"{root}/cold/{number}")  # noqa: PTH116 - pathlib would be measured


STEPS: Final[list[tuple[str, Callable[[Path], None], int, Target]]] = [
    ("create + write 4 KiB + close", create, FILES, Target("loopback", "<= 1.5")),
    ("open + read + close", read, FILES, Target("loopback", "<= 1.2")),
    ("append 100 B", append, FILES, Target("native", "<= 15")),
    ("stat", stat, FILES, Target("loopback", "<= 1.2")),
    ("rename", rename, FILES, Target("loopback", "<= 1.6")),
    ("readdir, one entry", listing, FILES, Target("loopback", "<= 1.2")),
]
LAST: Final[list[tuple[str, Callable[[Path], None], int, Target]]] = [
    ("unlink", unlink, FILES, Target("loopback", "<= 1.6")),
]
"""After all rounds of the others: ext4 is slow to make files where some were removed in the last seconds."""


def run() -> list[Row]:
    """Return the figures."""
    with tempfile.TemporaryDirectory(prefix="bench-fuse-") as name:
        directory = Path(name)
        return [*file_operations(directory / "operations"), *mounting(directory / "mounting")]


def file_operations(directory: Path) -> list[Row]:
    """Measure each operation on each side, pinned and free."""
    rows: list[Row] = []
    with ExitStack() as stack:
        native = directory / "native"
        native.mkdir(parents=True)
        make_cold(native)
        sides = [
            Side("native", native, None),
            stack.enter_context(loopback(directory)),
            stack.enter_context(chronicle(directory)),
        ]
        for placement in ("pinned", "free"):
            place(sides, {min(ALL_CPUS)} if placement == "pinned" else ALL_CPUS)
            took = measure(sides, 0 if placement == "pinned" else ROUNDS)
            for label, _, _, target in (*STEPS, *LAST):
                figures = {side.name: statistics.median(took[side.name, label]) for side in sides}
                floor = ", ".join(f"{name} {figures[name]:.1f} µs" for name in ("native", "loopback"))
                ratio = figures["chronicle"] / figures[target.peer]
                # Only the pinned figures have a target.
                aim = target.ratio if placement == "pinned" else ""
                rows.append(row(f"{label}, {placement}, / {target.peer}", ratio, "x", aim, floor))
    return rows


def measure(sides: list[Side], first_round: int) -> dict[tuple[str, str], list[float]]:
    """Return microseconds an operation, by side and step."""
    took: dict[tuple[str, str], list[float]] = {}
    for steps in (STEPS, LAST):
        for turn in range(first_round, first_round + ROUNDS):
            for label, step, count, _ in steps:
                for side in sides:
                    start = time.perf_counter()
                    step(side.root / str(turn))
                    took.setdefault((side.name, label), []).append((time.perf_counter() - start) / count * 1e6)
    return took


def mounting(directory: Path) -> list[Row]:
    """Measure mounts: how long to the first open, and what each costs in memory when there are many."""
    with running_zygote(directory) as socket:
        first = open_workspace(socket, directory, "seed")
        (first.workspace.root / "file").write_text("content")
        first.workspace.adopt(first.workspace.seal())
        base = first.workspace.base
        first.workspace.close()
        took = []
        opened = []
        for number in range(MANY):
            spec = LayerSpec(f"w{number}", directory / "layers", base, 1, 1)
            start = time.perf_counter()
            one = open_fuse_workspace(socket, spec, blobs(directory), directory / "mounts" / f"w{number}")
            (one.workspace.root / "file").open("rb").close()
            took.append((time.perf_counter() - start) * 1000)
            opened.append(one)
        private = [private_bytes(pid_of(mount)) / 2**20 for mount in list_mounts(socket)]
        for one in opened:
            one.workspace.close()
    return [
        row("mount of a stored workspace, to the first open", statistics.median(took), "ms", "<= 15", f"{MANY} mounts"),
        row("private memory of a mount server", statistics.median(private), "MiB", "<= 4", f"{MANY} at once"),
    ]


@contextmanager
def loopback(directory: Path) -> Iterator[Side]:
    """Serve a mirror."""
    source, mountpoint = directory / "source", directory / "loopback"
    source.mkdir()
    mountpoint.mkdir()
    make_cold(source)
    command = [sys.executable, "-m", "tests.benchmarks.loopback", str(source), str(mountpoint)]
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
def chronicle(directory: Path) -> Iterator[Side]:
    """Serve a workspace, mounted again so that the kernel has seen none of its names."""
    with running_zygote(directory) as socket:
        opened = open_workspace(socket, directory, "bench")
        make_cold(opened.workspace.root)
        opened.workspace.close()
        opened = open_workspace(socket, directory, "bench")
        (mount,) = list_mounts(socket)
        yield Side("chronicle", opened.workspace.root, pid_of(mount))
        opened.workspace.close()


@contextmanager
def running_zygote(directory: Path) -> Iterator[Path]:
    """Start a zygote and end it."""
    socket = directory / "run" / "zygote.sock"
    zygote.start(socket, directory / "mounts", directory / "log", os.getpid())
    try:
        yield socket
    finally:
        with suppress(Unavailable):
            zygote.shut_down(socket)
        mounts.unmount_all_under(directory)


def open_workspace(socket: Path, directory: Path, name: str) -> Opened:
    """Mount a workspace that starts empty, or from what its layer has."""
    spec = LayerSpec(name, directory / "layers", None, 1, 1)
    return open_fuse_workspace(socket, spec, blobs(directory), directory / "mounts" / name)


def blobs(directory: Path) -> str:
    """Return the address of the run's blob store."""
    return f"file://{directory}/blobs"


def make_cold(root: Path) -> None:
    """Make each round's directory, and the files in it that are looked up once."""
    for turn in range(2 * ROUNDS):
        cold = root / str(turn) / "cold"
        cold.mkdir(parents=True)
        for number in range(FILES):
            (cold / str(number)).touch()


def place(sides: list[Side], cpus: set[int]) -> None:
    """Put this process and the servers on CPUs."""
    for pid in (0, *(side.server for side in sides if side.server is not None)):
        os.sched_setaffinity(pid, cpus)


def pid_of(mount: dict[str, object]) -> int:
    """Return the process id of a mount's server."""
    pid = mount["pid"]
    assert isinstance(pid, int)
    return pid


def private_bytes(pid: int) -> int:
    """Return the memory that a process shares with nobody."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


def row(name: str, value: float, unit: str, target: str, floor: str) -> Row:
    """Return one line of the table."""
    return {"name": name, "value": value, "unit": unit, "target": target, "floor": floor}
