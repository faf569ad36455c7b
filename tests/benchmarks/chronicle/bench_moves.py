"""Moves of a mount to a tree that a lost attempt sealed on top of the base, against the seal of the same difference.

One file of 4 KiB differs, in a small tree and in a large one. A turn with steps that is handled again makes such a move
for each step that ended.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.benchmarks.chronicle.fuse_sides import open_workspace, row, running_zygote

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.workspace.port import TreeRef, Workspace
    from tests.benchmarks.__main__ import Row

__all__ = ["run"]

ROUNDS: Final = 15
SMALL: Final = 100
LARGE: Final = 10_000
"""Files."""
PER_DIRECTORY: Final = 100
FILE_BYTES: Final = 4096


def run() -> list[Row]:
    """Measure, and return the rows."""
    with tempfile.TemporaryDirectory(prefix="bench-") as base:
        directory = Path(base)
        with running_zygote(directory) as socket:
            taken = {}
            for files in (SMALL, LARGE):
                workspace = open_workspace(socket, directory, f"files{files}").workspace
                taken[files] = seals_and_moves(workspace, files)
                workspace.close()
    seal, move = taken[LARGE]
    small = taken[SMALL][1]
    name = f"move of a tree of {LARGE} files by one of 4 KiB"
    return [
        row(name, move / seal, "x", "<= 1", f"the seal of that difference ({seal * 1e3:.2f} ms)"),
        row(f"{name}, by its size", move / small, "x", "<= 1.5", f"the same of {SMALL} files ({small * 1e3:.2f} ms)"),
    ]


def seals_and_moves(workspace: Workspace, files: int) -> tuple[float, float]:
    """Return the medians of a seal and of a move to what it sealed, seconds."""
    paths = [workspace.root / f"d{number // PER_DIRECTORY}" / f"f{number}" for number in range(files)]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(os.urandom(32))
    workspace.adopt(workspace.seal())
    workspace.begin_turn(2)
    seals, moves = [], []
    for number in range(ROUNDS):
        path = paths[(number * 97) % files]
        content = os.urandom(FILE_BYTES)
        path.write_bytes(content)
        sealed: list[TreeRef] = []
        seals.append(timed(lambda: sealed.append(workspace.seal())))  # noqa: B023 - called at once
        workspace.rollback()
        assert path.stat().st_size != FILE_BYTES
        moves.append(timed(lambda: workspace.move_to(sealed[0])))  # noqa: B023
        assert path.read_bytes() == content
        workspace.rollback()
    return statistics.median(seals), statistics.median(moves)


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
