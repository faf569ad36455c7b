"""Very many files in one directory: what each operation costs beside the minimal loopback, and what memory is kept.

``SCALE_FILES`` sets how many files (20,000), ``SCALE_ROUNDS`` how often each operation is done (3). Times are medians
of the rounds; a round takes the sides in turn, all on one CPU. Memory is the private memory of a mount server in one
further round, beside that of a server of an empty workspace. The last rows compare with a quarter of the files: linear
is 1.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.repository import Repository
from chronicle.repository.maintenance import collect_garbage
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

    from chronicle.workspace.port import Opened
    from tests.benchmarks.__main__ import Row

__all__ = ["run"]

FILES: Final = int(os.environ.get("SCALE_FILES", "20000"))
ROUNDS: Final = int(os.environ.get("SCALE_ROUNDS", "3"))
ATTRIBUTES: Final = 2_000
"""Of one file. ext4 holds some 100, and the loopback none."""
MIB: Final = 1024 * 1024

Figures = dict[tuple[str, str], list[float]]
"""Seconds, by side and by what was done."""


def run() -> list[Row]:
    """Return the figures."""
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as name:
        directory = Path(name)
        return [*operations(directory / "operations"), *memory(directory / "memory"), *stores(directory / "stores")]


def timed(took: Figures, side: str, what: str, work: Callable[..., object], *arguments: object) -> None:
    """Do something and note how long it took."""
    start = time.perf_counter()
    work(*arguments)
    took.setdefault((side, what), []).append(time.perf_counter() - start)


# -- what is done to files ---------------------------------------------------------------------------------------------


def create(directory: Path) -> None:
    """Make the files, with some bytes each."""
    directory.mkdir()
    for number in range(FILES):
        fd = os.open(directory / f"file-{number:07d}", os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(fd, b"file %d\n" % number)
        os.close(fd)


def utime(directory: Path) -> None:
    """Set each file's times."""
    for number in range(FILES):
        os.utime(directory / f"file-{number:07d}")


def chmod(directory: Path) -> None:
    """Set each file's mode."""
    for number in range(FILES):
        (directory / f"file-{number:07d}").chmod(0o600)


def chown(directory: Path) -> None:
    """Set each file's group to another one, where the user may."""
    for number in range(FILES):
        os.chown(directory / f"file-{number:07d}", -1, os.getgroups()[-1] if os.geteuid() else 7)


def walk(directory: Path) -> None:
    """List the directory with attributes."""
    with os.scandir(directory) as entries:
        for entry in entries:
            entry.stat()


def remove(directory: Path) -> None:
    """Remove everything."""
    subprocess.run(["rm", "-rf", str(directory)], check=True)


WORK: Final[dict[str, Callable[[Path], None]]] = {
    "create": create,
    "utime": utime,
    "chmod": chmod,
    "chown": chown,
    "stat of all": walk,
    "rm -rf": remove,
}


def operations(directory: Path) -> list[Row]:
    """Measure each operation on the three sides, what a layer does by itself besides."""
    took: Figures = {}
    with ExitStack() as stack:
        native = directory / "native"
        native.mkdir(parents=True)
        socket = stack.enter_context(running_zygote(directory))
        opened = open_workspace(socket, directory, "w")
        stack.callback(opened.workspace.close)
        mirror = stack.enter_context(loopback(directory / "source", directory / "loopback"))
        sides = [Side("native", native, None), mirror, mounted(socket, opened)]
        place(sides, PLACEMENTS["pinned"])
        stack.callback(place, [], PLACEMENTS["free"])
        for turn in range(ROUNDS):
            for what, work in WORK.items():
                for side in sides:
                    timed(took, side.name, what, work, side.root / str(turn))
        attributes(took, opened)
    rows = []
    for what in WORK:
        medians = {side.name: statistics.median(took[side.name, what]) for side in sides}
        floor = ", ".join(f"{name} {seconds / FILES * 1e6:.0f} µs a file" for name, seconds in medians.items())
        ratio = medians["chronicle"] / medians["loopback"]
        rows.append(row(f"{what}, {FILES} files in a directory, / loopback", ratio, "x", "<= 3", floor))
    few, many = (statistics.median(took["chronicle", what]) for what in ("few attributes", "many attributes"))
    floor = f"{many / ATTRIBUTES * 1e6:.0f} µs each of {ATTRIBUTES}; {few / ATTRIBUTES * 1e6:.0f} µs"
    rows.append(row("setting an extended attribute, one of many / the only one", many / few, "x", "<= 3", floor))
    return rows


def attributes(took: Figures, opened: Opened) -> None:
    """Set extended attributes of one file: always the same one, and always another one."""
    for turn in range(ROUNDS):
        for what, names in (("few attributes", 1), ("many attributes", ATTRIBUTES)):
            path = opened.workspace.root / f"{what}-{turn}"
            path.touch()
            timed(took, "chronicle", what, _set_attributes, path, names)


def _set_attributes(path: Path, names: int) -> None:
    for number in range(ATTRIBUTES):
        os.setxattr(path, f"user.{number % names}", b"value %d" % number)


# -- memory ------------------------------------------------------------------------------------------------------------


def memory(directory: Path) -> list[Row]:
    """Measure the private memory of a mount server at the end of each step."""
    directory.mkdir(parents=True)
    found: dict[str, int] = {}
    with running_zygote(directory) as socket:
        opened = open_workspace(socket, directory, "w")
        workspace, root = opened.workspace, opened.workspace.root / "d"
        server = mounted(socket, opened).server
        assert server is not None
        empty = private_bytes(server)
        create(root)
        found["after create"] = private_bytes(server)
        workspace.adopt(workspace.seal())
        found["after commit"] = private_bytes(server)
        walk(root)
        for number in range(FILES):
            (root / f"file-{number:07d}").read_bytes()
        found["after a walk that reads all"] = private_bytes(server)
        chmod(root)
        workspace.adopt(workspace.seal())
        found["after chmod of all and commit"] = private_bytes(server)
        remove(root)
        found["after rm -rf"] = private_bytes(server)
        workspace.adopt(workspace.seal())
        found["after commit of that"] = private_bytes(server)
        workspace.close()
    rows = []
    for what, size in found.items():
        floor = f"{(size - empty) / FILES:.0f} bytes a file above the {empty / MIB:.1f} MB of an empty workspace"
        rows.append(row(f"memory of a mount server, {FILES} files, {what}", size / MIB, "MB", "", floor))
    return rows


def private_bytes(pid: int) -> int:
    """Return what a process does not share with those it was forked from."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


# -- whole stores ------------------------------------------------------------------------------------------------------


def stores(directory: Path) -> list[Row]:
    """Measure what is done with a whole workspace, in this process, with as many files and four times as many."""
    took: Figures = {}
    for turn in range(ROUNDS):
        for times in (1, 4):
            here = directory / f"{turn}-{times}"
            here.mkdir(parents=True)
            whole(took, here, times * FILES // 4, str(times))
            shutil.rmtree(here)
    rows = []
    for what in ("commit", "restore", "fork", "gc --now", "gc --now again"):
        one, four = (statistics.median(took[side, what]) for side in ("1", "4"))
        floor = f"{one:.2f} s, {four:.2f} s"
        if what in {"fork", "gc --now again"}:
            rows.append(row(f"{what}, {FILES} files / {FILES // 4} files", four / one, "x", "<= 2", floor))
        else:
            name = f"{what}, {FILES} files / {FILES // 4} files, a file"
            rows.append(row(name, four / one / 4, "x", "<= 1.5", floor))
    return rows


def whole(took: Figures, directory: Path, files: int, side: str) -> None:
    """Write, commit, remove, restore, fork and collect."""
    repository = Repository(directory / "store")
    with repository.used("w") as workspace:
        workspace.make_directory("d")
        for number in range(files):
            workspace.write(f"d/file-{number:07d}", b"file %d\n" % number)
    timed(took, side, "commit", repository.commit, "w", "one")
    with repository.used("w") as workspace:
        for number in range(files):
            workspace.remove(f"d/file-{number:07d}")
    repository.commit("w", "two")
    timed(took, side, "restore", repository.restore, "w", "1")
    timed(took, side, "fork", repository.fork, "w", "1", "forked")
    for what in ("gc --now", "gc --now again"):
        timed(took, side, what, lambda: collect_garbage(repository, alone=True))
