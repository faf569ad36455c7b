"""What a mount's history costs against its live tree: names looked up, directories listed, trees walked.

The workspace has seen hundreds of directories renamed, and thousands of versions of one file. Live and past are asked
for the first time alike: each round is on a mount of its own, and takes names that the kernel does not know yet. The
server and this process share a CPU.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.benchmarks.chronicle.fuse_sides import PLACEMENTS, mounted, open_workspace, place, row, running_zygote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.fuse.server.client import FuseWorkspace
    from chronicle.workspace.port import TreeRef
    from tests.benchmarks.__main__ import Row

__all__ = ["run"]

ROUNDS: Final = 5
TOPS: Final = 10
"""Directories in the root, which are renamed."""
SUBS: Final = 10
"""Directories in each."""
FILES: Final = 20
"""In each of those."""
RENAMES: Final = 500
VERSIONS: Final = 10_000
"""Of one file."""
ASKED: Final = 300
"""Names, in one round."""
TARGET: Final = "<= 3"

Figures = dict[str, list[float]]


def run() -> list[Row]:
    """Measure, and return the rows."""
    took: Figures = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as base:
        directory = Path(base)
        with running_zygote(directory) as socket:
            tree, turn = make(socket, directory)
            for number in range(ROUNDS):
                for what in (names, walks):
                    opened = open_workspace(socket, directory, f"{what.__name__}{number}", tree)
                    place([mounted(socket, opened)], PLACEMENTS["pinned"])
                    what(took, opened.workspace.root, turn, random.Random(number))
                    opened.workspace.close()
    middle = {label: statistics.median(times) for label, times in took.items()}
    floors = {
        "stat of query/PATH": "stat",
        "stat of at/N/PATH": "stat",
        "list of query/DIR, an entry": "list, an entry",
        "walk of turn/N, an entry": "walk, an entry",
        "walk of turn/N again, an entry": "walk again, an entry",
    }
    rows = [
        row(f"{label}, after {RENAMES} renames", middle[label] / middle[floor], "x", TARGET, said(floor, middle[floor]))
        for label, floor in floors.items()
    ]
    read = middle["read query"] * 1000
    rows.append(row(f"read query of {VERSIONS} versions", read, "ms", "", "all of it, by one process"))
    rows.append(
        row(
            "slowest stat beside that",
            middle["slowest beside"] * 1000,
            "ms",
            "",
            said("slowest beside a live walk", middle["slowest beside a live walk"]),
        )
    )
    return rows


def said(label: str, seconds: float) -> str:
    return f"{label}, live: {seconds * 1e6:.0f} µs"


def make(socket: Path, directory: Path) -> tuple[TreeRef, int]:
    """Make a workspace with a past; return its tree, and a turn before the last."""
    opened = open_workspace(socket, directory, "made")
    workspace: FuseWorkspace = opened.workspace  # type: ignore[assignment]
    root = workspace.root
    for top in range(TOPS):
        for sub in range(SUBS):
            below = root / f"top{top}" / f"sub{sub}"
            below.mkdir(parents=True)
            for number in range(FILES):
                (below / f"file{number}").write_text(f"{top} {sub} {number}")
    (root / "many").write_text("0")
    commit(workspace, 1)
    where = random.Random(5)
    for number in range(RENAMES):
        top = where.randrange(TOPS)
        (root / f"top{top}").rename(root / "aside")
        (root / f"top{(top + 1) % TOPS}").rename(root / f"top{top}")
        (root / "aside").rename(root / f"top{(top + 1) % TOPS}")
        if number % 50 == 49:
            commit(workspace, 2 + number // 50)
    turn = 1 + RENAMES // 50
    for number in range(1, VERSIONS):
        (root / "many").write_text(f"version {number}")
    commit(workspace, turn + 1)
    ref = workspace.base
    workspace.close()
    return ref, turn


def commit(workspace: FuseWorkspace, turn: int) -> None:
    workspace.begin_turn(turn)
    workspace.adopt(workspace.seal())
    workspace.begin_turn(turn + 1)


def names(took: Figures, root: Path, turn: int, rng: random.Random) -> None:
    """Take one round of looking names up and listing them, on a mount that was made a moment ago."""
    paths = [f"top{top}/sub{sub}/file{n}" for top in range(TOPS) for sub in range(SUBS) for n in range(FILES)]
    for prefix in ("", ".chronicle/query/", ".chronicle/at/1/"):
        for top in range(TOPS):
            for sub in range(SUBS):  # the directories above are known to the kernel
                os.stat(f"{root}/{prefix}top{top}/sub{sub}")  # noqa: PTH116 - pathlib would be measured
    chosen = rng.sample(paths, 2 * ASKED)
    with timed(took, "stat", ASKED):
        stat_all(f"{root}", chosen[:ASKED])
    with timed(took, "stat of query/PATH", ASKED):
        stat_all(f"{root}/.chronicle/query", chosen[ASKED:])
    with timed(took, "stat of at/N/PATH", ASKED):
        stat_all(f"{root}/.chronicle/at/1", chosen[ASKED:])
    entries = TOPS * SUBS * FILES
    with timed(took, "list, an entry", entries):
        list_all(f"{root}")
    with timed(took, "list of query/DIR, an entry", entries):
        list_all(f"{root}/.chronicle/query")
    with beside(took, "slowest beside", root), timed(took, "read query", 1):
        assert (root / ".chronicle/query/many").read_bytes().count(b'"hash"') == VERSIONS


def walks(took: Figures, root: Path, turn: int, rng: random.Random) -> None:
    """Take one round of walking trees, on a mount that was made a moment ago."""
    entries = TOPS * SUBS * FILES
    for again in ("", " again"):
        with timed(took, f"walk{again}, an entry", entries):
            walk(f"{root}")
        with timed(took, f"walk of turn/N{again}, an entry", entries):
            walk(f"{root}/.chronicle/turn/{turn}")
    with beside(took, "slowest beside a live walk", root):
        walk(f"{root}")


def stat_all(prefix: str, paths: list[str]) -> None:
    for path in paths:
        os.stat(f"{prefix}/{path}")  # noqa: PTH116


def list_all(prefix: str) -> None:
    for top in range(TOPS):
        for sub in range(SUBS):
            assert len(os.listdir(f"{prefix}/top{top}/sub{sub}")) == FILES  # noqa: PTH208


def walk(root: str) -> None:
    found = 0
    for directory, _, files in os.walk(root):
        for name in files:
            os.lstat(f"{directory}/{name}")
            found += 1
    assert found == TOPS * SUBS * FILES + 1


@contextmanager
def timed(took: Figures, label: str, count: int) -> Iterator[None]:
    """Note how long something takes, one of so many."""
    start = time.perf_counter()
    yield
    took.setdefault(label, []).append((time.perf_counter() - start) / count)


@contextmanager
def beside(took: Figures, label: str, root: Path) -> Iterator[None]:
    """Note the slowest of many requests of another thread meanwhile."""
    stop = threading.Event()
    slowest = [0.0]

    def ask() -> None:
        number = 0
        while not stop.is_set():
            start = time.perf_counter()
            missing(f"{root}/none-{number}")
            slowest[0] = max(slowest[0], time.perf_counter() - start)
            number += 1

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        stop.set()
        asking.join()
    took.setdefault(label, []).append(slowest[0])


def missing(path: str) -> None:
    assert not os.path.exists(path)  # noqa: PTH110
