"""Chronicle's mounts, one operation at a time, against the minimal loopback and the native file system, in one run.

Each figure is the median of several rounds; a round takes the sides in turn, so that a busy moment hits all of them.
Both transports are measured; the targets are for the default.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.fuse.mountpoints.availability import TRANSPORTS, Transport
from chronicle.fuse.server.client import list_mounts
from tests.benchmarks.chronicle.fuse_sides import (
    PLACEMENTS,
    Side,
    loopback,
    mounted,
    open_workspace,
    pid_of,
    place,
    row,
    running_zygote,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.benchmarks.__main__ import Row

__all__ = ["run"]

ROUNDS: Final = 7
FILES: Final = 300
"""Operations of a kind in one round."""
MANY: Final = 200
"""Mounts at once."""
PAUSE_S: Final = 0.1
"""Between mounts that are timed: a node mounts one now and then, not all in a row."""


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
"""After all rounds of the others: when an ext4 without a journal makes a file, it passes over each inode that was freed
in the last minutes."""


def run() -> list[Row]:
    """Return the figures."""
    with tempfile.TemporaryDirectory(prefix="bench-fuse-") as name:
        directory = Path(name)
        rows = file_operations(directory / "operations")
        for transport in TRANSPORTS:
            rows += mounting(directory / f"mounting-{transport}", transport)
        return rows


def file_operations(directory: Path) -> list[Row]:
    """Measure each operation on each side, pinned and free, each side's files made before."""
    rows: list[Row] = []
    with ExitStack() as stack:
        native, source = directory / "native", directory / "source"
        for made in (native, source):
            made.mkdir(parents=True)
            make_cold(made)
        sides = [Side("native", native, None), stack.enter_context(loopback(source, directory / "loopback"))]
        sides += [stack.enter_context(chronicle(directory / name, name)) for name in TRANSPORTS]
        for index, (placement, cpus) in enumerate(PLACEMENTS.items()):
            place(sides, cpus)
            took = measure(sides, index * ROUNDS)
            for label, _, _, target in (*STEPS, *LAST):
                figures = {side.name: statistics.median(took[side.name, label]) for side in sides}
                floor = ", ".join(f"{name} {figure:.1f}" for name, figure in figures.items()) + " µs"
                for name in TRANSPORTS:
                    # Only the pinned figures of what is the default have a target.
                    aim = target.ratio if placement == "pinned" and name == TRANSPORTS[0] else ""
                    ratio = figures[name] / figures[target.peer]
                    rows.append(row(f"{label}, {name}, {placement}, / {target.peer}", ratio, "x", aim, floor))
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


def mounting(directory: Path, transport: Transport) -> list[Row]:
    """Measure mounts: how long to the first open, and what each costs in memory when there are many."""
    with running_zygote(directory, transport) as socket:
        first = open_workspace(socket, directory, "seed")
        (first.workspace.root / "file").write_text("content")
        first.workspace.adopt(first.workspace.seal())
        base = first.workspace.base
        first.workspace.close()
        took: dict[bool, list[float]] = {True: [], False: []}
        opened = []
        for number in range(MANY):
            paused = number < MANY // 4
            if paused:
                time.sleep(PAUSE_S)
            start = time.perf_counter()
            one = open_workspace(socket, directory, f"w{number}", base)
            (one.workspace.root / "file").open("rb").close()
            took[paused].append((time.perf_counter() - start) * 1000)
            opened.append(one)
        private = [private_bytes(pid_of(mount)) / 2**20 for mount in list_mounts(socket)]
        for one in opened:
            one.workspace.close()
    is_default = transport == TRANSPORTS[0]
    floor = f"{transport}, {MANY // 4} mounts, {PAUSE_S} s between"
    in_a_row = f"{transport}, {MANY - MANY // 4} mounts"
    return [
        row("mount to first open", statistics.median(took[True]), "ms", "<= 15" if is_default else "", floor),
        row("mount to first open, many in a row", statistics.median(took[False]), "ms", "", in_a_row),
        row(
            "private memory of a mount server",
            statistics.median(private),
            "MiB",
            "<= 3.81" if is_default else "",
            f"{transport}, {MANY} at once; 4 MB",
        ),
    ]


@contextmanager
def chronicle(directory: Path, transport: Transport) -> Iterator[Side]:
    """Serve a workspace, mounted again so that the kernel has seen none of its names."""
    with running_zygote(directory, transport) as socket:
        opened = open_workspace(socket, directory, "bench")
        make_cold(opened.workspace.root)
        opened.workspace.close()
        opened = open_workspace(socket, directory, "bench")
        side = mounted(socket, opened)
        yield Side(transport, side.root, side.server)
        opened.workspace.close()


def make_cold(root: Path) -> None:
    """Make each round's directory, and the files in it that are looked up once."""
    for turn in range(2 * ROUNDS):
        cold = root / str(turn) / "cold"
        cold.mkdir(parents=True)
        for number in range(FILES):
            (cold / str(number)).touch()


def private_bytes(pid: int) -> int:
    """Return the memory that a process shares with nobody."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
