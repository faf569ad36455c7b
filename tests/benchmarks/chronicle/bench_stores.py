"""Stores on a new node: how soon names and sizes are there, what that fetches, and reading what is not there yet."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from chronicle.blobs.buffer import BlobBuffer
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import SystemClock
from chronicle.fuse.mountpoints import mounts
from chronicle.fuse.server.client import list_mounts, open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.workspace.content import content
from chronicle.workspace.content.lazy_reader import Chunks, LazyFile
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.faulty_proxy import running_proxy
from tests.s3_server import BUCKET, running_s3

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.benchmarks.__main__ import Row

__all__ = ["run"]

FILES: Final = 100_000
PER_DIRECTORY: Final = 100
FILE_BYTES: Final = 10_240
LARGE_BYTES: Final = 64 * 1024 * 1024
"""Together with the files 1.02 GiB."""
ROUNDS: Final = 7
S3_BYTES: Final = 16 * 1024 * 1024
READ_BYTES: Final = 128 * 1024
"""What the kernel asks for at once."""
DELAY_S: Final = 0.03
MIB: Final = 1024 * 1024


def run() -> list[Row]:
    """Return the figures; takes about four minutes, most of them to make the workspace."""
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder:
        root = Path(folder)
        return [*_opening(root), *_far(root)]


def row(name: str, value: float, unit: str, target: str, floor: str) -> Row:
    """One figure."""
    return {"name": name, "value": value, "unit": unit, "target": target, "floor": floor}


def _opening(root: Path) -> list[Row]:
    """Mount a workspace of 100,000 files and 1 GiB on a node that has nothing of it."""
    url = f"file://{root}/blobs"
    ref = _made(url, root / "maker")
    shutil.rmtree(root / "maker")
    socket = root / "run" / "zygote.sock"
    launcher.start(socket, root / "mounts", root / "log", os.getpid())
    listed: dict[str, list[float]] = {"tree": [], "stat": [], "walk": []}
    fetched: dict[str, list[float]] = {"tree": [], "stat": [], "walk": [], "piece": []}
    pieces, lazily, natively = [], [], []
    try:
        for turn in range(ROUNDS):
            spec = LayerSpec(f"node{turn}", root / "layers", ref, 1, 1)
            start = time.perf_counter()
            opened = open_fuse_workspace(socket, spec, url, root / "mounts" / f"node{turn}")
            top = opened.workspace.root
            (mount,) = [mount for mount in list_mounts(socket) if mount["workspace_id"] == spec.workspace_id]
            pid = cast("int", mount["pid"])
            assert len(os.listdir(top)) == FILES // PER_DIRECTORY + 1  # noqa: PTH208 - what ls does
            listed["tree"].append(time.perf_counter() - start)
            fetched["tree"].append(_read_by(pid))
            with os.scandir(top / "dir0500") as entries:
                assert sum(item.stat().st_size for item in entries) == PER_DIRECTORY * FILE_BYTES
            listed["stat"].append(time.perf_counter() - start)
            fetched["stat"].append(_read_by(pid))
            before = _read_by(pid)
            begun = time.perf_counter()
            descriptor = os.open(top / "large", os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
            assert len(os.pread(descriptor, 4096, LARGE_BYTES // 2)) == 4096
            os.close(descriptor)
            pieces.append(time.perf_counter() - begun)
            fetched["piece"].append(_read_by(pid) - before)
            lazily.append(_reading(top / "large"))
            if turn < 3:
                begun = time.perf_counter()
                count = sum(len(names) for _, _, names in os.walk(top))
                listed["walk"].append(time.perf_counter() - begun)
                assert count == FILES + 1
            opened.workspace.close()
            shutil.rmtree(root / "layers" / f"node{turn}")
            plain = root / "plain"
            plain.write_bytes(random.Random(turn).randbytes(LARGE_BYTES))
            natively.append(_reading(plain))
    finally:
        launcher.shut_down(socket)
        mounts.unmount_all_under(root)
    ratio = statistics.median(natively[turn] / lazily[turn] for turn in range(ROUNDS))
    what = "local store, 100,000 files, 1 GiB"
    return [
        row("open on a new node to the first listing", _ms(listed["tree"]), "ms", "<= 300", what),
        row("the same, and names and sizes of a directory below", _ms(listed["stat"]), "ms", "<= 300", what),
        row("read by the server for that", _median(fetched["stat"]) / MIB, "MiB", "", "of 1,041 MiB; no content"),
        row("walk of all 100,000 names after it", _ms(listed["walk"]), "ms", "", "1,001 directories"),
        row("4 KiB of a file of 64 MiB, first read", _ms(pieces), "ms", "", ""),
        row("read by the server for that", _median(fetched["piece"]) / 1024, "KiB", "", "a chunk has 16-256 KiB"),
        row(
            "first sequential read of 64 MiB, not on the node, against native warm",
            ratio,
            "x",
            "",
            f"{LARGE_BYTES / MIB / _median(natively):.0f} MiB/s",
        ),
    ]


def _made(url: str, directory: Path) -> TreeRef:
    """Store a workspace of 1,000 directories, 100,000 files of bytes that do not compress, and a large one."""
    blobs = PackBlobStore(url)
    layer, _ = open_layer(LayerSpec("maker", directory, None, 1, 1), blobs, SystemClock())
    root = layer.resolve(b"")
    assert isinstance(root, DirNode)
    rnd = random.Random(1)
    owner = os.geteuid(), os.getegid()
    parent = root

    def put(parent: DirNode, name: bytes, data: bytes) -> None:
        handle = layer.create(parent, name, 0o644, *owner)
        layer.write(handle, 0, data)
        layer.flush(handle)
        layer.release(handle)

    for number in range(FILES):
        if number % PER_DIRECTORY == 0:
            made = layer.make(root, b"dir%04d" % (number // PER_DIRECTORY), 0o40755, *owner)
            assert isinstance(made, DirNode)
            parent = made
        put(parent, b"file%06d.txt" % number, rnd.randbytes(FILE_BYTES))
    put(root, b"large", rnd.randbytes(LARGE_BYTES))
    ref = layer.seal()
    layer.adopt(ref)
    layer.close()
    blobs.close()
    return ref


def _far(root: Path) -> list[Row]:
    """Read a file in order from a server that takes a while to answer, with and without reading ahead."""
    took: dict[bool, list[float]] = {True: [], False: []}
    with ExitStack() as stack:
        server = stack.enter_context(running_s3(root / "s3"))
        proxy = stack.enter_context(running_proxy(server.port))
        blobs = PackBlobStore(f"s3://{BUCKET}/bench", options=server.options(proxy.endpoint), cache=None)
        buffer = BlobBuffer(blobs)
        data = random.Random(2).randbytes(S3_BYTES)
        stored = content.store_bytes(buffer, data)
        buffer.flush()
        proxy.delay_s = DELAY_S
        for _ in range(ROUNDS):
            for ahead in (True, False):
                took[ahead].append(_timed(lambda ahead=ahead: _read_all(blobs, stored, ahead=ahead)))  # type: ignore[misc]
        blobs.close()
    ratio = statistics.median(without / with_it for with_it, without in zip(took[True], took[False], strict=True))
    floor = f"without reading ahead {S3_BYTES / MIB / _median(took[False]):.1f} MiB/s"
    return [row(f"sequential read over HTTP, {DELAY_S * 1000:.0f} ms an answer", ratio, "x", "", floor)]


def _read_all(blobs: PackBlobStore, stored: content.Content, *, ahead: bool) -> None:
    chunks = Chunks.of_store(blobs)
    file = LazyFile(blobs, chunks, stored)
    for at in range(0, stored.size, READ_BYTES):
        if not ahead:
            file._next = -1  # as if each read were the first one
        assert file.read(at, READ_BYTES)
    file.close()
    chunks.close()


def _reading(path: Path) -> float:
    """Seconds to read a file in order."""
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.read(MIB):
            pass
    return time.perf_counter() - start


def _read_by(pid: int) -> float:
    """Bytes that a process has read from files."""
    lines = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("rchar")))


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _ms(values: list[float]) -> float:
    return statistics.median(values) * 1000
