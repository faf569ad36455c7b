"""What a workspace's history takes on disk against git's, and what committing and forking cost in large workspaces.

The stored bytes are those of a real source tree, the installed packages' own, of which each turn changes a few lines in
one file of a hundred. Git gets the same commits. In the end both collect garbage (``git gc`` and
`chronicle.blobs.gc.collector`), which is when they pack.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.repository.repository import Repository
from chronicle.workspace.api.workspace import open_api_workspace
from chronicle.workspace.history.commit_reachability import CommitReach
from chronicle.workspace.port import LayerSpec
from tests.benchmarks.chronicle.fuse_sides import (
    PLACEMENTS,
    blobs_of,
    mounted,
    open_workspace,
    place,
    row,
    running_zygote,
)

if TYPE_CHECKING:
    from chronicle.ids import BlobId
    from chronicle.workspace.api.workspace import ApiWorkspace
    from chronicle.workspace.port import TreeRef
    from tests.benchmarks.__main__ import Row

__all__ = ["run"]

SOURCE_BYTES: Final = 50_000_000
LARGEST: Final = 500_000
"""Of the source files that are taken, bytes."""
TURNS: Final = 100
PART: Final = 100
"""One file in so many is changed in a turn."""
LINES: Final = 3
"""So many of them."""
SIZES: Final = (1_000, 100_000)
PER_DIRECTORY: Final = 100
CHANGED: Final = 10
ROUNDS: Final = 25


def run() -> list[Row]:
    """Return the figures; takes about two minutes."""
    with tempfile.TemporaryDirectory(prefix="bench-storage-") as name:
        directory = Path(name)
        return [*stored_bytes(directory / "bytes"), *commits(directory / "commits"), *forks(directory / "forks")]


# -- stored bytes ----------------------------------------------------------------------------------------------------


def stored_bytes(directory: Path) -> list[Row]:
    """Commit the same turns to a workspace and to git."""
    repository = directory / "git"
    repository.mkdir(parents=True)
    git(repository, "init", "-q")
    files = sources()
    blobs = PackBlobStore(blobs_of(directory))
    workspace = open_api_workspace(LayerSpec("w", directory / "layers", None, 1, 1), blobs)
    with workspace:
        for path, data in files.items():
            put(workspace, repository, path, data)
        end_turn(workspace, repository, 1)
        first = size_of(directory / "blobs")
        source = random.Random(7)
        paths = list(files)
        for turn in range(2, TURNS + 2):
            for path in source.sample(paths, len(paths) // PART):
                files[path] = edited(files[path], source)
                put(workspace, repository, path, files[path])
            end_turn(workspace, repository, turn)
        before = size_of(directory / "blobs")
        start = time.perf_counter()
        collect(blobs.url, lambda: reached(blobs, workspace.base), GcRules(alone=True))
        collecting = time.perf_counter() - start
    start = time.perf_counter()
    git(repository, "gc", "-q")
    gits_collecting = time.perf_counter() - start
    ours, gits = size_of(directory / "blobs"), size_of(repository / ".git")
    logical = sum(map(len, files.values()))
    name = f"stored bytes, {TURNS} turns of {LINES} lines in 1 % of a source tree of 50 MB"
    floor = f"git {gits / 1e6:.1f} MB, here {ours / 1e6:.1f}; {len(files)} files of {logical / 1e6:.0f} MB"
    loose = f"here {before / 1e6:.1f} MB, {first / 1e6:.1f} of it the first turn"
    return [
        row(f"{name}, after gc, / git gc", ours / gits, "x", "<= 3", floor),
        row(f"{name}, before gc, / git gc", before / gits, "x", "", loose),
        row("time of that gc", collecting / gits_collecting, "x", "", f"git gc {gits_collecting:.1f} s"),
    ]


def reached(blobs: PackBlobStore, ref: TreeRef) -> set[BlobId]:
    """Return what a workspace's commits and histories refer to."""
    reach = CommitReach(blobs)
    reach.add(ref)
    return reach.ids()


def sources() -> dict[str, bytes]:
    """Return Python sources of the interpreter and of what is installed, by path, 50 MB of them."""
    found: dict[str, bytes] = {}
    left = SOURCE_BYTES
    for kind in ("stdlib", "purelib"):
        top = Path(sysconfig.get_path(kind))
        for path in sorted(top.rglob("*.py")):
            if left <= 0:
                return found
            name = f"{kind}/{path.relative_to(top)}"
            if path.is_file() and 0 < path.stat().st_size <= LARGEST:
                found[name] = path.read_bytes()
                left -= len(found[name])
    assert left <= 0, f"only {SOURCE_BYTES - left} bytes of Python sources are installed here"
    return found


def edited(data: bytes, source: random.Random) -> bytes:
    """Return a file with a few lines changed, as one who programs does."""
    lines = data.split(b"\n")
    for _ in range(LINES):
        at = source.randrange(len(lines))
        lines[at] = b"    value_%d = compute(%r, other=%d)" % (
            source.randrange(10**6),
            source.choice(lines)[:20],
            source.randrange(10**6),
        )
    return b"\n".join(lines)


def put(workspace: ApiWorkspace, repository: Path, path: str, data: bytes) -> None:
    """Write a file here and there."""
    directory = path.rpartition("/")[0]
    workspace.make_directory(directory, parents=True, exist_ok=True)
    workspace.write(path, data)
    (repository / directory).mkdir(parents=True, exist_ok=True)
    (repository / path).write_bytes(data)


def end_turn(workspace: ApiWorkspace, repository: Path, turn: int) -> None:
    """Commit, here and there."""
    workspace.begin_turn(turn)
    workspace.adopt(workspace.seal())
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", f"turn {turn}")


def git(directory: Path, *arguments: str) -> None:
    """Run git without the configuration of the user and of the system."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ["-c", "user.name=bench", "-c", "user.email=bench@example.org", "-c", "gc.auto=0"]
    subprocess.run(["git", *who, *arguments], cwd=directory, env=environment, check=True)


def size_of(directory: Path) -> int:
    """Return the bytes of all files below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


# -- large workspaces ------------------------------------------------------------------------------------------------


def commits(directory: Path) -> list[Row]:
    """Commit ten files that were changed on a mount, in a small and in a large workspace."""
    directory.mkdir()
    took: dict[int, list[float]] = {size: [] for size in SIZES}
    source = random.Random(8)
    with running_zygote(directory) as socket:
        opened = {size: open_workspace(socket, directory, f"w{size}", filled(directory, size)) for size in SIZES}
        place([mounted(socket, opened[size]) for size in SIZES], PLACEMENTS["pinned"])
        try:
            for turn in range(2, ROUNDS + 2):
                for size in SIZES:
                    workspace = opened[size].workspace
                    workspace.begin_turn(turn)
                    for number in source.sample(range(size), CHANGED):
                        (workspace.root / name_of(number)).write_bytes(source.randbytes(500))
                    start = time.perf_counter()
                    workspace.adopt(workspace.seal())
                    took[size].append((time.perf_counter() - start) * 1000)
        finally:
            os.sched_setaffinity(0, PLACEMENTS["free"])
        for one in opened.values():
            one.workspace.close()
    small, large = (statistics.median(took[size]) for size in SIZES)
    what = f"commit of {CHANGED} files changed on a mount, workspace of {SIZES[1]:,} files"
    return [
        row(what, large / small, "x", "<= 2", f"the same of {SIZES[0]:,} ({small:.1f} ms)"),
        row(f"{what}, absolute", large, "ms", "<= 50", "sealed in the store, adopted"),
    ]


def filled(directory: Path, size: int) -> TreeRef:
    """Store a workspace of so many files."""
    blobs = PackBlobStore(blobs_of(directory))
    with open_api_workspace(LayerSpec(f"maker{size}", directory / "layers", None, 1, 1), blobs) as workspace:
        fill(workspace, size)
        workspace.adopt(workspace.seal())
        return workspace.base


def fill(workspace: ApiWorkspace, size: int) -> None:
    """Make so many small files."""
    for number in range(size):
        if number % PER_DIRECTORY == 0:
            workspace.make_directory(name_of(number).partition("/")[0])
        workspace.write(name_of(number), b"file %d\n" % number)


def name_of(number: int) -> str:
    """Return a file's path."""
    return f"dir{number // PER_DIRECTORY:04}/file{number:06}"


def forks(directory: Path) -> list[Row]:
    """Fork a workspace of many files, durably, and one of few."""
    took: dict[int, list[float]] = {size: [] for size in SIZES}
    repositories = {size: Repository(directory / str(size)) for size in SIZES}
    for size, repository in repositories.items():
        with repository.used("main") as workspace:
            fill(workspace, size)
        repository.commit("main", "all of it")
    for turn in range(ROUNDS):
        for size, repository in repositories.items():
            start = time.perf_counter()
            repository.fork("main", "last", f"fork{turn}")
            took[size].append((time.perf_counter() - start) * 1000)
    small, large = (statistics.median(took[size]) for size in SIZES)
    floor = f"of {SIZES[0]:,} files {small:.2f} ms"
    return [row(f"fork of a workspace of {SIZES[1]:,} files", large, "ms", "<= 10", floor)]
