"""Closing a large file of which 4 KiB were written costs about that: counted in bytes, and not in time.

What the mount's server read and wrote is in ``/proc/<pid>/io``, what is on disk in the blocks that files take. The file
is of random bytes, so that nothing in it is a hole, compresses, or is there twice.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chronicle.fuse.mountpoints import availability, mounts
from chronicle.fuse.server.client import FuseWorkspace, open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.fuse.conftest import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.fuse.mountpoints.availability import Transport

KIB, MIB = 1024, 1024 * 1024
WRITTEN = 4 * KIB
ABOUT = 64 * KIB
"""The bytes, what they replace, a record of each in the log, and what the kernel is told: some 20 KiB."""
CHUNKS = MIB
"""A few chunks: those around the change, or in which what is replaced lies."""
PIECE = 16 * MIB


@dataclass(frozen=True)
class Spent:
    """Bytes."""

    read: int
    written: int
    dirtied: int
    """Of the disk's pages, by the server."""
    on_disk: int
    """In the node's layers."""
    stored: int
    """In the blob store."""

    def __sub__(self, other: Spent) -> Spent:
        return Spent(
            self.read - other.read,
            self.written - other.written,
            self.dirtied - other.dirtied,
            self.on_disk - other.on_disk,
            self.stored - other.stored,
        )


class Node:
    """A node with a workspace mounted, and a blob store that it shares with others."""

    def __init__(self, directory: Path, blobs: Path, base: TreeRef | None, transport: Transport) -> None:
        self.layers, self.blobs, self.transport = directory / "layers", blobs, transport
        self.socket = directory / "zygote.sock"
        launcher.start(
            self.socket, directory / "mounts", directory / "log", os.getpid(), transport=transport, few_mounts=True
        )
        spec = LayerSpec("w", self.layers, base, 1, 1)
        opened = open_fuse_workspace(self.socket, spec, blobs.as_uri(), directory / "mounts" / "w")
        assert isinstance(opened.workspace, FuseWorkspace)
        self.workspace = opened.workspace
        self.file = self.workspace.root / "large"

    def end(self) -> None:
        self.workspace.close()
        launcher.shut_down(self.socket)
        mounts.unmount_all_under(self.socket.parent)

    def spent(self) -> Spent:
        """Return what was spent since the mount began."""
        self.workspace.begin_turn(1)  # when it is answered, what was asked of the server before is done
        (mount,) = served(self.socket)
        lines = Path(f"/proc/{mount['pid']}/io").read_text().splitlines()
        io = {name: int(value) for name, value in (line.split(": ") for line in lines)}
        return Spent(io["rchar"], io["wchar"], io["write_bytes"], blocks_below(self.layers), blocks_below(self.blobs))

    def write(self, offset: int, data: bytes) -> Spent:
        """Open, write and close; return what that cost."""
        before = self.spent()
        fd = os.open(self.file, os.O_WRONLY)
        assert os.pwrite(fd, data, offset) == len(data)
        os.close(fd)
        return self.spent() - before

    def commit(self) -> tuple[TreeRef, Spent]:
        before = self.spent()
        ref = self.workspace.seal()
        spent = self.spent() - before
        self.workspace.adopt(ref)
        return ref, spent

    def version(self, number: int, offset: int, size: int) -> bytes:
        fd = os.open(self.workspace.root / ".chronicle" / "at" / str(number) / "large", os.O_RDONLY)
        try:
            return os.pread(fd, size, offset)
        finally:
            os.close(fd)


def blocks_below(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def piece(number: int) -> bytes:
    return random.Random(number).randbytes(PIECE)


LARGER = [
    pytest.param((1024 * MIB, name), id=f"1GiB-{name}", marks=pytest.mark.slow) for name in availability.TRANSPORTS
]


@pytest.fixture(params=[pytest.param((64 * MIB, availability.DEFAULT_TRANSPORT), id="64MiB"), *LARGER])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    """A node on which the file was written, and a commit that has it."""
    size, transport = request.param
    node = Node(tmp_path / "here", tmp_path / "blobs", None, transport)
    try:
        with node.file.open("wb", buffering=0) as file:
            for number in range(size // PIECE):
                assert file.write(piece(number)) == PIECE
        assert blocks_below(node.layers) >= size
        _, spent = node.commit()
        assert spent.stored >= size, "nothing of it compresses"
        yield node
    finally:
        node.end()


def change_and_commit(node: Node, first: int) -> None:
    """Change a few bytes in the middle of the file, twice, and commit it; see what that costs and what it makes.

    Args:
        node: which one.
        first: the number of the version that is there.
    """
    place = PIECE + 12_345  # in no block's beginning
    old = piece(1)[12_345 : 12_345 + 2 * WRITTEN]
    once, again = random.Random(first).randbytes(WRITTEN), random.Random(-first).randbytes(WRITTEN)
    if first > 1:
        old = node.version(first, place, 2 * WRITTEN)

    spent = node.write(place, once)
    assert spent.written <= ABOUT, spent
    assert spent.dirtied <= ABOUT, spent
    assert spent.on_disk <= ABOUT, spent
    assert spent.read <= ABOUT, f"nothing is fetched: {spent}"
    assert spent.stored == 0, spent

    spent = node.write(place + KIB, again)  # what it replaces is of a version
    assert spent.written <= ABOUT, spent
    assert spent.dirtied <= ABOUT, spent
    assert spent.on_disk <= ABOUT, spent
    assert spent.read <= CHUNKS, f"a chunk or two are fetched: {spent}"
    assert spent.stored == 0, spent

    _, spent = node.commit()
    assert 2 * WRITTEN <= spent.stored <= CHUNKS, spent

    changed = once[:KIB] + again + old[KIB + WRITTEN :]
    assert node.version(first, place, 2 * WRITTEN) == old
    assert node.version(first + 1, place, 2 * WRITTEN) == once + old[WRITTEN:]
    assert node.version(first + 2, place, 2 * WRITTEN) == changed
    with node.file.open("rb") as file:
        file.seek(place)
        assert file.read(2 * WRITTEN) == changed


@pytest.mark.timeout(1200)  # 1 GiB is written, sealed and read
def test_a_close_costs_what_was_written(here: Node, tmp_path: Path) -> None:
    """On the node where the file was made, and on one that has nothing of it."""
    size = here.file.stat().st_size
    change_and_commit(here, 1)
    elsewhere = Node(tmp_path / "elsewhere", here.blobs, here.workspace.base, here.transport)
    try:
        assert elsewhere.file.stat().st_size == size
        change_and_commit(elsewhere, 3)
        assert blocks_below(elsewhere.layers) <= ABOUT, "the content is in the store, and not here"
        last = size // PIECE - 1
        with elsewhere.file.open("rb") as file:
            file.seek(last * PIECE)
            assert file.read() == piece(last)
    finally:
        elsewhere.end()
