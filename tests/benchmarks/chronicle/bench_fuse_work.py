"""What programs do on Chronicle's mount, against the minimal loopback and the native file system, in one run.

git, tar, SQLite, files of 1 GiB, long histories and large directories, each pinned to one CPU and free. Figures are
medians of the rounds; a round takes the sides in turn.
"""

from __future__ import annotations

import io
import mmap
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import tarfile
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.benchmarks.chronicle.fuse_sides import (
    PLACEMENTS,
    Side,
    loopback,
    mounted,
    open_workspace,
    place,
    row,
    running_zygote,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.__main__ import Row

__all__ = ["run"]

ROUNDS: Final = 5
GIT_FILES: Final = 2_000
TAR_FILES: Final = 3_000
INSERTS: Final = 200
GIB: Final = 1024**3
MIB: Final = 1024**2
WARM_BYTES: Final = 10 * GIB
"""Or half of what is available."""
READS: Final = 3
"""Of a file, in one round."""
CHANGES: Final = 20
"""Of 4 KiB, in one round."""
ITERATIONS: Final = 10_000
LOOKUPS: Final = 40
"""Of old iterations, in one round."""
ENTRIES: Final = 100_000

UNTAR: Final = f"untar of {TAR_FILES} files"
GIT: Final = f"git init, add, commit of {GIT_FILES} files"
INSERT: Final = "SQLite WAL insert, synchronous=FULL"
WRITE: Final = "sequential write of 1 GiB, to the return of close"
READ: Final = "warm sequential read of 1 GiB"
CHANGE: Final = "4 KiB written, to the return of close"
LIST: Final = f"first listing of {ENTRIES} entries"

Figures = dict[tuple[str, str], list[float]]
"""Seconds, by side and by what was done."""


def run() -> list[Row]:
    """Return the figures."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="bench-fuse-work-") as name:
        directory = Path(name)
        archive = make_archive(directory / "source.tar")
        try:
            for placement, cpus in PLACEMENTS.items():
                rows += programs(directory / f"programs-{placement}", archive, placement, cpus)
                rows += large_files(directory / f"large-{placement}", placement, cpus)
                rows += long_history(directory / f"history-{placement}", placement, cpus)
                rows += large_directory(directory / f"directory-{placement}", placement, cpus)
        finally:
            os.sched_setaffinity(0, PLACEMENTS["free"])
    return rows


def timed(took: Figures, side: str, label: str, work: Callable[..., object], *arguments: Path) -> None:
    """Do something and note how long it took."""
    start = time.perf_counter()
    work(*arguments)
    took.setdefault((side, label), []).append(time.perf_counter() - start)


def compared(took: Figures, label: str, peer: str, target: str, placement: str, *, faster: bool = False) -> Row:
    """Return the row of what was done on Chronicle's mount against a peer; ``faster`` for the ratio of speeds."""
    medians = {side: statistics.median(times) for (side, what), times in took.items() if what == label}
    ratio = medians["chronicle"] / medians[peer]
    floor = ", ".join(f"{side} {seconds * 1000:.4g} ms" for side, seconds in medians.items())
    aim = target if placement == "pinned" else ""
    return row(f"{label}, {placement}, / {peer}", 1 / ratio if faster else ratio, "x", aim, floor)


# -- git, tar, SQLite ------------------------------------------------------------------------------------------------


def programs(directory: Path, archive: Path, placement: str, cpus: set[int]) -> list[Row]:
    """Measure programs that make many small files, and a database."""
    took: Figures = {}
    with ExitStack() as stack:
        native = directory / "native"
        native.mkdir(parents=True)
        socket = stack.enter_context(running_zygote(directory))
        opened = open_workspace(socket, directory, "w")
        stack.callback(opened.workspace.close)
        sides = [
            Side("native", native, None),
            stack.enter_context(loopback(directory / "source", directory / "loopback")),
            mounted(socket, opened),
        ]
        place(sides, cpus)
        for turn in range(ROUNDS):
            for side in sides:
                here = side.root / str(turn)
                here.mkdir()
                (here / "tar").mkdir()
                timed(took, side.name, UNTAR, untar, archive, here / "tar")
                make_sources(here / "git")
                timed(took, side.name, GIT, git, here / "git")
                insert(here / "db", took, side.name)
    return [
        compared(took, GIT, "loopback", "<= 1.5", placement),
        compared(took, UNTAR, "loopback", "<= 1.5", placement),
        compared(took, INSERT, "native", "<= 2", placement),
    ]


def make_archive(path: Path) -> Path:
    """Make an archive like a source tree's: 100 directories with 30 files each, of half a KiB to 16 KiB."""
    source = random.Random(4)
    words = [source.randbytes(4).hex() for _ in range(500)]
    with tarfile.open(path, "w") as archive:
        for number in range(TAR_FILES):
            size = int(512 * 32 ** source.random())
            text = " ".join(source.choices(words, k=size // 9 + 1))[:size].encode()
            info = tarfile.TarInfo(f"src/pkg{number % 100:02}/module{number // 100:02}.py")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    return path


def untar(archive: Path, into: Path) -> None:
    """Unpack."""
    subprocess.run(["tar", "-xf", archive, "-C", into], check=True)


def make_sources(directory: Path) -> None:
    """Write the files that git is to commit."""
    for number in range(GIT_FILES):
        path = directory / f"pkg{number % 50:02}" / f"module{number // 50:02}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# module {number}\n" * 40)


def git(directory: Path) -> None:
    """Commit everything in a directory to a new repository."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    who = ["-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "gc.auto=0"]
    for arguments in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *arguments], cwd=directory, env=environment, check=True)


def insert(path: Path, took: Figures, side: str) -> None:
    """Insert rows one a transaction, each on disk before the next."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, v BLOB)")
    times = []
    for number in range(INSERTS):
        start = time.perf_counter()
        database.execute("INSERT INTO t VALUES (?, ?)", (number, bytes(400)))
        times.append(time.perf_counter() - start)
    database.close()
    took.setdefault((side, INSERT), []).append(statistics.median(times))


# -- files of 1 GiB --------------------------------------------------------------------------------------------------


def large_files(directory: Path, placement: str, cpus: set[int]) -> list[Row]:
    """Measure writing 1 GiB in order, reading it again, and changing 4 KiB of it."""
    took: Figures = {}
    native = directory / "native"
    native.mkdir(parents=True)
    with running_zygote(directory) as socket:
        for turn in range(ROUNDS):
            # A workspace of its own for each round, so that what was written before takes no room.
            opened = open_workspace(socket, directory, f"w{turn}")
            sides = [Side("native", native, None), mounted(socket, opened)]
            place(sides, cpus)
            for side in sides:
                large = side.root / "large"
                settle()
                timed(took, side.name, WRITE, write, large)
                for _ in range(READS):
                    timed(took, side.name, READ, read, large)
                (side.root / "small").write_bytes(bytes(MIB))
                for name, size in (("large", GIB), ("small", MIB)):
                    change(side.root / name, size, took, f"{side.name}, {name}")
                large.unlink()
            opened.workspace.close()
            shutil.rmtree(directory / "layers")
    large_s, small_s = (statistics.median(took[f"chronicle, {name}", CHANGE]) for name in ("large", "small"))
    return [
        compared(took, WRITE, "native", ">= 0.35", placement, faster=True),
        compared(took, READ, "native", ">= 0.5", placement, faster=True),
        row(
            f"4 KiB into 1 GiB, to the return of close, {placement}, / the same into 1 MiB",
            large_s / small_s,
            "x",
            "<= 2" if placement == "pinned" else "",
            f"1 GiB {large_s * 1e6:.0f} µs, 1 MiB {small_s * 1e6:.0f} µs",
        ),
    ]


def settle() -> None:
    """Let what was written before reach the disk, and have the kernel's free memory at hand.

    A virtual machine's host takes back what is free for long. Bringing it again costs ten times what writing to it
    does, now on one side and now on the other.
    """
    os.sync()
    room = min(WARM_BYTES, os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE // 2)
    mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()


def write(path: Path) -> None:
    """Write 1 GiB, a MiB at a time."""
    data = os.urandom(MIB)
    with path.open("wb", buffering=0) as file:
        for _ in range(GIB // MIB):
            file.write(data)


def read(path: Path) -> None:
    """Read all of a file, a MiB at a time."""
    buffer = bytearray(MIB)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def change(path: Path, size: int, took: Figures, side: str) -> None:
    """Change a page somewhere, and close."""
    where = random.Random(5)
    data = os.urandom(4096)
    times = []
    for _ in range(CHANGES):
        offset = where.randrange(size // 4096) * 4096
        start = time.perf_counter()
        fd = os.open(path, os.O_RDWR)
        os.pwrite(fd, data, offset)
        os.close(fd)
        times.append(time.perf_counter() - start)
    took.setdefault((side, CHANGE), []).append(statistics.median(times))


# -- history ---------------------------------------------------------------------------------------------------------


def long_history(directory: Path, placement: str, cpus: set[int]) -> list[Row]:
    """Measure reading an old iteration of a path that has many."""
    directory.mkdir(parents=True)
    with running_zygote(directory) as socket:
        opened = open_workspace(socket, directory, "w")
        path = opened.workspace.root / "path"
        for number in range(ITERATIONS):
            path.write_text(f"iteration {number + 1}")
        opened.workspace.adopt(opened.workspace.seal())
        base = opened.workspace.base
        opened.workspace.close()
        opened = open_workspace(socket, directory, "elsewhere", base)
        place([mounted(socket, opened)], cpus)
        where = random.Random(6)
        times = []
        for number in where.sample(range(1, ITERATIONS + 1), ROUNDS * LOOKUPS):
            start = time.perf_counter()
            text = (opened.workspace.root / ".chronicle" / "at" / str(number) / "path").read_text()
            times.append((time.perf_counter() - start) * 1000)
            assert text == f"iteration {number}"
        opened.workspace.close()
    times.sort()
    floor = f"slowest {times[-1]:.2f} ms; of a path of {ITERATIONS} iterations"
    target = "<= 5" if placement == "pinned" else ""
    return [row(f".chronicle/at/<n>, open + read + close, {placement}", statistics.median(times), "ms", target, floor)]


# -- a large directory -----------------------------------------------------------------------------------------------


def large_directory(directory: Path, placement: str, cpus: set[int]) -> list[Row]:
    """Measure the first listing of a directory, on mounts that were made a moment ago."""
    took: Figures = {}
    source = directory / "source"
    source.mkdir(parents=True)
    fill(source)
    with running_zygote(directory) as socket:
        opened = open_workspace(socket, directory, "w")
        fill(opened.workspace.root)
        opened.workspace.adopt(opened.workspace.seal())
        base = opened.workspace.base
        opened.workspace.close()
        for turn in range(ROUNDS):
            opened = open_workspace(socket, directory, f"w{turn}", base)
            with loopback(source, directory / "loopback") as mirror:
                sides = [Side("native", source, None), mirror, mounted(socket, opened)]
                place(sides, cpus)
                for side in sides:
                    timed(took, side.name, LIST, listing, side.root)
            opened.workspace.close()
    return [compared(took, LIST, "loopback", "<= 1.2", placement)]


def fill(directory: Path) -> None:
    """Make the entries."""
    for number in range(ENTRIES):
        os.close(os.open(f"{directory}/{number}", os.O_WRONLY | os.O_CREAT))


def listing(directory: Path) -> None:
    """List a directory."""
    assert len(os.listdir(directory)) == ENTRIES  # noqa: PTH208 - pathlib would be measured
