"""Requests to an object store: of a turn, and to open a workspace on a node that never saw it, by the packs there are.

A workspace of 10,000 files and 1,000 turns is made on one node and opened on others, with 100 packs of strangers in the
bucket and with many. A server that speaks S3 answers, behind a proxy that counts. Before the first token an agent's
host and its mount server each have the store open, and the workspace is open; nothing of its files is read yet.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.blobs import blob_id
from chronicle.blobs.cache import BlobCache
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import SystemClock
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.layer.state.node import DirNode, FileNode
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.faulty_proxy import FaultyProxy, running_proxy
from tests.s3_server import BUCKET, S3Server, running_s3

if TYPE_CHECKING:
    from chronicle.workspace.layer.layer import Layer
    from tests.benchmarks.__main__ import Row

__all__ = ["run"]

DIRECTORIES: Final = 100
FILES: Final = 10_000
FILE_BYTES: Final = 4096
TREE_BYTES: Final = FILES * FILE_BYTES
TURNS: Final = 1_000
WRITTEN: Final = 3
"""Files that a turn writes."""
FEW, MANY = 100, 4_000
"""Packs of strangers in the bucket."""
ROUNDS: Final = 5
CACHE_BYTES: Final = 1024**3
OWNER: Final = (os.geteuid(), os.getegid())


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was asked of the server meanwhile."""

    requests: Counter[str]
    """By method; a listing is ``LIST``."""
    answered_bytes: int
    seconds: float

    @property
    def count(self) -> int:
        return self.requests.total()

    def shown(self) -> str:
        """The requests by method."""
        return ", ".join(f"{count} {method}" for method, count in sorted(self.requests.items())) or "none"


class Bucket:
    """A store at a server, and what it is asked."""

    def __init__(self, server: S3Server, proxy: FaultyProxy, root: Path) -> None:
        self._server = server
        self._proxy = proxy
        self._root = root
        self._numbers = itertools.count()
        self._last: Traffic | None = None
        self.url = f"s3://{BUCKET}/bench"

    def store(self, node: str) -> PackBlobStore:
        """Open the store on a node, with the node's cache."""
        cache = BlobCache(self._root / "cache" / node, CACHE_BYTES)
        return PackBlobStore(self.url, options=self._server.options(self._proxy.endpoint), cache=cache)

    def new_node(self) -> str:
        """Return the name of a node that has nothing."""
        return f"node{next(self._numbers)}"

    def layer(self, node: str, blobs: PackBlobStore, ref: TreeRef | None) -> Layer:
        """Open the workspace on a node."""
        return open_layer(LayerSpec("w", self._root / "layers" / node, ref, 1, 1), blobs, SystemClock())[0]

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count requests, for `traffic`."""
        before = len(self._proxy.exchanges)
        start = time.perf_counter()
        yield
        took = time.perf_counter() - start
        found = self._proxy.exchanges[before:]
        methods = Counter("LIST" if "list-type" in item.path else item.method for item in found)
        self._last = Traffic(methods, sum(item.answered_bytes for item in found if item.method == "GET"), took)

    @property
    def traffic(self) -> Traffic:
        """What the last `counted` saw."""
        assert self._last is not None
        return self._last

    def add_strangers(self, count: int) -> None:
        """Put packs of others."""
        rnd = random.Random(count)
        with PackBlobStoreGroup(self, 4) as stores, ThreadPoolExecutor(4) as pool:
            datas = [rnd.randbytes(500) for _ in range(count)]
            list(pool.map(lambda item: stores[item[0] % 4].put({blob_id(item[1]): item[1]}), enumerate(datas)))


class PackBlobStoreGroup(ExitStack):
    """Several openings of one store, past the proxy's count."""

    def __init__(self, bucket: Bucket, count: int) -> None:
        super().__init__()
        self._stores = [PackBlobStore(bucket.url, options=bucket._server.options(), cache=None) for _ in range(count)]

    def __enter__(self) -> list[PackBlobStore]:  # type: ignore[override]
        super().__enter__()
        for store in self._stores:
            self.callback(store.close)
        return self._stores


def run() -> list[Row]:
    """Return the figures; takes a minute and a half, most of it to make the turns and the packs."""
    with tempfile.TemporaryDirectory(prefix="chronicle-bench-") as folder, ExitStack() as stack:
        root = Path(folder)
        server = stack.enter_context(running_s3(root / "s3"))
        proxy = stack.enter_context(running_proxy(server.port))
        bucket = Bucket(server, proxy, root)
        bucket.add_strangers(FEW)
        ref, turns = _made(bucket)
        few = [_opened(bucket, ref) for _ in range(ROUNDS)]
        bucket.add_strangers(MANY - FEW)
        many = [_opened(bucket, ref) for _ in range(ROUNDS)]
        return [*_turn_rows(turns), *_open_rows(few, many), *_work_rows(bucket, ref)]


def row(name: str, value: float, unit: str, target: str, floor: str) -> Row:
    """One figure."""
    return {"name": name, "value": value, "unit": unit, "target": target, "floor": floor}


def _made(bucket: Bucket) -> tuple[TreeRef, list[Traffic]]:
    """Make the workspace, turn by turn; return its last commit, and what a few of the turns asked for.

    Of those, the last wrote nothing.
    """
    rnd = random.Random(1)
    blobs = bucket.store("maker")
    layer = bucket.layer("maker", blobs, None)
    root = layer.resolve(b"")
    assert isinstance(root, DirNode)
    for number in range(DIRECTORIES):
        parent = layer.make(root, b"dir%03d" % number, 0o40755, *OWNER)
        assert isinstance(parent, DirNode)
        for file in range(FILES // DIRECTORIES):
            _write(layer, parent, b"file%03d" % file, rnd.randbytes(FILE_BYTES))
    layer.adopt(layer.seal())
    turns = []
    for turn in range(2, TURNS + 1):
        layer.begin_turn(turn)
        for _ in range(WRITTEN):
            _rewrite(layer, b"dir%03d/file%03d" % (rnd.randrange(DIRECTORIES), rnd.randrange(100)), rnd.randbytes(500))
        with bucket.counted():
            ref = layer.seal()
            layer.adopt(ref)
        turns.append(bucket.traffic)
    layer.begin_turn(TURNS + 1)
    with bucket.counted():
        layer.adopt(layer.seal())
    turns.append(bucket.traffic)
    layer.close()
    blobs.close()
    return ref, turns


def _opened(bucket: Bucket, ref: TreeRef) -> Traffic:
    """Open the workspace on a new node, as far as it is before the first token."""
    node = bucket.new_node()
    with bucket.counted():
        host, server = bucket.store(node), bucket.store(node)
        layer = bucket.layer(node, server, ref)
        assert layer.resolve(b"") is not None
    layer.close()
    for store in (host, server):
        store.close()
    return bucket.traffic


def _turn_rows(turns: list[Traffic]) -> list[Row]:
    *writing, idle = turns
    puts = [turn.requests["PUT"] for turn in writing]
    lists = sum(turn.requests["LIST"] for turn in writing)
    all_of = statistics.mean(turn.count for turn in writing)
    return [
        row(
            f"PUTs of a turn that writes {WRITTEN} files, mean", statistics.mean(puts), "", "<= 2", f"{len(puts)} turns"
        ),
        row("the most PUTs of one of them", max(puts), "", "", writing[puts.index(max(puts))].shown()),
        row("all requests of such a turn, mean", all_of, "", "", f"{lists} LISTs in all of them"),
        row("requests of a turn that writes nothing", idle.count, "", "<= 0", idle.shown()),
    ]


def _open_rows(few: list[Traffic], many: list[Traffic]) -> list[Row]:
    fraction = max(traffic.answered_bytes for traffic in many) / TREE_BYTES * 100
    ratio = many[0].seconds / statistics.median(traffic.seconds for traffic in few[1:])
    of = f"of {TREE_BYTES / 1024**2:.0f} MiB"
    return [
        row(f"requests before the first token, {FEW} packs of others", few[0].count, "", "<= 4", few[0].shown()),
        row(f"the same, {MANY} packs of others", many[0].count, "", "<= 4", many[0].shown()),
        row("LISTs of it", many[0].requests["LIST"], "", "<= 0", ""),
        row("bytes fetched for it", fraction, "% of the tree", "<= 1", f"{many[0].answered_bytes / 1024:.0f} KiB {of}"),
        row("open a workspace, many packs against few", ratio, "x", "<= 1.2", f"{many[0].seconds * 1000:.0f} ms"),
    ]


def _work_rows(bucket: Bucket, ref: TreeRef) -> list[Row]:
    """Read and write on a node that has nothing of the workspace."""
    node = bucket.new_node()
    blobs = bucket.store(node)
    layer = bucket.layer(node, blobs, ref)
    found = []
    with bucket.counted():
        directory = layer.resolve(b"dir050")
        assert isinstance(directory, DirNode)
        assert len(list(layer.entries(directory))) == FILES // DIRECTORIES
    found.append(("list a directory of 100 files there", bucket.traffic))
    with bucket.counted():
        for number in range(10):
            _read(layer, b"dir050/file%03d" % number)
    found.append(("read ten of its files", bucket.traffic))
    with bucket.counted():
        for number in range(10):
            _read(layer, b"dir%03d/file050" % number)
    found.append(("read a file of each of ten other directories", bucket.traffic))
    layer.begin_turn(TURNS + 1)
    for number in range(WRITTEN):
        _rewrite(layer, b"dir050/file%03d" % number, b"new")
    with bucket.counted():
        layer.adopt(layer.seal())
    commit = bucket.traffic
    layer.close()
    blobs.close()
    return [
        *(row(what, traffic.count, "requests", "", _detailed(traffic)) for what, traffic in found),
        row("PUTs of the first turn there", commit.requests["PUT"], "", "<= 2", commit.shown()),
        row("LISTs of it", commit.requests["LIST"], "", "<= 0", ""),
    ]


def _detailed(traffic: Traffic) -> str:
    return f"{traffic.shown()}; {traffic.answered_bytes / 1024:.0f} KiB; {traffic.seconds * 1000:.0f} ms"


def _write(layer: Layer, parent: DirNode, name: bytes, data: bytes) -> None:
    handle = layer.create(parent, name, 0o644, *OWNER)
    layer.write(handle, 0, data)
    layer.flush(handle)
    layer.release(handle)


def _rewrite(layer: Layer, path: bytes, data: bytes) -> None:
    node = layer.resolve(path)
    assert isinstance(node, FileNode)
    handle = layer.open(node, truncate=True)
    layer.write(handle, 0, data)
    layer.flush(handle)
    layer.release(handle)


def _read(layer: Layer, path: bytes) -> None:
    node = layer.resolve(path)
    assert isinstance(node, FileNode)
    handle = layer.open(node)
    assert layer.read(handle, 0, FILE_BYTES)
    layer.release(handle)
