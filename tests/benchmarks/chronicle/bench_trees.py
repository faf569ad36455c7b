"""Blobs and trees: commits in large and small trees, puts against plain files, hashing and chunking against BLAKE3."""

from __future__ import annotations

import io
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from chronicle.blobs import blob_id
from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import SystemClock
from chronicle.ids import BlobId
from chronicle.workspace.content import content
from chronicle.workspace.content.chunking import chunks
from chronicle.workspace.content.content import Content
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.port import LayerSpec
from chronicle.workspace.trees import tree
from chronicle.workspace.trees.tree import EMPTY, Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.__main__ import Row

__all__ = ["run"]

ROUNDS = 25
PER_DIRECTORY = 100
PUT_BYTES = 1_000
"""Of each of the three blobs of a small turn."""
PACKS = 10_000


def run() -> list[Row]:
    """Return the figures; takes about a minute."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        return [*_commits(root), *_puts(root), *_openings(root), *_throughput(), *_changes(), *_large_files(root)]


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def row(name: str, value: float, unit: str, target: str, floor: str) -> Row:
    """One figure."""
    return {"name": name, "value": value, "unit": unit, "target": target, "floor": floor}


def _commits(root: Path) -> list[Row]:
    """Ten changed files in trees of two sizes, in turn, to the durable pack."""
    trees = {}
    for size in (1_000, 100_000):
        store = PackBlobStore(f"file://{root}/tree-{size}")
        trees[size] = (store, *_made(store, size))
    taken: dict[int, list[float]] = {size: [] for size in trees}
    rnd = random.Random(1)
    for _ in range(ROUNDS):
        for size, (store, at, paths) in trees.items():
            new = [(path, rnd.randbytes(500)) for path in rnd.sample(paths, 10)]
            made: list[BlobId] = []

            def commit(
                store: PackBlobStore = store,
                at: BlobId = at,
                new: list[tuple[bytes, bytes]] = new,
                made: list[BlobId] = made,
            ) -> None:
                buffer = BlobBuffer(store)
                changes: dict[bytes, Entry | None] = {
                    path: Entry(Kind.FILE, 0o644, content=content.store_bytes(buffer, data)) for path, data in new
                }
                made.append(tree.update_tree(buffer, at, changes))
                buffer.flush()

            taken[size].append(timed(commit))
            trees[size] = (store, made[0], paths)
    small, large = (statistics.median(taken[size]) * 1e3 for size in (1_000, 100_000))
    floor = f"the same in a tree of 1,000 ({small:.1f} ms)"
    return [
        row("commit of 10 changed files in a tree of 100,000", large / small, "x", "<= 2", floor),
        row("commit of 10 changed files in a tree of 100,000, absolute", large, "ms", "<= 50", ""),
    ]


def _made(store: PackBlobStore, size: int) -> tuple[BlobId, list[bytes]]:
    """A tree of so many files, of a content that is not stored."""
    paths = [b"dir%04d/file%06d.txt" % (number // PER_DIRECTORY, number) for number in range(size)]
    changes: dict[bytes, Entry | None] = {path.partition(b"/")[0]: Entry(Kind.DIR, 0o755) for path in paths}
    changes.update((path, Entry(Kind.FILE, 0o644, content=Content(blob_id(path), 10, chunked=False))) for path in paths)
    buffer = BlobBuffer(store)
    made = tree.update_tree(buffer, EMPTY, changes)
    buffer.flush()
    return made, paths


def _puts(root: Path) -> list[Row]:
    """Three small blobs put, against one file of the same bytes written, synced and renamed."""
    store = PackBlobStore(f"file://{root}/puts")
    folder = root / "plain"
    folder.mkdir()
    put, plain = [], []
    for number in range(ROUNDS * 8):
        data = [os.urandom(PUT_BYTES) for _ in range(3)]
        blobs = {blob_id(part): part for part in data}
        put.append(timed(lambda blobs=blobs: store.put(blobs)))  # type: ignore[misc]
        joined = b"".join(data)
        plain.append(timed(lambda joined=joined, number=number: _write_file(folder / str(number), joined)))  # type: ignore[misc]
    ratio = statistics.median(put) / statistics.median(plain)
    floor = f"one file of the same bytes, fsync and rename ({statistics.median(plain) * 1e3:.2f} ms)"
    return [row("put of 3 blobs of 1 KB", ratio, "x", "<= 2", floor)]


def _write_file(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(descriptor, data)
    os.fsync(descriptor)
    os.close(descriptor)
    temporary.rename(path)


def _openings(root: Path) -> list[Row]:
    """A store of many packs opened, to its first blob, against one of ten packs."""
    taken = {}
    real = os.fsync
    for count in (10, PACKS):
        url = f"file://{root}/packs-{count}"
        writer = PackBlobStore(url)
        os.fsync = _no_sync  # what is measured is the opening, and 20,000 syncs take minutes
        try:
            for number in range(count):
                data = [b"%d %d" % (number, part) for part in range(3)]
                writer.put({blob_id(part): part for part in data})
        finally:
            os.fsync = real
        taken[count] = statistics.median(
            timed(lambda url=url: PackBlobStore(url).get(blob_id(b"5 1")))  # type: ignore[misc]
            for _ in range(ROUNDS)
        )
    floor = f"the same of a store of 10 packs ({taken[10] * 1e3:.2f} ms)"
    name = "opening a store of 10,000 packs to its first blob"
    return [
        row(name, taken[PACKS] / taken[10], "x", "", floor),
        row(f"{name}, absolute", taken[PACKS] * 1e3, "ms", "", ""),
    ]


def _no_sync(fd: object) -> None:
    """In place of os.fsync."""


def _throughput() -> list[Row]:
    """What storing a large file costs before it is written, against hashing it once."""
    data = random.Random(2).randbytes(64 * 1024 * 1024)
    hashing, cutting, storing = [], [], []
    for _ in range(5):
        hashing.append(timed(lambda: blake3(data).digest()))
        cutting.append(timed(lambda: sum(len(chunk) for chunk in chunks(io.BytesIO(data).read))))
        storing.append(timed(lambda: content.store_file(_Hashing(), io.BytesIO(data))))
    speeds = [len(data) / 1e6 / statistics.median(taken) for taken in (hashing, cutting, storing)]
    floor = f"plain BLAKE3 of the same bytes ({speeds[0]:.0f} MB/s)"
    return [
        row(f"chunking of 64 MiB ({speeds[1]:.0f} MB/s)", speeds[1] / speeds[0], "x", "", floor),
        row(f"chunking and naming of 64 MiB ({speeds[2]:.0f} MB/s)", speeds[2] / speeds[0], "x", "", floor),
    ]


class _Hashing:
    """A buffer that keeps nothing."""

    def add(self, data: bytes) -> BlobId:
        return blob_id(data)

    def get(self, blob_id: BlobId) -> bytes:
        raise KeyError(blob_id)


def _changes() -> list[Row]:
    """4 KiB changed in the middle of a large file, named anew, against the same in a small one."""
    taken = {}
    for size in (1024 * 1024, 256 * 1024 * 1024):
        with tempfile.TemporaryFile() as file:
            buffer = _Keeping()
            rnd = random.Random(3)
            for _ in range(size // (1024 * 1024)):
                file.write(rnd.randbytes(1024 * 1024))
            file.seek(0)
            stored = content.store_file(buffer, file)
            times = []
            for _ in range(ROUNDS):
                at = rnd.randrange(size - 4096)
                file.seek(at)
                file.write(rnd.randbytes(4096))
                start = time.perf_counter()
                stored = content.store_changes(buffer, stored, file, [(at, at + 4096)])
                times.append(time.perf_counter() - start)
            taken[size] = statistics.median(times) * 1e3
    small, large = taken.values()
    floor = f"the same in a file of 1 MiB ({small:.2f} ms)"
    return [row("naming a file of 256 MiB after 4 KiB changed", large / small, "x", "", floor)]


def _large_files(root: Path) -> list[Row]:
    """4 KiB written into a large file on disk, closed, and the commit of it timed, against the same in a small one."""
    rows = []
    for closes in (1, 20):
        taken = {}
        for size in (1024 * 1024, 256 * 1024 * 1024):
            home = root / f"large-{size}-{closes}"
            layer, _ = open_layer(
                LayerSpec("w", home, None, 1, 1), PackBlobStore(f"file://{home}-blobs"), SystemClock()
            )
            rnd = random.Random(4)
            handle = layer.create(layer.root, b"large", 0o644, os.getuid(), os.getgid())
            for at in range(0, size, 1024 * 1024):
                layer.write(handle, at, rnd.randbytes(1024 * 1024))
            layer.flush(handle)
            layer.adopt(layer.seal())
            times = []
            for _ in range(ROUNDS):
                for _ in range(closes):
                    layer.write(handle, rnd.randrange(size - 4096), rnd.randbytes(4096))
                    layer.flush(handle)
                times.append(timed(lambda layer=layer: layer.adopt(layer.seal())))  # type: ignore[misc]
            layer.release(handle)
            layer.close()
            taken[size] = statistics.median(times) * 1e3
        small, large = taken.values()
        name = f"commit after {closes} x 4 KiB written and closed in a file of 256 MiB"
        floor = f"the same in a file of 1 MiB ({small:.1f} ms)"
        rows += [row(name, large / small, "x", "", floor), row(f"{name}, absolute", large, "ms", "", "")]
    return rows


class _Keeping:
    """A buffer that keeps list nodes and forgets chunks."""

    def __init__(self) -> None:
        self._kept: dict[BlobId, bytes] = {}

    def add(self, data: bytes) -> BlobId:
        identifier = blob_id(data)
        if len(data) < 16 * 1024:  # no chunk is that small, the last excepted
            self._kept[identifier] = data
        return identifier

    def get(self, blob_id: BlobId) -> bytes:
        return self._kept[blob_id]
