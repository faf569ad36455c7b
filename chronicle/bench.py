"""A short benchmark of this machine: the same work on a mounted workspace and on the disk below it.

Both take turns for several rounds, and the median counts, so other load of the machine affects both. The mount is of a
new store in a temporary directory, which is removed afterwards.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.fuse.zygote import launcher
from chronicle.repository import Repository, mounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Row", "measure"]

_FILES: Final = 300
_BLOCK: Final = os.urandom(4096)
_LARGE_BYTES: Final = 64 * 1024 * 1024
_PIECE: Final = os.urandom(1024 * 1024)
_END_DEADLINE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work."""

    what: str
    disk_us: float
    """Microseconds per operation on the plain disk."""
    mount_us: float
    """Microseconds per operation in the mount."""

    @property
    def ratio(self) -> float:
        """The time in the mount as a multiple of that on the disk."""
        return self.mount_us / self.disk_us


def measure(directory: Path, rounds: int = 3, done: Callable[[str], None] = lambda _: None) -> list[Row]:
    """Measure a mount against the disk.

    Args:
        directory: where to work, on the disk to measure.
        rounds: repetitions of the work.
        done: called after each round, with its name.

    Raises:
        Unavailable: FUSE cannot be used here.
        OSError: the disk is full, or the directory cannot be written.
    """
    taken: dict[str, tuple[list[float], list[float]]] = {}
    try:
        temporary = tempfile.TemporaryDirectory(prefix="chronicle-bench-", dir=directory)
    except OSError as error:
        raise OSError(
            f"nothing can be created in {directory}: {error.strerror}; name a directory that you can write"
        ) from error
    with temporary as name:
        plain = Path(name) / "disk"
        plain.mkdir()
        with _mounted(Path(name)) as mounted:
            for number in range(rounds):
                for side, root in ((0, plain), (1, mounted)):
                    for what, microseconds in _work(root / str(number)):
                        taken.setdefault(what, ([], []))[side].append(microseconds)
                done(f"round {number + 1} of {rounds}")
    return [Row(what, statistics.median(disk), statistics.median(mount)) for what, (disk, mount) in taken.items()]


@contextmanager
def _mounted(directory: Path) -> Iterator[Path]:
    repository = Repository(directory / "store")
    mountpoint = directory / "mount"
    mounts.mount(repository, "bench", mountpoint, with_caller=True)
    try:
        yield mountpoint
    finally:
        mounts.unmount(repository, mountpoint, force=True)  # even while something reads it
        until = time.monotonic() + _END_DEADLINE_S
        while launcher.is_running(repository.socket) is not None and time.monotonic() < until:
            time.sleep(0.01)  # it must not write to its log while the directory is removed


def _work(root: Path) -> Iterator[tuple[str, float]]:
    """Do each kind of work in a new directory; yield its name and the microseconds per operation."""
    root.mkdir()
    paths = [root / f"file-{number}" for number in range(_FILES)]
    moved = [root / f"moved-{number}" for number in range(_FILES)]
    large = root / "large"

    def each(act: Callable[[Path], object], over: list[Path] = paths) -> float:
        start = time.perf_counter()
        for path in over:
            act(path)
        return (time.perf_counter() - start) / len(over) * 1e6

    def append(path: Path) -> None:
        with path.open("ab", buffering=0) as file:
            file.write(_BLOCK[:100])

    def write_large(path: Path) -> None:
        with path.open("wb", buffering=0) as file:
            for _ in range(_LARGE_BYTES // len(_PIECE)):
                file.write(_PIECE)

    def read_large(path: Path) -> None:
        with path.open("rb", buffering=0) as file:
            while file.read(len(_PIECE)):
                pass

    yield "create, write 4 KiB, close", each(lambda path: path.write_bytes(_BLOCK))
    yield "open, read 4 KiB, close", each(lambda path: path.read_bytes())
    yield "stat", each(lambda path: path.stat())
    yield f"list {_FILES} files", each(lambda path: list(os.scandir(path)), [root] * 10)
    yield "open, append 100 bytes, close", each(append)
    start = time.perf_counter()
    for path, other in zip(paths, moved, strict=True):
        path.rename(other)
    yield "rename", (time.perf_counter() - start) / _FILES * 1e6
    yield "unlink", each(lambda path: path.unlink(), moved)
    yield f"write {_LARGE_BYTES >> 20} MiB, close", each(write_large, [large])
    yield f"read {_LARGE_BYTES >> 20} MiB", each(read_large, [large])
    large.unlink()
